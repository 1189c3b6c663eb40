// SPDX-License-Identifier: Apache-2.0
// Text with a mark for each byte: from the chat template or from the request. The marks survive all operations of a
// template, so that special tokens in messages can be distinguished from those of the template.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minim::chat {

class MarkedText {
  public:
    MarkedText() = default;
    MarkedText(std::string_view bytes, bool is_user) { append(bytes, is_user); }

    std::string_view bytes() const noexcept { return bytes_; }
    size_t size() const noexcept { return bytes_.size(); }
    bool is_empty() const noexcept { return bytes_.empty(); }
    // Returns whether any byte is from the request.
    bool has_user_bytes() const noexcept { return !is_empty() && (first_is_user_ || !flips_.empty()); }

    void append(std::string_view bytes, bool is_user);
    void append(const MarkedText& other, size_t begin = 0, size_t end = std::string::npos);
    MarkedText slice(size_t begin, size_t end = std::string::npos) const;

    // Calls run(bytes, is_user) for each part of one kind, in order.
    template <typename Run>
    void for_each_run(Run run) const {
        size_t begin = 0;
        bool is_user = first_is_user_;
        for (size_t i = 0; i <= flips_.size() && begin < size(); ++i) {
            const size_t end = i < flips_.size() ? flips_[i] : size();
            run(bytes().substr(begin, end - begin), is_user);
            begin = end;
            is_user = !is_user;
        }
    }

  private:
    std::string bytes_;
    std::vector<size_t> flips_;  // ascending, inside the text: where the kind changes
    bool first_is_user_ = false;
};

}  // namespace minim::chat
