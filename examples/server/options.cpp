// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <string_view>

#include <CLI/CLI.hpp>

#include "minim/minim.hpp"

namespace server {

namespace {

constexpr int32_t k_largest_int32 = std::numeric_limits<int32_t>::max();
constexpr int64_t k_longest_context = int64_t{1} << 30;

template <typename Number>
CLI::Validator within(Number lowest, Number highest) {
    return CLI::Range(lowest, highest).description("");
}

// Spells out llama.cpp's short options of several letters, which CLI11 does not support.
std::string spelled_out(std::string_view argument) {
    static const std::map<std::string_view, std::string_view> names = {
        {"-np", "--parallel"},        {"-tb", "--threads-batch"}, {"-ub", "--ubatch-size"},
        {"-ngl", "--n-gpu-layers"},   {"-ts", "--tensor-split"},  {"-dev", "--device"},
        {"-ot", "--override-tensor"}, {"-cmoe", "--cpu-moe"},     {"-ncmoe", "--n-cpu-moe"},
        {"-fa", "--flash-attn"},      {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"},
        {"-hf", "--hf-repo"},         {"-fmoe", "--fused-moe"},   {"-rtr", "--run-time-repack"}};
    const auto it = names.find(argument);
    return std::string(it == names.end() ? argument : it->second);
}

void add_model(CLI::App& app, Options& options) {
    app.add_option(
           "-m,--model,--hf-repo,--model-path", options.model,
           "a GGUF file, a safetensors folder, or ORG/NAME[:QUANT] in the Hugging Face cache (HF_HUB_CACHE, "
           "HF_HOME)")
        ->type_name("MODEL");
    app.add_option("model", options.model, "the same, as in `vllm serve MODEL`")
        ->type_name("MODEL")
        ->excludes("-m");
    app.add_option(
           "--device", options.devices,
           "also -dev: devices for the layers, cuda:0 or cuda:0,cuda:1, each with a budget if need be "
           "(cuda:0=20GiB, cuda:0=0.9); auto: all usable devices")
        ->type_name("NAMES");
    app.add_option("--n-gpu-layers", options.n_gpu_layers,
                   "also -ngl: the number of layers on the devices, the last ones")
        ->type_name("N");
    app.add_option("--tensor-split", options.tensor_split, "also -ts: each device's share of the layers, 3,1")
        ->take_all()
        ->type_name("SHARES")
        ->delimiter(',');
    app.add_flag("--cpu-moe", options.cpu_moe, "also -cmoe: all experts stay on the CPU");
    app.add_option("--n-cpu-moe", options.n_cpu_moe,
                   "also -ncmoe: the experts of the first N layers stay on the CPU")
        ->type_name("N");
    app.add_option("--override-tensor", options.overrides, "also -ot: experts by pattern, exps=cpu")
        ->take_all()
        ->type_name("PATTERN=DEVICE");
    app.add_option(
           "--expert-cache", options.expert_cache,
           "device memory for the experts that are used most, while the CPU computes the others: 4GiB "
           "(default: what is left, if no other option is about experts)")
        ->type_name("SIZE")
        ->transform(CLI::AsSizeValue(true).description(""));
    app.add_option("-t,--threads", options.n_threads, "threads; 0: the cores this process may use")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    app.add_option("--threads-batch", options.n_threads_batch,
                   "also -tb: threads for prompts, with -t for decoding")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    auto* mmap = app.add_flag("--mmap", options.mmap, "map the file instead of reading it");
    app.add_flag("--no-mmap", options.no_mmap, "read the weights into memory in any case")->excludes(mmap);
    app.add_flag("--mlock", options.mlock, "lock weights and KV cache in memory");
    app.add_flag("--verbose", options.verbose, "log what the library does");
}

void add_serving(CLI::App& app, Options& options) {
    app.add_option("--host", options.host, "address to listen at; 0.0.0.0: all addresses")
        ->capture_default_str();
    app.add_option("--port", options.port, "0: any free port, which the log names")->capture_default_str();
    app.add_option("--api-key", options.api_key, "require this key (Authorization: Bearer, or x-api-key)")
        ->type_name("KEY")
        ->envname("MINIM_API_KEY");
    app.add_option(
           "-c,--ctx-size,--max-model-len,--context-length", options.n_context,
           "tokens of one request, prompt and answer; 0: the longest that fits, at most the context that the "
           "model was trained for")
        ->type_name("N")
        ->check(within(int64_t{0}, k_longest_context));
    app.add_option(
           "--parallel,--max-num-seqs,--max-running-requests", options.n_parallel,
           "also -np: requests that run at once; others wait (default: 16, or fewer if memory is short)")
        ->type_name("N")
        ->check(within(1, 4096));
    app.add_option("--queue", options.n_queue, "requests that may wait; further ones are answered with 429")
        ->type_name("N")
        ->check(within(0, 1000000))
        ->capture_default_str();
    app.add_option("--kv-tokens", options.kv_tokens,
                   "size of the KV cache in tokens, for all requests and cached prefixes (default: what "
                   "fits, from one "
                   "context to one for each request, at most 131072 or one context)")
        ->type_name("N");
    app.add_option("-b,--batch-size,--max-num-batched-tokens", options.n_batch,
                   "tokens of a step (default: 512, or what is best with a cache of experts)")
        ->type_name("N")
        ->check(within(1, 65536));
    const std::map<std::string, int32_t> formats = {{"auto", MINIM_KV_AUTO}, {"f16", MINIM_KV_F16},
                                                    {"f32", MINIM_KV_F32},   {"bf16", MINIM_KV_BF16},
                                                    {"q8_0", MINIM_KV_Q8_0}, {"q4_0", MINIM_KV_Q4_0}};
    app.add_option("--kv,--cache-type-k,--cache-type-v,--kv-cache-dtype", options.kv_format,
                   "KV cache: f16, f32, bf16, q8_0 or q4_0")
        ->type_name("FORMAT")
        ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case).description(""));
    app.add_option("--alias", options.names, "name of the model in answers")->take_all()->type_name("NAME");
    app.add_option("--sse-ping-interval", options.ping_seconds,
                   "seconds between keep-alive events of a waiting stream")
        ->type_name("SECONDS")
        ->check(within(0.05, 86400.0))
        ->capture_default_str();
    app.add_option("--timeout", options.timeout_seconds, "seconds after which an answer is ended; 0: never")
        ->type_name("SECONDS")
        ->check(within(int64_t{0}, int64_t{1} << 31));
    app.add_option("--metrics-prefix", options.metrics_prefix,
                   "prefix of metric names; vllm: for vLLM's dashboards")
        ->capture_default_str();
    app.add_option("--cors-origin", options.cors_origin, "allow pages of this origin; *: all")
        ->type_name("ORIGIN");
    app.add_option("--log-file", options.log_file, "log to this file instead of standard error")
        ->type_name("FILE");
}

void add_answers(CLI::App& app, Options& options) {
    const std::map<std::string, int32_t> parsers = {{"minimax_m2", MINIM_REASONING_SPLIT},
                                                    {"minimax-m2", MINIM_REASONING_SPLIT},
                                                    {"minimax", MINIM_REASONING_SPLIT},
                                                    {"auto", MINIM_REASONING_SPLIT},
                                                    {"deepseek", MINIM_REASONING_SPLIT},
                                                    {"deepseek_r1", MINIM_REASONING_SPLIT},
                                                    {"minimax_m2_append_think", MINIM_REASONING_APPEND_THINK},
                                                    {"minimax-append-think", MINIM_REASONING_APPEND_THINK},
                                                    {"none", MINIM_REASONING_NONE}};
    app.add_option("--reasoning-parser,--reasoning-format", options.reasoning,
                   "minimax_m2: reasoning in a field of its own; minimax_m2_append_think: in the content, "
                   "with tags; none: "
                   "as the model writes it")
        ->type_name("NAME")
        ->transform(CLI::CheckedTransformer(parsers, CLI::ignore_case).description(""));
    app.add_flag("!--no-remember-reasoning", options.remembers_reasoning,
                 "do not restore reasoning that a client drops from a turn with tool calls");
    app.add_option("--reasoning-budget", options.reasoning_budget,
                   "tokens of thought for requests that do not say; -1: no limit, 0: no thought")
        ->type_name("N")
        ->check(within(int64_t{-1}, int64_t{k_largest_int32}));
    app.add_flag("!--no-constrain-calls", options.constrains_calls,
                 "do not enforce the tools' schemas if the model may choose whether it calls a tool");
    const std::string rest = "for requests that do not say (default: what the checkpoint recommends)";
    app.add_option("--temp,--temperature", options.sampling.temperature, rest)->check(within(0.0, 100.0));
    app.add_option("--top-p", options.sampling.top_p, rest)->check(within(0.0, 1.0));
    app.add_option("--top-k", options.sampling.top_k, rest + "; 0: off")
        ->check(within(int64_t{0}, int64_t{k_largest_int32}));
    app.add_option("--min-p", options.sampling.min_p, rest)->check(within(0.0, 1.0));
    app.add_option("--repeat-penalty", options.sampling.repetition_penalty,
                   rest + ", over the last 64 tokens")
        ->check(within(0.001, 1000.0));
}

std::string first_of(std::string_view names) {
    return std::string(names.substr(0, names.find(',')));
}

// Flags of llama.cpp, ik_llama.cpp, vLLM and SGLang that have no meaning here, with or without a value.
void add_ignored(CLI::App& app, std::vector<std::string>& ignored) {
    const auto flag = [&](const char* names) {
        app.add_flag_callback(names, [&ignored, names] { ignored.emplace_back(first_of(names)); })->group("");
    };
    const auto option = [&](const char* names) {
        app.add_option_function<std::string>(
               names, [&ignored, names](const std::string&) { ignored.emplace_back(first_of(names)); })
            ->expected(0, 1)
            ->group("");
    };
    for (const char* name :
         {"--jinja", "--no-jinja", "--enable-auto-tool-choice", "--trust-remote-code", "--metrics", "--slots",
          "--props", "--no-warmup", "--warmup", "--enforce-eager", "--cont-batching", "--no-webui",
          "--enable-expert-parallel", "--enable-prefix-caching", "--no-context-shift", "--fused-moe",
          "--run-time-repack", "--enable-chunked-prefill", "--disable-log-requests"})
        flag(name);
    for (const char* name : {"--flash-attn",
                             "--tool-call-parser",
                             "--tensor-parallel-size,--tp,--tp-size",
                             "--pipeline-parallel-size",
                             "--data-parallel-size",
                             "--expert-parallel-size,--ep",
                             "--gpu-memory-utilization",
                             "--mem-fraction-static",
                             "--dtype",
                             "--quantization",
                             "--swap-space",
                             "--cpu-offload-gb",
                             "--chat-template",
                             "--tokenizer",
                             "--ubatch-size",
                             "--threads-http",
                             "--main-gpu",
                             "--split-mode",
                             "--numa",
                             "--seed",
                             "--load-format",
                             "--max-seq-len-to-capture",
                             "--attention-backend",
                             "--moe-runner-backend",
                             "--block-size"})
        option(name);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
    Options options;
    std::vector<std::string> served_names;
    bool version = false;
    CLI::App app(
        "Serves a MiniMax-M2 model over HTTP: the APIs of OpenAI (chat, completions, responses) and "
        "Anthropic.",
        "minim-server");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_flag("--version", version, "print the version");
    add_model(app, options);
    add_serving(app, options);
    app.add_option("--served-model-name", served_names, "names that requests must have for the model")
        ->take_all()
        ->type_name("NAME");
    add_answers(app, options);
    add_ignored(app, options.ignored);

    std::vector<std::string> arguments;
    for (int i = argc - 1; i > 0; --i) arguments.push_back(spelled_out(argv[i]));
    // `vllm serve MODEL`
    if (!arguments.empty() && arguments.back() == "serve") arguments.pop_back();
    try {
        app.parse(arguments);
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return std::nullopt;
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    if (version) {
        std::printf("%s\n", minim_build_info());
        return std::nullopt;
    }
    if (!served_names.empty()) {
        options.names = served_names;
        options.requires_name = true;
    }
    if (options.model.empty()) throw UsageError("-m is required: the model to serve");
    return options;
}

}  // namespace server
