// SPDX-License-Identifier: Apache-2.0
// A tokenizer as plain data, the same from GGUF metadata and from a tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim {
class Logger;
}

namespace minim::tokenizer {

// Values of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
    normal = 1,        // text in stand-ins (byte_alphabet.h), made by merges
    unknown = 2,       // an added token, special
    control = 3,       // an added token, special: hidden if special tokens are skipped
    user_defined = 4,  // an added token, shown as text
    unused = 5,        // a row of the embedding matrix without text
    byte = 6,          // as normal
};

constexpr bool is_ordinary(TokenType type) {
    return type == TokenType::normal || type == TokenType::byte;
}
constexpr bool is_special(TokenType type) {
    return type == TokenType::control || type == TokenType::unknown;
}

constexpr int32_t k_no_token = -1;

// Fill-in-the-middle tokens; k_no_token if the vocabulary has none.
struct Vocabulary {
    std::vector<std::string> tokens;  // by id: stand-ins for ordinary tokens, literal text for added ones
    std::vector<TokenType> types;     // one per token
    std::vector<std::string> merges;  // "left right" in stand-ins, by rank

    int32_t bos = k_no_token;
    int32_t eos = k_no_token;
    int32_t eot = k_no_token;
    int32_t eom = k_no_token;
    int32_t unk = k_no_token;
    int32_t pad = k_no_token;

    bool ignore_merges =
        false;  // a piece that is a token's whole text becomes that token, whatever the merges say
    // Added tokens that are looked for only in what the other added tokens leave of a text.
    std::vector<int32_t> normalized;
    std::vector<int32_t> extra_eog;  // the eos_token_id list of generation_config.json or config.json
};

// Reads the files of a safetensors folder; all but the first may be empty. config_json is config.json: it has the number of rows, and
// the ids that end texts where generation_config.json says none. Tokens that tokenizer_config.json alone declares are added at the
// end, as in transformers. Vocabulary rows go up to the largest id; the model may have more rows than that. Text that the scanner and the merges here would not treat alike
// (a normalizer, another pattern, stripping added tokens, ...) is an `unsupported` error that names what
// differs.
Vocabulary vocabulary_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                std::string_view generation_config_json, const Logger& logger,
                                std::string_view config_json = {});

}  // namespace minim::tokenizer
