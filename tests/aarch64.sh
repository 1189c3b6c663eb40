#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles the library, the program and the tests of kernels for aarch64, and runs them on emulated CPUs of each level: unit tests,
# logits and texts of whole models against the values stored from x86-64 (tests/bits), and an answer of the program. An emulator on x86-64
# keeps the order of memory accesses of x86-64, and says nothing about speed.
#
#   tests/aarch64.sh         ten minutes on two cores the first time
#   tests/aarch64.sh full    every test of kernels on each CPU
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
tools/install_packages.sh g++ g++-aarch64-linux-gnu qemu-user cmake ninja-build pkg-config
compiler=$(aarch64-linux-gnu-g++ -dumpversion)
MINIM_ARM64_ROOT=${MINIM_ARM64_ROOT:-$root/build/arm64-root}
export MINIM_ARM64_ROOT
tools/make_arm64_root.sh "$MINIM_ARM64_ROOT" "libstdc++-${compiler%%.*}-dev" libfmt-dev nlohmann-json3-dev libxxhash-dev libeigen3-dev \
    libhwloc-dev libcli11-dev catch2 libpcre2-dev
python=$(PATH="/usr/bin:$PATH" command -v python3)
cmake --preset aarch64 -DPython3_EXECUTABLE="$python" -DMINIM_UNITY=ON
cmake --build --preset aarch64 --target minim minim_cli base_test cpu_test panel_test format_test sampling_test bits_of_models

build=build/aarch64
failed=0
# Runs a program on an emulated CPU and reports it.
on() {
    cpu=$1
    shift
    if MINIM_TEST_EMULATED=1 qemu-aarch64 -L "$MINIM_ARM64_ROOT" -cpu "$cpu" "$@"; then return 0; fi
    echo "FAILED on $cpu: $*" >&2
    failed=1
}

quick="~[slow-emulated]"
[ "${1:-}" != full ] || quick="*"
# pauth=off: the emulator computes the signatures of return addresses slowly.
for test in base panel format sampling; do
    on max,pauth=off "$build/tests/unit/$test/${test}_test" "$quick"
done
if [ "${1:-}" = full ]; then
    for cpu in cortex-a72 neoverse-n1 max,pauth=off; do on "$cpu" "$build/tests/unit/cpu/cpu_test"; done
else # this CPU has all levels
    on max,pauth=off "$build/tests/unit/cpu/cpu_test" "$quick"
fi

models=$build/tests/models
stored=tests/data/models
check_level() { # CPU, its level, and which of sdot and smmla its kernels execute
    log=$(mktemp)
    on "$1" "$build/tests/bits/bits_of_models" tests/bits/expected.txt tests/data examples/models/minim-tiny-q8_0.gguf \
        examples/models/minim-tiny-mix-ik.gguf $stored/minim-tiny-mix-k.gguf $stored/minim-tiny-mix-iq-00001-of-00003.gguf \
        $stored/minim-tiny-q4_k_m.gguf $models/minim-tiny-fp8 $models/minim-tiny-nvfp4 $models/minim-tiny-awq >"$log"
    cat "$log"
    grep -q "kernels in use: $2\$" "$log" || { echo "FAILED: $1 does not use $2" >&2; failed=1; }
    # The emulator lists each block of instructions when it is first executed. Its disassembler does not know these two, so they are found by
    # their codes: SDOT by element, and SMMLA.
    qemu-aarch64 -L "$MINIM_ARM64_ROOT" -cpu "$1" -d in_asm -D "$log" "$build/apps/minim/minim" -m examples/models/minim-tiny-q8_0.gguf \
        -n 1 --temp 0 -p "The capital of France is Paris. The capital of" >/dev/null 2>&1 || true
    for instruction in sdot smmla; do
        code=': *4f[89ab][0-9a-f]e[012389ab][0-9a-f][0-9a-f] '
        [ "$instruction" = sdot ] || code=': *4e[89][0-9a-f]a[4-7][0-9a-f][0-9a-f] '
        count=$(grep -c "$code" "$log" || true)
        echo "$1: $count different $instruction instructions executed"
        case " $3 " in
            *" $instruction "*) [ "$count" -gt 0 ] || { echo "FAILED: none on $1" >&2; failed=1; } ;;
            *) [ "$count" = 0 ] || { echo "FAILED: $1 has no $instruction" >&2; failed=1; } ;;
        esac
    done
    rm -f "$log"
}
check_level cortex-a72 scalar ""
check_level neoverse-n1 neon_dotprod sdot
check_level max,pauth=off neon_i8mm "sdot smmla"

answer=$(qemu-aarch64 -L "$MINIM_ARM64_ROOT" -cpu neoverse-n1 "$build/apps/minim/minim" -m examples/models/minim-tiny-q8_0.gguf --temp 0 -n 40 \
    -p "What is the capital of France?" 2>/dev/null || true)
case $answer in
    *Paris*) echo "The program answers: $answer" ;;
    *) echo "FAILED: the program answers '$answer'" >&2; failed=1 ;;
esac
[ "$failed" = 0 ] && echo "aarch64: everything passed"
exit "$failed"
