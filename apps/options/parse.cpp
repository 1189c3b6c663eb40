// SPDX-License-Identifier: Apache-2.0
#include "parse.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "help.h"
#include "minim/minim.hpp"
#include "read.h"

namespace program {
namespace {

// Options that contradict each other. If they come from different places, the later place counts.
constexpr std::array<std::array<std::string_view, 2>, 3> k_contradictions = {
    {{"--prompt", "--file"}, {"--cpu-moe", "--n-cpu-moe"}, {"--host", "--uds"}}};

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
    for (uint32_t i = 1; i < static_cast<uint32_t>(Command::server); ++i) {
        const auto one = static_cast<Command>(i);
        const std::string_view words = command_name(one);
        if (words.substr(words.find(' ') + 1) != arguments.front()) continue;
        arguments.erase(arguments.begin());
        return one;
    }
    return command;
}

void take_positional(const Reading& reading, Options& options) {
    const std::vector<std::string>& names = reading.positional;
    if (names.empty()) return;
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

void check(const Options& options, const std::vector<Given>& given) {
    const Command command = options.command;
    if (command == Command::devices || command == Command::options) return;
    if (options.model.empty() && options.models_dir.empty())
        throw UsageError(command == Command::inspect  ? "a file is required: minim inspect FILE"
                         : command == Command::check  ? "a model is required: minim check MODEL"
                         : command == Command::server ? "-m or --models-dir is required: the models to serve"
                                                      : "-m is required: the model to open");
    const bool needs_text =
        command == Command::generate || command == Command::tokenize || command == Command::perplexity;
    if (needs_text && !options.text && options.text_file.empty())
        throw UsageError("-p or -f is required: the text");
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
    check_several(options, given);
    options.sampling.max_tokens = std::max<int64_t>(options.n_predict, 0);
    if (options.command == Command::inspect) {
        const bool metadata = find_given(given, "--metadata") != nullptr && options.show_metadata;
        const bool tensors = find_given(given, "--tensors") != nullptr && options.show_tensors;
        options.show_metadata = metadata || !tensors;
        options.show_tensors = tensors || !metadata;
    }
    if (options.n_parallel == 0 && options.command == Command::plan) options.n_parallel = 1;
    if (options.command == Command::server && options.n_ubatch > 0)
        options.n_batch =
            options.n_batch > 0 ? std::min(options.n_batch, options.n_ubatch) : options.n_ubatch;
}

}  // namespace

std::optional<Options> parse(Command command, std::vector<std::string> arguments, std::string& output) {
    Options options;
    options.command = take_command(command, arguments);
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
    take_positional(reading, options);
    options.notes = reading.notes;
    if (reading.wants_version) {
        output = std::string(minim_build_info()) + "\n";
        return std::nullopt;
    }
    check(options, reading.given);
    complete(options, reading.given);
    return options;
}

}  // namespace program
