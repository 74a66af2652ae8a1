#!/usr/bin/env bash
# Makes ids.json, the expected token ids, with a build of the llama.cpp that lies in the fetched package:
#   make_ids.sh LLAMA_TOKENIZE MODELS_FOLDER > ids.json
# multilingual.txt is taken as plain text; special.txt with special tokens and what the model adds.
set -euo pipefail
tokenize=$1 models=$2
here=$(cd "$(dirname "$0")" && pwd)
ids() { "$tokenize" --log-disable -m "$models/ggml-vocab-$1.gguf" --no-escape --ids "${@:2}" | tr -d ' '; }
echo '{'
separator=
for vocabulary in aquila baichuan command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 gpt-neox \
    llama-bpe llama-spm mpt phi-3 qwen2 qwen35 refact starcoder; do
    printf '%s"%s":{\n"plain":%s,\n"special":%s}' "$separator" "$vocabulary" \
        "$(ids "$vocabulary" -f "$here/multilingual.txt" --no-bos --no-parse-special)" \
        "$(ids "$vocabulary" -f "$here/special.txt")"
    separator=$',\n'
done
printf '\n}\n'
