// SPDX-License-Identifier: Apache-2.0
// Turns a stream of bytes into text that is valid UTF-8 at every step. A token may end inside a character, so up to three
// bytes are held back until the character is complete or cannot be completed.
#pragma once

#include <string>
#include <string_view>

namespace minim::tokenizer {

// One stream's state; one thread at a time.
class StreamDecoder {
  public:
    // Appends to `text` what is final: whole characters, and U+FFFD for each maximal subpart of an ill-formed
    // sequence.
    void push(std::string_view bytes, std::string& text);
    std::string push(std::string_view bytes);

    // Ends the stream: an incomplete character becomes U+FFFD. The decoder can then start a new stream.
    void finish(std::string& text);
    std::string finish();

    size_t pending_bytes() const noexcept { return pending_.size(); }

  private:
    std::string pending_;
};

}  // namespace minim::tokenizer
