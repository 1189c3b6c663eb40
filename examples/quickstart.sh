#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian machine to an answer: installs what is missing, builds the command-line program, and asks the bundled model a
# question. Arguments, if any, are the question.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build="$root/build/quickstart"
question="${*:-What is the capital of France?}"

"$root/tools/install_packages.sh" g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libxxhash-dev libeigen3-dev
# What takes least time to compile: portable kernels are enough for the bundled model. Those of this machine, which are ten times as
# fast, take as long to compile as all the rest; a build to work with has them: cmake --preset release -DBUILD_TESTING=OFF -DMINIM_UNITY=ON.
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DBUILD_TESTING=OFF \
    -DMINIM_BUILD_STATIC=OFF -DMINIM_CPU_LEVELS=scalar -DMINIM_CUDA=OFF -DMINIM_UNITY=ON >/dev/null
cmake --build "$build" --target minim_cli
echo "This build has portable kernels alone; README.md says how to make a fast one." >&2
exec "$build/apps/minim/minim" -m "$root/examples/models/minim-tiny-q8_0.gguf" --temp 0 -p "$question"
