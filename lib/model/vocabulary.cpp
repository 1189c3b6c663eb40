// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "checkpoint/printable.h"

namespace minim::model {
namespace {

using checkpoint::Metadata;
using checkpoint::printable;

// Returns the id of a token on which results depend. Returns -1 if the key is absent or all bits of its value are set,
// which some writers use for "none".
int32_t token_id(const Metadata& metadata, const char* key, size_t n_tokens) {
    const checkpoint::MetaValue* stored = metadata.find(key);
    if (stored != nullptr && checkpoint::is_integer(stored->type)) {
        const int64_t id = stored->signed_at(0);
        if (id == -1 || (stored->type == checkpoint::MetaType::u32 && id == int64_t{UINT32_MAX})) return -1;
    }
    const auto value = metadata.unsigned_integer(key);
    if (!value) return -1;
    if (*value >= n_tokens)
        fail_file(Reason::value, "metadata key {} is {}; there are {} tokens", key, *value, n_tokens);
    return static_cast<int32_t>(*value);
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
    if (const auto types = metadata.integers("tokenizer.ggml.token_type")) {
        if (types->size() != n) {
            fail_file(Reason::value, "tokenizer.ggml.token_type has {} entries for {} tokens", types->size(),
                      n);
        }
        for (size_t i = 0; i < n; ++i) {
            const int64_t type = (*types)[i];
            if (type < 1 || type > 6)
                fail_file(Reason::value, "tokenizer.ggml.token_type: token {} has type {}", i, type);
            vocabulary.types[i] = static_cast<tokenizer::TokenType>(type);
        }
    }
    vocabulary.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token").value_or(false);
    vocabulary.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token").value_or(false);
    vocabulary.eos = token_id(metadata, "tokenizer.ggml.eos_token_id", n);
    vocabulary.eot = token_id(metadata, "tokenizer.ggml.eot_token_id", n);
    vocabulary.eom = token_id(metadata, "tokenizer.ggml.eom_token_id", n);
    const auto unused = [&](const char* key) { return unused_token_id(metadata, key, n, log); };
    constexpr const char* k_bos = "tokenizer.ggml.bos_token_id";
    vocabulary.bos = vocabulary.add_bos ? token_id(metadata, k_bos, n) : unused(k_bos);
    vocabulary.unk = unused("tokenizer.ggml.unknown_token_id");
    vocabulary.pad = unused("tokenizer.ggml.padding_token_id");
    vocabulary.fim.prefix = unused("tokenizer.ggml.fim_pre_token_id");
    vocabulary.fim.suffix = unused("tokenizer.ggml.fim_suf_token_id");
    vocabulary.fim.middle = unused("tokenizer.ggml.fim_mid_token_id");
    vocabulary.fim.pad = unused("tokenizer.ggml.fim_pad_token_id");
    vocabulary.fim.repository = unused("tokenizer.ggml.fim_rep_token_id");
    vocabulary.fim.separator = unused("tokenizer.ggml.fim_sep_token_id");
    return vocabulary;
}

}  // namespace minim::model
