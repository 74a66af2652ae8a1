"""Writes NAME.blocks (random blocks of one type) and NAME.f32 (their weights, little-endian) for every type.

The weights come from the Python package gguf, an implementation independent of ours. Run as
    pip install gguf==0.19.0 numpy && python make.py
in this folder.
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

# Type: (bytes of a block, blocks, offsets of its f16 fields).
TYPES = {
    "F16": (2, 64, [0]),
    "BF16": (2, 64, []),
    "Q4_0": (18, 4, [0]),
    "Q4_1": (20, 4, [0, 2]),
    "Q5_0": (22, 4, [0]),
    "Q5_1": (24, 4, [0, 2]),
    "Q8_0": (34, 4, [0]),
    "Q2_K": (84, 2, [80, 82]),
    "Q3_K": (110, 2, [108]),
    "Q4_K": (144, 2, [0, 2]),
    "Q5_K": (176, 2, [0, 2]),
    "Q6_K": (210, 2, [208]),
    "IQ4_NL": (18, 4, [0]),
    "IQ4_XS": (136, 2, [0]),
    "MXFP4": (17, 4, []),
}

random = np.random.default_rng(20261130)
for name, (size, count, halves) in TYPES.items():
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in halves:
        numbers = random.uniform(-0.1, 0.1, count).astype("<f2")
        blocks[:, offset : offset + 2] = numbers.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 120, 130]
    if name == "BF16":
        blocks[:, 1] &= 0xBF
    weights = dequantize(blocks.reshape(1, -1), Type[name]).astype("<f4")
    open(f"{name}.blocks", "wb").write(blocks.tobytes())
    open(f"{name}.f32", "wb").write(weights.tobytes())
