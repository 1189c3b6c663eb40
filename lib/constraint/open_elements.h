// SPDX-License-Identifier: Apache-2.0
// The elements that are open in a call in the format of MiniMax-M3. A closing tag must have the name of the last one, which no grammar
// can say of names that are free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::constraint {

class OpenElements {
  public:
    // Follows the mark that begins a tag.
    void add_mark() noexcept { place_ = Place::marked; }
    // Follows text without marks. Returns false if a closing tag has another name than the last open element.
    bool add(std::string_view text);

    // Returns whether add() may return false for some text that comes next.
    bool decides() const noexcept {
        return place_ == Place::marked || place_ == Place::begun || is_closing();
    }
    // Returns whether add(text) would return true. Looks no further than to the end of the tag.
    bool allows(std::string_view text) const;

  private:
    enum class Place : uint8_t {
        text,     // outside of tags
        marked,   // behind the mark
        begun,    // behind '<'
        opening,  // in an opening tag
        closing,  // behind "</"
    };
    bool is_closing() const noexcept { return place_ == Place::closing; }

    std::vector<std::string> names_;  // of open elements, the last one innermost
    std::string tag_;                 // what has come of the tag's name
    Place place_ = Place::text;
};

// Returns whether all closing tags of a text have the names of their elements.
bool closes_its_elements(std::string_view text, std::string_view mark);

}  // namespace minim::constraint
