// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "arguments.h"
#include "input.h"
#include "minim/minim.hpp"
#include "output.h"

namespace cli {
namespace {

constexpr int32_t k_largest_int32 = std::numeric_limits<int32_t>::max();
constexpr int64_t k_largest_int64 = std::numeric_limits<int64_t>::max();

// Returns a range check that --help does not describe.
template <typename Number>
CLI::Validator within(Number lowest, Number highest) {
    return CLI::Range(lowest, highest).description("");
}

void add_text_options(CLI::App& app, Options& options, const std::string& what) {
    CLI::Option* text = app.add_option("-p,--prompt", options.text, what)->type_name("TEXT");
    app.add_option("-f,--file", options.text_file, "read it from a file; -: standard input")
        ->type_name("FILE")
        ->excludes(text);
}

// Converts a size to bytes; "0.9" stays. Returns the error message that CLI11 expects of a validator.
std::string part_or_bytes(std::string& text) {
    if (text.starts_with("0.") || text == "1.0") return {};
    return CLI::AsSizeValue(true)(text);
}

std::string cache_bytes(std::string& text) {
    if (text != "room") return CLI::AsSizeValue(true)(text);
    text = std::to_string(MINIM_EXPERT_CACHE_ROOM);
    return {};
}

void add_model_options(CLI::App& app, Options& options) {
    app.add_option("-m,--model", options.model, "checkpoint: a GGUF file, a safetensors file or a folder")
        ->type_name("PATH");
    app.add_option("--backend", options.backend, "cpu, or reference: plain float arithmetic, slow and exact")
        ->type_name("NAME")
        ->check(CLI::IsMember({"cpu", "reference"}).description(""))
        ->capture_default_str();
    app.add_option("--device", options.devices,
                   "also -dev: devices for the layers, as `minim devices` names them: cuda:0 or "
                   "cuda:0,cuda:1, each with "
                   "a budget if need be (cuda:0=20GiB, cuda:0=0.9); auto: all usable devices")
        ->type_name("NAMES");
    app.add_option("--n-gpu-layers", options.n_gpu_layers,
                   "also -ngl: the number of layers on the devices, the last ones (default: all)")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    app.add_option("--tensor-split", options.tensor_split,
                   "also -ts: each device's share of the layers, 3,1 (default: by bytes, in proportion to "
                   "free memory)")
        ->type_name("SHARES")
        ->delimiter(',')
        ->check(within(0.0, 1e9));
    app.add_option("--device-memory", options.device_memory,
                   "the most memory to use of each device: 20GiB,24GiB, or parts of it: 0.9,0.5; 0: no limit "
                   "(default: no limits)")
        ->type_name("SIZES")
        ->delimiter(',')
        ->transform(CLI::Validator(part_or_bytes, ""));
    auto* cpu_moe = app.add_flag("--cpu-moe", options.cpu_moe,
                                 "also -cmoe: all experts stay on the CPU, the rest goes to the devices");
    app.add_option("--n-cpu-moe", options.n_cpu_moe,
                   "also -ncmoe: the experts of the first N layers stay on the CPU; below 0: of the last")
        ->type_name("N")
        ->check(within(int64_t{-k_largest_int32}, int64_t{k_largest_int32}))
        ->excludes(cpu_moe);
    app.add_option(
           "--override-tensor", options.overrides,
           "also -ot: put experts whose tensor names match on another device than their layer: exps=cpu, "
           "'blk\\.(3|4)\\..*exps=cuda:1'; several with commas between, the first that matches counts")
        ->type_name("PATTERN=DEVICE");
    app.add_option("--fit-ctx", options.fit_context,
                   "keep experts on the CPU as needed to leave room for a context of N tokens on the devices")
        ->type_name("N")
        ->check(within(int64_t{1}, int64_t{k_largest_int32}));
    app.add_option("--expert-cache", options.expert_cache,
                   "device memory for the experts that are used most, while the CPU computes the others: "
                   "4GiB, or room "
                   "for what is left beside the context (default: room, if no other option is about experts)")
        ->type_name("SIZE")
        ->transform(CLI::Validator(cache_bytes, ""));
    const std::map<std::string, int32_t> moves = {{"auto", MINIM_EXPERT_MOVES_AUTO},
                                                  {"fixed", MINIM_EXPERT_MOVES_FIXED},
                                                  {"reproducible", MINIM_EXPERT_MOVES_REPRODUCIBLE},
                                                  {"eager", MINIM_EXPERT_MOVES_EAGER}};
    app.add_option(
           "--expert-moves", options.expert_moves,
           "when experts of the cache change: fixed (never), reproducible (the same requests give the "
           "same texts) or eager (as soon as possible)")
        ->type_name("MODE")
        ->transform(CLI::CheckedTransformer(moves, CLI::ignore_case).description(""));
    app.add_option(
           "--expert-profile", options.expert_profile,
           "which experts the cache holds at first: read from this file if it is there, and written at "
           "the end")
        ->type_name("FILE");
    app.add_flag("--deterministic", options.deterministic,
                 "results of devices do not depend on batch composition and prompt chunks; slower");
    app.add_flag("--allow-cpu", options.allow_cpu, "go on without a device that cannot be used");
    app.add_option("-t,--threads", options.n_threads, "threads; 0: the cores that this process may use")
        ->type_name("N")
        ->check(within(0, k_largest_int32))
        ->capture_default_str();
    app.add_option("--threads-batch", options.n_threads_batch,
                   "also -tb: threads for prompts, with -t for single tokens; 0: as -t")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    app.add_flag("--pin-threads", options.pin_threads, "bind each thread to a core of its own");
    const std::map<std::string, int32_t> expand = {
        {"auto", MINIM_EXPAND_AUTO}, {"off", MINIM_EXPAND_OFF}, {"on", MINIM_EXPAND_ON}};
    app.add_option("--expand", options.expand,
                   "unpack the codebooks of IQ1 to IQ3 weights at load: off, on, or auto (if that is faster)")
        ->type_name("MODE")
        ->transform(CLI::CheckedTransformer(expand, CLI::ignore_case).description(""));
    const std::map<std::string, int32_t> numa = {{"auto", MINIM_NUMA_AUTO},
                                                 {"off", MINIM_NUMA_OFF},
                                                 {"interleave", MINIM_NUMA_INTERLEAVE},
                                                 {"split", MINIM_NUMA_SPLIT}};
    app.add_option(
           "--numa", options.numa,
           "several NUMA nodes: off, interleave (weights over all nodes), split (rows on the node of the "
           "threads that read them) or auto (split if there are several)")
        ->type_name("MODE")
        ->transform(CLI::CheckedTransformer(numa, CLI::ignore_case).description(""));
    auto* packed_file = app.add_option("--packed-file", options.packed_file,
                                       "map the CPU's packed weights from this file, and write it if needed")
                            ->type_name("FILE");
    app.add_flag("--mlock", options.mlock, "lock weights and KV cache in memory");
    app.add_flag("--prefault", options.prefault, "prefault mapped weights before the first token");
    auto* mmap =
        app.add_flag("--mmap", options.mmap,
                     "map the file instead of reading the weights into memory (default: if memory is short)");
    app.add_flag("--no-mmap", options.no_mmap, "read the weights into memory in any case")
        ->excludes(mmap)
        ->excludes(packed_file);
    app.add_flag("--verbose", options.verbose, "also -v: log what the library does to standard error");
}

void add_batch_options(CLI::App& app, Options& options) {
    app.add_option("-b,--batch-size", options.n_batch,
                   "upper bound of -ub, as other engines have it (default 2048)")
        ->type_name("N")
        ->check(within(1, k_largest_int32));
    app.add_option(
           "--ubatch-size", options.n_ubatch,
           "also -ub: tokens evaluated together (default: 512, or what is best with a cache of experts)")
        ->type_name("N")
        ->check(within(1, k_largest_int32));
    const std::map<std::string, int32_t> formats = {{"f16", MINIM_KV_F16},
                                                    {"f32", MINIM_KV_F32},
                                                    {"bf16", MINIM_KV_BF16},
                                                    {"q8_0", MINIM_KV_Q8_0},
                                                    {"q4_0", MINIM_KV_Q4_0}};
    const auto add_format = [&](const char* name, int32_t& format, const char* help) {
        app.add_option(name, format, help)
            ->type_name("FORMAT")
            ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case).description(""));
    };
    add_format("--kv", options.kv, "format of the KV cache: f16, f32, bf16, q8_0 or q4_0 (default f16)");
    add_format("--cache-type-k", options.k_format, "also -ctk: of the keys alone (default: as --kv)");
    add_format("--cache-type-v", options.v_format, "also -ctv: of the values alone (default: as --kv)");
}

void add_sampling_options(CLI::App& app, Options& options) {
    app.add_option(
           "--temp", options.temperature,
           "temperature; 0: always the likeliest token (default, as for those below: what the checkpoint "
           "recommends)")
        ->type_name("X")
        ->check(within(0.0, 100.0));
    app.add_option("--top-p", options.top_p,
                   "the likeliest tokens that together have this probability; 1: all")
        ->type_name("X")
        ->check(within(0.0, 1.0));
    app.add_option("--top-k", options.top_k, "the k likeliest tokens; 0: all")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    app.add_option("--min-p", options.min_p, "tokens at least this likely relative to the likeliest; 0: all")
        ->type_name("X")
        ->check(within(0.0, 1.0));
    app.add_option("--repeat-penalty", options.repeat_penalty, "for tokens among the last 64; 1: off")
        ->type_name("X")
        ->check(within(0.001, 1000.0));
    app.add_option("--dry-multiplier", options.dry_multiplier,
                   "DRY: lowers what would go on with a repetition; 0: off (default)")
        ->type_name("X")
        ->check(within(0.0, 1000.0));
    app.add_option("--dry-base", options.dry_base,
                   "to the power of the repetition's length beyond the allowed one (default 1.75)")
        ->type_name("X")
        ->check(within(1.0, 1000.0));
    app.add_option("--dry-allowed-length", options.dry_allowed_length,
                   "repetitions shorter than this are free (default 2)")
        ->type_name("N")
        ->check(within(0, k_largest_int32));
    app.add_option("--dry-penalty-last-n", options.dry_penalty_last_n,
                   "tokens in which repetitions are looked for; -1: all (default), 0: none")
        ->type_name("N")
        ->check(within(-1, k_largest_int32));
    app.add_option(
           "--dry-sequence-breaker", options.dry_breakers,
           "a text that ends repetitions, in place of newline, ':', '\"' and '*'; may be repeated; none: "
           "no text does")
        ->type_name("TEXT")
        ->take_all()
        ->expected(1);
    app.add_option("--reasoning-budget", options.reasoning_budget,
                   "close the model's reasoning after N tokens; 0: no limit")
        ->type_name("N")
        ->check(within(int64_t{0}, k_largest_int64))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "also -s: the same seed gives the same text; -1: chance")
        ->type_name("N")
        ->capture_default_str();
}

// Adds the options that `generate` and `chat` share.
void add_answer_options(CLI::App& app, Options& options) {
    add_model_options(app, options);
    add_batch_options(app, options);
    app.add_option("--system", options.system, "also -sys: system message (default: the chat template's own)")
        ->type_name("TEXT");
    app.add_option("-j,--json-schema", options.json_schema,
                   "the answer is JSON that fits this JSON Schema; '{}' is any JSON")
        ->type_name("SCHEMA");
    app.add_option("-n,--predict", options.n_predict,
                   "tokens to generate; -1 or 0: until the model ends its turn")
        ->type_name("N")
        ->check(within(int64_t{-1}, k_largest_int64))
        ->capture_default_str();
    add_sampling_options(app, options);
}

void add_generate_options(CLI::App& app, Options& options) {
    add_text_options(app, options, "what to say to the model");
    add_answer_options(app, options);
    app.add_flag("--raw", options.raw, "continue the text as it is, without chat template");
    app.add_option("-c,--ctx-size", options.n_context,
                   "context in tokens; 0: 4096 or what prompt and -n need, at most the model's own")
        ->type_name("N")
        ->check(within(int64_t{0}, k_largest_int64))
        ->capture_default_str();
}

CLI::App* add_chat(CLI::App& app, Options& options) {
    CLI::App* chat = app.add_subcommand("chat", "talk to the model in the terminal");
    add_answer_options(*chat, options);
    chat->add_option("-c,--ctx-size", options.n_context,
                     "context in tokens, of the whole conversation; 0: 32768, at most the model's own")
        ->type_name("N")
        ->check(within(int64_t{0}, k_largest_int64))
        ->capture_default_str();
    chat->add_flag("--hide-reasoning", options.hides_reasoning, "do not show what the model thinks");
    return chat;
}

CLI::App* add_inspect(CLI::App& app, Options& options, bool& metadata, bool& tensors) {
    CLI::App* inspect = app.add_subcommand("inspect", "print the headers of a checkpoint; loads no weights");
    inspect->add_option("file", options.model, "a .gguf or .safetensors file, an index or a folder")
        ->type_name("FILE")
        ->required();
    inspect->add_flag("--metadata", metadata, "the metadata; without --tensors only these");
    inspect->add_flag("--tensors", tensors, "the tensor table; without --metadata only this");
    return inspect;
}

CLI::App* add_tokenize(CLI::App& app, Options& options) {
    CLI::App* tokenize = app.add_subcommand("tokenize", "print the tokens of a text");
    add_text_options(*tokenize, options, "the text");
    add_model_options(*tokenize, options);
    tokenize
        ->add_option("--specials", options.specials,
                     "added tokens recognised in the text: exact (all), safe (no control tokens) or none")
        ->type_name("MODE")
        ->check(CLI::IsMember({"exact", "safe", "none"}).description(""))
        ->capture_default_str();
    tokenize->add_flag("--ids", options.ids_only, "ids alone, on one line");
    return tokenize;
}

CLI::App* add_perplexity(CLI::App& app, Options& options) {
    CLI::App* perplexity = app.add_subcommand("perplexity", "measure how well the model predicts a text");
    add_text_options(*perplexity, options, "the text");
    add_model_options(*perplexity, options);
    add_batch_options(*perplexity, options);
    perplexity
        ->add_option("--chunk", options.chunk_tokens,
                     "tokens of a chunk: chunks do not overlap, a short last one is left out")
        ->type_name("N")
        ->check(within(2, k_largest_int32))
        ->capture_default_str();
    return perplexity;
}

void complete_kv_formats(Options& options) {
    if (options.k_format == MINIM_KV_AUTO) options.k_format = options.kv;
    if (options.v_format == MINIM_KV_AUTO) options.v_format = options.kv;
}

void require_model_and_text(const Options& options) {
    if (options.model.empty()) throw UsageError("-m is required: the model to open");
    if (options.command == Command::chat) return;
    if (!options.text && options.text_file.empty()) throw UsageError("-p or -f is required: the text");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
    Options options;
    bool metadata = false;
    bool tensors = false;
    bool version = false;
    CLI::App app("Asks a MiniMax-M2 model. The answer goes to standard output, the timing to standard error.",
                 "minim");
    app.require_subcommand(0, 1);
    app.add_flag("--version", version, "print the version");
    add_generate_options(app, options);
    const CLI::App* chat = add_chat(app, options);
    const CLI::App* inspect = add_inspect(app, options, metadata, tensors);
    const CLI::App* tokenize = add_tokenize(app, options);
    const CLI::App* perplexity = add_perplexity(app, options);
    const CLI::App* devices = app.add_subcommand("devices", "list the devices, and why one is not usable");

    try {
        Arguments arguments = read_arguments(argc, argv);
        std::reverse(arguments.values.begin(), arguments.values.end());  // last first, as CLI11 wants them
        app.parse(std::move(arguments.values));
        for (const std::string& note : arguments.notes) print_note("minim: note: " + note + "\n");
    } catch (const CLI::CallForHelp&) {
        print(app.help());
        return std::nullopt;
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    if (version) {
        print(std::string(minim_build_info()) + "\n");
        return std::nullopt;
    }

    if (inspect->parsed()) {
        options.command = Command::inspect;
        options.show_metadata = metadata || !tensors;
        options.show_tensors = tensors || !metadata;
        return options;
    }
    if (devices->parsed()) {
        options.command = Command::devices;
        return options;
    }
    if (chat->parsed()) options.command = Command::chat;
    if (tokenize->parsed()) options.command = Command::tokenize;
    if (perplexity->parsed()) options.command = Command::perplexity;
    complete_kv_formats(options);
    options.system = utf8_text(std::move(options.system), "--system");
    options.json_schema = utf8_text(std::move(options.json_schema), "--json-schema");
    require_model_and_text(options);
    return options;
}

}  // namespace cli
