// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "model/gguf_values.h"
#include "model/side_file.h"

namespace minim::model {
namespace {

using checkpoint::Metadata;
using checkpoint::printable;

// Returns the id of a token on which results depend. Returns -1 if the key is absent or all bits of its value are set,
// which some writers use for "none".
int32_t token_id(const Metadata& metadata, const char* key, size_t n_tokens) {
    const checkpoint::MetaValue* stored = metadata.find(key);
    const bool is_u32 = stored != nullptr && stored->type == checkpoint::MetaType::u32;
    const auto id = whole_number(metadata, key);
    if (!id || *id == -1 || (is_u32 && *id == int64_t{UINT32_MAX})) return -1;
    if (*id < 0 || static_cast<uint64_t>(*id) >= n_tokens)
        fail_file(Reason::value, "metadata key {} is {}; there are {} tokens", key, *id, n_tokens);
    return static_cast<int32_t>(*id);
}

// Returns the same for a token that nothing here depends on. Logs a warning and returns -1 for a bad id.
int32_t unused_token_id(const Metadata& metadata, const char* key, size_t n_tokens, const Logger& log) {
    try {
        return token_id(metadata, key, n_tokens);
    } catch (const Error& error) {
        log.warning("{}; the token is not used", error.what());
        return -1;
    }
}

// Reads the types of tokens. 0, undefined, and unknown ones are ordinary tokens, as other readers take them.
void read_types(const Metadata& metadata, std::vector<tokenizer::TokenType>& types, const Logger& log) {
    const auto stored = metadata.integers("tokenizer.ggml.token_type");
    if (!stored) return;
    if (stored->size() != types.size()) {
        fail_file(Reason::value, "tokenizer.ggml.token_type has {} entries for {} tokens", stored->size(),
                  types.size());
    }
    size_t n_unknown = 0;
    for (size_t i = 0; i < types.size(); ++i) {
        const int64_t type = (*stored)[i];
        if (type >= 1 && type <= 6) {
            types[i] = static_cast<tokenizer::TokenType>(type);
        } else if (type != 0 && n_unknown++ == 0) {
            log.warning(
                "tokenizer.ggml.token_type: token {} has type {}, which is not known; it is an "
                "ordinary token, as all of an unknown type",
                i, type);
        }
    }
}

}  // namespace

tokenizer::Vocabulary vocabulary_from_gguf(const Metadata& metadata, const Logger& log) {
    const auto kind = metadata.string("tokenizer.ggml.model");
    if (!kind) fail_file(Reason::value, "metadata key tokenizer.ggml.model is missing");
    if (*kind != "gpt2") {
        fail(Status::unsupported, "tokenizer model {} is not supported; gpt2 (byte-level BPE) is",
             printable(*kind));
    }
    if (const auto pre = metadata.string("tokenizer.ggml.pre"); !pre || *pre != "minimax-m2") {
        log.warning("pre-tokenizer {} is not minimax-m2; the pattern of minimax-m2 is used",
                    printable(pre ? *pre : ""));
    }
    const auto tokens = metadata.strings("tokenizer.ggml.tokens");
    if (!tokens) fail_file(Reason::value, "metadata key tokenizer.ggml.tokens is missing");
    const auto merges = metadata.strings("tokenizer.ggml.merges");
    if (!merges) fail_file(Reason::value, "metadata key tokenizer.ggml.merges is missing");

    tokenizer::Vocabulary vocabulary;
    const size_t n = tokens->size();
    vocabulary.tokens.reserve(n);
    for (size_t i = 0; i < n; ++i) vocabulary.tokens.emplace_back((*tokens)[i]);
    vocabulary.merges.reserve(merges->size());
    for (size_t i = 0; i < merges->size(); ++i) vocabulary.merges.emplace_back((*merges)[i]);
    vocabulary.types.assign(n, tokenizer::TokenType::normal);
    read_types(metadata, vocabulary.types, log);
    const bool adds_bos = flag(metadata, "tokenizer.ggml.add_bos_token").value_or(false);
    flag(metadata, "tokenizer.ggml.add_eos_token");  // checks it
    vocabulary.eos = token_id(metadata, "tokenizer.ggml.eos_token_id", n);
    vocabulary.eot = token_id(metadata, "tokenizer.ggml.eot_token_id", n);
    vocabulary.eom = token_id(metadata, "tokenizer.ggml.eom_token_id", n);
    const auto unused = [&](const char* key) { return unused_token_id(metadata, key, n, log); };
    constexpr const char* k_bos = "tokenizer.ggml.bos_token_id";
    vocabulary.bos = adds_bos ? token_id(metadata, k_bos, n) : unused(k_bos);
    vocabulary.unk = unused("tokenizer.ggml.unknown_token_id");
    vocabulary.pad = unused("tokenizer.ggml.padding_token_id");
    return vocabulary;
}

tokenizer::Vocabulary read_vocabulary(const checkpoint::Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.container() == checkpoint::Container::gguf)
        return vocabulary_from_gguf(checkpoint.metadata(), log);
    return tokenizer::vocabulary_from_json(side_file(checkpoint, "tokenizer.json", true),
                                           side_file(checkpoint, "tokenizer_config.json", false),
                                           side_file(checkpoint, "generation_config.json", false), log,
                                           side_file(checkpoint, "config.json", false));
}

}  // namespace minim::model
