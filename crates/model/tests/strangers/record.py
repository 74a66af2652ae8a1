#!/usr/bin/env python3
"""Records llama.cpp's tiny random models and its logits of them and of ours: makes files.txt and golden/ anew.

Usage: record.py GOLDEN TEST_LLAMA_ARCHS strangers|zoo [FAMILY...]

TEST_LLAMA_ARCHS is llama.cpp's test program of that name (PyPI source package llama-cpp-python 0.3.36,
vendor/llama.cpp, configured with -DLLAMA_BUILD_TESTS=ON); it writes a model of each family from a seed.
GOLDEN is a program `golden MODEL "1,7,33" OUT.f32 [N_BATCH]` that writes one row of float32 logits a token
with llama.cpp's public API (F32 keys and values, no flash attention). Build the ggml-cpu that it runs on
with `GGML_GELU_FP16` and `GGML_GELU_QUICK_FP16` removed from ggml/src/ggml-cpu/vec.h: the f16 table that
they look GELU up in is off by more than these tests allow.

files.txt holds what the three seeds share, the header of each file, and per seed the first 16 hex digits of
the whole file's SHA-256. The data are drawn anew by normal.rs. A family is left out where its logits are
no numbers, or depend on how tokens are batched (it is then no causal language model).

golden/FAMILY.bin, little-endian, for each seed and in it each prompt: for each position the best token as
u16, bit 15 set where the second best is nearly tied with it; the second best of each such position as
u16; then for each kept row its least and greatest logit as f32 and a 24-bit code for each token, from
0 for the least to 2^24 - 1 for the greatest. golden/zoo/MODEL-TYPE.bin is the same for our own tiny
models, which the example `synth` of crates/format writes: the seed as u32, the first with which the
reference agrees with itself, and then what that seed's prompts give.
"""
import array, hashlib, json, os, re, struct, subprocess, sys, tempfile

SEEDS = [1, 2, 3]
# Lengths of the prompts, and the rows of each that are kept. The windows of these files are 32 long.
PROMPTS = [(7, [0, 6]), (40, [20, 39]), (70, [34, 69])]
TIED = 1e-4
# Neither is a language model: tokens are sounds.
LEFT_OUT = ["qwen3tts-dense", "pockettts-dense"]
# The types of matrices of our own models, and how far the reference may be from itself: an activation in the
# middle between two codes falls to either side, and with it an expert may be picked or not.
DISAGREEMENT = {"F32": 2e-5, "Q8_0": 1.2e-2, "Q4_K": 1.2e-2}
ZOO_VOCABULARY = 128
TYPES = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "array", "u64", "i64", "f64"]
FORMATS = dict(zip(TYPES, "B b H h I i f ?".split())) | {"u64": "Q", "i64": "q", "f64": "d"}
HERE = os.path.dirname(os.path.abspath(__file__))


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, kind):
        if kind == "str":
            length = self.take("u64")
            self.at += length
            return self.data[self.at - length:self.at].decode()
        form = "<" + FORMATS[kind]
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value


def shown(kind, value):
    if kind == "f32":
        # The shortest decimal that reads as the same float.
        return next(text for digits in range(1, 10) if struct.pack("<f", float(text := f"{value:.{digits}g}"))
                    == struct.pack("<f", value))
    if kind == "bool":
        return str(value).lower()
    if kind == "str":
        assert value and not re.search(r"[\s*#]", value), value
        return value
    return str(value)


def shown_list(kind, values):
    """Runs of equal values as VALUE*LENGTH; a counter in a run of strings as #."""
    texts = [shown(kind, value) for value in values]
    if kind == "str" and texts == [f"tok_{index}" for index in range(len(texts))]:
        return f"tok_#*{len(texts)}"
    runs = []
    for text in texts:
        if runs and runs[-1][0] == text:
            runs[-1][1] += 1
        else:
            runs.append([text, 1])
    return " ".join(text if count == 1 else f"{text}*{count}" for text, count in runs)


def header_lines(path):
    """The header of a file as lines of text, its architecture as @, and the architecture."""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    assert reader.data[:4] == b"GGUF" and struct.unpack_from("<I", reader.data, 4)[0] == 3
    reader.at = 8
    tensors, pairs = reader.take("u64"), reader.take("u64")
    lines, architecture = [], None
    for _ in range(pairs):
        key, kind = reader.take("str"), TYPES[reader.take("u32")]
        if kind == "array":
            kind = TYPES[reader.take("u32")]
            count = reader.take("u64")
            text = f"[{kind}] " + shown_list(kind, [reader.take(kind) for _ in range(count)])
        else:
            text = f"{kind} {shown(kind, reader.take(kind))}"
        if key == "general.architecture":
            architecture = text.split()[1]
            continue
        if key.startswith(architecture + "."):
            key = "@" + key[len(architecture):]
        lines.append(f"{key} {text}".rstrip())
    for _ in range(tensors):
        name, dims = reader.take("str"), reader.take("u32")
        shape = [reader.take("u64") for _ in range(dims)]
        assert reader.take("u32") == 0, f"{path}: {name} is not F32"
        reader.take("u64")
        lines.append(f"tensor {name} " + " ".join(map(str, shape)))
    return architecture, lines


def prompts(vocabulary):
    """As `prompts` in main.rs."""
    tokens = [(3 + (at * 37 + at * at * 11) % 240) % vocabulary for at in range(sum(n for n, _ in PROMPTS))]
    start = 0
    for length, rows in PROMPTS:
        yield tokens[start:start + length], rows
        start += length


def run_golden(golden, model, tokens, work, batch=512):
    out = os.path.join(work, "rows.f32")
    ids = ",".join(map(str, tokens))
    result = subprocess.run([golden, model, ids, out, str(batch)], capture_output=True, text=True)
    if result.returncode != 0:
        raise ValueError("the reference fails: " + result.stderr.strip()[-200:])
    with open(out, "rb") as file:
        logits = array.array("f", file.read())
    width = len(logits) // len(tokens)
    return [logits[at:at + width] for at in range(0, len(logits), width)]


def disagreement(golden, model, tokens, rows, work):
    """How far the reference is from itself in each of these rows, all tokens together against one by one, as a
    share of the range."""
    together, apart = run_golden(golden, model, tokens, work), run_golden(golden, model, tokens, work, 1)
    shares = []
    for many, one in ((together[row], apart[row]) for row in rows):
        if any(value != value for value in many):
            raise ValueError("logits are not numbers")
        shares.append(max(abs(a - b) for a, b in zip(many, one)) / ((max(many) - min(many)) or 1))
    return shares


def encode(logits, kept):
    best, seconds, rows = [], [], b""
    for row in logits:
        order = sorted(range(len(row)), key=row.__getitem__, reverse=True)
        least, greatest = row[order[-1]], row[order[0]]
        tied = row[order[0]] - row[order[1]] <= TIED * (greatest - least)
        best.append(order[0] | (0x8000 if tied else 0))
        if tied:
            seconds.append(order[1])
    for at in kept:
        row = logits[at]
        least, greatest = min(row), max(row)
        rows += struct.pack("<ff", least, greatest)
        scale = (2**24 - 1) / ((greatest - least) or 1)
        rows += b"".join(round((value - least) * scale).to_bytes(3, "little") for value in row)
    return struct.pack(f"<{len(best) + len(seconds)}H", *best, *seconds) + rows


def record(golden, model, vocabulary, work):
    """The golden bytes of one model."""
    return b"".join(encode(run_golden(golden, model, tokens, work), kept) for tokens, kept in prompts(vocabulary))


def write_golden(name, encoded):
    path = os.path.join(HERE, "golden", name + ".bin")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(encoded)


def write_files(headers, digests):
    """Lines that several files share are written once; a file is a list of runs of such lines."""
    numbers, table = {}, []
    for _, lines in headers.values():
        for line in lines:
            if line not in numbers:
                numbers[line] = len(table)
                table.append(line)
    with open(os.path.join(HERE, "files.txt"), "w") as out:
        out.write("# Headers of llama.cpp's tiny random models, made by record.py, which describes this.\n")
        out.writelines(line + "\n" for line in table)
        for family, (architecture, lines) in sorted(headers.items()):
            runs = []
            for number in (numbers[line] for line in lines):
                if runs and runs[-1][1] == number:
                    runs[-1][1] += 1
                else:
                    runs.append([number, number + 1])
            out.write(f"file {family} {architecture} {' '.join(digests[family])}\n")
            out.write("lines " + " ".join(f"{a}-{b}" if b > a + 1 else str(a) for a, b in runs) + "\n")


def record_strangers(golden, archs, only, work):
    for seed in SEEDS:
        os.mkdir(f"{work}/{seed}")
        subprocess.run([archs, "-o", f"{work}/{seed}/", "-s", str(seed)], check=True, capture_output=True)
    headers, digests = {}, {}
    for family in sorted(name[:-5] for name in os.listdir(f"{work}/1")):
        path = f"{work}/1/{family}.gguf"
        architecture, lines = header_lines(path)
        vocabulary = int(next(line for line in lines if line.startswith("@.vocab_size ")).split()[2])
        if family in LEFT_OUT:
            continue
        try:
            worst = max(disagreement(golden, path, list(prompts(vocabulary))[1][0], range(40), work))
            if worst > DISAGREEMENT["F32"]:
                raise ValueError(f"batched and one by one differ by {worst:.1e} of the range")
        except ValueError as why:
            print(f"{family} is left out: {why}")
            continue
        headers[family], digests[family] = (architecture, lines), []
        encoded = b""
        for seed in SEEDS:
            path = f"{work}/{seed}/{family}.gguf"
            assert header_lines(path) == headers[family], f"{path}: another header than with seed 1"
            with open(path, "rb") as file:
                digests[family].append(hashlib.sha256(file.read()).hexdigest()[:16])
            if not only or family in only:
                encoded += record(golden, path, vocabulary, work)
        if encoded:
            write_golden(family, encoded)
    write_files(headers, digests)


def record_zoo(golden, only, work):
    subprocess.run("cargo build -q -p adit-format --example synth".split(), cwd=HERE, check=True)
    metadata = subprocess.run("cargo metadata --format-version 1 --no-deps".split(), cwd=HERE, check=True,
                              capture_output=True)
    synth = json.loads(metadata.stdout)["target_directory"] + "/debug/examples/synth"
    models = subprocess.run([synth, "list"], check=True, capture_output=True, text=True).stdout.split()
    for model in models:
        if only and model not in only:
            continue
        for kind, bound in DISAGREEMENT.items():
            for seed in range(1, 30):
                path = f"{work}/model.gguf"
                subprocess.run([synth, model, kind, path, str(seed)], check=True)
                shares = sorted(share for tokens, kept in prompts(ZOO_VOCABULARY)
                                for share in disagreement(golden, path, tokens, kept, work))
                worst = shares[-1 if kind == "F32" else len(shares) // 2]
                if worst <= bound:
                    rows = record(golden, path, ZOO_VOCABULARY, work)
                    write_golden(f"zoo/{model}-{kind}", struct.pack("<I", seed) + rows)
                os.remove(path)
                if worst <= bound:
                    break
            print(f"{model} {kind} seed {seed}: batched and one by one differ by {worst:.1e} of the range")


def main():
    golden, archs, what, *only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        if what == "strangers":
            record_strangers(golden, archs, only, work)
        else:
            record_zoo(golden, only, work)


if __name__ == "__main__":
    main()
