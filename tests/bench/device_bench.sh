#!/bin/sh
# How fast a device is with synthetic models of the real shape, as many of the 62 layers as fit into its memory; within four
# minutes. Ends with one table of all figures.
#
#   tests/bench/device_bench.sh BUILD_FOLDER [DEVICE]     default: cuda:0
#
# Exit codes: 0 all well, 77 no such device, 1 a failure.
set -eu
build=$1
device=${2:-cuda:0}

free_gib=$("$build/examples/minim/minim" devices | sed -n "s/^$device .*, \([0-9.]*\) GiB free\$/\1/p")
if [ -z "$free_gib" ]; then
    echo "skipped: no usable device $device"
    exit 77
fi
figures=$build/device-bench-figures
: > "$figures"
end=$(($(date +%s) + 230))
status=0

# fit WANTED GIB_OF_A_LAYER: so many layers. 1.2 GiB are the embedding's and the head's; 6 are left for the keys and values of
# 256 texts (3.9), work space, and what the bandwidth is measured with.
fit() {
    awk -v wanted="$1" -v layer="$2" -v free="$free_gib" \
        'BEGIN { n = int((free - 7.2) / layer); print (n > wanted ? wanted : n) }'
}

# bench LABEL LAYERS OPTIONS...
bench() {
    label=$1
    layers=$2
    shift 2
    left=$((end - $(date +%s)))
    echo
    if [ "$layers" -lt 1 ] || [ "$left" -lt 1 ]; then
        echo "$label: left out, for want of memory or time"
        return
    fi
    code=0
    timeout "$left" "$build/tests/bench/minim-bench" --synthetic --layers "$layers" --device "$device" \
        -r 3 "$@" > "$figures-now" || code=$?
    if [ "$code" -eq 124 ]; then
        echo "$label: stopped, for want of time"
    elif [ "$code" -ne 0 ]; then
        echo "$label: failed"
        status=1
    else
        cat "$figures-now"
        [ -s "$figures" ] || printf '%-32s%s\n' model "$(grep '^test ' "$figures-now")" > "$figures"
        grep -E '^(pp|tg)' "$figures-now" | sed "s/^/$(printf '%-32s' "$label, $layers layers")/" >> "$figures"
    fi
}

whole=$(fit 62 1.13)
bench "IQ2_S" "$whole" --experts-format IQ2_S -p 2048 -u 2048 -n 64
bench "IQ2_S, several texts" "$whole" --experts-format IQ2_S -p 2048 -u 2048 -n 8 --parallel 1,64,256
bench "IQ4_XS" "$(fit 8 1.84)" --experts-format IQ4_XS -p 2048 -u 2048 -n 64
bench "IQ2_S, down IQ3_S" "$(fit 8 1.25)" --experts-format IQ2_S,IQ2_S,IQ3_S -p 2048 -u 2048 -n 64
for kv in F16 Q8_0; do
    bench "IQ2_S, deep, KV $kv" "$(fit 4 1.13)" --experts-format IQ2_S -k "$kv" -d 100000 --synthetic-depth -p 512 -n 32
done
bench "IQ2_S, one by one" "$(fit 8 1.13)" --experts-format IQ2_S -p 2048 -u 2048 -n 64 --operations

echo
echo "$device, all figures:"
cat "$figures"
exit "$status"
