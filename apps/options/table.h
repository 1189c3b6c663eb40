// SPDX-License-Identifier: Apache-2.0
// The table of options of minim and minim-server. Parsing, --help, environment variables, the configuration file and docs/options.md
// come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options.h"

namespace program {

enum class Kind {
    flag,     // no value, or on or off behind "="
    integer,  // within a range
    count,    // an integer that may end in k (1000), K (1024), m, M, g or G, as in vLLM
    seed,     // 0 to 2^64-1, or -2^63 to -1
    real,
    size,     // bytes: 4GiB, 512M
    part,     // several of: bytes, or a part of a device's memory: 20GiB,0.9
    numbers,  // 3,1
    text,
    choice,  // one of the words
};

// A word that stands for a number.
struct Word {
    std::string_view text;
    int64_t number;
};

struct Type {
    Kind kind = Kind::flag;
    std::string_view value;  // the value's name in --help: "N"
    int64_t least = 0;       // of integers and counts
    int64_t most = 0;
    double low = 0;  // of reals
    double high = 0;
    std::span<const Word> words = {};  // of choices; numbers may have some too: "all"
    bool takes_any =
        false;  // the next argument is the value even if it is an option's name: texts for the model
    std::string_view bare = "";  // the value if no number follows; "": one must
    bool takes_many = false;     // all arguments up to the next option are values, as in vLLM
};

struct Value {
    std::string_view option;  // as the user spelled it
    std::string text;
    bool on = true;
    int64_t integer = 0;
    uint64_t bytes = 0;  // of sizes, and seeds
    double real = 0;
    std::vector<double> numbers;
};

struct Row {
    std::string_view
        names;  // "-c --ctx-size --max-model-len"; the first long name is the one of documents, variables and files
    std::string_view opposite;  // of a flag: names that switch it off
    Type type;
    uint32_t commands;         // bits of those that have it
    std::string_view initial;  // the default, in words; "": none, or said in the help
    std::string_view help;
    void (*set)(Options&, const Value&);
};

struct Section {
    std::string_view title;
    std::span<const Row> rows;
};

// The values that follow an option of other programs.
enum class Takes { nothing, one, optional, toggle, many };  // toggle: on, off or auto may follow

// Options of llama.cpp, ik_llama.cpp, vLLM and SGLang that minim has not.
struct Foreign {
    bool is_refused;  // else it has no effect, which the log says
    Takes takes;
    std::string_view reason;
    std::string_view names;  // with blanks between
};

std::span<const Section> sections();
std::span<const Foreign> foreign_options();

constexpr uint32_t bit(Command command) {
    return uint32_t{1} << static_cast<uint32_t>(command);
}

constexpr uint32_t k_server = bit(Command::server);
constexpr uint32_t k_plan = bit(Command::plan);
constexpr uint32_t k_answers =
    bit(Command::generate) | bit(Command::chat);  // commands of `minim` that generate
// Commands that take a text with -p or -f.
constexpr uint32_t k_texts = bit(Command::generate) | bit(Command::tokenize) | bit(Command::perplexity) |
                             bit(Command::imatrix) | bit(Command::eval_kl);
// Commands that measure a model, and those of them that generate.
constexpr uint32_t k_eval_answers =
    bit(Command::eval_choice) | bit(Command::eval_needle) | bit(Command::eval_tools);
constexpr uint32_t k_measures =
    bit(Command::perplexity) | bit(Command::imatrix) | bit(Command::eval_kl) | k_eval_answers;
constexpr uint32_t k_run = k_answers | k_measures | k_server;       // commands that evaluate a model
constexpr uint32_t k_open = k_run | k_texts | bit(Command::check);  // commands that open one
constexpr uint32_t k_conversions = bit(Command::convert) | bit(Command::quantize);
constexpr uint32_t k_all = k_open | k_plan | k_conversions | bit(Command::inspect) | bit(Command::devices) |
                           bit(Command::options) | bit(Command::eval_compare);

// Calls `use` with each of the names in `names`.
template <typename Use>
void for_each_name(std::string_view names, Use use) {
    while (!names.empty()) {
        const size_t end = names.find(' ');
        use(names.substr(0, end));
        names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
    }
}

bool has_name(std::string_view names, std::string_view name);

// Returns the first long name: "--ctx-size"; the first name if there is none.
std::string_view long_name(std::string_view names);

std::string_view command_name(Command command);

// Returns the row of the name for the command; if the command has no such option, that of another command; nullptr if no command
// has it.
const Row* find_row(std::string_view name, Command command);
const Foreign* find_foreign(std::string_view name);

// Returns the command's option that is nearest to an unknown one; "" if none is near.
std::string nearest_name(std::string_view name, Command command);

}  // namespace program
