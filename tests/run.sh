#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything, and runs every test through CTest. Tests that need something this machine
# lacks (a GPU, an instruction set) say that they were skipped.
#
#   tests/run.sh            the release build
#   tests/run.sh asan       the same tests under the address and undefined-behaviour sanitizers
#   tests/run.sh tsan       under the thread sanitizer
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
preset="${1:-release}"

"$root/tools/install_packages.sh" g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libxxhash-dev libeigen3-dev \
    libhwloc-dev libcli11-dev libboost-dev catch2 libpcre2-dev python3 python3-jsonschema python3-numpy valgrind
cd "$root"
# The packages are for the system's Python, which need not be the first on PATH. One generation of GPUs is enough for the tests.
cmake --preset "$preset" -DMINIM_CUDA_ARCHITECTURES=90 -DPython3_EXECUTABLE="$(PATH="/usr/bin:$PATH" command -v python3)"
cmake --build --preset "$preset"
exec ctest --preset "$preset" -j "$(nproc)"
