// SPDX-License-Identifier: Apache-2.0
// Options of llama.cpp and ik_llama.cpp that minim has not.
#include "foreign.h"

namespace program {
namespace {

constexpr Foreign k_llama_rows[] = {
    {false, Takes::nothing, "there is one kind of attention, which never stores the matrix of scores",
     "--swa-full --no-flash-attn -no-fa -dsa --dsa -fidx --fused-indexer-topk --swa-compress"},
    {false, Takes::one, "there is one kind of attention, which never stores the matrix of scores",
     "--swa-checkpoints --attention -mea --max-extra-alloc -ictk --indexer-cache-type-k -mla --mla-use "
     "-dsatk --dsa-top-k -amb --attention-max-batch -fdn --fused-delta-net -gap --graph-attn-precision"},
    {false, Takes::toggle, "there is one kind of attention, which never stores the matrix of scores",
     "-fa --flash-attn"},
    {false, Takes::nothing, "chat templates are always Jinja", "--jinja --no-jinja"},
    {false, Takes::nothing, "there is no warm-up: the prompt is the first step", "--no-warmup"},
    {false, Takes::nothing, "the warm-up is one step of its own", "-wb --warmup-batch"},
    {false, Takes::nothing, "there is always one turn", "-st --single-turn"},
    {false, Takes::nothing, "the prompt is never printed",
     "--display-prompt --no-display-prompt --verbose-prompt"},
    {false, Takes::nothing, "requests always join the running steps, whose size -b sets",
     "-cb --cont-batching -nocb --no-cont-batching -sas --scheduler-async"},
    {false, Takes::one, "requests always join the running steps, whose size -b sets", "-ps --p-split"},
    {false, Takes::nothing, "one paged KV cache of --kv-tokens serves all requests and keeps their prefixes",
     "-kvu --kv-unified -no-kvu --no-kv-unified --cache-idle-slots --no-cache-idle-slots -dkvc "
     "--dump-kv-cache --cache-prompt -rcache --rope-cache -khad --k-cache-hadamard -vhad "
     "--v-cache-hadamard"},
    {false, Takes::one, "one paged KV cache of --kv-tokens serves all requests and keeps their prefixes",
     "-dt --defrag-thold --kv-unified-per-slot -ctxcp --ctx-checkpoints -cms --checkpoint-min-step "
     "--checkpoint-every-n-tokens --cache-reuse -sps --slot-prompt-similarity "
     "--kv-reuse --recurrent-ckpt-mode -ctx-ckpt -ctx-ckpt-i --ctx-checkpoints-interval -ctx-ckpt-t "
     "--ctx-checkpoints-tolerance -ctx-ckpt-e --ctx-checkpoints-eviction"},
    {false, Takes::one, "every cached prefix may move to host memory, within the limit of --cache-ram",
     "-crs --cache-ram-similarity -cram-n-min --cache-ram-n-min"},
    {false, Takes::nothing, "calls of tools are always read, in the format of the model",
     "--no-parallel-tool-calls -ptcall --parallel-tool-calls"},
    {false, Takes::nothing, "routes and metrics are always the same; the README of minim-server lists them",
     "--ui --webui --no-ui --no-webui --metrics --props --slots --no-slots"},
    {false, Takes::one, "routes and metrics are always the same; the README of minim-server lists them",
     "--tags --ui-config --webui-config --ui-config-file --webui-config-file"},
    {false, Takes::nothing, "nothing is compiled or captured at start",
     "-gr --graph-reuse -no-gr --no-graph-reuse"},
    {false, Takes::one, "nothing is compiled or captured at start",
     "-cuda --cuda-params -wgt --worst-graph-tokens -grt --graph-reduce-type"},
    {false, Takes::nothing,
     "layout, arithmetic and kernels are chosen by the formats of the weights and by the machine",
     "--repack -nr --no-repack --no-host --op-offload -nopo --no-op-offload -bs --backend-sampling "
     "-fmoe --fused-moe -fug --fused-up-gate -mmad --fused-mul-multiadd -no-fmoe --no-fused-moe -ger "
     "--grouped-expert-routing -no-fug --no-fused-up-gate -no-mmad --no-fused-mul-multiadd "
     "--defer-experts --prefetch-experts -rtr --run-time-repack -thp --transparent-huge-pages -vq "
     "--validate-quants -mqkv --merge-qkv -muge --merge-up-gate-experts -smf16 --split-mode-f16 -smf32 "
     "--split-mode-f32 -no-ooae --no-offload-only-active-experts"},
    {false, Takes::one,
     "layout, arithmetic and kernels are chosen by the formats of the weights and by the machine",
     "--prefetch-experts-threads -op --offload-policy"},
    {false, Takes::nothing,
     "one process uses all devices and divides the layers among them (--device, --tensor-split)",
     "-smgs --split-mode-graph-scheduling"},
    {true, Takes::one, "minim runs in one process on one machine", "--rpc"},
    {true, Takes::nothing,
     "minim downloads nothing: name the downloaded file with -m, or ORG/NAME:QUANT in the cache",
     "-cl --cache-list"},
    {true, Takes::one,
     "minim downloads nothing: name the downloaded file with -m, or ORG/NAME:QUANT in the cache",
     "-mu --model-url -dr --docker-repo -hff --hf-file"},
    {false, Takes::nothing, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "--offline -dio --direct-io -ndio --no-direct-io"},
    {false, Takes::one, "nothing is downloaded, and files are read as --mmap and --no-mmap say",
     "-lzm --lazy-mode -hft --hf-token"},
    {true, Takes::nothing, "for a text without the chat template use --raw", "-no-cnv --no-conversation"},
    {true, Takes::nothing, "minim answers one prompt; `minim chat` is a conversation",
     "-cnv --conversation -i --interactive -if --interactive-first -mli --multiline-input "
     "--in-prefix-bos"},
    {true, Takes::one, "minim answers one prompt; `minim chat` is a conversation", "--in-prefix --in-suffix"},
    {true, Takes::many, "minim takes no draft model: drafts come from the text so far (--draft-tokens)",
     "--spec-draft-replace --spec-replace"},
    {true, Takes::nothing, "minim takes no draft model: drafts come from the text so far (--draft-tokens)",
     "-cmoed --cpu-moe-draft --spec-draft-cpu-moe -mtp --multi-token-prediction"},
    {true, Takes::one, "minim takes no draft model: drafts come from the text so far (--draft-tokens)",
     "--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft "
     "-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft --spec-draft-threads-batch "
     "--spec-draft-n-min --spec-draft-p-split --spec-draft-p-min -cd --ctx-size-draft "
     "--spec-draft-ctx-size -devd --device-draft --spec-draft-device -ngld --gpu-layers-draft "
     "--n-gpu-layers-draft --spec-draft-ngl -md --model-draft --spec-draft-model -hfd -hfrd "
     "--hf-repo-draft --spec-draft-hf -otd --override-tensor-draft --spec-draft-override-tensor "
     "-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-ckpt-mode --spec-stage -mtprot "
     "--mtp-requantize-output-tensor -draft --draft-params --output-draft"},
    {false, Takes::nothing,
     "the lengths of lookups and drafts are chosen by the library; --draft-tokens limits them",
     "--spec-autotune -no-mtp --no-multi-token-prediction"},
    {false, Takes::one,
     "the lengths of lookups and drafts are chosen by the library; --draft-tokens limits them",
     "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic --draft-min --draft-n-min --draft-p-split "
     "--draft-p-min --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits "
     "--spec-ngram-check-rate --spec-ngram-mod-n-match --spec-ngram-mod-n-min --spec-ngram-mod-n-max "
     "--suffix-pattern-len --suffix-max-depth --suffix-corpus"},
    {true, Takes::nothing, "minim takes no pictures, sounds or videos",
     "--mmproj-auto --tts-use-guide-tokens"},
    {false, Takes::nothing, "minim takes no pictures, sounds or videos",
     "--no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload"},
    {true, Takes::one, "minim takes no pictures, sounds or videos",
     "-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --image-min-tokens --image-max-tokens "
     "--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir --media-path "
     "-mv --model-vocoder --image --audio -tm --threads-mtmd --mtmd-kq-type"},
    {true, Takes::many, "minim takes no adapters", "--control-vector-layer-range"},
    {true, Takes::nothing, "minim takes no adapters", "--lora-init-without-apply"},
    {true, Takes::one, "minim takes no adapters",
     "--lora --lora-scaled --control-vector --control-vector-scaled"},
    {true, Takes::nothing, "minim generates text with models of the MiniMax-M2 family",
     "--spm-infill --embedding --embeddings --rerank --reranking --embd-gemma-default "
     "--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec "
     "--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
     "--vision-gemma-4b-default --vision-gemma-12b-default --infill"},
    {true, Takes::one, "minim generates text with models of the MiniMax-M2 family",
     "--pooling --embd-normalize --diffusion-steps --embd-output-format --embd-separator"},
    {true, Takes::one, "the model is evaluated as the checkpoint's headers say",
     "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
     "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv -gan --grp-attn-n -gaw "
     "--grp-attn-w -okv"},
    {true, Takes::nothing, "minim has no such sampler; the order of those that it has is fixed",
     "--penalize-nl --no-penalize-nl --adaptive-updt-w-cur"},
    {true, Takes::one, "minim has no such sampler; the order of those that it has is fixed",
     "--samplers --sampler-seq --sampling-seq --top-nsigma --top-n-sigma --xtc-probability "
     "--xtc-threshold --typical --typical-p --adaptive-target --adaptive-decay --dynatemp-range "
     "--dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --tfs "
     "--cfg-negative-prompt --cfg-negative-prompt-file --cfg-scale -ser --smart-expert-reduction "
     "--banned-string-file --banned-n --allowlist-unicode-rule --allowlist-pieces --allowlist-keyword "
     "--allowlist-keyword-delay --expiring-logit-bias-file"},
    {true, Takes::one,
     "it is for one answer: `minim` and `minim chat` take it, and requests to minim-server bring their own "
     "as "
     "`grammar` or `json_schema`",
     "--grammar --grammar-file -j --json-schema -jf --json-schema-file"},
    {true, Takes::nothing, "minim-server listens at one plain HTTP address; put a proxy before it",
     "--reuse-port"},
    {true, Takes::one, "minim-server listens at one plain HTTP address; put a proxy before it",
     "--path --ssl-key-file --ssl-cert-file --api-surface"},
    {false, Takes::nothing, "answers to preflight requests name what was asked for",
     "--cors-credentials --no-cors-credentials"},
    {false, Takes::one, "answers to preflight requests name what was asked for",
     "--cors-methods --cors-headers"},
    {true, Takes::one, "all models have the same options; name them with -m NAME=PATH or --models-dir",
     "--models-preset"},
    {true, Takes::nothing, "minim has no such feature",
     "--ui-mcp-proxy --webui-mcp-proxy -ag --agent --prompt-cache-all --prompt-cache-ro"},
    {true, Takes::one, "minim has no such feature",
     "--tools --tools-runtime --mcp-servers-config --mcp-servers-json --prompt-cache "
     "--sql-save-file --sqlite-zstd-ext-file"},
    {false, Takes::nothing, "minim has no such feature, so it is off",
     "--no-ui-mcp-proxy --no-webui-mcp-proxy -no-ag --no-agent"},
    {false, Takes::one, "one thread does all input and output", "--threads-http"},
    {false, Takes::nothing,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "--perf --no-perf --log-disable --log-jsonl --no-log-jsonl --log-prefix --no-log-prefix "
     "--log-timestamps --no-log-timestamps -co --simple-io --show-timings --no-show-timings "
     "--timestamps --minilog"},
    {false, Takes::one,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "-ptc --print-token-count --logdir -ld"},
    {false, Takes::toggle,
     "the log has notes, and one line per request; --log-format json makes objects of them",
     "--log-colors --color"},
    {true, Takes::one, "bind the process with taskset or numactl; --pin-threads and --numa do the rest",
     "-C --cpu-mask -Cr --cpu-range -Cb --cpu-mask-batch -Crb --cpu-range-batch"},
    {false, Takes::one,
     "threads wait as suits the machine; --pin-threads binds them, nice sets their priority",
     "--cpu-strict --prio --poll --cpu-strict-batch --prio-batch --poll-batch"},
    {false, Takes::nothing, "an answer ends where its context is full", "--no-context-shift"},
    {false, Takes::one, "an answer ends where its context is full", "--keep"},
    {true, Takes::nothing, "an answer ends where its context is full; nothing of it is dropped",
     "--context-shift --ctx-shift"},
    {false, Takes::nothing, "the KV cache of a layer is on its device", "-kvo --kv-offload"},
    {true, Takes::nothing, "the KV cache of a layer is on its device", "-nkvo --no-kv-offload"},
    {false, Takes::one, "what is not given is always fitted to the memory that is free",
     "-fitt --fit-target -gfm --gpu-fit-margin --fit-margin"},
    {false, Takes::toggle, "what is not given is always fitted to the memory that is free", "-fit --fit"},
    {true, Takes::nothing, "`minim devices` lists them", "--list-devices"},
    {true, Takes::nothing, "minim has no such option",
     "--completion-bash -e --escape --check-tensors -sp --special --skip-chat-parsing "
     "--no-prefill-assistant --dry-run"},
    {true, Takes::one, "minim has no such option",
     "-ncffn --n-cpu-ffn -r --reverse-prompt --reasoning-budget-message -bf --binary-file -sysf "
     "--system-prompt-file -ctk-first --cache-type-k-first -ctk-last --cache-type-k-last -ctv-first "
     "--cache-type-v-first -ctv-last --cache-type-v-last -spf --reasoning-tokens --max-gpu"},
    {false, Takes::nothing, "it is so anyway, or the chat template does not ask for it",
     "--no-escape --reasoning-preserve --no-reasoning-preserve --no-skip-chat-parsing "
     "--prefill-assistant"},
    {false, Takes::one, "it is so anyway, or the chat template does not ask for it", "--reasoning-effort"},
    {false, Takes::one, "layers are divided among the devices of --device; there is no main one",
     "-mg --main-gpu"},
};

}  // namespace

std::span<const Foreign> llama_options() {
    return k_llama_rows;
}

}  // namespace program
