// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "options.h"

namespace cli {
namespace {

struct Spelling {
    std::string_view name;
    std::string_view meant;
};

constexpr Spelling k_spellings[] = {
    {"-tb", "--threads-batch"},
    {"-ub", "--ubatch-size"},
    {"-ngl", "--n-gpu-layers"},
    {"--gpu-layers", "--n-gpu-layers"},
    {"-ts", "--tensor-split"},
    {"-dev", "--device"},
    {"-ot", "--override-tensor"},
    {"-cmoe", "--cpu-moe"},
    {"-ncmoe", "--n-cpu-moe"},
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-sys", "--system"},
    {"--system-prompt", "--system"},
    {"-s", "--seed"},
    {"-v", "--verbose"},
    {"--log-verbose", "--verbose"},
    {"--n-predict", "--predict"},
    {"--temperature", "--temp"},
    {"-fitc", "--fit-ctx"},
};

// Options of llama.cpp that ask for something that this program does anyway.
struct Ignored {
    std::string_view name;
    bool has_switch;  // on, off or auto may follow
    std::string_view why;
};

constexpr Ignored k_ignored[] = {
    {"-fa", true, "there is one kind of attention, which never stores the matrix of scores"},
    {"--flash-attn", true, "there is one kind of attention, which never stores the matrix of scores"},
    {"--jinja", false, "the checkpoint's chat template is always used"},
    {"-st", false, "there is always one turn"},
    {"--single-turn", false, "there is always one turn"},
    {"--warmup", false, "there is no warm-up"},
    {"--no-warmup", false, "there is no warm-up"},
    {"--no-display-prompt", false, "the prompt is never printed"},
};

// Options of llama.cpp that ask for something that this program does not do.
constexpr Spelling k_refused[] = {
    {"-hf", "minim downloads nothing: name the downloaded file with -m"},
    {"-hfr", "minim downloads nothing: name the downloaded file with -m"},
    {"--hf-repo", "minim downloads nothing: name the downloaded file with -m"},
    {"-mu", "minim downloads nothing: name the downloaded file with -m"},
    {"--model-url", "minim downloads nothing: name the downloaded file with -m"},
    {"-no-cnv", "for a text without the chat template use --raw"},
    {"--no-conversation", "for a text without the chat template use --raw"},
    {"-cnv", "minim answers one prompt; `minim chat` is a conversation"},
    {"--conversation", "minim answers one prompt; `minim chat` is a conversation"},
    {"-md", "minim takes no draft model"},
    {"--model-draft", "minim takes no draft model"},
    {"-mm", "minim takes no pictures"},
    {"--mmproj", "minim takes no pictures"},
};

constexpr std::string_view k_switches[] = {"on",   "off",   "auto",    "1",        "0",
                                           "true", "false", "enabled", "disabled", "-1"};

// Options whose next argument is free text, which may look like an option.
constexpr std::string_view k_text_options[] = {"-m",
                                               "--model",
                                               "-p",
                                               "--prompt",
                                               "-f",
                                               "--file",
                                               "-j",
                                               "--json-schema",
                                               "--system",
                                               "--packed-file",
                                               "--dry-sequence-breaker",
                                               "--override-tensor"};

template <typename Row, size_t n>
const Row* find(const Row (&rows)[n], std::string_view name) {
    const Row* row =
        std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.name == name; });
    return row == std::end(rows) ? nullptr : row;
}

template <size_t n>
bool contains(const std::string_view (&names)[n], std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns whether an argument is a short option with its number attached: "-n128".
bool has_attached_number(std::string_view argument) {
    constexpr std::string_view k_letters = "bcnt";
    if (argument.size() < 3 || k_letters.find(argument[1]) == std::string_view::npos) return false;
    std::string_view digits = argument.substr(2);
    if (digits.front() == '-') digits.remove_prefix(1);
    return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

// Refuses several letters behind one dash: CLI11 would take all letters but the first for a value.
void require_known(std::string_view argument) {
    const bool is_short = argument.size() > 2 && argument[0] == '-' && is_letter(argument[1]);
    if (is_short && !has_attached_number(argument))
        throw UsageError(fmt::format("The option {} is not known", argument));
}

std::string note_of(const Ignored& option) {
    return fmt::format("{} is ignored: {}", option.name, option.why);
}

}  // namespace

Arguments read_arguments(int argc, char** argv) {
    Arguments read;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--") {
            read.values.insert(read.values.end(), argv + i, argv + argc);
            break;
        }
        const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
        const std::string_view name = argument.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : argument.substr(equals);
        if (const Spelling* refused = find(k_refused, name))
            throw UsageError(fmt::format("{}: {}", name, refused->meant));
        if (const Ignored* ignored = find(k_ignored, name)) {
            const bool has_next = value.empty() && i + 1 < argc && contains(k_switches, argv[i + 1]);
            if (!value.empty() && !(ignored->has_switch && contains(k_switches, value.substr(1))))
                throw UsageError(fmt::format("{}: '{}' is not on, off or auto", name, value.substr(1)));
            if (ignored->has_switch && has_next) ++i;
            read.notes.push_back(note_of(*ignored));
            continue;
        }
        const Spelling* spelling = find(k_spellings, name);
        const std::string_view meant = spelling == nullptr ? name : spelling->meant;
        if (spelling == nullptr) require_known(argument);
        read.values.push_back(std::string(meant).append(value));
        if (value.empty() && contains(k_text_options, meant) && i + 1 < argc)
            read.values.emplace_back(argv[++i]);
    }
    return read;
}

}  // namespace cli
