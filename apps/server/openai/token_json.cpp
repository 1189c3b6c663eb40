// SPDX-License-Identifier: Apache-2.0
#include "openai/token_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace server {

namespace {

// Replaces infinity, which JSON does not have, with the number that other servers write for it.
double finite(float logprob) {
    return std::max(static_cast<double>(logprob), -9999.0);
}

std::string bytes_of(const minim::Model& model, int32_t id) {
    return model.token_text(id).str();
}

// Returns a token's text. For one that is not whole UTF-8: "bytes:" and its bytes, so that different tokens have different names.
std::string token_name(const minim::Model& model, int32_t id) {
    const std::string bytes = bytes_of(model, id);
    if (Json::parse(to_text(Json(bytes))) == bytes) return bytes;
    std::string name = "bytes:";
    for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    return name;
}

std::span<const minim_token_probability> likeliest(const Token& token, int64_t n_top) {
    return std::span(token.top).first(std::min<size_t>(token.top.size(), n_top));
}

double per_second(uint64_t count, uint64_t us) {
    return us == 0 ? 0.0 : static_cast<double>(count) * 1e6 / static_cast<double>(us);
}

double per_token_ms(uint64_t count, uint64_t us) {
    return count == 0 ? 0.0 : static_cast<double>(us) * 1e-3 / static_cast<double>(count);
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

Json token_json(const minim::Model& model, int32_t id, float logprob) {
    const std::string bytes = bytes_of(model, id);
    Json numbers = Json::array();
    for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
    return {{"token", bytes}, {"logprob", finite(logprob)}, {"bytes", std::move(numbers)}};
}

Json completion_logprobs(const minim::Model& model, std::span<const Token> tokens, int64_t n_top,
                         size_t& offset) {
    Json texts = Json::array();
    Json logprobs = Json::array();
    Json tops = Json::array();
    Json offsets = Json::array();
    for (const Token& token : tokens) {
        const std::string name = token_name(model, token.id);
        texts.push_back(name);
        offsets.push_back(offset);
        offset += characters(token.text);
        logprobs.push_back(token.has_logprob ? Json(finite(token.logprob)) : Json());
        tops.push_back(token.has_logprob ? Json::object() : Json());
        if (!token.has_logprob) continue;
        // Two tokens of the same text have one entry: that of the likelier.
        for (const auto& other : likeliest(token, n_top))
            tops.back().emplace(token_name(model, other.id), finite(other.logprob));
        tops.back().emplace(name, finite(token.logprob));
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
}

Json prompt_logprobs(const minim::Model& model, std::span<const Token> tokens, int64_t n_top) {
    Json all = Json::array({nullptr});
    for (const Token& token : tokens) {
        Json entries = Json::object();
        const auto add = [&](int32_t id, float logprob, int64_t rank) {
            entries.emplace(
                std::to_string(id),
                Json{{"logprob", finite(logprob)}, {"rank", rank}, {"decoded_token", bytes_of(model, id)}});
        };
        add(token.id, token.logprob, token.prompt_rank);
        int64_t rank = 0;
        for (const auto& other : likeliest(token, n_top)) add(other.id, other.logprob, ++rank);
        all.push_back(std::move(entries));
    }
    return all;
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
            {"completion_tokens_details",
             {{"reasoning_tokens", usage.n_reasoning},
              {"accepted_prediction_tokens", usage.n_drafts_accepted},
              {"rejected_prediction_tokens", usage.n_drafted - usage.n_drafts_accepted}}}};
}

Json timings_json(const Usage& usage) {
    const uint64_t n_read = usage.n_prompt - std::min(usage.n_cached, usage.n_prompt);
    Json timings = {{"cache_n", usage.n_cached},
                    {"prompt_n", n_read},
                    {"prompt_ms", static_cast<double>(usage.prompt_us) * 1e-3},
                    {"prompt_per_token_ms", per_token_ms(n_read, usage.prompt_us)},
                    {"prompt_per_second", per_second(n_read, usage.prompt_us)},
                    {"predicted_n", usage.n_generated},
                    {"predicted_ms", static_cast<double>(usage.generate_us) * 1e-3},
                    {"predicted_per_token_ms", per_token_ms(usage.n_generated, usage.generate_us)},
                    {"predicted_per_second", per_second(usage.n_generated, usage.generate_us)}};
    if (usage.n_drafted > 0) {
        timings["draft_n"] = usage.n_drafted;
        timings["draft_n_accepted"] = usage.n_drafts_accepted;
    }
    return timings;
}

}  // namespace server
