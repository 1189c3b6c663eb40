// SPDX-License-Identifier: Apache-2.0
#include "chat/reasoning_splitter.h"

#include <algorithm>
#include <utility>

#include "chat/markup.h"

namespace minim::chat {
namespace {

std::string_view without_leading_newlines(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    return text;
}

std::string_view without_trailing_newlines(std::string_view text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace

void ReasoningSplitter::begin(std::string_view space) {
    if (options_.reasoning == ReasoningMode::append_think && options_.starts_in_reasoning)
        put_text(markup_of(options_.family).think_open);
    put_space(space);
}

void ReasoningSplitter::begin_at_tag(std::string_view space, std::string_view tag) {
    in_reasoning_ = true;
    if (splits()) return;
    put_space(space);
    put_text(tag);
}

void ReasoningSplitter::put_text(std::string_view text) {
    deltas_.add(kind(), space_);
    space_.clear();
    text_has_begun_ = true;
    deltas_.add(kind(), text);
}

void ReasoningSplitter::put_space(std::string_view space) {
    const bool trims = splits() && !text_has_begun_ && space_.empty();
    space_ += trims ? without_leading_newlines(space) : space;
}

bool ReasoningSplitter::close(std::string_view tag) {
    if (std::exchange(owes_closer_, false)) {
        space_ = text_has_begun_ ? std::string(without_trailing_newlines(space_)) : std::string();
        return true;
    }
    if (!in_reasoning_) return false;
    if (splits()) {
        deltas_.add(OutputDelta::Kind::reasoning, without_trailing_newlines(space_));
        space_.clear();
        text_has_begun_ = false;
    } else {
        put_text(tag);
    }
    in_reasoning_ = false;
    return true;
}

void ReasoningSplitter::begin_call() {
    space_.clear();
    if (!std::exchange(in_reasoning_, false) || !splits()) return;
    text_has_begun_ = false;
    owes_closer_ = true;
}

void ReasoningSplitter::finish() {
    const bool is_reasoning = kind() == OutputDelta::Kind::reasoning;
    if (is_reasoning || deltas_.n_calls() == 0)
        deltas_.add(kind(), is_reasoning ? without_trailing_newlines(space_) : space_);
}

}  // namespace minim::chat
