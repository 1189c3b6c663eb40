// SPDX-License-Identifier: Apache-2.0
#include "turn_memory.h"

#include <algorithm>
#include <span>

namespace server {

namespace {

std::string bytes_of(std::span<const int32_t> ids) {
    return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()};
}

// Returns the token that ends a turn: the first one that the prompt lacks if its last message is to go on. -1: there is none.
int32_t end_of_turn(const minim::Model& model) {
    const std::string messages = R"([{"role":"user","content":"x"},{"role":"assistant","content":"x"}])";
    minim::ChatOptions options;
    options.kwargs = R"({"add_generation_prompt":false})";
    try {
        const minim::Tokens whole = model.chat_tokenize_with(messages, options, MINIM_SPECIALS_TEMPLATE);
        options.continue_final_message = true;
        const size_t n_open = model.chat_tokenize_with(messages, options, MINIM_SPECIALS_TEMPLATE).size();
        return n_open < whole.size() ? whole[n_open] : -1;
    } catch (const minim::Exception&) {  // the checkpoint has no template
        return -1;
    }
}

// Returns the ids after the last token `id`, and all if there is none.
std::span<const int32_t> after_last(std::span<const int32_t> ids, int32_t id) {
    const auto last = std::find(ids.rbegin(), ids.rend(), id).base();
    return ids.subspan(last - ids.begin());
}

// Returns the part of a call's id after the prefix, which depends on the API ("call_" or "toolu_").
std::string id_core(const std::string& id) {
    return id.substr(id.find('_') + 1);
}

}  // namespace

TurnMemory::TurnMemory(const minim::Model& model) : model_(model), end_(end_of_turn(model)) {}

void TurnMemory::remember(const Json& message, const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& generated) {
    if (end_ < 0) return;
    const Json messages = Json::array({Json{{"role", "user"}, {"content", "x"}}, message});
    const minim::Tokens rendered = model_.chat_tokenize(
        to_text(messages), {}, R"({"add_generation_prompt":false})", MINIM_SPECIALS_TEMPLATE);
    std::span<const int32_t> turn(rendered.data(), rendered.size());
    turn = turn.first(turn.size() - after_last(turn, end_).size());
    if (turn.empty()) return;
    const std::string key = bytes_of(after_last(turn.first(turn.size() - 1), end_));
    const std::span<const int32_t> begun = after_last(prompt, end_);
    std::vector<int32_t> value(begun.begin(), begun.end());
    value.insert(value.end(), generated.begin(), generated.end());
    if (key == bytes_of(value)) return;
    const size_t n_bytes = value.size() * sizeof(int32_t);
    const std::lock_guard lock(mutex_);
    turns_.put(key, std::move(value), n_bytes);
}

std::vector<int32_t> TurnMemory::splice(const std::vector<int32_t>& prompt) {
    if (end_ < 0) return prompt;
    const std::lock_guard lock(mutex_);
    std::vector<int32_t> result;
    result.reserve(prompt.size());
    for (auto begin = prompt.begin(); begin != prompt.end();) {
        const auto end = std::find(begin, prompt.end(), end_);
        const std::vector<int32_t>* generated = turns_.find(bytes_of({begin, end}));
        const std::span<const int32_t> turn =
            generated != nullptr ? std::span(*generated) : std::span(begin, end);
        result.insert(result.end(), turn.begin(), turn.end());
        if (end != prompt.end()) result.push_back(end_);
        begin = end == prompt.end() ? end : end + 1;
    }
    return result;
}

void ReasoningMemory::remember(const std::string& call_id, const std::string& reasoning) {
    const std::lock_guard lock(mutex_);
    texts_.put(id_core(call_id), reasoning, reasoning.size());
}

std::optional<std::string> ReasoningMemory::find(const std::string& call_id) {
    const std::lock_guard lock(mutex_);
    const std::string* reasoning = texts_.find(id_core(call_id));
    return reasoning == nullptr ? std::nullopt : std::optional(*reasoning);
}

}  // namespace server
