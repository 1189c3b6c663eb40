// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of every layer: a folder of their own, token ids, the error of a call, the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace minim::test {

// Returns ordinary tokens of the bundled models; a different `first` gives different tokens at every position.
inline std::vector<int32_t> some_ids(size_t count, int32_t first = 0) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) ids[i] = (static_cast<int32_t>(i) * 37 + 11 + first) % 1984;
    return ids;
}

// Returns the error that a call throws, or nothing if the call succeeds.
template <typename Call>
std::optional<Error> error_of(Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

// Checks that a call fails with this status, and with a message that contains this text.
template <typename Call>
void expect_error(Status status, std::string_view part, Call&& call) {
    const std::optional<Error> error = error_of(call);
    INFO("wanted: " << part);
    REQUIRE(error);
    INFO("message: " << error->what());
    CHECK(error->status() == status);
    CHECK(std::string_view(error->what()).find(part) != std::string_view::npos);
}

inline std::string_view name_of(Reason reason) {
    constexpr std::string_view k_names[] = {"none",  "truncated", "format",    "limit", "type",
                                            "shape", "offset",    "duplicate", "value", "io"};
    return k_names[static_cast<size_t>(reason)];
}

// Returns the reason that a call fails with, by name, so that a failed comparison shows it with the message.
template <typename Call>
std::string reason_of(Call&& call) {
    const std::optional<Error> error = error_of(call);
    if (!error) return "no error";
    UNSCOPED_INFO(error->what());
    return std::string(name_of(error->reason()));
}

// Collects the lines that are logged.
struct Lines {
    Lines() { log.set(&take, this, LogLevel::debug); }
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;

    static void take(void* self, int32_t, const char* line) {
        static_cast<Lines*>(self)->all.emplace_back(line);
    }
    size_t holding(std::string_view part) const {
        size_t count = 0;
        for (const std::string& line : all) count += line.find(part) != std::string::npos ? 1 : 0;
        return count;
    }

    Logger log;
    std::vector<std::string> all;
};

}  // namespace minim::test
