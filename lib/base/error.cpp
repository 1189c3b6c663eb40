// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "base/format_text.h"
#include "base/memory_info.h"

namespace minim {

DeviceName::DeviceName(std::string_view name) noexcept {
    name.copy(text_, sizeof(text_) - 1);
}

Error::Error(Status status, Reason reason, std::string_view message, const ErrorFacts& facts) noexcept
    : status_(status), reason_(reason), facts_(facts), message_{} {
    constexpr size_t k_room = sizeof(message_) - 1;
    if (message.size() <= k_room) {
        std::memcpy(message_, message.data(), message.size());
        return;
    }
    // A long message quotes its input first and says what is wrong after it: keep both ends. Cut between UTF-8 sequences, because
    // hosts decode the text strictly.
    const auto is_inside = [&](size_t at) {
        return at < message.size() && (static_cast<unsigned char>(message[at]) & 0xC0U) == 0x80U;
    };
    constexpr std::string_view k_cut = " ... ";
    size_t head = k_room / 2;
    while (head > 0 && is_inside(head)) --head;
    size_t tail = message.size() - (k_room - head - k_cut.size());
    while (is_inside(tail)) ++tail;
    char* end = std::copy_n(message.data(), head, message_);
    end = std::ranges::copy(k_cut, end).out;
    std::ranges::copy(message.substr(tail), end);
}

Error current_error() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        return error;
    } catch (const std::bad_alloc&) {
        return {Status::out_of_memory, Reason::none, "out of memory"};
    } catch (const std::length_error& error) {
        return {Status::out_of_memory, Reason::none, error.what()};
    } catch (const std::exception& error) {
        return {Status::internal, Reason::none, error.what()};
    } catch (...) {
        return {Status::internal, Reason::none, "an exception of unknown type"};
    }
}

void fail_out_of_memory(std::string_view what, uint64_t requested_bytes, uint64_t available_bytes) {
    char text[512];
    const bool is_limit = requested_bytes > available_address_space_bytes();
    const auto end = fmt::format_to_n(
        text, sizeof(text), "{}: {} bytes needed, {} bytes available{}", what, requested_bytes,
        available_bytes,
        is_limit ? " under the process's limit of address space (ulimit -v, RLIMIT_AS)" : "");
    const size_t length = std::min(end.size, sizeof(text));
    constexpr uint64_t k_largest = INT64_MAX;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(std::min(requested_bytes, k_largest));
    facts.available = static_cast<int64_t>(std::min(available_bytes, k_largest));
    throw Error(Status::out_of_memory, Reason::none, std::string_view(text, length), facts);
}

}  // namespace minim
