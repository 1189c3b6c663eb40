// SPDX-License-Identifier: Apache-2.0
#include "parse.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "help.h"
#include "minim/minim.hpp"
#include "read.h"

namespace program {
namespace {

// Options that contradict each other. If they come from different places, the later place counts.
constexpr std::array<std::array<std::string_view, 2>, 3> k_contradictions = {
    {{"--prompt", "--file"}, {"--cpu-moe", "--n-cpu-moe"}, {"--host", "--uds"}}};

constexpr int64_t k_usual_chunk = 512;  // tokens, of imatrix, eval kl and check

const Given* find_given(const std::vector<Given>& given, std::string_view name) {
    const Given* found = nullptr;
    for (const Given& one : given)
        if (long_name(one.row->names) == name) found = &one;
    return found;
}

void drop(std::vector<Given>& given, const Row* row) {
    std::erase_if(given, [&](const Given& one) { return one.row == row; });
}

// Keeps of each option what was said in the place that counts.
void keep_what_counts(std::vector<Given>& given) {
    const std::vector<Given> all = given;
    std::erase_if(given, [&](const Given& one) {
        return std::any_of(all.begin(), all.end(), [&](const Given& other) {
            return other.row == one.row && other.origin > one.origin;
        });
    });
    for (const auto& [a_name, b_name] : k_contradictions) {
        const Given* a = find_given(given, a_name);
        const Given* b = find_given(given, b_name);
        if (a == nullptr || b == nullptr) continue;
        if (a->origin == b->origin) throw UsageError(fmt::format("{} excludes {}", a->spelling, b->spelling));
        drop(given, a->origin < b->origin ? a->row : b->row);
    }
}

void apply(std::vector<Given>& given, Options& options) {
    for (Given& one : given) {
        one.value.option = one.spelling;
        one.row->set(options, one.value);
    }
}

// Takes the command from the first argument of `minim`, and `serve` of vLLM from that of the server.
Command take_command(Command command, std::vector<std::string>& arguments) {
    if (arguments.empty()) return command;
    if (command == Command::server) {
        if (arguments.front() == "serve") arguments.erase(arguments.begin());
        return command;
    }
    const bool has_kind = arguments.front() == "eval" && arguments.size() > 1;
    const std::string typed = arguments.front() + (has_kind ? " " + arguments[1] : "");
    for (uint32_t i = 1; i < static_cast<uint32_t>(Command::server); ++i) {
        const auto one = static_cast<Command>(i);
        const std::string_view words = command_name(one);
        const bool is_british = one == Command::quantize && typed == "quantise";
        if (words.substr(words.find(' ') + 1) != typed && !is_british) continue;
        arguments.erase(arguments.begin(), arguments.begin() + (has_kind ? 2 : 1));
        return one;
    }
    if (arguments.front() == "eval")
        throw UsageError(fmt::format("minim eval {}: kl, choice, compare, needle and tools are known",
                                     has_kind ? fmt::format("'{}'", arguments[1]) : "KIND"));
    return command;
}

// Takes SOURCE, OUTPUT and, to quantise, TYPE: exactly these. A shell pattern that stands for several files must not make one of them
// the output.
void take_conversion(const std::vector<std::string>& names, Options& options) {
    const bool is_quantize = options.command == Command::quantize;
    const size_t n_wanted = is_quantize ? 3 : 2;
    if (names.size() != n_wanted)
        throw UsageError(fmt::format("{} takes SOURCE, OUTPUT{}: {} arguments, not {}{}",
                                     command_name(options.command), is_quantize ? " and TYPE" : "", n_wanted,
                                     names.size(),
                                     names.size() > n_wanted ? "; of a split file name one part" : ""));
    options.model = names[0];
    options.output = names[1];
    if (is_quantize) options.recipe = names[2];
}

// Returns the number of files that a command takes without an option.
size_t n_files(Command command) {
    if (command == Command::eval_compare) return 2;
    return command == Command::eval_choice || command == Command::eval_tools ? 1 : 0;
}

void take_positional(const Reading& reading, Options& options) {
    const std::vector<std::string>& names = reading.positional;
    if (options.command == Command::convert || options.command == Command::quantize)
        return take_conversion(names, options);
    if (names.empty()) return;
    if (const size_t most = n_files(options.command); most > 0) {
        if (names.size() > most)
            throw UsageError(fmt::format("'{}' is not expected: {} takes {} file{}", names[most],
                                         command_name(options.command), most, most == 1 ? "" : "s"));
        options.files = names;
        return;
    }
    const bool takes_model = options.command == Command::server || options.command == Command::inspect ||
                             options.command == Command::check;
    const bool has_model = !options.model.empty() && find_given(reading.given, "--model") != nullptr &&
                           find_given(reading.given, "--model")->origin == Origin::command_line;
    const size_t n_most = takes_model && !has_model ? 1 : 0;
    if (names.size() > n_most)
        throw UsageError(fmt::format(
            "'{}' is not expected: it is behind no option that takes it{}", names[n_most],
            takes_model && has_model ? fmt::format(", and the model is '{}'", options.model) : ""));
    options.model = names.front();
    if (options.command == Command::server) options.models = {{"", names.front()}};
}

void complete_formats(Options& options) {
    if (options.k_format == MINIM_KV_AUTO) options.k_format = options.kv_format;
    if (options.v_format == MINIM_KV_AUTO) options.v_format = options.kv_format;
}

// Notes the options of a list that do not matter, because of something else.
void note_unused(Options& options, const std::vector<Given>& given, std::span<const std::string_view> names,
                 std::string_view why) {
    for (const std::string_view name : names)
        if (const Given* one = find_given(given, name))
            options.notes.push_back(fmt::format("{} has no effect: {}", one->spelling, why));
}

void check_imatrix(const Options& options) {
    const bool has_text = options.text || !options.text_file.empty();
    if (!options.shown_file.empty()) {
        if (!options.model.empty() || !options.in_files.empty() || !options.output_file.empty())
            throw UsageError("--show excludes -m, --in-file and -o");
        return;
    }
    if (options.prints_json) throw UsageError("--json needs --show: the file to describe");
    if (options.output_file.empty()) throw UsageError("-o is required: the file to write");
    if (options.model.empty() && (has_text || !options.samples_file.empty() || options.in_files.empty()))
        throw UsageError("-m is required: the model that computes the text");
    if (options.model.empty()) return;
    if (has_text && !options.samples_file.empty())
        throw UsageError("--samples excludes -p and -f: there is one text");
    if (!has_text && options.samples_file.empty()) throw UsageError("-f or --samples is required: the text");
    const bool is_dat = options.output_format == "dat" ||
                        (options.output_format.empty() && options.output_file.ends_with(".dat"));
    if (options.resumes && is_dat)
        throw UsageError("--resume needs a GGUF file: a .dat file does not say which text it is from");
    if (options.resumes && !options.in_files.empty())
        throw UsageError("--resume excludes --in-file: merge the files afterwards");
}

// Notes what an option says that another one makes useless.
void note_unused_of_command(Options& options, const std::vector<Given>& given) {
    static constexpr std::string_view k_text[] = {"--prompt", "--file", "--chunk"};
    static constexpr std::string_view k_saved[] = {"--compact", "--all"};
    static constexpr std::string_view k_answered[] = {"--predict", "--temp", "--seed", "--reasoning-budget",
                                                      "--chat-template-kwargs"};
    static constexpr std::string_view k_examples[] = {"--n-shots"};
    static constexpr std::string_view k_collected[] = {"--chunks", "--process-output", "--resume",
                                                       "--save-frequency", "--specials"};
    static constexpr std::string_view k_not_shown[] = {
        "--prompt",         "--file",           "--samples", "--chunk",    "--chunks",
        "--process-output", "--save-frequency", "--resume",  "--specials", "--output-format"};
    if (options.command == Command::eval_kl && !options.reference_logits.empty()) {
        note_unused(options, given, k_text, "the file of --reference has the text");
        note_unused(options, given, k_saved, "the file of --reference is read, not written");
    }
    if (options.command == Command::eval_choice && options.score != "generate")
        note_unused(options, given, k_answered,
                    fmt::format("--score {} generates no answers", options.score));
    if (options.command == Command::eval_choice && options.shots_file.empty())
        note_unused(options, given, k_examples, "there are no --shots");
    if (options.command != Command::imatrix) return;
    if (!options.shown_file.empty()) {
        note_unused(options, given, k_not_shown, "--show prints what a file has");
    } else if (options.model.empty()) {
        note_unused(options, given, k_collected, "without -m files are merged, and nothing is collected");
    }
}

// Options that choose among what another option gives.
void check_needed(const Options& options, const std::vector<Given>& given) {
    const auto need = [&](std::string_view name, bool has_needed, std::string_view needed) {
        const Given* one = find_given(given, name);
        if (one != nullptr && !has_needed)
            throw UsageError(fmt::format("{} needs {}", one->spelling, needed));
    };
    for (const std::string_view name : {"--include-weights", "--exclude-weights"})
        need(name, !options.imatrix.empty(), "--imatrix: the importance data that it is about");
    need("--no-tensor-first-split", options.part_bytes > 0 || options.part_tensors > 0,
         "--split-max-size or --split-max-tensors: the size of the other parts");
}

void check(const Options& options, const std::vector<Given>& given) {
    const Command command = options.command;
    if (command == Command::devices || command == Command::options) return;
    if (options.files.size() < n_files(command))
        throw UsageError(command == Command::eval_compare
                             ? "two files are required: minim eval compare A B"
                             : fmt::format("a file is required: {} FILE", command_name(command)));
    if (command == Command::eval_compare) return;
    check_needed(options, given);
    if (command == Command::imatrix) check_imatrix(options);
    const bool works_on_files =
        command == Command::imatrix && (!options.shown_file.empty() || !options.in_files.empty());
    if (works_on_files && options.model.empty()) return;
    if (options.model.empty() && options.models_dir.empty())
        throw UsageError(command == Command::inspect  ? "a file is required: minim inspect FILE"
                         : command == Command::check  ? "a model is required: minim check MODEL"
                         : command == Command::server ? "-m or --models-dir is required: the models to serve"
                                                      : "-m is required: the model to open");
    const bool needs_text =
        command == Command::generate || command == Command::tokenize || command == Command::perplexity;
    const bool has_text = options.text || !options.text_file.empty();
    if (needs_text && !has_text) throw UsageError("-p or -f is required: the text");
    if (command == Command::eval_kl) {
        if (options.saved_logits.empty() == options.reference_logits.empty())
            throw UsageError("--save or --reference is required, and one of them");
        if (options.reference_logits.empty() && !has_text) throw UsageError("-p or -f is required: the text");
    }
    if (command == Command::check && options.reference_text && options.reference_model.empty())
        throw UsageError("--text needs --reference: the model to compare with");
    if (command == Command::check && options.reference_text && options.is_quick)
        throw UsageError("--text excludes --quick, which computes nothing");
    if (command == Command::plan && options.n_context == 0)
        throw UsageError("-c is required: the context of one sequence, in tokens");
    if (!options.json_schema.empty() && !options.grammar.empty())
        throw UsageError("--json-schema excludes --grammar: an answer has one form");
    if (options.no_mmap && !options.packed_file.empty())
        throw UsageError(fmt::format("{} excludes --packed-file, which is mapped",
                                     find_given(given, "--mmap") != nullptr ? "--no-mmap" : "--load-mode"));
}

// Groups of experts for each rank of one rank are none.
void note_single_rank(Options& options, const std::vector<Given>& given) {
    if (options.parallel.experts != MINIM_ALL_RANKS || options.parallel.tensor != 0) return;
    options.parallel.experts = 0;
    for (const std::string_view name : {"--enable-expert-parallel", "--expert-parallel"})
        if (const Given* one = find_given(given, name))
            options.notes.push_back(
                fmt::format("{} has no effect: without --tensor-parallel there is one rank", one->spelling));
}

// A Unix socket has no port.
void note_unused_port(Options& options, const std::vector<Given>& given) {
    const Given* port = find_given(given, "--port");
    if (port == nullptr || !options.host.starts_with(k_unix_host)) return;
    options.notes.push_back(
        fmt::format("{} has no effect: the server listens at {}", port->spelling, options.host));
}

void note_only_model(Options& options, const std::vector<Given>& given) {
    if (options.command != Command::server || are_several(options)) return;
    for (const std::string_view name : {"--models-max", "--models-memory", "--models-autoload"})
        if (const Given* one = find_given(given, name))
            options.notes.push_back(fmt::format("{} has no effect: there is one model", one->spelling));
    const Given* idle = find_given(given, "--models-idle");
    if (idle != nullptr && options.models_idle_seconds > 0 && options.parallel.is_given())
        options.notes.push_back(
            fmt::format("{} has no effect: a model that ranks share stays loaded", idle->spelling));
}

// Options that are for one model exclude several.
void check_several(const Options& options, const std::vector<Given>& given) {
    if (options.command != Command::server || !are_several(options)) return;
    const auto refuse = [&](std::string_view name, const char* advice) {
        if (const Given* one = find_given(given, name))
            throw UsageError(
                fmt::format("{} is for one model, and there are several{}", one->spelling, advice));
    };
    for (const std::string_view name : {"--alias", "--served-model-name"})
        refuse(name, "; -m NAME=PATH names one of them");
    for (const std::string_view name : {"--packed-file", "--expert-profile", "--save-prefixes"})
        refuse(name, "");
    if (!options.parallel.is_given()) return;
    for (const std::string_view name : {"--tensor-parallel", "--expert-parallel", "--enable-expert-parallel",
                                        "--pipeline-parallel", "--split-mode"})
        refuse(name, "");
}

void complete(Options& options, const std::vector<Given>& given) {
    note_only_model(options, given);
    note_unused_port(options, given);
    complete_formats(options);
    note_single_rank(options, given);
    note_unused_of_command(options, given);
    check_several(options, given);
    options.sampling.max_tokens = std::max<int64_t>(options.n_predict, 0);
    if (options.command == Command::inspect) {
        const bool metadata = find_given(given, "--metadata") != nullptr && options.show_metadata;
        const bool tensors = find_given(given, "--tensors") != nullptr && options.show_tensors;
        options.show_metadata = metadata || !tensors;
        options.show_tensors = tensors || !metadata;
    }
    // Without a model --chunk is of older files, and must be given for these.
    if (options.command == Command::imatrix && options.chunk_tokens == 0 && !options.model.empty())
        options.chunk_tokens = k_usual_chunk;
    if (options.n_parallel == 0 && options.command == Command::plan) options.n_parallel = 1;
    if (options.command == Command::server && options.n_ubatch > 0)
        options.n_batch =
            options.n_batch > 0 ? std::min(options.n_batch, options.n_ubatch) : options.n_ubatch;
}

}  // namespace

std::optional<Options> parse(Command command, std::vector<std::string> arguments, std::string& output) {
    Options options;
    options.command = take_command(command, arguments);
    if (options.command == Command::imatrix) options.chunk_tokens = 0;  // complete() sets it
    if (options.command == Command::eval_kl || options.command == Command::check)
        options.chunk_tokens = k_usual_chunk;
    Reading reading = read_arguments(options.command, arguments);
    if (reading.wants_help) {
        output = help(options.command);
        return std::nullopt;
    }
    add_environment(options.command, reading);
    const char* file = std::getenv("MINIM_CONFIG");
    if (reading.config_file.empty() && file != nullptr) reading.config_file = file;
    if (!reading.config_file.empty()) add_config_file(options.command, reading.config_file, reading);
    keep_what_counts(reading.given);
    apply(reading.given, options);
    if (reading.wants_version) {
        output = std::string(minim_build_info()) + "\n";
        return std::nullopt;
    }
    take_positional(reading, options);
    options.notes = reading.notes;
    check(options, reading.given);
    complete(options, reading.given);
    return options;
}

}  // namespace program
