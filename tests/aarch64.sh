#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for aarch64 and runs on emulated CPUs: tests of kernels, logits and texts of whole models against the values stored from
# x86-64 (tests/bits), and an answer of the program. An emulator on x86-64 keeps the order of memory accesses of x86-64, and says nothing
# about speed. Exits with 77 where the cross compiler, the emulator or packages for arm64 cannot be had.
#
#   tests/aarch64.sh kernels   the tests of lib/base, lib/panel and lib/cpu: five minutes on two cores
#   tests/aarch64.sh           models and the program too: ten minutes
#   tests/aarch64.sh full      every test of kernels on each CPU, kernels under sanitizers, Debian packages, a wheel: an hour
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
mode=${1:-usual}
case $mode in
    kernels | usual | full) ;;
    *) echo "usage: $0 [kernels|full]" >&2; exit 2 ;;
esac
skip() {
    echo "skipped: $*"
    exit 77
}
tools/install_packages.sh g++ g++-aarch64-linux-gnu qemu-user cmake ninja-build pkg-config ||
    skip "the cross compiler for aarch64 and qemu-user cannot be installed"
compiler=$(aarch64-linux-gnu-g++ -dumpversion)
MINIM_ARM64_ROOT=${MINIM_ARM64_ROOT:-$root/build/arm64-root}
export MINIM_ARM64_ROOT
server=""
[ "$mode" != full ] || server=libboost-dev
tools/make_arm64_root.sh "$MINIM_ARM64_ROOT" "libstdc++-${compiler%%.*}-dev" libfmt-dev nlohmann-json3-dev libxxhash-dev libeigen3-dev \
    libhwloc-dev libcli11-dev catch2 libpcre2-dev $server || skip "packages for arm64 cannot be had"
python=$(PATH="/usr/bin:$PATH" command -v python3)
build=build/aarch64
cmake --preset aarch64 -DPython3_EXECUTABLE="$python" -DMINIM_UNITY=ON

failed=0
fail() {
    echo "FAILED: $*" >&2
    failed=1
}
# Runs a program on an emulated CPU and reports it.
on() {
    cpu=$1
    shift
    MINIM_TEST_EMULATED=1 qemu-aarch64 -L "$MINIM_ARM64_ROOT" -cpu "$cpu" "$@" || fail "on $cpu: $*"
}
all_levels=max,pauth=off # the emulator computes the signatures of return addresses slowly
finish() {
    [ "$failed" = 0 ] && echo "aarch64: everything passed"
    exit "$failed"
}

quick="~[slow-emulated]"
[ "$mode" != full ] || quick="*"
cmake --build --preset aarch64 --target base_test panel_test cpu_test
(
    on $all_levels "$build/tests/unit/base/base_test" "$quick"
    on $all_levels "$build/tests/unit/panel/panel_test"
    exit "$failed"
) &
on $all_levels "$build/tests/unit/cpu/cpu_test" "$quick" # most of its tests have one thread
wait $! || failed=1
[ "$mode" != kernels ] || finish

cmake --build --preset aarch64 --target minim minim_cli format_test sampling_test bits_of_models
on $all_levels "$build/tests/unit/format/format_test" "$quick"
on $all_levels "$build/tests/unit/sampling/sampling_test"

models=$build/tests/models
stored=tests/data/models
check_level() { # CPU, its level, and which of sdot and smmla its kernels execute
    log=$(mktemp)
    on "$1" "$build/tests/bits/bits_of_models" tests/bits/expected.txt tests/data examples/models/minim-tiny-q8_0.gguf \
        examples/models/minim-tiny-mix-ik.gguf $stored/minim-tiny-mix-k.gguf $stored/minim-tiny-mix-iq-00001-of-00003.gguf \
        $stored/minim-tiny-q4_k_m.gguf $models/minim-tiny-fp8 $models/minim-tiny-nvfp4 $models/minim-tiny-awq >"$log"
    cat "$log"
    grep -q "kernels in use: $2\$" "$log" || fail "$1 does not use $2"
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
            *" $instruction "*) [ "$count" -gt 0 ] || fail "no $instruction on $1" ;;
            *) [ "$count" = 0 ] || fail "$1 has no $instruction" ;;
        esac
    done
    rm -f "$log"
}
check_level cortex-a72 scalar ""
check_level neoverse-n1 neon_dotprod sdot
check_level $all_levels neon_i8mm "sdot smmla"

answer_of() { # a program and a folder of libraries
    qemu-aarch64 -L "$MINIM_ARM64_ROOT" -E LD_LIBRARY_PATH="$2" -cpu neoverse-n1 "$1" -m examples/models/minim-tiny-q8_0.gguf --temp 0 -n 40 \
        -p "What is the capital of France?" 2>/dev/null || true
}
check_answer() { # whose, and the answer
    case $2 in
        *Paris*) echo "$1 answers: $2" ;;
        *) fail "$1 answers '$2'" ;;
    esac
}
check_answer "the program" "$(answer_of "$build/apps/minim/minim" "$build")"
[ "$mode" = full ] || finish

for cpu in cortex-a72 neoverse-n1; do on $cpu "$build/tests/unit/cpu/cpu_test"; done

# The emulator serves the address sanitizer, but not its search for leaks. The build runs programs too.
export ASAN_OPTIONS=detect_leaks=0
cmake --preset aarch64 -B build/aarch64-sanitized -DPython3_EXECUTABLE="$python" -DMINIM_UNITY=ON -DMINIM_SANITIZE=address,undefined \
    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -g1"
cmake --build build/aarch64-sanitized --target panel_test cpu_test
for test in panel cpu; do
    UBSAN_OPTIONS=halt_on_error=1 on $all_levels "build/aarch64-sanitized/tests/unit/$test/${test}_test" "~[slow-emulated]"
done

# Debian packages, unpacked and used.
packages=build/aarch64-packages
rm -rf $packages
cmake --build --preset aarch64 --target minim minim_static minim_cli minim_server
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$packages" >"$build/cpack.log" 2>&1 || fail "cpack: $(cat "$build/cpack.log")"
for package in "$packages"/*.deb; do
    architecture=$(dpkg-deb -f "$package" Architecture)
    case "$package:$architecture" in
        *_arm64.deb:arm64 | *_all.deb:all) dpkg-deb -x "$package" "$packages/root" ;;
        *) fail "$package is for $architecture" ;;
    esac
done
check_answer "the program of the packages" "$(answer_of "$packages/root/usr/bin/minim" "$(dirname "$(find "$packages/root" -name 'libminim.so.0')")")"

tests/packages/wheel_arm64.sh build/aarch64-wheel || [ $? = 77 ] || fail "the wheel"
finish
