// SPDX-License-Identifier: Apache-2.0
// Options of vLLM and SGLang that minim has not.
#include "foreign.h"

namespace program {
namespace {

constexpr Foreign k_python_rows[] = {
    {false, Takes::nothing, "there is one kind of attention, which never stores the matrix of scores",
     "--disable-sliding-window --disable-cascade-attn --disable-flashinfer --enable-flashinfer-mla "
     "--disable-mla --enable-encoder-swa-bounded-replay --enable-decoder-swa-bounded-replay "
     "--enable-lean-attention --triton-attention-reduce-in-fp32 --flashinfer-mla-disable-ragged "
     "--enable-deepseek-v4-fp4-indexer --enable-dsa-fused-indexer --enable-linear-replayssm "
     "--enable-linear-replayssm-spec --enable-dsa-cache-layer-split"},
    {false, Takes::one, "there is one kind of attention, which never stores the matrix of scores",
     "--override-attention-dtype --swap-space --mm-encoder-attn-backend --attention-config "
     "--attention-backend --qsa-indexer-dtype --mm-attention-backend --swa-full-tokens-ratio "
     "--swa-prefix-tails --speculative-attention-mode --speculative-draft-attention-backend "
     "--decode-attention-backend --prefill-attention-backend --dsa-prefill-backend "
     "--dsv4-prefill-backend --dsa-triton-union --dsa-decode-backend --dsv4-attn-backend "
     "--dsa-paged-mqa-logits-backend --dsa-topk-backend --triton-attention-num-kv-splits "
     "--triton-attention-split-tile-size --linear-attn-backend --linear-attn-decode-backend "
     "--linear-attn-prefill-backend --linear-attn-verify-backend --linear-replayssm-cache-len"},
    {false, Takes::nothing, "there is no warm-up: the prompt is the first step", "--skip-server-warmup"},
    {false, Takes::nothing, "the warm-up is one step of its own", "--pre-warm-nccl"},
    {false, Takes::one, "the warm-up is one step of its own", "--warmups"},
    {false, Takes::many, "requests always join the running steps, whose size -b sets",
     "--prefill-delayer-forward-passes-buckets --prefill-delayer-wait-seconds-buckets"},
    {false, Takes::nothing, "requests always join the running steps, whose size -b sets",
     "--enable-dbo --multi-step-stream-outputs --enable-chunked-prefill --async-scheduling "
     "--disable-async-output-proc --disable-overlap-schedule --enable-mixed-chunk --stream-output "
     "--disable-jump-forward --disable-disk-cache --enable-dynamic-chunking "
     "--enable-priority-scheduling --disable-priority-preemption --abort-on-priority-when-disabled "
     "--schedule-low-priority-values-first --enable-prefill-delayer --enable-two-batch-overlap "
     "--enable-single-batch-overlap --enable-pdmux --incremental-streaming-output"},
    {false, Takes::one, "requests always join the running steps, whose size -b sets",
     "--dbo-decode-token-threshold --dbo-prefill-token-threshold --max-num-partial-prefills "
     "--max-long-partial-prefills --long-prefill-token-threshold --num-lookahead-slots "
     "--scheduler-delay-factor --preemption-mode --num-scheduler-steps --scheduling-policy "
     "--scheduler-cls --stream-interval --performance-mode --schedule-policy --prefill-decode-interval "
     "--prefill-decode-interval-min-bs --max-prefill-tokens --prefill-max-requests "
     "--default-priority-value --priority-scheduling-preemption-threshold --retraction-policy "
     "--schedule-conservativeness --num-continuous-decode-steps --scheduler-recv-interval "
     "--prefill-delayer-max-delay-passes --prefill-delayer-token-usage-low-watermark "
     "--prefill-delayer-queue-min-ratio --prefill-delayer-max-delay-ms --min-free-slots-delay "
     "--context-bucket --tbo-token-distribution-threshold --num-reserved-decode-tokens "
     "--optimistic-prefill-attempts --pdmux-config-path --sm-group-num --batch-notify-size"},
    {false, Takes::nothing, "one paged KV cache of --kv-tokens serves all requests and keeps their prefixes",
     "--calculate-kv-scales --kv-sharing-fast-prefill --disable-hybrid-kv-cache-manager "
     "--use-v2-block-manager --enable-cache-report --disable-hybrid-swa-memory "
     "--prefill-only-disable-kv-cache --disable-chunked-prefix-cache "
     "--enable-mamba-cache-stochastic-rounding --enable-int8-mamba-checkpoint --strip-thinking-cache "
     "--enable-streaming-session --enable-page-major-kv-layout --enable-unified-memory "
     "--enable-session-radix-cache "
     "--enable-unified-cache-external-linker --enable-linker-mla-dedup --enable-hisparse "
     "--enable-lmcache --enable-flexkv"},
    {false, Takes::one, "one paged KV cache of --kv-tokens serves all requests and keeps their prefixes",
     "--block-size --prefix-caching-hash-algo --mamba-cache-dtype --mamba-ssm-cache-dtype "
     "--mamba-block-size --mamba-cache-mode "
     "--kv-canary-real-data --quantization-param-path --page-size --c128-page-size "
     "--max-mamba-cache-size --mamba-full-memory-ratio --prefill-kv-cache-dequant-dtype "
     "--mamba-backend --mamba-ssm-dtype --mamba-max-states-per-path --mamba-cache-philox-rounds "
     "--mamba-radix-cache-strategy --mamba-track-interval --int8-mamba-ckpt-size --kv-canary "
     "--kv-canary-sweep-interval --radix-eviction-policy --radix-eviction-policy-config "
     "--radix-cache-backend --unified-cache-external-linker-backend "
     "--unified-cache-external-linker-config --hisparse-config "
     "--hierarchical-sparse-attention-extra-config --lmcache-config-file --flexkv-config-file"},
    {false, Takes::nothing, "prompt states in host memory have the limit of --cache-ram",
     "--enable-hierarchical-cache --enable-hicache"},
    {false, Takes::one, "prompt states in host memory have the limit of --cache-ram",
     "--kv-offloading-backend --hicache-host-memory-mode --hicache-ratio --hicache-host-memory-fraction "
     "--hicache-write-policy --hicache-io-backend --hicache-mem-layout --hicache-storage-backend "
     "--hicache-storage-prefetch-policy --hicache-storage-backend-extra-config "
     "--hicache-storage-prefetch-retry-poll-interval --hicache-storage-prefetch-retry-max-attempts"},
    {false, Takes::nothing, "calls of tools are always read, in the format of the model",
     "--enable-auto-tool-choice --exclude-tools-when-tool-choice-none"},
    {false, Takes::one, "calls of tools are always read, in the format of the model", "--tool-call-parser"},
    {false, Takes::many, "routes and metrics are always the same; the README of minim-server lists them",
     "--tokenizer-metrics-allowed-custom-labels --bucket-time-to-first-token "
     "--bucket-inter-token-latency --bucket-e2e-request-latency --prompt-tokens-buckets "
     "--generation-tokens-buckets --gc-threshold"},
    {false, Takes::nothing, "routes and metrics are always the same; the README of minim-server lists them",
     "--return-tokens-as-token-ids --enable-request-id-headers --disable-fastapi-docs "
     "--enable-offline-docs --enable-prompt-tokens-details --enable-server-load-tracking "
     "--enable-force-include-usage --enable-tokenizer-info-endpoint --disable-log-stats "
     "--kv-cache-metrics --cudagraph-metrics --enable-mfu-metrics --enable-metrics "
     "--stream-response-default-include-usage --enable-metrics-for-all-schedulers "
     "--enable-forward-pass-metrics --enable-trace --export-metrics-to-file"},
    {false, Takes::one, "routes and metrics are always the same; the README of minim-server lists them",
     "--response-role --show-hidden-metrics-for-version --kv-cache-metrics-sample --weight-version "
     "--tokenizer-metrics-custom-labels-header --extra-metric-labels --gc-warning-threshold-secs "
     "--forward-pass-metrics-worker-id --forward-pass-metrics-ipc-name --trace-modules "
     "--export-metrics-to-file-dir"},
    {false, Takes::nothing, "no code of a checkpoint is ever run, and its family is read from its headers",
     "--trust-remote-code --trust-mm-content-hashes --trust-request-chat-template"},
    {false, Takes::one, "no code of a checkpoint is ever run, and its family is read from its headers",
     "--chat-template-content-format --runner --convert --task --hf-config-path --code-revision "
     "--tokenizer-revision --config-format --model-impl --model-config-parser"},
    {false, Takes::many, "nothing is compiled or captured at start",
     "--cuda-graph-sizes --cudagraph-capture-sizes --cuda-graph-bs --flashinfer-autotune-skip-ops "
     "--cuda-graph-bs-decode --cuda-graph-bs-prefill"},
    {false, Takes::nothing, "nothing is compiled or captured at start",
     "--enforce-eager -O0 -O1 -O2 -O3 --enable-flashinfer-autotune --enable-torch-compile "
     "--disable-cuda-graph --monokernel-backend --enable-tf32-matmul --enable-nvidia-megakernel "
     "--enable-amd-monokernel --disable-flashinfer-autotune --disable-prefill-cuda-graph "
     "--disable-decode-cuda-graph --disable-cuda-graph-padding --enable-profile-cuda-graph "
     "--enable-cudagraph-gc --debug-cuda-graph --enable-torch-compile-debug-mode --mlx-enable-sampling"},
    {false, Takes::one, "nothing is compiled or captured at start",
     "--max-seq-len-to-capture --max-cudagraph-capture-size --compilation-config -cc -O "
     "--optimization-level --additional-config --kernel-config --cuda-graph-max-bs --cuda-graph-config "
     "--cuda-graph-backend-decode --cuda-graph-backend-prefill --cuda-graph-max-bs-decode "
     "--cuda-graph-max-bs-prefill --cuda-graph-max-seq-len-prefill --cuda-graph-prefill-max-context "
     "--torch-compile-max-bs"},
    {false, Takes::nothing,
     "layout, arithmetic and kernels are chosen by the formats of the weights and by the machine",
     "--enable-return-routed-experts --enable-flashinfer-trtllm-moe --enable-flashinfer-cutlass-moe "
     "--enable-fp32-lm-head --enable-fused-qk-norm-rope --enable-precise-embedding-interpolation "
     "--enable-scattered-sconv --enable-quant-communications "
     "--enforce-disable-flashinfer-allreduce-fusion --enable-aiter-allreduce-fusion "
     "--disable-aiter-allreduce-fusion-in-prefill --disable-aiter-allreduce-fusion-in-decode "
     "--enable-fused-moe-sum-all-reduce --enable-w4a4-mxfp4-megamoe --enable-waterfill "
     "--disable-flashinfer-cutlass-moe-fp4-allgather --disable-shared-experts-fusion "
     "--enforce-shared-experts-fusion --enable-shared-experts-attn-tp --enable-dense-mlp-attn-tp "
     "--enable-layernorm-sp --enable-megamoe-for-layernorm-sp"},
    {false, Takes::one,
     "layout, arithmetic and kernels are chosen by the formats of the weights and by the machine",
     "--dtype --moe-backend --moe-runner-backend --sampling-backend --rl-quant-profile "
     "--fp8-gemm-runner-backend --fp4-gemm-runner-backend --bf16-gemm-backend --boundary-reduction "
     "--flashinfer-allreduce-fusion-backend --flashinfer-mxfp4-moe-precision --fuseep-mode "
     "--flashinfer-a2a-dispatch-type --kt-weight-path --kt-method --kt-cpuinfer --kt-threadpool-count "
     "--kt-num-gpu-experts --kt-max-deferred-experts-per-token --shared-experts-tp-size"},
    {false, Takes::nothing,
     "one process uses all devices and divides the layers among them (--device, --tensor-split)",
     "--data-parallel-hybrid-lb -dph --data-parallel-external-lb -dpe "
     "--disable-nccl-for-dp-synchronization --enable-eplb --eplb-log-balancedness "
     "--ray-workers-use-nsight --disable-custom-all-reduce --enable-multimodal-encoder-data-parallel "
     "--enable-deepep-moe --enable-moe-ep --enable-dp-attention "
     "--enable-flashinfer-allreduce-fusion --enable-nccl-nvls --enable-symm-mem --enable-mscclpp "
     "--enable-torch-symm-mem --enable-elastic-expert-backup --dcp-replicate-q-proj "
     "--enable-prefill-cp --enable-cp-decode-attn-tp --enable-kv-cache-sharding "
     "--enable-dp-attention-local-control-broadcast --enable-dp-lm-head --enable-tp-lm-head-all-to-all "
     "--enable-attn-tp-input-scattered --disable-attn-tp-gather --enable-p2p-check --use-ray"},
    {false, Takes::one,
     "one process uses all devices and divides the layers among them (--device, --tensor-split)",
     "--distributed-executor-backend "
     "--decode-context-parallel-size -dcp --prefill-context-parallel-size -pcp "
     "--dcp-kv-cache-interleave-size --cp-kv-cache-interleave-size --data-parallel-size -dp "
     "--data-parallel-rank -dpn --data-parallel-start-rank -dpr --data-parallel-size-local -dpl "
     "--data-parallel-address -dpa --data-parallel-rpc-port -dpp --data-parallel-backend -dpb "
     "--all2all-backend --eplb-config --expert-placement-strategy --num-redundant-experts "
     "--eplb-window-size --eplb-step-interval --max-parallel-loading-workers --worker-cls "
     "--worker-extension-cls --speculative-draft-tensor-parallel-size --dp "
     "--dp-size --moe-a2a-backend --deepep-v2-mode --deepep-mode "
     "--deepep-dispatcher-output-dtype --ep-num-redundant-experts --ep-dispatch-algorithm "
     "--init-expert-location --eplb-algorithm --eplb-rebalance-num-iterations "
     "--eplb-rebalance-layers-per-chunk --eplb-min-rebalancing-utilization-threshold "
     "--expert-distribution-recorder-mode --expert-distribution-recorder-buffer-size "
     "--expert-balancedness-report-mode --deepep-config --elastic-ep-backend --ep-join-mode "
     "--elastic-ep-scale-timeout --load-snapshot-publish-interval --load-publish-endpoint --nccl-port "
     "--dist-timeout --nccl-init-addr --dcp-size --pp-max-micro-batch-size --pp-async-batch-depth "
     "--attn-dp-size --attention-data-parallel-size --load-balance-method --attn-cp-size "
     "--attention-context-parallel-size --moe-dp-size --moe-data-parallel-size --dwdp-size "
     "--dcp-comm-backend --cp-strategy --moe-dense-tp-size "
     "--ep-join-rank-offset --elastic-ep-initial-size --max-ep-size --base-gpu-id --gpu-id-step"},
    {true, Takes::many, "minim runs in one process on one machine",
     "--custom-weight-loader --remote-instance-weight-loader-send-weights-group-ports "
     "--decoupled-spec-connect-endpoints --encoder-urls --encoder-register-urls --sidecar-args"},
    {true, Takes::nothing, "minim runs in one process on one machine",
     "--headless --grpc --remote-instance-weight-loader-start-seed-via-transfer-engine "
     "--checkpoint-engine-wait-weights-before-ready --disaggregation-enable-kv-checksum "
     "--disaggregation-decode-enable-radix-cache --disaggregation-decode-enable-offload-kvcache "
     "--enable-pd-role-switch --encoder-only --language-only --enable-adaptive-dispatch-to-encoder "
     "--smg-grpc-mode --grpc-mode --enable-http2"},
    {true, Takes::one, "minim runs in one process on one machine",
     "--master-addr --master-port --nnodes --node-rank --kv-transfer-config --kv-events-config "
     "--ec-transfer-config --weight-transfer-config --remote-instance-weight-loader-seed-instance-ip "
     "--remote-instance-weight-loader-seed-instance-service-port "
     "--remote-instance-weight-loader-backend --engine-info-bootstrap-port --modelexpress-config "
     "--weight-cache-mode --weight-cache-socket --weight-cache-timeout --mooncake-ib-device "
     "--decoupled-spec-bind-endpoint --decoupled-spec-rank --decoupled-spec-role --disaggregation-mode "
     "--disaggregation-decode-allocation-policy --disaggregation-transfer-backend "
     "--disaggregation-bootstrap-port --disaggregation-ib-device "
     "--disaggregation-decode-retraction-backup --disaggregation-decode-extra-slots "
     "--disaggregation-decode-polling-interval --encoder-transfer-backend --encoder-bootstrap-port "
     "--disaggregation-decode-host-receive-threshold --grpc-port --grpc-response-timeout-secs "
     "--sidecar --http2-max-concurrent-streams --http2-initial-connection-window-size "
     "--smg-http-sidecar-port --grpc-http-sidecar-port --dist-init-addr"},
    {true, Takes::one, "the KV cache is sized with --kv-tokens",
     "--kv-cache-memory-bytes --num-gpu-blocks-override"},
    {true, Takes::one,
     "minim downloads nothing: name the downloaded file with -m, or ORG/NAME:QUANT in the cache",
     "--revision"},
    {false, Takes::many, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "--ignore-patterns"},
    {false, Takes::nothing, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "--use-tqdm-on-load --weight-loader-prefetch-checkpoints --weight-loader-drop-cache-after-load "
     "--delete-ckpt-after-loading"},
    {false, Takes::one, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "--load-format --download-dir --safetensors-load-strategy --model-loader-extra-config "
     "--pt-load-map-location --startup-weight-load-mode --weight-loader-prefetch-num-threads"},
    {false, Takes::optional, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "--model-checksum"},
    {true, Takes::nothing, "minim takes no draft model: drafts come from the text so far (--draft-tokens)",
     "--speculative-dspark-align-verify-tokens-to-graph-tier --speculative-enable-w4a4-mxfp4-megamoe "
     "--enable-multi-layer-eagle --enable-draft-weights-cpu-backup"},
    {true, Takes::one, "minim takes no draft model: drafts come from the text so far (--draft-tokens)",
     "--speculative-model --decrypted-draft-config-file --speculative-draft-model-path "
     "--speculative-draft-model --speculative-draft-model-revision --speculative-draft-load-format "
     "--speculative-num-steps --speculative-eagle-topk --speculative-dflash-block-size "
     "--speculative-domino-candidate-pool-size --speculative-dspark-block-size "
     "--speculative-dspark-sps-table-path --speculative-dspark-confidence-sts-path "
     "--speculative-token-map --speculative-dsa-topk-backend --speculative-draft-kv-cache-dtype "
     "--speculative-draft-window-size --speculative-draft-sink-size --speculative-moe-runner-backend "
     "--speculative-moe-a2a-backend --speculative-draft-model-quantization --spec-trace-dir"},
    {false, Takes::nothing,
     "the lengths of lookups and drafts are chosen by the library; --draft-tokens limits them",
     "--speculative-use-rejection-sampling --speculative-use-block-verification --speculative-adaptive"},
    {false, Takes::one,
     "the lengths of lookups and drafts are chosen by the library; --draft-tokens limits them",
     "--ngram-prompt-lookup-max --ngram-prompt-lookup-min --speculative-max-model-len "
     "--spec-decoding-acceptance-method --speculative-accept-threshold-single "
     "--speculative-accept-threshold-acc --speculative-adaptive-config "
     "--speculative-ngram-min-bfs-breadth --speculative-ngram-max-bfs-breadth "
     "--speculative-ngram-match-type --speculative-ngram-max-trie-depth --speculative-ngram-capacity "
     "--speculative-ngram-external-corpus-path --speculative-ngram-external-sam-budget "
     "--speculative-ngram-external-corpus-max-tokens"},
    {true, Takes::many, "minim takes no pictures, sounds or videos", "--allowed-media-domains"},
    {true, Takes::nothing, "minim takes no pictures, sounds or videos",
     "--enable-mm-embeds --disable-mm-preprocessor-cache --mm-encoder-only --interleave-mm-strings "
     "--skip-mm-profiling --disable-chunked-mm-input --enable-multimodal "
     "--enable-broadcast-mm-inputs-process --enable-prefix-mm-cache --mm-enable-dp-encoder "
     "--enable-mm-global-cache"},
    {false, Takes::nothing, "minim takes no pictures, sounds or videos",
     "--language-model-only --disable-fast-image-processor"},
    {true, Takes::one, "minim takes no pictures, sounds or videos",
     "--allowed-local-media-path --limit-mm-per-prompt --media-io-kwargs --mm-processor-kwargs "
     "--mm-processor-cache-gb --mm-processor-cache-type --mm-shm-cache-max-object-size-mb "
     "--mm-encoder-tp-mode --video-pruning-rate --default-mm-loras --mm-process-config "
     "--mm-processor-worker-num --mm-io-worker-num --media-url-max-file-size-mb "
     "--mm-preprocess-cache-size-mb --limit-mm-data-per-request --image-processor-backend "
     "--mm-global-cache-backend --mm-feature-transport --asr-max-buffer-seconds "
     "--asr-max-concurrent-sessions"},
    {true, Takes::many, "minim takes no adapters", "--lora-modules --prompt-adapters --lora-target-modules"},
    {true, Takes::nothing, "minim takes no adapters",
     "--enable-lora --enable-lora-bias --fully-sharded-loras --enable-prompt-adapter "
     "--enable-lora-overlap-loading --experts-shared-outer-loras --lora-use-virtual-experts "
     "--lora-strict-loading"},
    {true, Takes::one, "minim takes no adapters",
     "--max-loras --max-lora-rank --lora-extra-vocab-size --lora-dtype --max-cpu-loras "
     "--max-prompt-adapters --qlora-adapter-name-or-path --uno-lora-path --lora-paths "
     "--max-loaded-loras --max-loras-per-batch --lora-eviction-policy --lora-backend "
     "--max-lora-chunk-size --lora-drain-wait-threshold"},
    {true, Takes::nothing, "minim generates text with models of the MiniMax-M2 family",
     "--enable-prompt-embeds --is-embedding --enable-mis --dllm-fdfo"},
    {true, Takes::one, "minim generates text with models of the MiniMax-M2 family",
     "--io-processor-plugin --pooler-config --override-pooler-config --dllm-algorithm "
     "--dllm-algorithm-config"},
    {true, Takes::one, "the model is evaluated as the checkpoint's headers say",
     "--rope-theta --hf-overrides --json-model-override-args"},
    {true, Takes::many, "minim has no such sampler; the order of those that it has is fixed",
     "--logits-processors"},
    {true, Takes::nothing, "minim has no such sampler; the order of those that it has is fixed",
     "--enable-custom-logit-processor"},
    {true, Takes::one, "minim has no such sampler; the order of those that it has is fixed",
     "--logits-processor-pattern --sampling-mask-max-tokens"},
    {false, Takes::nothing, "the library's own automata bound answers",
     "--guided-decoding-disable-fallback --guided-decoding-disable-any-whitespace "
     "--guided-decoding-disable-additional-properties --disable-outlines-disk-cache "
     "--enable-strict-thinking --constrained-json-disable-any-whitespace"},
    {false, Takes::one, "the library's own automata bound answers",
     "--guided-decoding-backend --structured-outputs-config --constrained-json-whitespace-pattern "
     "--grammar-backend --constrained-json-max-whitespace-cnt"},
    {true, Takes::nothing, "minim-server listens at one plain HTTP address; put a proxy before it",
     "--enable-ssl-refresh --enable-http-worker-reuseport"},
    {true, Takes::one, "minim-server listens at one plain HTTP address; put a proxy before it",
     "--ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-cert-reqs --ssl-ciphers "
     "--middleware --ssl-keyfile-password"},
    {false, Takes::one,
     "routes and the page work below any path that a proxy takes away; --prefix is for a proxy that passes "
     "it on",
     "--root-path --fastapi-root-path"},
    {false, Takes::nothing, "answers to preflight requests name what was asked for", "--allow-credentials"},
    {false, Takes::one, "answers to preflight requests name what was asked for",
     "--allowed-methods --allowed-headers --h11-max-incomplete-event-size --h11-max-header-count"},
    {true, Takes::one, "--cors-origin takes the one origin, or '*'", "--allowed-origins"},
    {true, Takes::many, "a model is opened from its files as they are; --models-idle unloads it",
     "--forward-hooks"},
    {true, Takes::nothing, "a model is opened from its files as they are; --models-idle unloads it",
     "--enable-sleep-mode --enable-cumem-allocator --quantize-and-serve --enable-memory-saver "
     "--enable-weights-cpu-backup"},
    {true, Takes::one, "a model is opened from its files as they are; --models-idle unloads it",
     "--modelopt-quant --modelopt-checkpoint-restore-path --modelopt-checkpoint-save-path "
     "--modelopt-export-path --rl-on-policy-target --admin-api-key --gated-launch-port"},
    {true, Takes::many, "minim has no such feature", "--return-aux-hidden-state-layer-ids"},
    {true, Takes::nothing, "minim has no such feature",
     "--enable-return-hidden-states --enable-return-aux-hidden-states --enable-return-indexer-topk "
     "--enable-response-store --return-input-ids --return-output-ids"},
    {true, Takes::one, "minim has no such feature",
     "--tool-parser-plugin --tool-server --reasoning-parser-plugin --return-hidden-states-mode "
     "--file-storage-path"},
    {false, Takes::many, "one thread does all input and output", "--uvicorn-access-log-exclude-prefixes"},
    {false, Takes::nothing, "one thread does all input and output",
     "--disable-frontend-multiprocessing --skip-tokenizer-init --enable-layerwise-nvtx-tracing "
     "--enable-layerwise-nvtx-marker --enable-dynamic-batch-tokenizer --enable-tokenizer-batch-encode "
     "--disable-tokenizer-batch-decode --sleep-on-idle"},
    {false, Takes::one, "one thread does all input and output",
     "--api-server-count -asc --tokenizer-mode --otlp-traces-endpoint --collect-detailed-traces "
     "--profiler-config --renderer-num-workers --tokenizer-backend "
     "--tokenizer-worker-num --detokenizer-worker-num --dynamic-batch-tokenizer-batch-size "
     "--dynamic-batch-tokenizer-batch-timeout --log-level-http --otlp-service-name --watchdog-timeout "
     "--soft-watchdog-timeout"},
    {false, Takes::one, "the checkpoint's own tokenizer, template and recommended values are used",
     "--tokenizer --generation-config --tokenizer-path --hf-chat-template-name --completion-template "
     "--sampling-defaults --preferred-sampling-params"},
    {true, Takes::one, "use --temp, --top-p and the like", "--override-generation-config"},
    {false, Takes::many,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "--log-requests-target --debug-tensor-dump-layers"},
    {false, Takes::nothing,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "--disable-uvicorn-access-log --enable-log-outputs --enable-log-deltas --log-error-stack "
     "--disable-log-requests --enable-log-requests --aggregate-engine-logging "
     "--enable-logging-iteration-details --log-requests --show-time-cost --enable-nan-detection "
     "--enable-request-time-stats-logging"},
    {false, Takes::one,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "--disable-access-log-for-endpoints --log-config-file --max-log-len --max-logprobs "
     "--logprobs-mode --log-requests-level --log-requests-format --crash-dump-folder "
     "--decode-log-interval --debug-tensor-dump-output-folder --debug-tensor-dump-input-file "
     "--msprobe-dump-config"},
    {true, Takes::many, "bind the process with taskset or numactl; --pin-threads and --numa do the rest",
     "--numa-bind-nodes --numa-bind-cpus --numa-node"},
    {true, Takes::nothing, "bind the process with taskset or numactl; --pin-threads and --numa do the rest",
     "--numa-bind"},
    {true, Takes::nothing, "an answer ends where its context is full; nothing of it is dropped",
     "--allow-auto-truncate"},
    {true, Takes::many, "minim has no such option", "--offload-params"},
    {true, Takes::nothing, "minim has no such option",
     "--tokens-only --enable-watermark --enable-paged-experts --ple-offload-embedding"},
    {true, Takes::one, "minim has no such option",
     "--offload-backend --moe-expert-cache-size --max-micro-batch-size --decrypted-config-file "
     "--watermark-config --paged-experts-num-resident --offload-group-size --offload-num-in-group "
     "--offload-prefetch-step --offload-mode --ple-offload-backend --ple-offload-dir"},
};

}  // namespace

std::span<const Foreign> python_options() {
    return k_python_rows;
}

}  // namespace program
