#include "base/error.h"

#include <algorithm>
#include <cstring>

#include "base/format_text.h"

namespace minim {

DeviceName::DeviceName(std::string_view name) noexcept {
    name.copy(text_, sizeof(text_) - 1);
}

Error::Error(Status status, Reason reason, std::string_view message, const ErrorFacts& facts) noexcept
    : status_(status), reason_(reason), facts_(facts), message_{} {
    size_t length = std::min(message.size(), sizeof(message_) - 1);
    // Cut before a UTF-8 sequence, not inside it: hosts decode the text strictly.
    if (length < message.size()) {
        while (length > 0 && (static_cast<unsigned char>(message[length]) & 0xC0U) == 0x80U) --length;
    }
    std::memcpy(message_, message.data(), length);
}

void fail_out_of_memory(std::string_view what, uint64_t requested_bytes, uint64_t available_bytes) {
    char text[512];
    const auto end = fmt::format_to_n(text, sizeof(text), "{}: {} bytes needed, {} bytes available", what,
                                      requested_bytes, available_bytes);
    const size_t length = std::min(end.size, sizeof(text));
    constexpr uint64_t k_largest = INT64_MAX;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(std::min(requested_bytes, k_largest));
    facts.available = static_cast<int64_t>(std::min(available_bytes, k_largest));
    throw Error(Status::out_of_memory, Reason::none, std::string_view(text, length), facts);
}

}  // namespace minim
