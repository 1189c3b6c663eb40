// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <string>

namespace minim {

void Logger::set(LogFunction function, void* user_data, LogLevel level) noexcept {
    const std::lock_guard lock(mutex_);
    function_ = function;
    user_data_ = user_data;
    level_ = function == nullptr ? LogLevel::off : level;
}

bool Logger::wants(LogLevel level) const noexcept {
    const std::lock_guard lock(mutex_);
    return level != LogLevel::off && level <= level_;
}

void Logger::emit(LogLevel level, const std::string& line) const {
    LogFunction function = nullptr;
    void* user_data = nullptr;
    {
        const std::lock_guard lock(mutex_);
        function = function_;
        user_data = user_data_;
    }
    // Called without a lock: a logger may call back into the library.
    if (function != nullptr) function(user_data, static_cast<int32_t>(level), line.c_str());
}

}  // namespace minim
