// SPDX-License-Identifier: Apache-2.0
#include "chat/marked_text.h"

#include <algorithm>

namespace minim::chat {

void MarkedText::append(std::string_view bytes, bool is_user) {
    if (bytes.empty()) return;
    if (is_empty()) {
        first_is_user_ = is_user;
    } else if (is_user != (first_is_user_ != (flips_.size() % 2 != 0))) {
        flips_.push_back(size());
    }
    bytes_ += bytes;
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
    end = std::min(end, other.size());
    if (begin >= end) return;
    const auto first = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
    bool is_user = other.first_is_user_ != ((first - other.flips_.begin()) % 2 != 0);
    for (auto flip = first;; ++flip, is_user = !is_user) {
        const size_t stop = flip == other.flips_.end() ? end : std::min(*flip, end);
        append(other.bytes().substr(begin, stop - begin), is_user);
        begin = stop;
        if (begin == end) return;
    }
}

MarkedText MarkedText::slice(size_t begin, size_t end) const {
    MarkedText part;
    part.append(*this, begin, end);
    return part;
}

}  // namespace minim::chat
