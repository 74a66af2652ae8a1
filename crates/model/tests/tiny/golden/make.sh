#!/usr/bin/env bash
# Makes the golden logits of tests/tiny/parity.rs anew. Usage: make.sh GOLDEN
# GOLDEN is a program `golden MODEL "1,7,33" OUT.f32` that writes one row of float32 logits a token with
# llama.cpp's public API (F32 keys and values, no flash attention). Rows 0, 37 and 47 are kept.
set -euo pipefail
golden=$(realpath "$1"); here=$(cd "$(dirname "$0")" && pwd); work=$(mktemp -d)
ADIT_PARITY_MODELS=$work cargo test -p adit-model --test tiny parity || true
tokens=$(python3 -c "print(','.join(str(3 + (i * 37 + i * i * 11) % 240) for i in range(48)))")
for model in "$work"/*.gguf; do
  name=$(basename "$model" .gguf)
  "$golden" "$model" "$tokens" "$work/all.f32"
  python3 - "$work/all.f32" "$here/$name.f32" <<'PY'
import sys
data = open(sys.argv[1], "rb").read(); row = len(data) // 48
open(sys.argv[2], "wb").write(b"".join(data[i * row:(i + 1) * row] for i in (0, 37, 47)))
PY
done
rm -r "$work"
