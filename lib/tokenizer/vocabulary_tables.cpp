// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary_tables.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/byte_alphabet.h"

namespace minim::tokenizer {
namespace {

constexpr std::string_view k_end_of_message = "[e~[";

// A search for added tokens reads up to the longest one's bytes at each position of the text.
constexpr size_t k_max_added_bytes = 1024;

using TokenIndex = std::unordered_map<std::string_view, int32_t>;

TokenIndex index_ordinary_tokens(const Vocabulary& vocabulary) {
    TokenIndex index;
    index.reserve(vocabulary.tokens.size());
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        if (!is_ordinary(vocabulary.types[id])) continue;
        const std::string& text = vocabulary.tokens[id];
        if (text.empty()) fail_file(Reason::value, "vocabulary: token {} is empty", id);
        const auto [first, inserted] = index.try_emplace(text, static_cast<int32_t>(id));
        if (!inserted) {
            fail_file(Reason::duplicate, "vocabulary: tokens {} and {} are both {}", first->second, id, text);
        }
    }
    return index;
}

std::array<int32_t, 256> find_byte_tokens(const TokenIndex& index) {
    std::array<int32_t, 256> tokens{};
    for (size_t byte = 0; byte < tokens.size(); ++byte) {
        const char bytes[] = {static_cast<char>(byte)};
        const std::string text = to_stand_ins({bytes, 1});
        const auto found = index.find(text);
        if (found == index.end())
            fail_file(Reason::value, "vocabulary: no token for byte {:#04x} ({})", byte, text);
        tokens[byte] = found->second;
    }
    return tokens;
}

std::pair<std::string_view, std::string_view> split_merge(std::string_view line, size_t rank) {
    const size_t space = line.find(' ');
    const bool two_parts =
        space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos;
    if (!two_parts) fail_file(Reason::format, "vocabulary: merge {} is not two tokens: {}", rank, line);
    return {line.substr(0, space), line.substr(space + 1)};
}

void check_id(int32_t id, const char* name, size_t n_tokens) {
    const bool in_range = id == k_no_token || (id >= 0 && static_cast<size_t>(id) < n_tokens);
    if (!in_range) fail_file(Reason::value, "vocabulary: {} {} is not one of {} tokens", name, id, n_tokens);
}

}  // namespace

void check_rows(const Vocabulary& vocabulary) {
    const size_t n = vocabulary.tokens.size();
    if (n > size_t{std::numeric_limits<int32_t>::max()}) fail_file(Reason::limit, "vocabulary: {} tokens", n);
    if (vocabulary.types.size() != n) {
        fail_file(Reason::shape, "vocabulary: {} tokens but {} token types", n, vocabulary.types.size());
    }
    for (size_t id = 0; id < n; ++id) {
        const auto type = static_cast<unsigned>(vocabulary.types[id]);
        if (type < 1 || type > 6)
            fail_file(Reason::value, "vocabulary: token {} has the unknown type {}", id, type);
    }
    const std::pair<int32_t, const char*> special[] = {
        {vocabulary.bos, "bos"}, {vocabulary.eos, "eos"},           {vocabulary.eot, "eot"},
        {vocabulary.eom, "eom"}, {vocabulary.unk, "unknown token"}, {vocabulary.pad, "padding token"},
    };
    for (const auto& [id, name] : special) check_id(id, name, n);
    for (const int32_t id : vocabulary.extra_eog) check_id(id, "generation_config's eos", n);
}

BytePairEncoder make_encoder(const Vocabulary& vocabulary, const Logger& logger) {
    const TokenIndex index = index_ordinary_tokens(vocabulary);
    BytePairEncoder encoder(find_byte_tokens(index), vocabulary.merges.size());
    std::string result;
    size_t n_left_out = 0;
    size_t first_left_out = 0;
    for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
        const auto [left, right] = split_merge(vocabulary.merges[rank], rank);
        result.assign(left).append(right);
        const auto token = [&](std::string_view text) {
            const auto found = index.find(text);
            if (found == index.end()) {
                fail_file(Reason::value, "vocabulary: merge {} ({}) needs the token {}, which there is not",
                          rank, vocabulary.merges[rank], text);
            }
            return found->second;
        };
        const int32_t left_token = token(left);
        const int32_t right_token = token(right);
        const auto found = index.find(result);
        if (found == index.end()) {
            if (++n_left_out == 1) first_left_out = rank;
            continue;
        }
        if (!encoder.add_merge(left_token, right_token, found->second)) {
            fail_file(Reason::duplicate, "vocabulary: merge {} ({}) appears twice", rank,
                      vocabulary.merges[rank]);
        }
    }
    if (n_left_out > 0) {
        logger.warning(
            "{} of {} merges have a result that is not a token and are left out, the first is {} ({})",
            n_left_out, vocabulary.merges.size(), first_left_out, vocabulary.merges[first_left_out]);
    }
    return encoder;
}

AddedTokenPasses make_passes(const Vocabulary& vocabulary, bool user_defined_only) {
    std::vector<AddedToken> first_pass;
    std::vector<AddedToken> second_pass;
    const std::unordered_set<int32_t> normalized(vocabulary.normalized.begin(), vocabulary.normalized.end());
    std::unordered_map<std::string_view, size_t> seen;
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        const TokenType type = vocabulary.types[id];
        if (type != TokenType::user_defined && (user_defined_only || !is_special(type))) continue;
        const std::string& text = vocabulary.tokens[id];
        if (text.empty()) fail_file(Reason::value, "vocabulary: the added token {} is empty", id);
        if (text.size() > k_max_added_bytes) {
            fail_file(Reason::limit, "vocabulary: the added token {} has {} bytes, more than {}", id,
                      text.size(), k_max_added_bytes);
        }
        const auto [first, inserted] = seen.try_emplace(text, id);
        if (!inserted) {
            fail_file(Reason::duplicate, "vocabulary: the added tokens {} and {} are both {}", first->second,
                      id, text);
        }
        const auto token = static_cast<int32_t>(id);
        (normalized.contains(token) ? second_pass : first_pass).push_back({text, token});
    }
    return {AddedTokenMatcher(std::move(first_pass)), AddedTokenMatcher(std::move(second_pass))};
}

std::vector<int32_t> find_eog_ids(const Vocabulary& vocabulary, const Logger& logger) {
    std::vector<int32_t> ids = vocabulary.extra_eog;
    if (!ids.empty() && vocabulary.eos != k_no_token &&
        std::find(ids.begin(), ids.end(), vocabulary.eos) == ids.end()) {
        logger.warning(
            "the end-of-sequence token {} is not in generation_config's list, which starts with {}; all of "
            "them end generation",
            vocabulary.eos, ids.front());
    }
    if (vocabulary.eos == k_no_token) {
        logger.warning("the vocabulary names no end-of-sequence token");
    } else if (const std::string& text = vocabulary.tokens[vocabulary.eos]; text != k_end_of_message) {
        logger.warning("the end-of-sequence token {} is {}, not {}", vocabulary.eos, text, k_end_of_message);
    }

    for (const int32_t id : {vocabulary.eos, vocabulary.eot, vocabulary.eom}) {
        if (id != k_no_token) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace minim::tokenizer
