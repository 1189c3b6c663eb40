// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/markup.h"
#include "check/files.h"
#include "checkpoint/printable.h"
#include "model/chat_templates.h"
#include "tokenizer/tokenizer.h"

namespace minim::check {
namespace {

using checkpoint::printable;
using tokenizer::Vocabulary;

constexpr std::string_view k_end_of_turn = "[e~[";
void check_pre_tokenizer(const Opened& opened, Report& report) {
    constexpr std::string_view k_key = "tokenizer.ggml.pre";
    const auto pre = opened.checkpoint.metadata().string(k_key);
    if (pre && *pre == "minimax-m2") return;
    report.fault(FaultClass::tokenizer, std::string(k_key),
                 pre ? format_text("is {}; it should be minimax-m2", printable(*pre))
                     : std::string("is missing; it should be minimax-m2"));
}

// Returns the added tokens that the chat format of the vocabulary needs.
std::vector<std::string_view> markup_in(const Vocabulary& vocabulary) {
    std::vector<std::string_view> texts = {"]~!b[", "]~b]", k_end_of_turn};
    const bool is_m3 = std::ranges::find(vocabulary.tokens, chat::k_m3.mark) != vocabulary.tokens.end();
    const chat::Markup& of = is_m3 ? chat::k_m3 : chat::k_m2;
    texts.insert(texts.end(), {of.think_open, of.think_close});
    if (is_m3) {
        texts.push_back(of.mark);
    } else {
        texts.insert(texts.end(), {of.block_open, of.block_close});
    }
    return texts;
}

void check_markup(const Vocabulary& vocabulary, Report& report) {
    for (const std::string_view text : markup_in(vocabulary)) {
        const auto token = std::ranges::find(vocabulary.tokens, text);
        const auto id = token - vocabulary.tokens.begin();
        if (token == vocabulary.tokens.end()) {
            report.fault(FaultClass::tokenizer, std::string(text),
                         "is not a token; the chat markup needs it");
        } else if (tokenizer::is_ordinary(vocabulary.types[static_cast<size_t>(id)])) {
            report.fault(FaultClass::tokenizer, std::string(text),
                         format_text("is token {}, an ordinary one; it should be an added token", id));
        }
    }
}

// Returns the two sides and the result of a merge that are not tokens, as a text; "": all are.
std::string missing_of(const std::string& merge, const std::unordered_set<std::string_view>& tokens) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) return "no two parts";
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right = std::string_view(merge).substr(space + 1);
    if (!tokens.contains(left)) return printable(left);
    if (!tokens.contains(right)) return printable(right);
    const std::string whole = std::string(left) + std::string(right);
    return tokens.contains(whole) ? "" : printable(whole);
}

void check_merges(const Vocabulary& vocabulary, Report& report) {
    const std::unordered_set<std::string_view> tokens(vocabulary.tokens.begin(), vocabulary.tokens.end());
    size_t n_bad = 0;
    std::string first;
    for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
        const std::string missing = missing_of(vocabulary.merges[i], tokens);
        if (missing.empty() || n_bad++ > 0) continue;
        first = format_text("merge {}, '{}', names '{}', which is not a token", i,
                            printable(vocabulary.merges[i]), missing);
    }
    if (n_bad > 0)
        report.fault(FaultClass::tokenizer, "merges",
                     n_bad == 1 ? first : format_text("{} ({} such merges)", first, n_bad));
}

void check_end_tokens(const tokenizer::Tokenizer& tokenizer, const Vocabulary& vocabulary, Report& report) {
    const auto n_tokens = static_cast<int32_t>(vocabulary.tokens.size());
    if (vocabulary.eos < 0 || vocabulary.eos >= n_tokens) {
        report.fault(FaultClass::tokenizer, "eos_token_id",
                     format_text("is not set; it should be that of {}", k_end_of_turn));
    } else if (vocabulary.tokens[static_cast<size_t>(vocabulary.eos)] != k_end_of_turn) {
        report.fault(
            FaultClass::tokenizer, "eos_token_id",
            format_text("is {}, '{}', which does not end a turn; {} does", vocabulary.eos,
                        printable(vocabulary.tokens[static_cast<size_t>(vocabulary.eos)]), k_end_of_turn));
    } else if (!tokenizer.is_eog(vocabulary.eos)) {
        report.fault(FaultClass::tokenizer, "eos_token_id",
                     format_text("{} does not end an answer", vocabulary.eos));
    }
}

}  // namespace

void check_vocabulary(const Opened& opened, Report& report, const Logger& log) {
    report.stages.emplace_back("vocabulary");
    try {
        if (opened.checkpoint.container() == checkpoint::Container::gguf) check_pre_tokenizer(opened, report);
        Vocabulary vocabulary = model::read_vocabulary(opened.checkpoint, log);
        const auto n_tokens = static_cast<int64_t>(vocabulary.tokens.size());
        if (n_tokens > opened.config.n_vocab)
            report.fault(FaultClass::tokenizer, "tokens",
                         format_text("the tokenizer has {} tokens, the embedding {} rows", n_tokens,
                                     opened.config.n_vocab));
        check_markup(vocabulary, report);
        const size_t n_before = report.faults.size();
        check_merges(vocabulary, report);
        if (report.faults.size() > n_before) return;  // the tokenizer would say the same
        const tokenizer::Tokenizer tokenizer(vocabulary, tokenizer::PieceRules::model, log);
        check_end_tokens(tokenizer, vocabulary, report);
        const model::ChatTemplates templates(opened.checkpoint, tokenizer, opened.checkpoint.folder(), "",
                                             log);
        try {
            templates.find("", false);
        } catch (const Error& error) {
            report.fault(FaultClass::tokenizer, "chat_template", error.what());
        }
    } catch (const Error& error) {
        if (error.status() != Status::format && error.status() != Status::unsupported) throw;
        report.fault(FaultClass::tokenizer, "vocabulary", error.what());
    }
}

}  // namespace minim::check
