// SPDX-License-Identifier: Apache-2.0
// Log lines go only to the logger that the host installed: the library is silent by default. One call is one complete
// line, without a trailing newline; it is formatted only if its level is enabled.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/format_text.h"

namespace minim {

enum class LogLevel : int32_t { off = 0, error = 1, warning = 2, info = 3, debug = 4 };

using LogFunction = void (*)(void* user_data, int32_t level, const char* line);

// Any thread may write; the function is called on the writing thread, without a lock.
class Logger {
  public:
    Logger() = default;
    Logger(const Logger&) = delete;
    Logger& operator=(const Logger&) = delete;

    void set(LogFunction function, void* user_data, LogLevel level) noexcept;
    bool wants(LogLevel level) const noexcept;

    template <typename... Args>
    void write(LogLevel level, fmt::format_string<Args...> text, Args&&... args) const {
        if (wants(level)) emit(level, format_text(text, std::forward<Args>(args)...));
    }
    template <typename... Args>
    void warning(fmt::format_string<Args...> text, Args&&... args) const {
        write(LogLevel::warning, text, std::forward<Args>(args)...);
    }
    template <typename... Args>
    void info(fmt::format_string<Args...> text, Args&&... args) const {
        write(LogLevel::info, text, std::forward<Args>(args)...);
    }

  private:
    void emit(LogLevel level, const std::string& line) const;

    mutable std::mutex mutex_;
    LogFunction function_ = nullptr;
    void* user_data_ = nullptr;
    LogLevel level_ = LogLevel::off;
};

}  // namespace minim
