// SPDX-License-Identifier: Apache-2.0
// The values that options of minim and minim-server set. The table of options (table.h) says which option sets which field.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "minim/minim.h"

namespace program {

// The commands of `minim`, and `minim-server`.
enum class Command : uint32_t {
    generate,
    chat,
    tokenize,
    perplexity,
    imatrix,
    eval_kl,
    eval_choice,
    eval_compare,
    eval_needle,
    eval_tools,
    inspect,
    devices,
    plan,
    convert,
    quantize,
    check,
    options,
    server,
};

// What an address begins with that is the path of a Unix socket.
constexpr std::string_view k_unix_host = "unix:";

// Values for answers, or for requests without these fields. If a value is absent, the checkpoint's is used, then the model
// family's.
struct SamplingDefaults {
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<int64_t> top_k;
    std::optional<double> min_p;
    std::optional<double> repetition_penalty;
    std::optional<int64_t> repeat_last_n;  // tokens that the repetition penalty looks back on, as given
    int64_t penalty_last_n = -1;           // as completed with the checkpoint's
    std::optional<double> presence_penalty;
    std::optional<double> frequency_penalty;
    std::optional<double> dry_multiplier;
    std::optional<double> dry_base;
    std::optional<int64_t> dry_allowed_length;
    std::optional<int64_t> dry_penalty_last_n;
    std::vector<std::string> dry_breakers;  // empty: the usual ones
    std::optional<uint64_t> seed;           // absent: chance
    int64_t max_tokens = 0;                 // of requests that do not say; 0: up to the context
    int64_t draft_tokens = 0;               // most draft tokens a step, from the text so far; 0: none
    bool ignores_end = false;
};

// Ranks that share the layers of the model. 0: not said; MINIM_ALL_RANKS: one on each device, a group of experts for each rank.
struct Parallel {
    int32_t tensor = 0;
    int32_t experts = 0;
    int32_t pipeline = 0;
    double timeout_seconds = 30;  // until a rank that does not answer counts as lost

    bool is_given() const noexcept { return tensor != 0 || experts != 0 || pipeline != 0; }
};

// A model of minim-server: -m NAME=PATH.
struct GivenModel {
    std::string name;  // "": that of its file
    std::string path;  // as `model` of Options
};

struct Options {
    Command command = Command::generate;
    std::vector<std::string> notes;  // one line for each option without effect: which, and why

    // The model and where it is computed.
    std::string model;         // a path, or ORG/NAME[:QUANT] in the cache of downloaded models
    std::string quantization;  // method that the checkpoint must have; "": any
    std::string packed_file;   // file of the CPU's packed weights
    std::string backend = "cpu";
    std::string devices;                    // "cuda:0,cuda:1"; empty or "auto": all usable devices
    std::vector<std::string> plan_devices;  // of `minim plan`: "cuda:0=96GiB,1790GB/s"
    std::vector<std::string>
        device_memory;  // the maximum to use of each device: bytes, or a part 0.9; one: of all
    std::vector<double> tensor_split;
    std::vector<std::string> overrides;  // "PATTERN=DEVICE": experts on another device than their layer
    int32_t n_gpu_layers = -1;           // below 0: all
    bool cpu_moe = false;
    int64_t n_cpu_moe = 0;       // layers whose experts stay on the CPU; below 0: of the last layers
    double cpu_offload_gib = 0;  // GiB of experts that stay on the CPU, of the first layers
    int64_t fit_context = 0;     // tokens of context to keep room for on the devices; 0: none
    uint64_t expert_cache = 0;   // bytes on the devices; 0: none, or all room if no option places experts
    int32_t expert_moves = 0;    // MINIM_EXPERT_MOVES_*
    std::string expert_profile;
    Parallel parallel;
    bool allow_cpu = false;  // go on without a device that cannot be used
    int32_t n_threads = 0;
    int32_t n_threads_batch = 0;
    int32_t numa = 0;  // MINIM_NUMA_*
    bool pin_threads = false;
    bool mlock = false;
    bool prefault = false;
    int32_t expand = 0;  // MINIM_EXPAND_*
    bool deterministic = false;
    bool mmap = false;
    bool no_mmap = false;
    int32_t n_batch = 0;
    int32_t n_ubatch = 0;
    int32_t kv_format = MINIM_KV_AUTO;  // for K and V without a format of their own
    int32_t k_format = MINIM_KV_AUTO;
    int32_t v_format = MINIM_KV_AUTO;
    int64_t n_context = 0;      // 0: chosen by the program
    std::string chat_template;  // the template's text; "": the checkpoint's
    std::string chat_kwargs;    // a JSON object of template variables, for all conversations; "": none
    bool verbose = false;
    std::string log_file;  // "": standard error
    bool logs_json = false;

    // The answer.
    SamplingDefaults sampling;
    int64_t n_predict = -1;         // below 1: until the model ends its turn
    int64_t reasoning_budget = -1;  // tokens of thought; -1: no limit, 0: none
    std::string json_schema;        // of the answer; "": any text
    std::string grammar;            // of the answer, in GBNF; "": any text

    // Of `minim` alone.
    std::optional<std::string> text;  // -p
    std::string text_file;            // -f
    std::string system;
    bool hides_reasoning = false;
    bool raw = false;
    bool show_metadata = true;
    bool show_tensors = true;
    bool ids_only = false;
    std::string specials = "exact";
    int64_t chunk_tokens = 256;  // imatrix, eval kl and check: 512; 0: not known
    std::string plan_host;       // "768GiB,576GB/s"; "": this machine
    std::string plan_link;       // between ranks: "9us,20GB/s"; "": by the devices
    bool prints_json = false;

    // Of `minim convert` and `minim quantize` alone; the source is `model`.
    std::string output;
    std::string recipe;                   // of quantize
    std::string type;                     // of convert: "keep"
    std::vector<std::string> type_rules;  // "PATTERN=TYPE", in the order given
    std::string output_type;              // of output.weight
    std::string embedding_type;           // of token_embd.weight
    bool keeps_output = false;
    bool is_pure = false;
    bool allows_requantize = false;
    bool goes_without_importance = false;
    std::string imatrix;
    std::vector<std::string> include_weights;
    std::vector<std::string> exclude_weights;
    bool is_fast = false;                     // --effort fast
    std::string general_name;                 // general.name
    std::vector<std::string> metadata;        // "KEY=VALUE" to set
    std::vector<std::string> metadata_texts;  // "KEY=TEXT" to set
    std::vector<std::string> removed_metadata;
    uint64_t part_bytes = 0;
    int64_t part_tensors = 0;
    std::string layout;        // of a folder
    std::string kept_experts;  // a number, or a file
    std::string reused_file;
    std::string container;  // "gguf" or "safetensors"; "": by the name of the output
    bool first_part_empty = false;
    bool keeps_parts = false;
    bool writes_no_hashes = false;
    bool is_dry_run = false;
    bool overwrites = false;
    bool restarts = false;
    bool skips_verification = false;
    uint64_t conversion_memory = 0;  // bytes; 0: the library's default
    std::string report_file;
    std::string progress = "auto";

    // Of `minim imatrix` and `minim eval`.
    std::vector<std::string> files;  // without an option: questions, requests, results
    std::string samples_file;        // JSON lines; "": none
    std::string output_file;         // "": none
    std::string output_format;       // "gguf" or "dat"; "": by the name
    std::vector<std::string> in_files;
    std::string shown_file;
    int64_t n_chunks = 0;  // the most; 0: all
    bool processes_output = false;
    int64_t save_frequency = 10;  // chunks
    bool resumes = false;
    std::string saved_logits;      // file to write; "": none
    std::string reference_logits;  // file to compare with; "": none
    bool compact = false;
    bool all_positions = false;
    std::string score = "letter";
    std::string shots_file;  // worked examples; "": none
    int64_t n_shots = 5;
    std::string category;  // "": all
    int64_t limit = 0;     // questions; 0: all
    std::vector<double> lengths = {4096, 32768};
    std::vector<double> depths = {0, 25, 50, 75, 100};

    // Of `minim check` alone.
    bool is_quick = false;
    bool checks_machine = false;
    std::string sums;             // the text of --sums
    std::string sums_output;      // file of --write-sums
    std::string known_answers;    // the text of --answers
    std::string record_output;    // file of --record
    std::string reference_model;  // path of --reference
    std::optional<std::string> reference_text;

    // Of `minim-server` alone; n_parallel also of `minim plan`.
    std::string host = "127.0.0.1";  // "unix:/run/minim/server.sock": a Unix socket
    uint16_t port = 8080;
    std::string path_prefix;                 // of all routes: "/llm"; "": none
    std::vector<std::string> api_keys;       // with api_key_files empty: requests need no key
    std::vector<std::string> api_key_files;  // read again at SIGHUP
    std::vector<GivenModel> models;          // of all -m
    std::string models_dir;                  // a folder of more models; "": none
    int64_t models_max = 4;                  // models in memory at once; 0: no limit
    uint64_t models_memory = 0;              // bytes of memory that they may take; 0: no limit
    int64_t models_idle_seconds = -1;        // until a model without requests is unloaded; below 1: never
    bool models_autoload = true;             // a request loads its model
    std::vector<std::string> names;          // of the model; empty: from the file's
    bool requires_name = false;              // other names in requests are refused
    int64_t n_parallel = 0;                  // requests worked on at once; 0: 16, or fewer if memory is short
    int64_t n_queue = 2048;                  // requests that wait
    uint64_t kv_tokens = 0;                  // 0: chosen by the program
    bool forgets_prefixes = false;           // no prefix cache
    std::optional<int64_t>
        cache_ram;  // MiB of host memory for prompt states; -1: what is free; none: chosen by the program
    std::string slot_save_path;  // folder of saved slots; "": none
    std::string
        saved_prefixes;  // file of the prefix cache, read at the start and written at the end; "": none
    double ping_seconds = 15;
    int64_t timeout_seconds = 0;         // of one answer; 0: none
    int64_t socket_timeout_seconds = 0;  // of a connection without traffic; 0: the usual limits
    int64_t drain_seconds = -1;          // that requests may run on after SIGTERM; below 0: no limit
    int32_t reasoning = MINIM_REASONING_SPLIT;
    std::vector<std::string> reasoning_fields = {"reasoning_content", "reasoning"};  // of a chat's thoughts
    bool remembers_reasoning = true;
    bool constrains_calls = true;  // constrain optional tool calls
    bool warmup = true;            // a step before the first request
    std::string metrics_prefix = "minim_";
    std::string cors_origin;
};

// Returns whether requests to the server choose among models.
inline bool are_several(const Options& options) {
    return options.models.size() != 1 || !options.models_dir.empty();
}

// Thrown if an option cannot be understood. The message names it.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace program
