// SPDX-License-Identifier: Apache-2.0
// The only exception type of the library. It is thrown at the edges (parsing, allocation, device calls) and
// becomes a minim_status in capi/; the hot loop neither throws nor allocates.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

#include "base/format_text.h"

namespace minim {

// Values equal the MINIM_E_* constants of minim.h (capi/ asserts it).
enum class Status : int32_t {
    ok = 0,
    invalid = 1,
    not_found = 2,
    io = 3,
    format = 4,
    unsupported = 5,
    out_of_memory = 6,
    out_of_device_memory = 7,
    context_full = 8,
    cancelled = 9,
    device_lost = 10,
    busy = 11,
    internal = 12,
    peer_lost = 13,  // a rank, which the message names, has ended or does not answer
};

// The fault of a bad file; values equal the MINIM_REASON_* constants. `none` for every other error.
enum class Reason : int32_t {
    none = 0,
    truncated = 1,
    format = 2,
    limit = 3,
    type = 4,
    shape = 5,
    offset = 6,
    duplicate = 7,
    value = 8,
    io = 9,
};

// The name of a device, "cuda:0", stored inline: an error may outlive the device, and must not allocate when memory is short.
// Long names are cut.
class DeviceName {
  public:
    DeviceName() = default;
    explicit DeviceName(std::string_view name) noexcept;
    std::string_view text() const noexcept { return text_; }

  private:
    char text_[64] = "";
};

// Details of an error. A field that does not apply has its default: -1, 0 or no name.
struct ErrorFacts {
    int64_t os_code = 0;    // errno of a failed system call
    int64_t requested = 0;  // bytes asked for
    int64_t available = 0;  // bytes that were free
    int64_t offset = -1;    // byte position in the file
    DeviceName device;      // the device that is lost or whose memory is short
};

// Stores its text inline, so that an out-of-memory error needs no memory.
class Error : public std::exception {
  public:
    Error(Status status, Reason reason, std::string_view message, const ErrorFacts& facts = {}) noexcept;

    Status status() const noexcept { return status_; }
    Reason reason() const noexcept { return reason_; }
    const ErrorFacts& facts() const noexcept { return facts_; }
    const char* what() const noexcept override { return message_; }

  private:
    Status status_;
    Reason reason_;
    ErrorFacts facts_;
    char message_[1024];
};

// Returns the exception that is being handled as an Error. Call it in a catch block.
Error current_error() noexcept;

// Throws Error with a formatted message: fail(Status::invalid, "n_batch {} is not positive", n).
template <typename... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> text, Args&&... args) {
    throw Error(status, Reason::none, format_text(text, std::forward<Args>(args)...));
}

// Throws an Error about a device; the message begins with its name.
template <typename... Args>
[[noreturn]] void fail_on_device(std::string_view device, Status status, fmt::format_string<Args...> text,
                                 Args&&... args) {
    ErrorFacts facts;
    facts.device = DeviceName(device);
    throw Error(status, Reason::none,
                format_text("{}: {}", device, format_text(text, std::forward<Args>(args)...)), facts);
}

// Throws an Error about a bad file: status `io` if the reason is io, else `format`.
template <typename... Args>
[[noreturn]] void fail_file(Reason reason, fmt::format_string<Args...> text, Args&&... args) {
    const Status status = reason == Reason::io ? Status::io : Status::format;
    throw Error(status, reason, format_text(text, std::forward<Args>(args)...));
}

// Throws internal: a broken invariant of this library, never bad input.
template <typename... Args>
[[noreturn]] void fail_internal(fmt::format_string<Args...> text, Args&&... args) {
    throw Error(Status::internal, Reason::none, format_text(text, std::forward<Args>(args)...));
}

// Throws out_of_memory, with the figures in the facts and in the text.
[[noreturn]] void fail_out_of_memory(std::string_view what, uint64_t requested_bytes,
                                     uint64_t available_bytes);

}  // namespace minim
