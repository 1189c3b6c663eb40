#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel for aarch64 with the cross compiler, tags it with the C library that it needs, and answers with it in an emulated Python.
# tests/aarch64.sh full calls it. Build tools are fetched; exits with 77 where they or packages for arm64 cannot be had.
#
#   tests/packages/wheel_arm64.sh WORK
set -eu

source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
PATH=/usr/bin:$PATH # the system's Python builds
export LC_ALL=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "$*" >&2
    exit 1
}

[ -d "${MINIM_ARM64_ROOT:-}" ] || fail "MINIM_ARM64_ROOT names no folder of arm64 packages: make one with tools/make_arm64_root.sh"
rm -rf "$work/wheels" "$work/installed"
python3 -m venv "$work/tools" || skip "venv is missing"
"$work/tools/bin/pip" install -q "scikit-build-core>=0.10" wheel || skip "scikit-build-core and wheel cannot be had"
SKBUILD_CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$source/cmake/toolchains/aarch64-linux-gnu.cmake;-DMINIM_UNITY=ON" SKBUILD_BUILD_DIR="$work/build" \
    "$work/tools/bin/pip" wheel -q --no-deps --no-build-isolation -w "$work/wheels" "$source" >"$work/pip.log" 2>&1 ||
    fail "pip wheel: $(tail -30 "$work/pip.log")"
"$work/tools/bin/wheel" unpack -d "$work/installed" "$work"/wheels/*.whl >/dev/null
library=$(find "$work/installed" -name 'libminim.so*' | head -1)
file -b "$library" 2>/dev/null | grep -q aarch64 || aarch64-linux-gnu-readelf -h "$library" | grep -q AArch64 || fail "$library is not for aarch64"
version=$(aarch64-linux-gnu-objdump -T "$library" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1 | tr . _)
"$work/tools/bin/wheel" tags --remove --platform-tag "manylinux_${version#GLIBC_}_aarch64" "$work"/wheels/*.whl
wheel=$(ls "$work"/wheels/*.whl)
case $wheel in
    *minim_m2-*-py3-none-manylinux_2_*_aarch64.whl) ;;
    *) fail "the wheel is named $wheel" ;;
esac
echo "$(basename "$wheel"): $(wc -c <"$wheel") bytes"

"$source/tools/make_arm64_root.sh" "$work/root" python3-minimal libpython3-stdlib python3-numpy libstdc++6 || skip "Python for arm64 cannot be had"
answer=$(qemu-aarch64 -L "$work/root" -cpu neoverse-n1 -E PYTHONHOME="$work/root/usr" \
    -E PYTHONPATH="$(dirname "$(dirname "$library")"):$work/root/usr/lib/python3/dist-packages" \
    -E LD_LIBRARY_PATH="$work/root/usr/lib/aarch64-linux-gnu/blas:$work/root/usr/lib/aarch64-linux-gnu/lapack" \
    "$(ls "$work"/root/usr/bin/python3.[0-9]*[0-9] | head -1)" - "$source/examples/models/minim-tiny-q8_0.gguf" <<'END'
import platform
import sys

import minim

assert platform.machine() == "aarch64", platform.machine()
with minim.Model(sys.argv[1]) as model, model.session(context=1024) as session:
    question = {"role": "user", "content": "What is the capital of France?"}
    print("".join(token.text for token in session.generate(messages=[question], temperature=0.0, max_tokens=40)))
END
) || fail "Python for aarch64 does not answer"
case $answer in
    *Paris*) echo "Python for aarch64 answers: $answer" ;;
    *) fail "Python for aarch64 answers: $answer" ;;
esac
