#!/usr/bin/env bash
# Tests the kernels for 64-bit ARM on an x86 machine with Debian 12: products and unit tests of adit-kernels on
# three emulated CPUs (attention is portable code there, and its tests take an hour in the emulator), then a
# type check of the whole workspace. Not run by CI: it downloads 200 MB and takes minutes.
#
#     scripts/test-neon.sh [FOLDER]
#
# A compiler with the ARM standard library, a linker and qemu are unpacked into FOLDER, or a temporary one;
# nothing is installed. A second run with the same FOLDER uses what is there.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(realpath "$1")
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
root=$folder/root
target=aarch64-unknown-linux-gnu
cross=aarch64-linux-gnu

step() { printf '\n== %s (at %d s)\n' "$1" "$SECONDS"; }

# apt with lists of its own, because those of the machine leave out the packages of the other architecture.
apt() {
    "$1" -q -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root \
        -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 "${@:2}"
}
shown() { apt apt-cache show --no-all-versions "$1" | sed -n "s/^$2: //p"; }

if [ ! -d "$root" ]; then
    step 'unpacking the tools'
    mkdir -p "$folder"/{lists,cache/archives,debs,unpacked}/partial
    apt apt-get update
    # Debian builds the newest Rust for its browsers, on all of its architectures in step.
    version=$(shown rustc-web Version)
    std=libstd-rust-web-$(cut -d. -f1,2 <<<"$version")
    packages=(
        "rustc-web=$version" "libstd-rust-web-dev=$version" "libstd-rust-web-dev:arm64=$version"
        "$std=$version" "$(shown "$std" Depends | grep -o 'libllvm[0-9]*')"
        qemu-user-static {gcc-12,cpp-12,binutils}-$cross
        libc6-{dev-,}arm64-cross libgcc-{12-dev,s1}-arm64-cross linux-libc-dev-arm64-cross
    )
    (cd "$folder/debs" && apt apt-get download "${packages[@]}")
    for package in "$folder"/debs/*.deb; do
        dpkg -x "$package" "$folder/unpacked"
    done
    mv "$folder/unpacked" "$root"
fi

# Programs of our own around the unpacked ones, which look for their parts below the root of the system.
host="LD_LIBRARY_PATH='$root/usr/lib/x86_64-linux-gnu' exec"
wrap() { printf '#!/bin/sh\n%s "$@"\n' "$2" >"$folder/$1" && chmod +x "$folder/$1"; }
wrap rustc "$host '$root/usr/bin/rustc'"
wrap gcc "$host '$root/usr/bin/$cross-gcc-12' -B'$root/usr/bin/$cross-' \
-isystem '$root/usr/$cross/include' -L'$root/usr/$cross/lib' -Wl,--sysroot='$root'"
wrap ar "$host '$root/usr/bin/$cross-ar'"
wrap run "exec '$root/usr/bin/qemu-aarch64-static' -L '$root/usr/$cross'"
export RUSTC=$folder/rustc CC_aarch64_unknown_linux_gnu=$folder/gcc AR_aarch64_unknown_linux_gnu=$folder/ar
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$folder/gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$folder/run
cargo=(cargo --locked --config "build.target-dir='$folder/target'" --config "build.target='$target'")

# Each CPU with the best instruction set that it must turn out to have: a test fails where it has not.
for cpu in max=neon-i8mm neoverse-n1=neon cortex-a72=scalar; do
    step "tests on $cpu"
    QEMU_CPU=${cpu%=*} ADIT_ISA=${cpu#*=} "${cargo[@]}" test -p adit-kernels --lib --test products --test golden
done
step 'type check of the workspace'
"${cargo[@]}" check --workspace --all-targets
step 'done'
