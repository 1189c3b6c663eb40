// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for the byte-level BPE of the MiniMax-M2 family: added tokens are cut out, the
// rest is split into pieces (pre_tokenizer.h), each piece's bytes are merged (byte_pair_encoder.h). No
// normalisation, no leading space, no bos and eos.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace minim::tokenizer {

// The added tokens that are recognised in text.
enum class Specials : uint8_t {
    exact,  // all: for text that a chat template wrote
    safe,   // user-defined ones only, so that `[e~[` in a user's message cannot end it
    none,   // none
};

// Immutable; any thread.
class Tokenizer {
  public:
    // Checks the vocabulary (every byte has a token, merges are made of tokens, ids are in range, no
    // duplicates) and throws a format error that names what is wrong. `rules` other than `model` give the ids
    // of llama.cpp and its kin instead of those the model was trained with. Warns when the sources of
    // end-of-generation ids disagree.
    Tokenizer(Vocabulary vocabulary, PieceRules rules, const Logger& logger);
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Returns the tokens of any bytes. Throws `invalid` for text of 2^31 bytes or more.
    std::vector<int32_t> encode(std::string_view text, Specials specials) const;
    void encode_append(std::string_view text, Specials specials, std::vector<int32_t>& out) const;

    // Returns the bytes of the tokens, which may end within a character; `skip_special` leaves out control tokens.
    // Rows without text give nothing; an id out of range is an `invalid` error here and in the functions
    // below.
    std::string decode_bytes(std::span<const int32_t> ids, bool skip_special) const;

    // Returns these bytes as valid UTF-8, with U+FFFD for each maximal subpart of an ill-formed sequence.
    std::string decode(std::span<const int32_t> ids, bool skip_special) const;

    int32_t n_tokens() const noexcept { return static_cast<int32_t>(vocabulary_.tokens.size()); }
    std::string_view token_bytes(int32_t id) const;  // the bytes that it decodes to
    TokenType token_type(int32_t id) const;
    bool is_special(int32_t id) const;  // hidden by skip_special
    // Returns the first added token in text at or after `from`, whatever its type.
    std::optional<AddedTokenMatch> find_added(std::string_view text, size_t from) const noexcept {
        return all_added_.find(text, from);
    }
    std::optional<int32_t> find(std::string_view added_token) const noexcept {
        return all_added_.id_of(added_token);
    }

    // Returns the tokens that end generation: eos, eot, eom and generation_config's list, sorted. Names of tokens do not matter.
    std::span<const int32_t> eog_ids() const noexcept { return eog_ids_; }
    bool is_eog(int32_t id) const noexcept;

    int32_t bos() const noexcept { return vocabulary_.bos; }  // k_no_token if the vocabulary has none
    PieceRules rules() const noexcept { return rules_; }

  private:
    void encode_between(std::string_view text, const AddedTokenMatcher& added, MergeScratch& scratch,
                        std::vector<int32_t>& out) const;
    void encode_span(std::string_view text, MergeScratch& scratch, std::vector<int32_t>& out) const;
    size_t row(int32_t id) const;

    Vocabulary vocabulary_;  // without merges
    PieceRules rules_;
    BytePairEncoder encoder_;
    AddedTokenPasses all_added_;
    AddedTokenPasses user_defined_;
    std::string bytes_;              // of all tokens, one after another
    std::vector<size_t> byte_ends_;  // by id
    std::vector<int32_t> eog_ids_;
    std::unordered_map<std::string_view, int32_t> whole_pieces_;  // bytes to token, filled when ignore_merges
};

}  // namespace minim::tokenizer
