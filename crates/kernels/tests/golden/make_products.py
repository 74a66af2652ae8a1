"""Writes products.txt: for every quantised type, the product of the weights in NAME.blocks with the
activations x[i] = ((i * 7919) % 1000 - 500) / 125, as ggml's own kernels compute it on x86 with AVX2.

    python make_products.py FOLDER_OF_LIBGGML

Made with the llama.cpp inside the PyPI source package llama-cpp-python 0.3.36.
"""
import ctypes
import sys

import numpy as np

FORMATS = {
    "Q4_0": ("q4_0", "q8_0"),
    "Q4_1": ("q4_1", "q8_1"),
    "Q5_0": ("q5_0", "q8_0"),
    "Q5_1": ("q5_1", "q8_1"),
    "Q8_0": ("q8_0", "q8_0"),
    "Q2_K": ("q2_K", "q8_K"),
    "Q3_K": ("q3_K", "q8_K"),
    "Q4_K": ("q4_K", "q8_K"),
    "Q5_K": ("q5_K", "q8_K"),
    "Q6_K": ("q6_K", "q8_K"),
    "IQ4_NL": ("iq4_nl", "q8_0"),
    "IQ4_XS": ("iq4_xs", "q8_K"),
    "MXFP4": ("mxfp4", "q8_0"),
}

folder = sys.argv[1]
ctypes.CDLL(f"{folder}/libggml-base.so", mode=ctypes.RTLD_GLOBAL)
ggml = ctypes.CDLL(f"{folder}/libggml-cpu.so", mode=ctypes.RTLD_GLOBAL)
ggml.ggml_cpu_init()
with open("products.txt", "w") as out:
    for name, (weights, activations) in FORMATS.items():
        count = np.fromfile(f"{name}.f32", "<f4").size
        x = ((np.arange(count) * 7919 % 1000 - 500).astype("<f4") / np.float32(125)).astype("<f4")
        blocks = np.fromfile(f"{name}.blocks", np.uint8)
        quantised = np.zeros(4096, np.uint8)
        n, pointer = ctypes.c_int(count), ctypes.c_void_p
        one, none = ctypes.c_int(1), ctypes.c_size_t(0)
        product = ctypes.c_float()
        getattr(ggml, f"quantize_row_{activations}")(
            pointer(x.ctypes.data), pointer(quantised.ctypes.data), ctypes.c_int64(count)
        )
        getattr(ggml, f"ggml_vec_dot_{weights}_{activations}")(
            n, ctypes.byref(product), none, pointer(blocks.ctypes.data), none,
            pointer(quantised.ctypes.data), none, one,
        )
        out.write(f"{name} {product.value!r}\n")
