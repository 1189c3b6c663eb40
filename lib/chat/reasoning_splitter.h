// SPDX-License-Identifier: Apache-2.0
// Tells reasoning from content while text comes, and leaves out the newlines around both. Whitespace is held back, as it may
// be trailing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "chat/delta_list.h"
#include "chat/markup.h"

namespace minim::chat {

// Values equal the MINIM_REASONING_* constants of minim.h.
enum class ReasoningMode : uint8_t {
    split,         // reasoning and content separately, without the tags
    append_think,  // all in the content, after the opening tag of reasoning
    none,          // all in the content
};

struct ParserOptions {
    ReasoningMode reasoning = ReasoningMode::split;
    bool starts_in_reasoning = true;  // the prompt ends with an open think block
    Family family = Family::m2;
};

class ReasoningSplitter {
  public:
    // `deltas` gets the text.
    ReasoningSplitter(const ParserOptions& options, DeltaList& deltas)
        : options_(options), deltas_(deltas), in_reasoning_(options.starts_in_reasoning) {}

    bool in_reasoning() const noexcept { return in_reasoning_; }
    // Returns whether a call has ended the reasoning, so that its </think> may still come.
    bool owes_closer() const noexcept { return owes_closer_; }
    // Returns whether the content is still empty, so that a </think> would stand at its start.
    bool may_close_again() const noexcept {
        return splits() && !in_reasoning_ && !text_has_begun_ && space_.empty();
    }

    // Begin with the whitespace before the first text, or before a <think>.
    void begin(std::string_view space);
    void begin_at_tag(std::string_view space, std::string_view tag);
    void put_text(std::string_view text);
    void put_space(std::string_view space);
    void drop_space() noexcept { space_.clear(); }
    // Ends the reasoning at its </think>. If a call has ended it before, the tag is left out of the content. Returns false if the
    // tag ends nothing.
    bool close(std::string_view tag);
    // A call drops the whitespace before it, and ends the reasoning.
    void begin_call();
    void finish();

  private:
    bool splits() const noexcept { return options_.reasoning == ReasoningMode::split; }
    OutputDelta::Kind kind() const noexcept {
        return in_reasoning_ && splits() ? OutputDelta::Kind::reasoning : OutputDelta::Kind::content;
    }

    const ParserOptions options_;
    DeltaList& deltas_;
    bool in_reasoning_;
    bool owes_closer_ = false;
    bool text_has_begun_ = false;  // of the reasoning, then of the content
    std::string space_;            // whitespace that is left out if it turns out to be trailing
};

}  // namespace minim::chat
