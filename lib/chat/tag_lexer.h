// SPDX-License-Identifier: Apache-2.0
// Splits model output into tags, runs of whitespace and runs of other text, however the output is cut. It searches
// only for the tags that the parser currently accepts, so that text is held back only while it may become one of
// those.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minim::chat {

enum class TokenKind : uint8_t {
    text,
    space,
    think_open,
    think_close,
    block_open,
    block_close,
    invoke_open,  // <invoke name="NAME">
    invoke_close,
    parameter_open,  // <parameter name="NAME">
    parameter_close,
    bad_parameter,  // the beginning of a parameter_open whose rest is malformed
};

// A set of kinds of tags to look for.
class TagSet {
  public:
    constexpr TagSet() = default;
    constexpr TagSet(TokenKind kind) : bits_(1U << static_cast<unsigned>(kind)) {}
    constexpr TagSet operator|(TagSet other) const { return TagSet(bits_ | other.bits_); }
    constexpr bool has(TokenKind kind) const { return (bits_ & TagSet(kind).bits_) != 0; }
    // invoke_open without its "<", which models sometimes leave out.
    static constexpr TagSet bare_invoke() { return TagSet(1U << 31U); }
    constexpr bool has_bare_invoke() const { return (bits_ & bare_invoke().bits_) != 0; }

  private:
    constexpr explicit TagSet(uint32_t bits) : bits_(bits) {}
    uint32_t bits_ = 0;
};

struct Token {
    TokenKind kind = TokenKind::text;
    std::string_view raw;   // valid until the next push()
    std::string_view name;  // of invoke_open and parameter_open, not empty
};

class TagLexer {
  public:
    void push(std::string_view text);
    // Returns nothing if the input is used up, or its rest may still become a wanted tag.
    std::optional<Token> next(TagSet wanted);
    // Returns the text for which next() waits for more input: the beginning of a tag, or nothing.
    std::string_view pending() const noexcept { return std::string_view(buffer_).substr(at_); }

  private:
    std::string buffer_;
    size_t at_ = 0;  // start of what is not yet split
};

}  // namespace minim::chat
