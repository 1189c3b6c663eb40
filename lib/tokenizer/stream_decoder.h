// Turns a stream of bytes into text that is valid UTF-8 at every step. A token may end within a character, so
// up to three bytes are held back until the rest comes or cannot come any more.
#pragma once

#include <string>
#include <string_view>

namespace minim::tokenizer {

// One stream's state; one thread at a time.
class StreamDecoder {
  public:
    // Appends to `text` all that is certain by now: whole characters, and U+FFFD for each maximal subpart of
    // an ill-formed sequence.
    void push(std::string_view bytes, std::string& text);
    std::string push(std::string_view bytes);

    // The end of the stream: what is still held becomes U+FFFD. The decoder is then as new.
    void finish(std::string& text);
    std::string finish();

    size_t held_bytes() const noexcept { return held_.size(); }

  private:
    std::string held_;
};

}  // namespace minim::tokenizer
