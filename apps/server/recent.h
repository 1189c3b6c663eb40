// SPDX-License-Identifier: Apache-2.0
// Values by key. The least recently used ones are dropped once all together are too large, or too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace server {

template <typename Value>
class Recent {
  public:
    explicit Recent(size_t max_bytes, size_t max_entries = SIZE_MAX)
        : max_bytes_(max_bytes), max_entries_(max_entries) {}

    // Returns the value, which is then the most recently used one, or null. Valid until the next put() or erase().
    const Value* find(const std::string& key) {
        const auto it = by_key_.find(key);
        if (it == by_key_.end()) return nullptr;
        entries_.splice(entries_.begin(), entries_, it->second);
        return &it->second->value;
    }

    // `bytes`: of the value, as far as they count. A new value stays even if it alone is too large.
    void put(const std::string& key, Value value, size_t bytes) {
        erase(key);
        entries_.push_front({key, std::move(value), key.size() + bytes});
        by_key_[key] = entries_.begin();
        n_bytes_ += entries_.front().bytes;
        while (entries_.size() > 1 && (entries_.size() > max_entries_ || n_bytes_ > max_bytes_))
            erase(std::string(entries_.back().key));
    }

    void erase(const std::string& key) {
        const auto it = by_key_.find(key);
        if (it == by_key_.end()) return;
        n_bytes_ -= it->second->bytes;
        entries_.erase(it->second);
        by_key_.erase(it);
    }

  private:
    struct Entry {
        std::string key;
        Value value;
        size_t bytes;
    };
    using Entries = std::list<Entry>;

    const size_t max_bytes_;
    const size_t max_entries_;
    size_t n_bytes_ = 0;
    Entries entries_;  // the most recently used first
    std::unordered_map<std::string, typename Entries::iterator> by_key_;
};

}  // namespace server
