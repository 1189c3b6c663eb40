// SPDX-License-Identifier: Apache-2.0
// Splits the output of a MiniMax-M3 model into tags, runs of whitespace and runs of other text, however the output is cut. Tags
// of calls have the mark "]<]minimax[>[" before them. The lexer searches only for the tags that the parser currently accepts, so
// that text is held back only while it may become one of those.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minim::chat {

struct ElementToken {
    enum class Kind : uint8_t {
        text,
        space,
        think_open,
        think_close,
        block_open,
        block_close,
        invoke_open,  // <invoke name="NAME">
        invoke_close,
        element_open,   // <NAME>
        element_close,  // </NAME>
        mark,           // a mark without a tag
    };
    Kind kind = Kind::text;
    bool has_mark = false;
    std::string_view raw;   // valid until the next push()
    std::string_view name;  // of invoke_open, element_open and element_close, not empty
};

// A set of tags to look for.
class ElementTags {
  public:
    constexpr ElementTags() = default;
    constexpr ElementTags operator|(ElementTags other) const { return ElementTags(bits_ | other.bits_); }
    constexpr bool has(ElementTags tag) const { return (bits_ & tag.bits_) != 0; }

    static constexpr ElementTags think_open() { return ElementTags(1U << 0U); }
    static constexpr ElementTags think_close() { return ElementTags(1U << 1U); }
    // Tags after a mark:
    static constexpr ElementTags block_open() { return ElementTags(1U << 2U); }
    static constexpr ElementTags block_close() { return ElementTags(1U << 3U); }
    static constexpr ElementTags invoke_open() { return ElementTags(1U << 4U); }
    static constexpr ElementTags invoke_close() { return ElementTags(1U << 5U); }
    static constexpr ElementTags invoke_without_bracket() {
        return ElementTags(1U << 6U);
    }  // invoke name="NAME">
    static constexpr ElementTags elements() {
        return ElementTags(1U << 7U);
    }  // of any name; also a mark without a tag
    static constexpr ElementTags value_close() { return ElementTags(1U << 8U); }  // element_close of one name
    // The same without their mark, which models sometimes leave out:
    static constexpr ElementTags bare_block_open() { return ElementTags(1U << 9U); }
    static constexpr ElementTags bare_block_close() { return ElementTags(1U << 10U); }
    static constexpr ElementTags bare_invoke_open() { return ElementTags(1U << 11U); }
    static constexpr ElementTags bare_invoke_close() { return ElementTags(1U << 12U); }

  private:
    constexpr explicit ElementTags(uint32_t bits) : bits_(bits) {}
    uint32_t bits_ = 0;
};

class ElementLexer {
  public:
    void push(std::string_view text);
    // Returns nothing if the input is used up, or its rest may still become a wanted tag. `value_name`: of the element that
    // value_close() is for.
    std::optional<ElementToken> next(ElementTags wanted, std::string_view value_name);
    // Returns the text for which next() waits for more input: the beginning of a tag, or nothing.
    std::string_view pending() const noexcept { return std::string_view(buffer_).substr(at_); }

  private:
    std::string buffer_;
    size_t at_ = 0;  // start of what is not yet split
};

}  // namespace minim::chat
