#!/usr/bin/env python3
"""Write a dense llama GGUF of 1B shape with random weights, every matrix in one format, for speed work.

    make_dense.py VOCABULARY.gguf OUT.gguf --format Q4_0

The vocabulary is that of another GGUF file; the embedding is also the output matrix. Weights are random
blocks whose scales give them the deviation of an untrained model, so products neither vanish nor overflow.
Needs the Python packages gguf and numpy.
"""
import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

# Weights of a block, its bytes, and the deviation of a weight whose float scale is 1.
BLOCKS = {
    "Q4_0": (32, 18, 4.6),
    "Q8_0": (32, 34, 74.0),
    "Q4_K": (256, 144, 200.0),
    "Q6_K": (256, 210, 700.0),
    "IQ4_XS": (256, 136, 1300.0),
    "MXFP4": (32, 17, 3.0),
}
# Weights written at once: whole blocks of every format.
CHUNK = 1 << 24


def halves(values):
    """The bytes of float16 numbers, two a row."""
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def random_blocks(rng, kind, count, deviation):
    """`count` blocks as rows of bytes."""
    length, size, unit = BLOCKS[kind]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == "MXFP4":
        # The scale is a power of two: the nearest, or a binade more or less.
        nearest = 127 + round(np.log2(deviation / unit))
        blocks[:, 0] = rng.integers(nearest - 1, nearest + 2, count, dtype=np.uint8)
        return blocks
    scale = deviation / unit * rng.uniform(0.5, 1.5, count)
    if kind == "Q6_K":
        blocks[:, 192:208] = rng.integers(16, 64, (count, 16), dtype=np.uint8)
        blocks[:, 208:] = halves(scale)
    else:
        blocks[:, :2] = halves(scale)
    if kind == "Q4_K":
        # The minima centre the codes 0 to 15, for scales and minima of like size.
        blocks[:, 2:4] = halves(scale * 7.5)
    return blocks


def write_matrix(file, rng, kind, weights, deviation):
    length = BLOCKS[kind][0]
    for start in range(0, weights, CHUNK):
        count = min(CHUNK, weights - start) // length
        file.write(random_blocks(rng, kind, count, deviation).tobytes())


def copy_vocabulary(reader, writer):
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        text = lambda index: bytes(field.parts[index]).decode()
        if kind == Value.ARRAY:
            inner = field.types[-1]
            one = text if inner == Value.STRING else lambda index: field.parts[index][0].item()
            writer.add_key_value(name, [one(index) for index in field.data], kind, sub_type=inner)
        else:
            value = text(field.data[0]) if kind == Value.STRING else field.parts[field.data[0]][0].item()
            writer.add_key_value(name, value, kind)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def shapes(options, vocabulary):
    """Name, rows and columns of each tensor in file order; one dimension for a norm."""
    width, kv_width = options.embd, options.embd // options.heads * options.kv
    yield "token_embd.weight", (vocabulary, width)
    yield "output_norm.weight", (width,)
    for layer in range(options.layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (width,)
        yield block + "attn_q.weight", (width, width)
        yield block + "attn_k.weight", (kv_width, width)
        yield block + "attn_v.weight", (kv_width, width)
        yield block + "attn_output.weight", (width, width)
        yield block + "ffn_norm.weight", (width,)
        yield block + "ffn_gate.weight", (options.ff, width)
        yield block + "ffn_up.weight", (options.ff, width)
        yield block + "ffn_down.weight", (width, options.ff)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary")
    parser.add_argument("out")
    parser.add_argument("--format", choices=BLOCKS, default="Q4_0")
    for name, default in dict(layers=16, embd=2048, ff=8192, heads=32, kv=8).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()

    writer = gguf.GGUFWriter(options.out, "llama")
    vocabulary = copy_vocabulary(gguf.GGUFReader(options.vocabulary), writer)
    writer.add_name(f"random-{options.format}")
    writer.add_vocab_size(vocabulary)
    writer.add_block_count(options.layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(options.embd)
    writer.add_feed_forward_length(options.ff)
    writer.add_head_count(options.heads)
    writer.add_head_count_kv(options.kv)
    writer.add_rope_dimension_count(options.embd // options.heads)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)

    length, size, _ = BLOCKS[options.format]
    tensors = list(shapes(options, vocabulary))
    for name, shape in tensors:
        weights = int(np.prod(shape))
        norm = len(shape) == 1
        size_bytes = weights * 4 if norm else weights // length * size
        kind = Type.F32 if norm else Type[options.format]
        writer.add_tensor_info(name, shape, np.float32, size_bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()

    rng = np.random.default_rng(3)
    file = writer.fout[0]
    pad = lambda: file.write(b"\0" * (-file.tell() % 32))
    pad()
    for name, shape in tensors:
        if len(shape) == 1:
            file.write(np.ones(shape, "<f4").tobytes())
        else:
            deviation = 1.0 if name.startswith("token_embd") else shape[1] ** -0.5
            write_matrix(file, rng, options.format, int(np.prod(shape)), deviation)
        pad()
    file.close()


if __name__ == "__main__":
    main()
