// SPDX-License-Identifier: Apache-2.0
#include "openai/token_json.h"

#include <algorithm>
#include <cmath>

namespace server {

namespace {

// Replaces infinity, which JSON does not have, with the number that other servers write for it.
double finite(float logprob) {
    return std::max(static_cast<double>(logprob), -9999.0);
}

std::string bytes_of(const minim::Model& model, int32_t id) {
    return model.token_text(id).str();
}

Json token_json(const minim::Model& model, int32_t id, float logprob) {
    const std::string bytes = bytes_of(model, id);
    Json numbers = Json::array();
    for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
    return {{"token", bytes}, {"logprob", finite(logprob)}, {"bytes", std::move(numbers)}};
}

double per_second(uint64_t count, uint64_t us) {
    return us == 0 ? 0.0 : static_cast<double>(count) * 1e6 / static_cast<double>(us);
}

}  // namespace

size_t characters(std::string_view text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

Json chat_logprobs(const minim::Model& model, std::span<const Token> tokens) {
    Json content = Json::array();
    for (const Token& token : tokens) {
        Json entry = token_json(model, token.id, token.logprob);
        Json top = Json::array();
        for (const auto& other : token.top) top.push_back(token_json(model, other.id, other.logprob));
        entry["top_logprobs"] = std::move(top);
        content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const minim::Model& model, std::span<const Token> tokens, size_t& offset) {
    Json texts = Json::array();
    Json logprobs = Json::array();
    Json tops = Json::array();
    Json offsets = Json::array();
    for (const Token& token : tokens) {
        texts.push_back(bytes_of(model, token.id));
        logprobs.push_back(finite(token.logprob));
        Json top = Json::object();
        for (const auto& other : token.top) top[bytes_of(model, other.id)] = finite(other.logprob);
        tops.push_back(std::move(top));
        offsets.push_back(offset);
        offset += characters(token.text);
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
}

Json ids_of(std::span<const Token> tokens) {
    Json ids = Json::array();
    for (const Token& token : tokens) ids.push_back(token.id);
    return ids;
}

Json usage_json(const Usage& usage) {
    return {{"prompt_tokens", usage.n_prompt},
            {"completion_tokens", usage.n_generated},
            {"total_tokens", usage.n_total()},
            {"prompt_tokens_details", {{"cached_tokens", usage.n_cached}}},
            {"completion_tokens_details", {{"reasoning_tokens", usage.n_reasoning}}}};
}

Json timings_json(const Usage& usage) {
    const uint64_t n_read = usage.n_prompt - std::min(usage.n_cached, usage.n_prompt);
    return {{"cache_n", usage.n_cached},
            {"prompt_n", n_read},
            {"prompt_ms", static_cast<double>(usage.prompt_us) * 1e-3},
            {"prompt_per_second", per_second(n_read, usage.prompt_us)},
            {"predicted_n", usage.n_generated},
            {"predicted_ms", static_cast<double>(usage.generate_us) * 1e-3},
            {"predicted_per_second", per_second(usage.n_generated, usage.generate_us)}};
}

}  // namespace server
