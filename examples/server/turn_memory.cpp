// SPDX-License-Identifier: Apache-2.0
#include "turn_memory.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace server {

namespace {

std::string bytes_of(const int32_t* ids, size_t count) {
    return {reinterpret_cast<const char*>(ids), count * sizeof(int32_t)};
}

void append_ids(std::vector<int32_t>& ids, const std::string& bytes) {
    const size_t size = ids.size();
    ids.resize(size + bytes.size() / sizeof(int32_t));
    std::memcpy(ids.data() + size, bytes.data(), bytes.size());
}

// Returns the id of a text that is one token; -1 if it is not.
int32_t single_token(const minim::Model& model, std::string_view text) {
    const minim::Tokens tokens = model.tokenize(text);
    return tokens.size() == 1 ? tokens[0] : -1;
}

// Returns the part of a call's id after the prefix, which depends on the API ("call_" or "toolu_").
std::string id_core(const std::string& id) {
    return id.substr(id.find('_') + 1);
}

}  // namespace

void RecentTexts::put(const std::string& key, std::string value) {
    if (const auto old = by_key_.find(key); old != by_key_.end()) {
        n_bytes_ -= old->second->first.size() + old->second->second.size();
        entries_.erase(old->second);
        by_key_.erase(old);
    }
    n_bytes_ += key.size() + value.size();
    entries_.emplace_front(key, std::move(value));
    by_key_[key] = entries_.begin();
    while (n_bytes_ > most_bytes_ && !entries_.empty()) {
        n_bytes_ -= entries_.back().first.size() + entries_.back().second.size();
        by_key_.erase(entries_.back().first);
        entries_.pop_back();
    }
}

const std::string* RecentTexts::find(const std::string& key) {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->second;
}

TurnMemory::TurnMemory(const minim::Model& model)
    : model_(model), role_(single_token(model, "]~b]")), end_(single_token(model, "[e~[")) {}

void TurnMemory::remember(const Json& message, const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& generated) {
    if (role_ < 0 || end_ < 0) return;
    const Json messages = Json::array({Json{{"role", "user"}, {"content", "x"}}, message});
    const minim::Tokens rendered = model_.chat_tokenize(
        to_text(messages), {}, R"({"add_generation_prompt":false})", MINIM_SPECIALS_TEMPLATE);
    const auto last = [](const int32_t* begin, const int32_t* end, int32_t id) {
        return std::find(std::make_reverse_iterator(end), std::make_reverse_iterator(begin), id).base();
    };
    const int32_t* turn = last(rendered.begin(), rendered.end(), role_);
    const int32_t* turn_end = std::find(turn, rendered.end(), end_);
    const int32_t* header = last(prompt.data(), prompt.data() + prompt.size(), role_);
    const int64_t header_size = prompt.data() + prompt.size() - header;
    const std::string key = bytes_of(turn, turn_end - turn);
    std::string value = bytes_of(header, header_size) + bytes_of(generated.data(), generated.size());
    if (key == value) return;
    const std::lock_guard lock(mutex_);
    turns_.put(key, std::move(value));
}

std::vector<int32_t> TurnMemory::splice(const std::vector<int32_t>& prompt) {
    if (role_ < 0 || end_ < 0) return prompt;
    const std::lock_guard lock(mutex_);
    std::vector<int32_t> result;
    result.reserve(prompt.size());
    for (auto it = prompt.begin(); it != prompt.end();) {
        result.push_back(*it);
        if (*it++ != role_) continue;
        const auto end =
            std::find_if(it, prompt.end(), [&](int32_t id) { return id == end_ || id == role_; });
        if (end == prompt.end() || *end != end_) continue;
        const std::string key = bytes_of(&*it, end - it);
        if (const std::string* generated = turns_.find(key)) {
            append_ids(result, *generated);
            it = end;
        }
    }
    return result;
}

void ReasoningMemory::remember(const std::string& call_id, const std::string& reasoning) {
    const std::lock_guard lock(mutex_);
    texts_.put(id_core(call_id), reasoning);
}

std::optional<std::string> ReasoningMemory::find(const std::string& call_id) {
    const std::lock_guard lock(mutex_);
    const std::string* reasoning = texts_.find(id_core(call_id));
    return reasoning == nullptr ? std::nullopt : std::optional(*reasoning);
}

}  // namespace server
