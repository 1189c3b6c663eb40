#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, runs every test through CTest, and checks with clang what a change touches. Tests and
# checks that need something this machine lacks (a GPU, an instruction set, clang) say that they were skipped.
#
#   tests/run.sh            the release build
#   tests/run.sh asan       the same tests under the address and undefined-behaviour sanitizers
#   tests/run.sh tsan       under the thread sanitizer
#   tests/run.sh full       what takes too long for every change: build and tests with GCC and everything of MINIM_FULL_TESTS, then
#                           with clang; clang-tidy on every file; a minute of every fuzz target; the soak tests, 20 seconds each; the
#                           speed beside that of the last tag
set -eu

[ "${1:-}" != full ] || MINIM_FULL_TESTS=ON "$0" release
root=$(cd "$(dirname "$0")/.." && pwd)
preset="${1:-release}"
[ "$preset" != full ] || preset=clang

"$root/tools/install_packages.sh" g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libxxhash-dev libeigen3-dev \
    libhwloc-dev libcli11-dev libboost-dev libopenmpi-dev openmpi-bin catch2 libpcre2-dev python3 python3-jsonschema python3-numpy valgrind chromium curl \
    abigail-tools
# The server's test behind nginx. Where systemd runs, the package would start a web server.
[ -d /run/systemd/system ] || "$root/tools/install_packages.sh" nginx-light openssl
cd "$root"
# The packages are for the system's Python, which need not be the first on PATH.
python=$(PATH="/usr/bin:$PATH" command -v python3)
# Sanitized copies of three test programs, and kernels of GPUs: on emulated threads, in all formats, and compiled with nvcc for one
# generation. They take longer than everything else, and are left out if the change touches nothing that they are made of.
full=OFF
if [ "${MINIM_FULL_TESTS:-OFF}" = ON ] || "$python" tools/checks/project.py touches CMakeLists.txt cmake lib/base lib/backend lib/format lib/panel \
    lib/layouts lib/weights lib/kv lib/model lib/runtime lib/ranks lib/placement lib/engine cuda tests/sim tests/gpu tests/sanitized; then
    full=ON
else
    echo "skipped: sanitized copies of tests, as the change touches nothing that they test"
fi
gpu=ON
cuda=
if [ "$preset" = release ]; then # the other presets compile nothing with nvcc
    cuda=-UMINIM_CUDA            # what CMake finds
    if [ $full = OFF ] && [ ! -e /dev/nvidia0 ]; then
        gpu=OFF
        cuda=-DMINIM_CUDA=OFF
        echo "skipped: kernels of GPUs, as the change touches nothing that they are made of"
    fi
fi
cmake --preset "$preset" -DMINIM_CUDA_ARCHITECTURES=90 -DPython3_EXECUTABLE="$python" -DMINIM_UNITY=ON -DMINIM_FULL_TESTS=$full -DMINIM_GPU_TESTS=$gpu $cuda
cmake --build --preset "$preset"
failed=0
# Emulated aarch64: everything in full runs, kernels alone if the change touches what they are made of.
aarch64=""
if [ "${1:-}" = full ]; then
    aarch64=full
elif [ "$preset" = release ] && [ "${MINIM_FULL_TESTS:-OFF}" = OFF ] && "$python" tools/checks/project.py touches lib/base lib/cpu lib/panel; then
    aarch64=kernels
fi
if [ -n "$aarch64" ]; then
    tests/aarch64.sh $aarch64 || [ $? = 77 ] || failed=1
fi
case $preset in
    release)
        "$python" tools/check.py clang fuzz tidy || failed=1
        # The machine code of the kernels that nvcc has compiled, where nvdisasm is found.
        if [ -e build/release/cuda/fast_operations.o ]; then
            "$python" tools/check_sass.py build/release/cuda/fast_*.o || [ $? = 77 ] || failed=1
        fi
        ;;
    clang)
        "$python" tools/checks/tidy.py --build build/clang --all || failed=1
        "$python" tools/checks/fuzz.py --all || failed=1
        ;;
esac
if [ "${1:-}" = full ]; then
    # The build of GCC, which was made first. The fuzz targets have had their minute.
    tests/soak/run.sh 20 engine server open_close failures kills disk_full memory_limit lost_file clock long_text || failed=1
    status=0
    "$python" tests/speed_gate.py || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || failed=1
fi
# Last, so that its summary ends the output. One test more than processors: many wait for a process or a time.
ctest --preset "$preset" -j "$(($(nproc) + 1))" || failed=1
exit "$failed"
