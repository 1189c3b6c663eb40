#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# As much as can be learnt on a GPU machine in some seconds, from programs that were brought along (pack.sh): nothing is built or
# installed there.
#
#   .gpu/run.sh STAGES SECONDS [BUILD_FOLDER]
#
# STAGES, separated by commas:
#   smoke     the programs load, a device is usable, decoders give the host's bits
#   correct   all tests of the backend, the self-check at the model's shapes, an answer as on the CPU
#   ranks     several ranks of the GPU: sums by NCCL and by the kernel, abort, recorded steps; latency of 12 KiB
#   stress    equal steps give equal bits, with and without parts of the launch path
#   sanitize  compute-sanitizer on one test a tool, and on one of the tile and of the stream kernel
#   speed     tokens/s of synthetic models; operation by operation; without parts of the launch path
#   probe     what memory, multiprocessors, borders between kernels and the bus reach, beside what the kernels count on
#   rows      a step operation by operation, of 1, 8, 64 and 256 sequences; the paths of MINIM_CUDA_PATHS beside the default
#   prompt    the same of a prompt's step of 2,048 rows; tests of the tile kernel; Nsight Compute on a step without and with it
#   profile   Nsight Compute on a decode step and a prompt
#   offload   experts on the CPU, some and all; on both at once, with a cache of the used ones
#
# BUILD_FOLDER: .gpu/build unless named. Every step has a limit of its own, and all of them the seconds given; logs are under $OUT,
# or a new folder; a table comes last. Exit code: 0 all well, 1 something failed or no device is usable.
set -u
if [ $# -lt 2 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 2
fi
stages=,$1,
limit=$2
start=$SECONDS
build=$(cd "${3:-$PWD/.gpu/build}" && pwd) || exit 1
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
table=$out/table
log=$out/log
now=$out/.now
: > "$table"
: > "$log"
bad=0

python_libraries=$(python3 -c 'import glob, sysconfig; print(":".join(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")))' 2> /dev/null)
export LD_LIBRARY_PATH="$build:$build/tests/gpu/libraries:/usr/local/nvidia/lib64:/usr/local/cuda/lib64:$python_libraries:${LD_LIBRARY_PATH:-}"
export MINIM_PLUGIN_PATH=$build/minim-0
export MINIM_TEST_MODELS=$build/tests/models
export PATH="$PATH:/usr/local/cuda/bin"

minim=$build/apps/minim/minim
bench=$build/tests/bench/minim-bench
gpu_test=$build/tests/gpu/gpu_test
model=examples/models/minim-tiny-q8_0.gguf

wants() { [[ $stages == *,$1,* ]]; }
left() { echo $((limit - (SECONDS - start))); }
put() { echo "$1" >> "$table"; }

# step NAME SECONDS COMMAND...: what it prints goes to the log, a line to the table. Its exit code; 1 where no time is left.
step() {
    local name=$1 most=$2 code=0 began=$SECONDS
    shift 2
    [ "$(left)" -lt "$most" ] && most=$(left)
    if [ "$most" -lt 3 ]; then
        put "  --  $name: no time left"
        return 1
    fi
    echo "=== $name: $*" >> "$log"
    timeout -k 2 "$most" "$@" > "$now" 2>&1 < /dev/null || code=$?
    tail -c 300000 "$now" >> "$log"
    if [ "$code" -eq 0 ]; then
        put "$(printf '  ok  %-52s %3d s' "$name" $((SECONDS - began)))"
    elif [ "$code" -eq 77 ] || grep -q '^skipped: ' "$now"; then
        put " skip $name"
    else
        bad=1
        put "$(printf 'FAIL %-53s %3d s, exit code %d' "$name" $((SECONDS - began)) "$code")"
        found 'FAIL|CHECK|REQUIRE|ERROR SUMMARY|[Ee]rror|what\(\)' 6
    fi
    return "$code"
}
# found PATTERN [COUNT]: such lines of the last step, to the table.
found() {
    [ -s "$now" ] || return 0
    grep -aE "$1" "$now" | head -n "${2:-8}" | cut -c1-170 | sed 's/^/          /' >> "$table"
}
finish() {
    rm -f "$now"
    echo "--- $((SECONDS - start)) s"
    cat "$table"
    exit "$bad"
}

if wants smoke; then
    step "nvidia-smi" 10 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader && found .
    step "programs load" 10 bash -c '! ldd "$@" | grep "not found"' - "$minim" "$bench" "$gpu_test" "$build/minim-0/libminim-cuda.so" "$build/libminim.so.0" ||
        found 'not found'
    if ! step "device is usable" 20 bash -c '"$0" devices | tee /dev/stderr | grep -q "^cuda:0 .* free\$"' "$minim"; then
        found cuda
        bad=1
        finish
    fi
    found '^cuda'
    decoders=$build/tests/unit/format/format_decode_on_device
    [ ! -x "$decoders" ] || step "decoders: the host's bits" 20 "$decoders"
fi
MINIM_GPUS_SEEN=$("$minim" devices 2> /dev/null | grep -c '^cuda:.* free$')
export MINIM_GPUS_SEEN

# The cases of gpu_test one by one: what went wrong in one may have taken the device from all that came after it.
each_case() {
    local end=$((SECONDS + $1)) name
    "$gpu_test" --list-test-names-only > "$out/cases" 2> /dev/null  # the exit code is how many there are
    [ -s "$out/cases" ] || "$gpu_test" --list-tests --verbosity quiet > "$out/cases" 2> /dev/null
    while IFS= read -r name; do
        [ "$SECONDS" -lt "$end" ] || break
        step "$(cut -c1-52 <<< "$name")" 20 "$gpu_test" "$(sed 's/[][,]/\\&/g' <<< "$name")"
    done < <(sed 's/^ *//; /^$/d' "$out/cases")
}

if wants correct; then
    step "gpu_test, all" 90 "$gpu_test" || each_case 60
    step "real shapes beside the CPU" 100 "$build/tests/gpu/gpu_selfcheck"
    found '^FAIL| cases, ' 40
    for device in cpu cuda:0; do
        step "an answer on $device" 40 bash -c '"$0" -m "$1" -p "What is the capital of France?" --temp 0 --device "$2" > "$3"' \
            "$minim" "$model" "$device" "$out/answer-${device%:0}"
    done
    step "the same answer" 3 cmp "$out/answer-cpu" "$out/answer-cuda"
fi

# 2 and 4 ranks of one GPU, which NCCL takes from 2.30 on: bits of sums, models with recorded steps, abort, the latency of 12 KiB.
if wants ranks; then
    export NCCL_MULTI_RANK_GPU_ENABLE=1
    step "ranks of one GPU: NCCL and the kernel" 100 "$gpu_test" 'gpu links: *'
    found '^skipped|^sums over' 12
    step "ranks of one GPU, no-early" 60 env MINIM_CUDA_DEBUG=no-early "$gpu_test" 'gpu links: *'
fi

if wants stress; then
    for without in "" no-early no-early,no-record,no-fold; do
        MINIM_CUDA_DEBUG=$without step "2000 equal steps, ${without:-as it is}" 40 "$build/tests/gpu/gpu_stress_test"
        found '^steps|differs'
    done
fi

if wants sanitize; then
    # sanitize TOOL SECONDS TEST
    sanitize() {
        step "$1: $3" "$2" compute-sanitizer --tool "$1" --error-exitcode 9 "$gpu_test" "$(sed 's/,/\\,/g' <<< "$3")"
        found 'ERROR SUMMARY|RACECHECK SUMMARY' 2
    }
    sanitize memcheck 70 'gpu: experts of packed weights'
    sanitize racecheck 70 'gpu: quantised inputs are near, and a normalised row is quantised once'
    sanitize racecheck 60 'gpu: routers of every size, for one row and for many'
    sanitize racecheck 60 'gpu attend: steps of one row that are repeated attend anew'
    # Of kernels whose warps meet at one place: the others' named barrier is no error, but reported (sync_stages, device_thread.h).
    sanitize synccheck 60 'gpu: routers of every size, for one row and for many'
    for tool in memcheck racecheck; do
        sanitize $tool 70 'gpu stream: a row that each block normalises, and that is kept for later kernels'
        sanitize $tool 70 'gpu tile: BF16 weights and scales of FP8 that F16 does not hold'
    done
    sanitize initcheck 40 'gpu: quantised inputs are near, and a normalised row is quantised once'
fi

# So many of 62 layers: 1.2 GiB are the embedding's and the head's, 6 are left for KV cache and work space.
layers() {  # GIB_OF_A_LAYER
    "$minim" devices | sed -n 's/^cuda:0 .*, \([0-9.]*\) GiB free$/\1/p' | awk -v a_layer="$1" '{n = int(($1 - 7.2) / a_layer); print (n > 62 ? 62 : n)}'
}
# speed NAME SECONDS OPTIONS...
speed() {
    local name=$1 most=$2
    shift 2
    step "$name" "$most" "$bench" --synthetic --device cuda:0 "$@"
    found '^(pp|tg)|^ *cache of|^steps:.* [1-9][0-9]* records failed'
}
if wants speed; then
    n=$(layers 1.13)
    speed "IQ2_S, $n layers, decode and prompt" 60 --layers "$n" --experts-format IQ2_S -p 2048 -u 2048 -n 64 -r 3
    for without in "" no-early no-record no-prefetch no-fold; do
        MINIM_CUDA_DEBUG=$without speed "IQ2_S, 16 layers, ${without:-as it is}" 25 --layers 16 --experts-format IQ2_S -p 0 -n 64 -r 3
    done
    for format in IQ4_XS Q4_K IQ5_K,IQ5_K,IQ6_K Q8_0; do
        speed "$format, 8 layers" 25 --layers 8 --experts-format "$format" -p 2048 -u 2048 -n 64 -r 3
    done
    speed "IQ2_S, 4 layers, at 100,000, KV F16" 25 --layers 4 --experts-format IQ2_S -k F16 -d 100000 --synthetic-depth -p 512 -n 32 -r 3
    for kv in F16 Q8_0; do
        step "attention by context, KV cache $kv, us of 4 layers" 30 "$bench" --synthetic --device cuda:0 --layers 4 --vocab 3200 \
            --experts 8 --experts-format IQ2_S -k "$kv" -d 60,1000,4000,6000,16000,64000 --synthetic-depth -p 0 -n 0 --kernels
        found '^(a token|attend)' 12
    done
    speed "IQ2_S, 16 layers, several texts" 40 --layers 16 --experts-format IQ2_S -p 0 -n 8 -r 3 --parallel 1,8,64,256
    for format in IQ2_S IQ4_XS IQ5_K,IQ5_K,IQ6_K; do
        step "$format, 16 layers, operation by operation" 25 "$bench" --synthetic --device cuda:0 --layers 16 --experts-format "$format" -p 0 -n 0 --kernels
        found '^(norm|q, k|attend|o |route|experts|exchange|head|together)' 12
    done
fi

if wants probe; then
    step "clocks before" 10 nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader && found .
    step "probe: the device beside what kernels count on" 30 "$build/tests/gpu/gpu_probe"
    found '\[|left out|^error' 40
    step "clocks after" 10 nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader && found .
fi

# by_operation NAME SECONDS OPTIONS...: the table of minim-bench --kernels
by_operation() {
    local name=$1 most=$2
    shift 2
    step "$name, by operation" "$most" "$bench" --synthetic --device cuda:0 -p 0 -n 0 --kernels "$@"
    found '^(a token|norm|q, k|attend|o |route|experts|exchange|head|in order|together)' 48
}
# paths_apart NAME SECONDS PATHS OPTIONS...: three runs of each in turn, with the paths and without
paths_apart() {
    local name=$1 most=$2 paths=$3
    shift 3
    for run in 1 2 3; do
        MINIM_CUDA_PATHS='' speed "$name, default, run $run" "$most" "$@"
        MINIM_CUDA_PATHS=$paths speed "$name, $paths, run $run" "$most" "$@"
    done
}
# beside_cpu PATHS: products and experts of the model's shapes with the paths
beside_cpu() {
    for what in linear experts; do
        MINIM_CUDA_PATHS=$1 step "$1: $what of real shapes beside the CPU" 60 "$build/tests/gpu/gpu_selfcheck" $what
        found '^FAIL| cases, ' 20
    done
}
# nsight NAME PATHS KERNELS COUNTS OPTIONS...: Nsight Compute on kernels of two layers that are not recorded, for NAME.csv
nsight() {
    local name=$1 paths=$2 kernels=$3 counts=$4
    shift 4
    # shellcheck disable=SC2086
    step "ncu, $name" 60 env MINIM_CUDA_DEBUG=no-record MINIM_CUDA_PATHS=$paths ncu --clock-control none --kernel-name-base demangled \
        --kernel-name "regex:$kernels" $counts --csv --page raw --log-file "$out/$name.csv" "$bench" --synthetic --device cuda:0 --layers 2 -r 1 "$@"
}
step_kernels='Norm|Linear|Prepare|Attend|Combine|Route|Activate|Project|GroupSlots'
metrics=gpu__time_duration.sum,smsp__cycles_active.avg.per_second,sm__inst_issued.avg.pct_of_peak_sustained_active
metrics+=,sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active,l1tex__data_pipe_lsu_wavefronts_mem_shared.sum,dram__bytes.sum
if wants rows; then
    for format in IQ4_XS IQ2_S Q4_K Q8_0 IQ3_S IQ5_K,IQ5_K,IQ6_K; do
        by_operation "$format, 8 layers" 20 --layers 8 --vocab 32000 --experts-format "$format" --parallel 1,8,64,256
    done
    for format in IQ4_XS IQ5_K,IQ5_K,IQ6_K; do
        paths_apart "$format, 16 layers" 15 two-tables --layers 16 --vocab 32000 --experts-format "$format" -p 0 -n 64 -r 1
    done
    for format in IQ4_XS IQ2_S; do
        MINIM_CUDA_PATHS=stream by_operation "$format, 8 layers, stream" 20 --layers 8 --vocab 32000 --experts-format "$format" --parallel 1,4,8,64
    done
    step "stream kernel: its tests" 60 "$gpu_test" "gpu stream*"
    found 'passed|failed|skipped' 5
    beside_cpu stream
    for without in "" no-early; do
        MINIM_CUDA_PATHS=stream MINIM_CUDA_DEBUG=$without step "2000 equal steps, stream${without:+, $without}" 40 "$build/tests/gpu/gpu_stress_test"
        found '^steps|differs'
    done
    for format in IQ4_XS IQ2_S Q4_K Q8_0 IQ3_S IQ5_K,IQ5_K,IQ6_K; do
        paths_apart "$format, 8 layers" 15 stream --layers 8 --vocab 32000 --experts-format "$format" -p 0 -n 128 -r 1
    done
    n=$(layers 1.13)
    for paths in '' stream; do
        MINIM_CUDA_PATHS=$paths speed "IQ2_S, $n layers, ${paths:-default}" 60 --layers "$n" --experts-format IQ2_S -p 0 -n 64 -r 3
        for format in IQ2_S IQ4_XS; do
            MINIM_CUDA_PATHS=$paths speed "$format, 16 layers, several texts, ${paths:-default}" 40 --layers 16 --vocab 3200 --experts-format "$format" \
                -p 0 -n 8 -r 1 --parallel 1,2,4,8,64,256
        done
    done
    nsight decode-step-stream stream Stream "--launch-skip 10 --launch-count 5 --metrics $metrics --section WarpStateStats" \
        --vocab 3200 --experts-format IQ4_XS -p 0 -n 8
    paths_apart "IQ4_XS, 16 layers" 15 chosen-places --layers 16 --vocab 32000 --experts-format IQ4_XS -p 0 -n 64 -r 1
fi
if wants prompt; then
    for format in IQ4_XS IQ2_S BF16; do
        by_operation "$format, 4 layers, 2,048 rows" 25 --layers 4 --vocab 3200 --experts-format "$format" --parallel 2048
    done
    paths_apart "IQ4_XS, 8 layers" 15 dense-prompts --layers 8 --vocab 3200 --experts-format IQ4_XS -p 2048 -u 2048 -n 0 -r 1
    # The tile kernel beside the kernels of 8-bit inputs: its tests, the model's shapes, experts by operation, whole prompts.
    step "tile kernel: tests" 60 "$gpu_test" 'gpu tile*'
    beside_cpu tiles
    for format in IQ4_XS IQ2_S BF16; do
        MINIM_CUDA_PATHS=tiles by_operation "$format, 4 layers, 2,048 rows, tiles" 25 --layers 4 --vocab 3200 --experts-format "$format" --parallel 2048
    done
    for format in IQ4_XS Q4_K; do
        paths_apart "$format, 8 layers" 15 tiles --layers 8 --vocab 3200 --experts-format "$format" -p 2048 -u 2048 -n 0 -r 1
    done
    for paths in '' tiles; do
        MINIM_CUDA_PATHS=$paths speed "IQ4_XS, 8 layers, 8,192, ${paths:-default}" 25 --layers 8 --vocab 3200 --experts-format IQ4_XS -p 8192 -u 8192 -n 0 -r 1
        MINIM_CUDA_PATHS=$paths speed "IQ4_XS, 16 layers, several texts, ${paths:-default}" 25 --layers 16 --vocab 3200 --experts-format IQ4_XS \
            -p 0 -n 8 -r 1 --parallel 64,256
    done
    for paths in '' tiles; do
        nsight "prompt-step-${paths:-default}" "$paths" "$step_kernels|HalveRows" "--launch-skip 24 --launch-count 20 --metrics $metrics" \
            --vocab 3200 --experts-format IQ4_XS -p 2048 -u 2048 -n 0
    done
fi

if wants profile; then  # 18 kernels a step, those that pack weights left out
    nsight decode '' "$step_kernels" "--launch-skip 36 --launch-count 18 --section SpeedOfLight --section Occupancy --section WarpStateStats --section LaunchStats" \
        --vocab 32000 --experts-format IQ2_S -p 0 -n 8
    nsight prompt '' "$step_kernels" "--launch-skip 24 --launch-count 24 --section SpeedOfLight --section Occupancy --section ComputeWorkloadAnalysis" \
        --vocab 32000 --experts-format IQ2_S -p 2048 -u 2048 -n 0
fi

if wants offload; then
    for how in "--cpu-moe" "--n-cpu-moe 4" ""; do
        # shellcheck disable=SC2086
        speed "8 layers IQ4_XS, ${how:-all on the GPU}" 40 --layers 8 --vocab 32000 --experts-format IQ4_XS -p 512 -n 48 -r 3 $how
    done
    # A cache with room for half of the experts.
    for routing in uniform zipf:1.1; do
        speed "8 layers IQ4_XS, half of them in a cache, $routing" 40 --layers 8 --vocab 32000 --experts-format IQ4_XS -p 0 -n 256 -r 3 \
            --expert-cache 7344MiB --routing "$routing"
    done
    speed "8 layers IQ4_XS, prompts beside that cache" 60 --layers 8 --vocab 32000 --experts-format IQ4_XS -p 8192 -u 512,2048,8192 -n 0 -r 3 \
        --expert-cache 7344MiB
    # An exchange alone, by flags and by pieces, and a step beside a cache of half of the experts both ways.
    for run in 1 2 3; do
        for paths in '' exchange-pieces; do
            MINIM_CUDA_PATHS=$paths by_operation "an exchange, ${paths:-default}, run $run" 20 --layers 8 --vocab 3200 --experts-format IQ4_XS
        done
    done
    paths_apart "8 layers IQ4_XS, half of them in a cache" 40 exchange-pieces --layers 8 --vocab 32000 --experts-format IQ4_XS -p 0 -n 128 -r 1 \
        --expert-cache 7344MiB --routing zipf:1.1
    step "8 layers IQ4_XS, the CPU alone" 40 "$bench" --synthetic --layers 8 --vocab 32000 --experts-format IQ4_XS -p 512 -n 48 -r 3
    found '^(pp|tg)'
fi
finish
