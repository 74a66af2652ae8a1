#!/usr/bin/env python3
"""Write a GGUF in the shape of a published mixture-of-experts model, with random weights or none.

    make_shape.py VOCABULARY.gguf OUT.gguf deepseek-v3 --layers 2 --dense 1
    make_shape.py VOCABULARY.gguf OUT.gguf deepseek-v3 --sparse

The vocabulary is that of another GGUF file. `--layers` takes a slice of the model, `--sparse` writes the header
alone and leaves the weights a hole in the file, which takes no disk space: enough for `adit plan`.
Needs the Python packages gguf and numpy.
"""
import argparse
import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from make_dense import BLOCKS, copy_vocabulary, random_blocks

# Numbers from the models' config.json. `experts`: count, used, inner width, shared inner width.
SHAPES = {
    "deepseek-v2-lite": dict(arch="deepseek2", layers=27, dense=1, width=2048, heads=16, ff=10944,
                             experts=(64, 6, 1408, 2816), latent=512, rotated=64, head=192, value=128,
                             query_rank=0, gating=1, vocabulary=102400),
    "deepseek-v3": dict(arch="deepseek2", layers=61, dense=3, width=7168, heads=128, ff=18432,
                        experts=(256, 8, 2048, 2048), latent=512, rotated=64, head=192, value=128,
                        query_rank=1536, gating=2, groups=(8, 4), vocabulary=129280),
    "kimi-k2": dict(arch="deepseek2", layers=61, dense=1, width=7168, heads=64, ff=18432,
                    experts=(384, 8, 2048, 2048), latent=512, rotated=64, head=192, value=128,
                    query_rank=1536, gating=2, vocabulary=163840),
    "qwen3-235b": dict(arch="qwen3moe", layers=94, dense=0, width=4096, heads=64, kv=4, head=128,
                       experts=(128, 8, 1536, 0), vocabulary=151936),
    "glm-4.5": dict(arch="glm4moe", layers=92, dense=3, width=5120, heads=96, kv=8, head=128, ff=12288,
                    experts=(160, 8, 1536, 1536), gating=2, bias=True, turned=64, vocabulary=151552),
    "gpt-oss-120b": dict(arch="gpt-oss", layers=36, dense=0, width=2880, heads=64, kv=8, head=64,
                         experts=(128, 4, 2880, 0), window=128, vocabulary=201088),
    "qwen3-next-80b": dict(arch="qwen3next", layers=48, dense=0, width=2048, heads=16, kv=2, head=256,
                           experts=(512, 10, 512, 512), turned=64, vocabulary=151936,
                           linear=dict(key_heads=16, value_heads=32, head=128, kernel=4)),
}


class Tensors:
    """Names, shapes and formats in file order."""

    def __init__(self, kind):
        self.list, self.kind = [], kind

    def norm(self, name, *shape):
        self.list.append((name, shape, "F32", None))

    def floats(self, name, *shape, deviation):
        self.list.append((name, shape, "F32", deviation))

    def matrix(self, name, *shape, kind=None, gain=1.0):
        """The kind asked for, or one with shorter blocks where rows are not a multiple of its blocks."""
        kind = kind or self.kind
        if shape[-1] % BLOCKS[kind][0]:
            kind = "Q8_0" if kind == "Q6_K" else "Q4_0"
        self.list.append((name, shape, kind, gain * shape[-1] ** -0.5))


def attention(tensors, s, block):
    width, heads = s["width"], s["heads"]
    if "latent" in s:
        query, stored = heads * s["head"], s["latent"] + s["rotated"]
        if s["query_rank"]:
            tensors.matrix(block + "attn_q_a.weight", s["query_rank"], width)
            tensors.norm(block + "attn_q_a_norm.weight", s["query_rank"])
            tensors.matrix(block + "attn_q_b.weight", query, s["query_rank"])
        else:
            tensors.matrix(block + "attn_q.weight", query, width)
        tensors.matrix(block + "attn_kv_a_mqa.weight", stored, width)
        tensors.norm(block + "attn_kv_a_norm.weight", s["latent"])
        tensors.matrix(block + "attn_k_b.weight", heads, s["latent"], s["head"] - s["rotated"], kind="Q8_0")
        tensors.matrix(block + "attn_v_b.weight", heads, s["value"], s["latent"], kind="Q8_0")
        tensors.matrix(block + "attn_output.weight", width, heads * s["value"])
        return
    query, key = heads * s["head"], s["kv"] * s["head"]
    gated = 2 if "linear" in s else 1
    for name, rows in [("attn_q", gated * query), ("attn_k", key), ("attn_v", key)]:
        tensors.matrix(block + name + ".weight", rows, width)
        if s.get("bias") or s["arch"] == "gpt-oss":
            tensors.floats(block + name + ".bias", rows, deviation=0.1)
    tensors.matrix(block + "attn_output.weight", width, query)
    if s["arch"] == "gpt-oss":
        tensors.floats(block + "attn_output.bias", width, deviation=0.1)
        tensors.floats(block + "attn_sinks.weight", heads, deviation=1.0)
    else:
        tensors.norm(block + "attn_q_norm.weight", s["head"])
        tensors.norm(block + "attn_k_norm.weight", s["head"])


def delta_net(tensors, s, block):
    width, linear = s["width"], s["linear"]
    keys, values = linear["key_heads"] * linear["head"], linear["value_heads"] * linear["head"]
    tensors.matrix(block + "attn_qkv.weight", 2 * keys + values, width)
    tensors.matrix(block + "attn_gate.weight", values, width)
    tensors.floats(block + "ssm_conv1d.weight", 2 * keys + values, linear["kernel"], deviation=0.3)
    tensors.floats(block + "ssm_dt.bias", linear["value_heads"], deviation=0.1)
    tensors.floats(block + "ssm_a", linear["value_heads"], deviation=-1.0)
    tensors.matrix(block + "ssm_ba.weight", 2 * linear["value_heads"], width)
    tensors.norm(block + "ssm_norm.weight", linear["head"])
    tensors.matrix(block + "ssm_out.weight", width, values)


def feed_forward(tensors, s, block, dense):
    width, (count, _, inner, shared) = s["width"], s["experts"]
    if dense:
        tensors.matrix(block + "ffn_gate.weight", s["ff"], width)
        tensors.matrix(block + "ffn_up.weight", s["ff"], width)
        tensors.matrix(block + "ffn_down.weight", width, s["ff"])
        return
    tensors.floats(block + "ffn_gate_inp.weight", count, width, deviation=0.05)
    kind = "MXFP4" if s["arch"] == "gpt-oss" else None
    for name, rows, cols in [("gate", inner, width), ("up", inner, width), ("down", width, inner)]:
        tensors.matrix(f"{block}ffn_{name}_exps.weight", count, rows, cols, kind=kind)
        if s["arch"] == "gpt-oss":
            tensors.floats(f"{block}ffn_{name}_exps.bias", count, rows, deviation=0.1)
    if s["arch"] == "gpt-oss":
        tensors.floats(block + "ffn_gate_inp.bias", count, deviation=0.1)
    if s.get("gating") == 2:
        tensors.floats(block + "exp_probs_b.bias", count, deviation=0.01)
    if shared:
        for name, rows, cols in [("gate", shared, width), ("up", shared, width), ("down", width, shared)]:
            tensors.matrix(f"{block}ffn_{name}_shexp.weight", rows, cols)
    if s["arch"] == "qwen3next":
        tensors.floats(block + "ffn_gate_inp_shexp.weight", width, deviation=0.05)


def tensors_of(s, vocabulary, kind):
    tensors, width = Tensors(kind), s["width"]
    tensors.matrix("token_embd.weight", vocabulary, width, gain=width ** 0.5)
    for layer in range(s["layers"]):
        block = f"blk.{layer}."
        tensors.norm(block + "attn_norm.weight", width)
        if "linear" in s and (layer + 1) % 4:
            delta_net(tensors, s, block)
        else:
            attention(tensors, s, block)
        named_after_attention = s["arch"] in ("glm4moe", "gpt-oss", "qwen3next")
        norm = "post_attention_norm" if named_after_attention else "ffn_norm"
        tensors.norm(f"{block}{norm}.weight", width)
        feed_forward(tensors, s, block, layer < s["dense"])
    tensors.norm("output_norm.weight", width)
    tensors.matrix("output.weight", vocabulary, width, kind="Q6_K")
    return tensors.list


def describe(writer, s):
    writer.add_block_count(s["layers"])
    writer.add_context_length(131072)
    writer.add_embedding_length(s["width"])
    writer.add_feed_forward_length(s.get("ff", s["experts"][2]))
    writer.add_head_count(s["heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    count, used, inner, shared = s["experts"]
    writer.add_expert_count(count)
    writer.add_expert_used_count(used)
    writer.add_expert_feed_forward_length(inner)
    if "gating" in s:
        writer.add_leading_dense_block_count(s["dense"])
        writer.add_expert_shared_count(shared // inner)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType(s["gating"]))
        writer.add_expert_weights_norm(s["gating"] == 2)
        writer.add_expert_weights_scale(2.5 if s["gating"] == 2 else 1.0)
    if "groups" in s:
        writer.add_expert_group_count(s["groups"][0])
        writer.add_expert_group_used_count(s["groups"][1])
    if "latent" in s:
        writer.add_head_count_kv(1)
        writer.add_kv_lora_rank(s["latent"])
        writer.add_q_lora_rank(s["query_rank"])
        writer.add_key_length(s["latent"] + s["rotated"])
        writer.add_value_length(s["latent"])
        writer.add_key_length_mla(s["head"])
        writer.add_value_length_mla(s["value"])
        writer.add_rope_dimension_count(s["rotated"])
        return
    writer.add_head_count_kv(s["kv"])
    writer.add_key_length(s["head"])
    writer.add_value_length(s["head"])
    writer.add_rope_dimension_count(s.get("turned", s["head"]))
    if "window" in s:
        writer.add_sliding_window(s["window"])
    if "linear" in s:
        linear = s["linear"]
        writer.add_expert_shared_feed_forward_length(shared)
        writer.add_ssm_conv_kernel(linear["kernel"])
        writer.add_ssm_state_size(linear["head"])
        writer.add_ssm_group_count(linear["key_heads"])
        writer.add_ssm_time_step_rank(linear["value_heads"])
        writer.add_ssm_inner_size(linear["value_heads"] * linear["head"])


def write(file, rng, pool, shape, kind, deviation):
    weights = int(np.prod(shape))
    if kind == "F32":
        if deviation is None:
            values = np.ones(weights)
        else:
            values = rng.standard_normal(weights) * abs(deviation)
            values = -np.abs(values) if deviation < 0 else values
        file.write(values.astype("<f4").tobytes())
        return
    # Blocks are drawn once for each format and deviation; the file takes them from random places on.
    length, size, _ = BLOCKS[kind]
    blocks = pool.setdefault((kind, deviation), None)
    if blocks is None:
        blocks = pool[(kind, deviation)] = random_blocks(rng, kind, 60_013, deviation)
    left = weights // length
    while left:
        start = int(rng.integers(0, len(blocks) // 2))
        part = blocks[start : start + left]
        file.write(part.tobytes())
        left -= len(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary")
    parser.add_argument("out")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--layers", type=int, help="all")
    parser.add_argument("--dense", type=int, help="layers at the start without experts")
    parser.add_argument("--kind", choices=BLOCKS, default="Q4_K")
    parser.add_argument("--sparse", action="store_true")
    options = parser.parse_args()
    shape = dict(SHAPES[options.shape])
    shape["layers"] = options.layers or shape["layers"]
    shape["dense"] = shape["dense"] if options.dense is None else options.dense

    writer = gguf.GGUFWriter(options.out, shape["arch"])
    vocabulary = copy_vocabulary(gguf.GGUFReader(options.vocabulary), writer)
    if options.sparse:
        vocabulary = shape["vocabulary"]
    writer.add_name(f"random {options.shape}")
    writer.add_vocab_size(vocabulary)
    describe(writer, shape)
    tensors = tensors_of(shape, vocabulary, options.kind)
    total = 0
    for name, dims, kind, _ in tensors:
        weights = int(np.prod(dims))
        size = weights * 4 if kind == "F32" else weights // BLOCKS[kind][0] * BLOCKS[kind][1]
        writer.add_tensor_info(name, dims, np.float32, size, raw_dtype=Type[kind])
        total += -(-size // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = writer.fout[0]
    pad = lambda: file.write(b"\0" * (-file.tell() % 32))
    pad()
    if options.sparse:
        file.truncate(file.tell() + total)
        file.close()
        return
    rng, pool = np.random.default_rng(3), {}
    for name, dims, kind, deviation in tensors:
        write(file, rng, pool, dims, kind, deviation)
        pad()
    file.close()


if __name__ == "__main__":
    main()
