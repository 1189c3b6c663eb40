#!/bin/sh
# Everything that wants a GPU, from a build folder that was brought along: no network, nothing installed. What fails does not
# keep the rest from being run.
#
#   tests/gpu/run.sh [BUILD_FOLDER]     default: build/release
#
# Exit codes: 0 all well, 77 no GPU, 1 a failure.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
cd "$root"
# The folder may have been built elsewhere.
export LD_LIBRARY_PATH="$build:$build/tests/gpu/libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
model=examples/models/minim-tiny-q8_0.gguf
question="What is the capital of France?"
status=0

fails() {
    echo "FAILED: $*"
    status=1
}

"$build/examples/minim/minim" devices
if ! "$build/examples/minim/minim" devices | grep -q '^cuda:0 .* free$'; then
    echo "skipped: no usable CUDA device"
    exit 77
fi
if [ -x "$build/tests/unit/format/format_decode_on_device" ]; then
    if "$build/tests/unit/format/format_decode_on_device"; then
        echo "decoders: as on the host"
    else
        fails "decoders"
    fi
fi
timeout 180 "$build/tests/gpu/gpu_test" || fails "gpu_test ($?)"

for device in cpu cuda:0; do
    timeout 60 "$build/examples/minim/minim" -m "$model" -p "$question" --temp 0 --device "$device" \
        > "$build/answer-$device" 2> "$build/timing-$device" || {
        cat "$build/timing-$device"
        fails "an answer with $device"
    }
done
cmp "$build/answer-cpu" "$build/answer-cuda:0" || fails "the answers differ"
echo
echo "bundled model   prompt and generation, tokens/s"
for device in cpu cuda:0; do
    echo "$device $(sed -n 's/^prompt: .* \([0-9.]*\) tokens\/s$/\1/p; s/^generation: .* \([0-9.]*\) tokens\/s$/\1/p' "$build/timing-$device" | tr '\n' ' ')"
done
tests/bench/device_bench.sh "$build" || fails "device_bench.sh"
exit "$status"
