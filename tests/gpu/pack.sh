#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs what a GPU machine without network and packages needs into .gpu/pack.tar.xz: the programs, stripped, the plug-in, hwloc,
# the test data that gpu_test opens, and run.sh.
#
#   tests/gpu/pack.sh [BUILD_FOLDER]     default: build/release, with MINIM_CUDA=ON
#
# There, in a checkout that may lack tests/data:
#
#   python3 -m tarfile -e .gpu/pack.tar.xz .gpu && cp -r .gpu/tests . && .gpu/run.sh smoke,correct,stress,sanitize,speed 290
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

put() {  # FILE [NAME]: to build/NAME there
    mkdir -p "$(dirname "$stage/build/${2:-$1}")"
    cp -L "$build/$1" "$stage/build/${2:-$1}"
    strip "$stage/build/${2:-$1}" 2> /dev/null || :  # a script cannot be
}

for program in libminim.so.0 minim-0/libminim-cuda.so apps/minim/minim tests/bench/minim-bench tests/gpu/gpu_test \
    tests/gpu/gpu_probe tests/gpu/gpu_selfcheck tests/gpu/gpu_stress_test; do
    put "$program"
done
# Built by its test alone.
decoders=tests/unit/format/format_decode_on_device
[ ! -x "$build/$decoders" ] || put "$decoders"
for library in "$build"/tests/gpu/libraries/lib*.so.*; do
    case ${library##*.so.} in
        *.*) ;;  # not the name that the loader asks for
        *) put "tests/gpu/libraries/$(basename "$library")" ;;
    esac
done
put tests/models/minim-tiny-bf16.gguf
mkdir -p "$stage/tests/data"
cp -r "$root/tests/data/format" "$stage/tests/data/"
cp "$here/run.sh" "$stage/"

mkdir -p "$root/.gpu"
tar cf - -C "$stage" . | xz -T1 --lzma2=preset=3,dict=128MiB > "$root/.gpu/pack.tar.xz"
stat -c %s "$root/.gpu/pack.tar.xz" | awk '{printf ".gpu/pack.tar.xz: %.1f MiB\n", $1 / 2^20}'
