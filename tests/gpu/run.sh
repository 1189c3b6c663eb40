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

# The cases of a test program one by one, within two minutes: what went wrong in one may have taken the device from all that
# came after it.
each_case() {
    end=$(($(date +%s) + 120))
    "$1" --list-test-names-only > "$build/cases" 2> /dev/null || :  # the exit code is how many there are
    [ -s "$build/cases" ] || "$1" --list-tests --verbosity quiet > "$build/cases"  # Catch2 from version 3 on
    sed 's/^ *//; /^$/d; s/[][,]/\\&/g' "$build/cases" | while IFS= read -r name; do
        if [ "$(date +%s)" -ge "$end" ]; then
            echo "for want of time not run by itself: $name"
        elif ! timeout 30 "$1" "$name" < /dev/null > "$build/case" 2>&1; then
            cat "$build/case"
            echo "FAILED by itself: $name"
        fi
    done
}

"$build/examples/minim/minim" devices > "$build/devices"
cat "$build/devices"
if ! grep -q '^cuda:0 .* free$' "$build/devices"; then
    echo "skipped: no usable CUDA device"
    exit 77
fi
MINIM_GPUS_SEEN=$(grep -c '^cuda:.* free$' "$build/devices")
export MINIM_GPUS_SEEN
if [ -x "$build/tests/unit/format/format_decode_on_device" ]; then
    if "$build/tests/unit/format/format_decode_on_device"; then
        echo "decoders: as on the host"
    else
        fails "decoders"
    fi
fi
timeout 180 "$build/tests/gpu/gpu_test" || {
    fails "gpu_test ($?)"
    each_case "$build/tests/gpu/gpu_test"
}

for device in cpu cuda:0; do
    timeout 60 "$build/examples/minim/minim" -m "$model" -p "$question" --temp 0 --device "$device" --verbose \
        > "$build/answer-$device" 2> "$build/timing-$device" || {
        cat "$build/timing-$device"
        fails "an answer with $device"
    }
done
cmp "$build/answer-cpu" "$build/answer-cuda:0" || fails "the answers differ"
if [ -s "$build/answer-cuda:0" ]; then
    grep cuBLASLt "$build/timing-cuda:0" || echo "cuBLASLt: found"
fi
echo
echo "bundled model   prompt and generation, tokens/s"
for device in cpu cuda:0; do
    echo "$device $(sed -n 's/^prompt: .* \([0-9.]*\) tokens\/s$/\1/p; s/^generation: .* \([0-9.]*\) tokens\/s$/\1/p' "$build/timing-$device" | tr '\n' ' ')"
done
tests/bench/device_bench.sh "$build" || fails "device_bench.sh"
exit "$status"
