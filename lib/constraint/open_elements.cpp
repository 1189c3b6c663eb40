// SPDX-License-Identifier: Apache-2.0
#include "constraint/open_elements.h"

#include <algorithm>

namespace minim::constraint {

bool OpenElements::add(std::string_view text) {
    for (const char c : text) {
        switch (place_) {
            case Place::text:
                return true;  // up to the next mark
            case Place::marked:
                place_ = c == '<' ? Place::begun : Place::text;
                tag_.clear();
                break;
            case Place::begun:
                place_ = c == '/' ? Place::closing : Place::opening;
                if (c != '/') tag_ += c;
                break;
            case Place::opening:
                if (c != '>') {
                    tag_ += c;
                    break;
                }
                names_.push_back(tag_.substr(0, tag_.find(' ')));  // <invoke name="...">
                place_ = Place::text;
                break;
            case Place::closing:
                if (c != '>') {
                    tag_ += c;
                    break;
                }
                if (names_.empty() || names_.back() != tag_) return false;
                names_.pop_back();
                place_ = Place::text;
                break;
        }
    }
    return true;
}

bool OpenElements::allows(std::string_view text) const {
    const std::string_view before = place_ == Place::marked ? "</" : place_ == Place::begun ? "/" : "";
    if (!decides() || !text.starts_with(before)) return true;
    text.remove_prefix(before.size());
    std::string wanted = (names_.empty() ? std::string() : names_.back()) + '>';
    if (is_closing()) wanted.erase(0, tag_.size());
    const size_t n = std::min(text.size(), wanted.size());
    return text.substr(0, n) == std::string_view(wanted).substr(0, n);
}

bool closes_its_elements(std::string_view text, std::string_view mark) {
    OpenElements elements;
    for (size_t at = 0; at < text.size();) {
        const size_t next = std::min(text.find(mark, at), text.size());
        if (!elements.add(text.substr(at, next - at))) return false;
        if (next < text.size()) elements.add_mark();
        at = next + mark.size();
    }
    return true;
}

}  // namespace minim::constraint
