#!/bin/sh
# Everything that wants a GPU, from a build folder that was brought along: no network, nothing installed.
#
#   tests/gpu/run.sh [BUILD_FOLDER]     default: build/release
#
# Exit codes: 0 all well, 77 no GPU, 1 a failure.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/release}
model=$root/examples/models/minim-tiny-q8_0.gguf
question="What is the capital of France?"

"$build/examples/minim/minim" devices
if ! "$build/examples/minim/minim" devices | grep -q '^cuda:0 .* free$'; then
    echo "skipped: no usable CUDA device"
    exit 77
fi
if [ -x "$build/tests/unit/format/format_decode_on_device" ]; then
    "$build/tests/unit/format/format_decode_on_device" && echo "decoders: as on the host"
fi
"$build/tests/gpu/gpu_test"

for device in cpu cuda:0; do
    "$build/examples/minim/minim" -m "$model" -p "$question" --temp 0 --device "$device" \
        > "$build/answer-$device" 2> "$build/timing-$device" || { cat "$build/timing-$device"; exit 1; }
done
cmp "$build/answer-cpu" "$build/answer-cuda:0"
echo
echo "bundled model   prompt and generation, tokens/s"
for device in cpu cuda:0; do
    echo "$device $(sed -n 's/^prompt: .* \([0-9.]*\) tokens\/s$/\1/p; s/^generation: .* \([0-9.]*\) tokens\/s$/\1/p' "$build/timing-$device" | tr '\n' ' ')"
done
"$root/tests/bench/device_bench.sh" "$build"
