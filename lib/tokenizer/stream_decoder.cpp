// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/stream_decoder.h"

#include <utility>

#include "base/utf8.h"

namespace minim::tokenizer {
namespace {

constexpr std::string_view k_replacement = "\uFFFD";

// Appends what is final in `bytes` and returns the incomplete rest.
std::string_view append_certain(std::string_view bytes, std::string& text) {
    while (!bytes.empty()) {
        const Utf8Step step = next_utf8(bytes);
        if (step.state == Utf8State::incomplete) break;
        text += step.state == Utf8State::complete ? bytes.substr(0, step.length) : k_replacement;
        bytes.remove_prefix(step.length);
    }
    return bytes;
}

}  // namespace

void StreamDecoder::push(std::string_view bytes, std::string& text) {
    if (pending_.empty()) {
        pending_ = append_certain(bytes, text);
        return;
    }
    std::string joined = pending_;
    joined += bytes;
    pending_ = append_certain(joined, text);  // at most 3 bytes: assigning them cannot fail
}

std::string StreamDecoder::push(std::string_view bytes) {
    std::string text;
    push(bytes, text);
    return text;
}

void StreamDecoder::finish(std::string& text) {
    if (!pending_.empty()) text += k_replacement;
    pending_.clear();
}

std::string StreamDecoder::finish() {
    std::string text;
    finish(text);
    return text;
}

}  // namespace minim::tokenizer
