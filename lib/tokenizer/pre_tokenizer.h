// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces that byte-pair merges may not cross. The model's tokenizer file defines the pieces with
// this pattern (alternatives from left to right, greedy):
//
//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   \p{N}{1,3}
//    ?[^\s\p{L}\p{N}]+[\r\n/]*
//   \s*[\r\n]+
//   \s+(?!\S)
//   \s+
//
// A backtracking engine needs stack or time that grows with the text; the scanner reads each character a
// bounded number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minim::tokenizer {

// The pattern as the tokenizer file writes it, one alternative after another joined with `|`.
extern const std::string_view k_piece_pattern;

enum class PieceRules : uint8_t {
    model,        // the pattern above
    gguf_engine,  // as llama.cpp approximates it: marks are not part of words, only ASCII letters have case
};

// Walks over one span of text between added tokens. A byte that is not UTF-8 is a piece of its own.
class PieceScanner {
  public:
    PieceScanner(std::string_view text, PieceRules rules) noexcept : text_(text), rules_(rules) {}

    // Returns the end of the piece that starts at `begin`, which is the start of the text or a value returned before,
    // and less than the text's size.
    size_t piece_end(size_t begin) const noexcept;

  private:
    struct Character {
        uint8_t classes;
        uint8_t length;
    };

    static constexpr size_t k_no_match = 0;

    Character at(size_t position) const noexcept;
    size_t run_end(size_t begin, uint8_t classes) const noexcept;
    size_t word_end(size_t begin, Character first) const noexcept;
    size_t word_ending_lower(size_t begin) const noexcept;
    size_t word_starting_upper(size_t begin) const noexcept;
    size_t contraction_end(size_t begin) const noexcept;
    size_t number_end(size_t begin) const noexcept;
    size_t punctuation_end(size_t begin) const noexcept;
    size_t white_space_end(size_t begin) const noexcept;

    std::string_view text_;
    PieceRules rules_;
};

}  // namespace minim::tokenizer
