#!/usr/bin/env bash
# Fetches strangers' vocabularies and chat templates, some 90 MB, into target/strangers/models: they lie in
# the source package of llama-cpp-python on PyPI. Does nothing where they are already.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../../.." && pwd)
package=llama_cpp_python-0.3.36
digest=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
mkdir -p "$root/target/strangers"
cd "$root/target/strangers"
[ -d models ] && exit 0
work=$(mktemp -d work.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --dest "$work" llama-cpp-python==0.3.36
echo "$digest  $work/$package.tar.gz" | sha256sum --check --quiet
tar -xzf "$work/$package.tar.gz" -C "$work" "$package/vendor/llama.cpp/models"
mv "$work/$package/vendor/llama.cpp/models" models
