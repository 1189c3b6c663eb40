// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/vocabulary_tables.h"

namespace minim::tokenizer {
namespace {

Vocabulary checked(Vocabulary vocabulary) {
    check_rows(vocabulary);
    return vocabulary;
}

// Ordinary tokens stand for bytes; one with other characters stands for its own text, as an added token does.
void append_token_bytes(const std::string& text, TokenType type, std::string& bytes) {
    if (type == TokenType::unused) return;
    if (is_ordinary(type) && append_bytes_of_stand_ins(text, bytes)) return;
    bytes += text;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, PieceRules rules, const Logger& logger)
    : vocabulary_(checked(std::move(vocabulary))),
      rules_(rules),
      encoder_(make_encoder(vocabulary_, logger)),
      all_added_(make_passes(vocabulary_, false)),
      user_defined_(make_passes(vocabulary_, true)),
      eog_ids_(find_eog_ids(vocabulary_, logger)) {
    std::vector<std::string>().swap(vocabulary_.merges);

    byte_ends_.reserve(vocabulary_.tokens.size());
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
        append_token_bytes(vocabulary_.tokens[id], vocabulary_.types[id], bytes_);
        byte_ends_.push_back(bytes_.size());
    }
    if (!vocabulary_.ignore_merges) return;
    for (int32_t id = 0; id < n_tokens(); ++id) {
        if (is_ordinary(token_type(id))) whole_pieces_.try_emplace(token_bytes(id), id);
    }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
    std::vector<int32_t> ids;
    encode_append(text, specials, ids);
    return ids;
}

void Tokenizer::encode_append(std::string_view text, Specials specials, std::vector<int32_t>& out) const {
    constexpr size_t max_bytes = std::numeric_limits<int32_t>::max();
    if (text.size() > max_bytes)
        fail(Status::invalid, "a text of {} bytes is too long to tokenise", text.size());

    MergeScratch scratch;
    if (specials == Specials::none) return encode_span(text, scratch, out);
    const AddedTokenPasses& added = specials == Specials::exact ? all_added_ : user_defined_;
    size_t begin = 0;
    while (const auto match = added.first.find(text, begin)) {
        encode_between(text.substr(begin, match->begin - begin), added.second, scratch, out);
        out.push_back(match->id);
        begin = match->end;
    }
    encode_between(text.substr(begin), added.second, scratch, out);
}

// Encodes the text between two tokens of the first pass.
void Tokenizer::encode_between(std::string_view text, const AddedTokenMatcher& added, MergeScratch& scratch,
                               std::vector<int32_t>& out) const {
    size_t begin = 0;
    while (const auto match = added.find(text, begin)) {
        encode_span(text.substr(begin, match->begin - begin), scratch, out);
        out.push_back(match->id);
        begin = match->end;
    }
    encode_span(text.substr(begin), scratch, out);
}

void Tokenizer::encode_span(std::string_view text, MergeScratch& scratch, std::vector<int32_t>& out) const {
    const PieceScanner scanner(text, rules_);
    size_t begin = 0;
    while (begin < text.size()) {
        const size_t end = scanner.piece_end(begin);
        const std::string_view piece = text.substr(begin, end - begin);
        begin = end;
        if (vocabulary_.ignore_merges) {
            if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
                out.push_back(whole->second);
                continue;
            }
        }
        encoder_.encode(piece, scratch, out);
    }
}

std::string Tokenizer::decode_bytes(std::span<const int32_t> ids, bool skip_special) const {
    std::string bytes;
    for (const int32_t id : ids) {
        if (!(skip_special && is_special(id))) bytes += token_bytes(id);
    }
    return bytes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
    std::string text;
    StreamDecoder decoder;
    decoder.push(decode_bytes(ids, skip_special), text);
    decoder.finish(text);
    return text;
}

size_t Tokenizer::row(int32_t id) const {
    if (id < 0 || id >= n_tokens())
        fail(Status::invalid, "token id {} is not one of {} tokens", id, n_tokens());
    return id;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
    const size_t index = row(id);
    const size_t begin = index == 0 ? 0 : byte_ends_[index - 1];
    return std::string_view(bytes_).substr(begin, byte_ends_[index] - begin);
}

TokenType Tokenizer::token_type(int32_t id) const {
    return vocabulary_.types[row(id)];
}

bool Tokenizer::is_special(int32_t id) const {
    return tokenizer::is_special(token_type(id));
}

bool Tokenizer::is_eog(int32_t id) const noexcept {
    return std::binary_search(eog_ids_.begin(), eog_ids_.end(), id);
}

}  // namespace minim::tokenizer
