// SPDX-License-Identifier: Apache-2.0
// An environment variable of a test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace minim::test {

// Sets an environment variable while the object exists, then restores the previous value.
class Setting {
  public:
    Setting(const char* name, const std::string& value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        ::setenv(name, value.c_str(), 1);
    }
    ~Setting() {
        if (before_) {
            ::setenv(name_, before_->c_str(), 1);
        } else {
            ::unsetenv(name_);
        }
    }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace minim::test
