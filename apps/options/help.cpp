// SPDX-License-Identifier: Apache-2.0
#include "help.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "table.h"

namespace program {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t k_columns = 100;
constexpr size_t k_indent = 6;

constexpr std::string_view k_intro_minim =
    "minim [COMMAND] OPTIONS: asks a MiniMax-M2 model. The answer goes to standard output, the timing to "
    "standard "
    "error.\n\n"
    "Commands, each with a --help of its own:\n"
    "  chat         talk to the model in the terminal\n"
    "  inspect      print the headers of a checkpoint; loads no weights\n"
    "  tokenize     print the tokens of a text\n"
    "  perplexity   measure how well the model predicts a text\n"
    "  imatrix      collect importance data from a text, merge, show and convert it\n"
    "  eval kl      KL divergence between a model and another one's saved logits\n"
    "  eval choice  answer multiple-choice questions; eval compare: compare two runs\n"
    "  eval needle  find a sentence in a long text\n"
    "  eval tools   make the tool calls that are expected\n"
    "  check        check whether a checkpoint is whole, is a model of the family, and is computed right\n"
    "  plan         plan where the weights of a checkpoint go and how fast that is, from headers alone\n"
    "  convert      write a checkpoint as a GGUF file or a folder, whose numbers stay or go to plain types\n"
    "  quantize     write a checkpoint as a GGUF file or a folder with quantised weights\n"
    "  devices      list the devices, and why one is not usable\n"
    "  options      list the options of all commands and of minim-server\n";

std::string_view intro(Command command) {
    switch (command) {
        case Command::generate:
            return k_intro_minim;
        case Command::chat:
            return "minim chat OPTIONS: talks to a model in the terminal.\n";
        case Command::tokenize:
            return "minim tokenize OPTIONS: prints the tokens of a text.\n";
        case Command::perplexity:
            return "minim perplexity OPTIONS: measures how well the model predicts a text.\n";
        case Command::imatrix:
            return "minim imatrix OPTIONS: collects importance data from a text (-m, -f or --samples, -o), "
                   "merges files of it (--in-file, -o) or shows one (--show).\n";
        case Command::eval_kl:
            return "minim eval kl OPTIONS: saves the log-probabilities of a model after each token of a text "
                   "(-f, --save), or compares a model with saved ones (--reference).\n";
        case Command::eval_choice:
            return "minim eval choice FILE OPTIONS: answers multiple-choice questions. FILE has JSON lines "
                   "with question, options and answer, or is llama.cpp's binary file of tasks.\n";
        case Command::eval_compare:
            return "minim eval compare A B: compares two files of results of `minim eval choice -o`, "
                   "question by question.\n";
        case Command::eval_needle:
            return "minim eval needle OPTIONS: hides a sentence in texts of several lengths, and asks for "
                   "it.\n";
        case Command::eval_tools:
            return "minim eval tools FILE OPTIONS: compares the tool calls of answers with those that are "
                   "expected. FILE has JSON lines with messages, tools and expect.\n";
        case Command::inspect:
            return "minim inspect FILE OPTIONS: prints the headers of a checkpoint, a .gguf or .safetensors "
                   "file, an "
                   "index or a folder; loads no weights.\n";
        case Command::devices:
            return "minim devices: lists the devices, and why one is not usable.\n";
        case Command::check:
            return "minim check MODEL OPTIONS: checks whether a checkpoint is whole, is a model of the "
                   "family, "
                   "and is computed right on this machine. The exit code is 3 if it has faults.\n";
        case Command::plan:
            return "minim plan OPTIONS: plans where the weights of a checkpoint go and how fast that is, "
                   "from headers "
                   "alone.\n";
        case Command::convert:
            return "minim convert SOURCE OUTPUT OPTIONS: writes a checkpoint as OUTPUT, NAME.gguf or a "
                   "folder. Numbers stay, or go to plain types.\n";
        case Command::quantize:
            return "minim quantize SOURCE OUTPUT TYPE OPTIONS: writes a checkpoint as OUTPUT, NAME.gguf or a "
                   "folder, with quantised weights. TYPE is a recipe of llama-quantize (Q4_K_M, IQ2_M), one "
                   "of "
                   "ik_llama.cpp (IQ4_K), a type, or COPY; of a folder a layout (nvfp4).\n";
        case Command::options:
            return "minim options: lists the options of all commands and of minim-server.\n";
        case Command::server:
            return "minim-server [MODEL] OPTIONS: serves a MiniMax-M2 model over HTTP, by the APIs of OpenAI "
                   "(chat, "
                   "completions, responses) and Anthropic.\n";
    }
    return "";
}

std::string joined(std::string_view names, std::string_view between) {
    std::string text;
    for_each_name(names,
                  [&](std::string_view name) { text.append(text.empty() ? "" : between).append(name); });
    return text;
}

// Appends a paragraph, in lines of at most k_columns.
void append_wrapped(std::string& text, std::string_view paragraph, size_t indent) {
    size_t column = 0;
    for_each_name(paragraph, [&](std::string_view word) {
        if (column > 0 && column + 1 + word.size() > k_columns) {
            text += '\n';
            column = 0;
        }
        if (column == 0) {
            text.append(indent, ' ');
            column = indent;
        } else {
            text += ' ';
            ++column;
        }
        text += word;
        column += word.size();
    });
    text += '\n';
}

std::string described(const Row& row) {
    return row.initial.empty() ? std::string(row.help)
                               : fmt::format("{} (default: {})", row.help, row.initial);
}

void append_row(std::string& text, const Row& row) {
    text += "  " + joined(row.names, ", ");
    if (!row.opposite.empty()) text += ", " + joined(row.opposite, ", ");
    if (!row.type.value.empty()) text.append(" ").append(row.type.value);
    text += '\n';
    append_wrapped(text, described(row), k_indent);
}

Json json_of(const Section& section, const Row& row) {
    Json commands = Json::array();
    for (uint32_t i = 0; i <= static_cast<uint32_t>(Command::server); ++i)
        if ((row.commands & (uint32_t{1} << i)) != 0)
            commands.push_back(command_name(static_cast<Command>(i)));
    Json words = Json::array();
    for (const Word& word : row.type.words) words.push_back(word.text);
    const auto list = [](std::string_view names) {
        Json all = Json::array();
        for_each_name(names, [&](std::string_view name) { all.push_back(name); });
        return all;
    };
    constexpr std::string_view k_kinds[] = {"flag", "integer", "count",   "seed", "real",
                                            "size", "part",    "numbers", "text", "choice"};
    return {{"section", section.title},
            {"names", list(row.names)},
            {"opposite", list(row.opposite)},
            {"kind", k_kinds[static_cast<size_t>(row.type.kind)]},
            {"value", row.type.value},
            {"words", words},
            {"commands", commands},
            {"default", row.initial},
            {"help", row.help}};
}

}  // namespace

std::string help(Command command) {
    std::string text(intro(command));
    for (const Section& section : sections()) {
        std::string rows;
        for (const Row& row : section.rows)
            if ((row.commands & bit(command)) != 0) append_row(rows, row);
        if (!rows.empty()) text += fmt::format("\n{}:\n{}", section.title, rows);
    }
    text +=
        "\nGeneral:\n  --config FILE\n      read options from a file with lines `name = value`\n"
        "  -h, --help\n  --version\n\n";
    append_wrapped(
        text,
        "Each option may also be an environment variable: MINIM_CTX_SIZE for --ctx-size. The command line "
        "counts "
        "before the environment, the environment before the file. docs/options.md lists the options of other "
        "programs that have no effect or are refused.",
        0);
    return text;
}

std::string options_json() {
    constexpr std::string_view k_takes[] = {"nothing", "one", "optional", "toggle", "many"};
    Json options = Json::array();
    for (const Section& section : sections())
        for (const Row& row : section.rows) options.push_back(json_of(section, row));
    Json of_others = Json::array();
    for (const Foreign& foreign : foreign_options()) {
        Json names = Json::array();
        for_each_name(foreign.names, [&](std::string_view name) { names.push_back(name); });
        of_others.push_back({{"refused", foreign.is_refused},
                             {"takes", k_takes[static_cast<size_t>(foreign.takes)]},
                             {"reason", foreign.reason},
                             {"names", names}});
    }
    return Json({{"options", options}, {"of_others", of_others}}).dump(1) + "\n";
}

}  // namespace program
