// SPDX-License-Identifier: Apache-2.0
// Small vocabularies, and a logger that stores its lines, for the tests of this folder.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace minim::tokenizer::testing {

// Returns a vocabulary whose ids 0 to 255 are the bytes in order.
inline Vocabulary byte_vocabulary() {
    Vocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) {
        const std::string bytes(1, static_cast<char>(byte));
        vocabulary.tokens.push_back(to_stand_ins(bytes));
        vocabulary.types.push_back(TokenType::normal);
    }
    return vocabulary;
}

inline int32_t add_token(Vocabulary& vocabulary, std::string_view text, TokenType type) {
    vocabulary.tokens.emplace_back(text);
    vocabulary.types.push_back(type);
    return static_cast<int32_t>(vocabulary.tokens.size() - 1);
}

// Adds a merge of two byte strings and its token. Returns the token.
inline int32_t add_merge(Vocabulary& vocabulary, std::string_view left, std::string_view right) {
    const std::string left_text = to_stand_ins(left);
    const std::string right_text = to_stand_ins(right);
    vocabulary.merges.push_back(fmt::format("{} {}", left_text, right_text));
    return add_token(vocabulary, left_text + right_text, TokenType::normal);
}

// A vocabulary of the bytes, the merges of " hello" and some added tokens, with the ids of these tokens.
struct Sample {
    Vocabulary vocabulary;
    int32_t he, ll, llo, hello, space_hello, bos, end, role, think, end_think, unused;
};

inline Sample sample_vocabulary() {
    Sample s{byte_vocabulary(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    s.he = add_merge(s.vocabulary, "h", "e");
    s.ll = add_merge(s.vocabulary, "l", "l");
    s.llo = add_merge(s.vocabulary, "ll", "o");
    s.hello = add_merge(s.vocabulary, "he", "llo");
    s.space_hello = add_merge(s.vocabulary, " ", "hello");
    s.bos = add_token(s.vocabulary, "]~!b[", TokenType::control);
    s.end = add_token(s.vocabulary, "[e~[", TokenType::control);
    s.role = add_token(s.vocabulary, "]~b]", TokenType::control);
    s.think = add_token(s.vocabulary, "<think>", TokenType::user_defined);
    s.end_think = add_token(s.vocabulary, "</think>", TokenType::user_defined);
    s.unused = add_token(s.vocabulary, "[PAD266]", TokenType::unused);
    s.vocabulary.bos = s.bos;
    s.vocabulary.eos = s.end;
    return s;
}

struct LogLines {
    std::vector<std::string> lines;
    Logger logger;

    explicit LogLines(LogLevel level = LogLevel::warning) {
        logger.set([](void* self, int32_t,
                      const char* line) { static_cast<LogLines*>(self)->lines.emplace_back(line); },
                   this, level);
    }
};

inline std::vector<int32_t> ids(std::initializer_list<int32_t> list) {
    return list;
}

}  // namespace minim::tokenizer::testing
