// SPDX-License-Identifier: Apache-2.0
// Options of minim-server.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "key_file.h"
#include "minim/minim.h"
#include "set.h"

namespace program {
namespace {

constexpr double k_shortest_ping = 0.05;  // seconds
constexpr double k_longest_ping = 86400;
constexpr int64_t k_longest_timeout = int64_t{1} << 31;

constexpr int64_t k_max_mib = int64_t{1} << 43;

constexpr Word k_chosen[] = {{"auto", 0}, {"-1", 0}};
constexpr Word k_parsers[] = {{"minimax_m2", MINIM_REASONING_SPLIT},
                              {"minimax-m2", MINIM_REASONING_SPLIT},
                              {"minimax_m3", MINIM_REASONING_SPLIT},
                              {"minimax-m3", MINIM_REASONING_SPLIT},
                              {"minimax", MINIM_REASONING_SPLIT},
                              {"auto", MINIM_REASONING_SPLIT},
                              {"deepseek", MINIM_REASONING_SPLIT},
                              {"deepseek-legacy", MINIM_REASONING_SPLIT},
                              {"deepseek_r1", MINIM_REASONING_SPLIT},
                              {"deepseek-r1", MINIM_REASONING_SPLIT},
                              {"minimax_m2_append_think", MINIM_REASONING_APPEND_THINK},
                              {"minimax_m3_append_think", MINIM_REASONING_APPEND_THINK},
                              {"minimax-append-think", MINIM_REASONING_APPEND_THINK},
                              {"none", MINIM_REASONING_NONE}};

constexpr Word k_log_formats[] = {{"text", 0}, {"json", 1}};
constexpr Word k_no_limit[] = {{"none", -1}};
constexpr Word k_fields[] = {{"both", 0}, {"reasoning_content", 1}, {"reasoning", 2}};

void set_reasoning_field(Options& options, const Value& value) {
    options.reasoning_fields = {"reasoning_content", "reasoning"};
    if (value.integer == 1) options.reasoning_fields.pop_back();
    if (value.integer == 2) options.reasoning_fields.erase(options.reasoning_fields.begin());
}

// Calls `use` with each part of "a,b" that is not empty.
template <typename Use>
void for_each_part(std::string_view text, Use use) {
    while (!text.empty()) {
        const size_t end = std::min(text.find(','), text.size());
        if (end > 0) use(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

void add_keys(Options& options, const Value& value) {
    if (value.text.empty()) throw UsageError(fmt::format("{}: the key is empty", value.option));
    for_each_part(value.text, [&](std::string_view key) { options.api_keys.emplace_back(key); });
}

void add_key_file(Options& options, const Value& value) {
    try {
        read_key_file(value.text);
    } catch (const std::runtime_error& error) {
        throw UsageError(fmt::format("{}: {}", value.option, error.what()));
    }
    options.api_key_files.push_back(value.text);
}

// A value that ends in .sock names a Unix socket, as in llama.cpp.
void set_host(Options& options, const Value& value) {
    const bool is_socket = value.text.ends_with(".sock") && !value.text.starts_with(k_unix_host);
    options.host = is_socket ? fmt::format("{}{}", k_unix_host, value.text) : value.text;
    if (options.host == k_unix_host)
        throw UsageError(fmt::format("{}: '{}' names no socket", value.option, value.text));
}

void set_socket(Options& options, const Value& value) {
    Value host = value;
    if (!host.text.starts_with(k_unix_host)) host.text.insert(0, k_unix_host);
    set_host(options, host);
}

// Takes "/llm", "llm" and "/llm/" alike. "/" is no prefix.
void set_prefix(Options& options, const Value& value) {
    constexpr std::string_view k_unsafe = "?#%\\ \"<>";
    const auto is_unsafe = [&](char c) {
        return static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f ||
               k_unsafe.find(c) != std::string_view::npos;
    };
    std::string prefix = value.text.starts_with('/') ? value.text : "/" + value.text;
    if (prefix.ends_with('/')) prefix.pop_back();
    if (std::ranges::any_of(prefix, is_unsafe) || prefix.find("//") != std::string::npos)
        throw UsageError(
            fmt::format("{}: '{}' is not a path such as /llm, of letters, digits and - . _ ~ / alone",
                        value.option, value.text));
    options.path_prefix = prefix;
}

void add_alias(Options& options, const Value& value) {
    for_each_part(value.text, [&](std::string_view name) { options.names.emplace_back(name); });
}

void add_served_name(Options& options, const Value& value) {
    if (!options.requires_name) options.names.clear();
    options.names.push_back(value.text);
    options.requires_name = true;
}

void set_ping(Options& options, const Value& value) {
    if (value.real != -1 && value.real < k_shortest_ping)
        throw UsageError(fmt::format("{}: '{}' is not from {} to {}, nor -1 for as seldom as possible",
                                     value.option, value.text, k_shortest_ping, k_longest_ping));
    options.ping_seconds = value.real == -1 ? k_longest_ping : value.real;
}

constexpr Row k_server_rows[] = {
    {"--host", "", text("ADDRESS"), k_server, "127.0.0.1",
     "address to listen at; 0.0.0.0: all addresses; unix:PATH, or a path that ends in .sock: a Unix socket",
     set_host},
    {"--uds", "", text("PATH"), k_server, "", "listen at this Unix socket: the same as --host unix:PATH",
     set_socket},
    {"--port", "", integer("N", 0, 65535), k_server, "8080", "0: any free port, which the log names",
     set<&Options::port>},
    {"--prefix --api-prefix", "", text("PATH"), k_server, "",
     "path before all routes and the page, as /llm; for a proxy that passes it on", set_prefix},
    {"--api-key", "", texts("KEY"), k_server, "",
     "require one of these keys (Authorization: Bearer, or x-api-key); several with commas or blanks between",
     add_keys},
    {"--api-key-file", "", text("FILE"), k_server, "",
     "the same, from a file with one key on each line, which is read again at SIGHUP", add_key_file},
    {"-c --ctx-size --max-model-len --context-length", "", count("N", 0, k_longest_context, k_chosen),
     k_server, "0",
     "tokens of one request, prompt and answer; 0: the longest that fits, at most the context that the model "
     "was trained for",
     set<&Options::n_context>},
    {"-np --parallel --max-num-seqs --max-running-requests", "", integer("N", 1, 4096, k_chosen),
     k_server | k_plan, "16, or fewer if memory is short; of a plan 1",
     "requests that run at once; others wait. Of a plan: sequences, each of which reserves the context",
     set<&Options::n_parallel>},
    {"--queue --max-queued-requests", "", integer("N", 0, 1000000), k_server, "2048",
     "requests that may wait; further ones are answered with 429", set<&Options::n_queue>},
    {"--kv-tokens --max-total-tokens", "", count("N", 0, k_largest_int64), k_server, "0",
     "size of the KV cache in tokens, for all requests and cached prefixes; 0: what fits, from one "
     "context to one for each request, at most 131072 or one context",
     set<&Options::kv_tokens>},
    {"--enable-prefix-caching", "--no-enable-prefix-caching --no-cache-prompt --disable-radix-cache", flag(),
     k_server, "on", "keep the KV cache of ended requests for others that begin with the same tokens",
     [](Options& o, const Value& v) { o.forgets_prefixes = !v.on; }},
    {"-cram --cache-ram", "", integer("MIB", -1, k_max_mib), k_server,
     "8192 if the KV cache is on a device, else 0",
     "host memory for prompt states: cached prefixes that must leave the KV cache move there and come back; "
     "-1: "
     "what is free; 0: none",
     set<&Options::cache_ram>},
    {"--kv-offloading-size --hicache-size", "", real("GIB", 0, 1e9), k_server, "", "--cache-ram in GiB",
     [](Options& o, const Value& v) { o.cache_ram = static_cast<int64_t>(v.real * 1024); }},
    {"--slot-save-path", "", text("FOLDER"), k_server, "",
     "a folder for the prompt states that POST /slots/N?action=save writes and restore reads",
     set<&Options::slot_save_path>},
    {"--save-prefixes", "", text("FILE"), k_server, "",
     "a file of the prefix cache: read at the start if it exists, and written at the end",
     set<&Options::saved_prefixes>},
    {"--models-dir", "", text("FOLDER"), k_server, "",
     "serve the models of a folder too: its GGUF files and the folders in it. `model` of a request chooses "
     "one, which is loaded when it is needed",
     set<&Options::models_dir>},
    {"--models-max", "", integer("N", 0, 4096), k_server, "4",
     "models in memory at once; the least recently used one is unloaded for another. 0: no limit",
     set<&Options::models_max>},
    {"--models-memory", "", Type{.kind = Kind::size, .value = "SIZE"}, k_server, "0",
     "memory of all loaded models with their KV caches, as 200GiB; 0: no limit",
     set_bytes<&Options::models_memory>},
    {"--models-idle --sleep-idle-seconds", "", integer("SECONDS", -1, k_longest_timeout), k_server, "-1",
     "seconds without a request after which a model is unloaded, until the next request; below 1: never",
     set<&Options::models_idle_seconds>},
    {"--models-autoload", "--no-models-autoload", flag(), k_server, "on",
     "load a model when a request needs it; off: POST /models/load does", set<&Options::models_autoload>},
    {"-a --alias", "", text("NAME"), k_server, "the file's",
     "name of the model in answers; several with commas", add_alias},
    {"--served-model-name", "", texts("NAME"), k_server, "", "names that requests must have for the model",
     add_served_name},
    {"--sse-ping-interval", "", real("SECONDS", -1, k_longest_ping), k_server, "15",
     "seconds between keep-alive events of a waiting stream; -1: as seldom as possible", set_ping},
    {"-to --timeout", "", integer("SECONDS", 0, k_longest_timeout), k_server,
     "10 within a request, 60 between requests",
     "seconds without progress after which a connection is closed: while a request arrives, while its client "
     "does not read the answer, and between requests; 0: the default",
     set<&Options::socket_timeout_seconds>},
    {"--answer-timeout", "", integer("SECONDS", 0, k_longest_timeout), k_server, "0",
     "seconds after which an answer is ended; 0: never", set<&Options::timeout_seconds>},
    {"--drain-timeout --shutdown-timeout", "", integer("SECONDS", -1, k_longest_timeout, k_no_limit),
     k_server, "-1",
     "seconds that requests may run on after SIGTERM; the rest then ends with an error; -1: no limit",
     set<&Options::drain_seconds>},
    {"--reasoning-parser --reasoning-format", "", choice("NAME", k_parsers), k_server, "minimax_m2",
     "minimax_m2, minimax_m3: reasoning in a field of its own; minimax_m2_append_think, "
     "minimax_m3_append_think: "
     "in the content, with tags; none: as the model writes it; the tags are always those of the model",
     set<&Options::reasoning>},
    {"--reasoning-field", "", choice("NAME", k_fields), k_server, "both",
     "the field of a chat's thoughts: reasoning_content (llama.cpp, older vLLM), reasoning (newer vLLM), or "
     "both",
     set_reasoning_field},
    {"--remember-reasoning", "--no-remember-reasoning", flag(), k_server, "on",
     "restore reasoning that a client drops from a turn with tool calls", set<&Options::remembers_reasoning>},
    {"--constrain-calls", "--no-constrain-calls", flag(), k_server, "on",
     "enforce the tools' schemas also if the model may choose whether it calls a tool",
     set<&Options::constrains_calls>},
    {"--warmup", "--no-warmup --skip-server-warmup", flag(), k_server, "on",
     "evaluate a step before the first request, so that it is as fast as the others", set<&Options::warmup>},
    {"--log-format", "", choice("FORMAT", k_log_formats), k_server, "text",
     "json: each line of the log is a JSON object", set<&Options::logs_json>},
    {"--metrics-prefix", "", text("TEXT"), k_server, "minim_",
     "prefix of metric names; vllm: for vLLM's dashboards", set<&Options::metrics_prefix>},
    {"--cors-origin --cors-origins", "", text("ORIGIN"), k_server, "", "allow pages of this origin; *: all",
     set<&Options::cors_origin>},
};

}  // namespace

std::span<const Row> server_rows() {
    return k_server_rows;
}

}  // namespace program
