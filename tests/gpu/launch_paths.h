// SPDX-License-Identifier: Apache-2.0
// Sets MINIM_CUDA_PATHS for devices that are opened meanwhile.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace minim::test {

class SetLaunchPaths {
  public:
    explicit SetLaunchPaths(const char* words) {
        if (const char* now = std::getenv(k_name)) before_ = now;
        ::setenv(k_name, words, 1);
    }
    SetLaunchPaths(const SetLaunchPaths&) = delete;
    SetLaunchPaths& operator=(const SetLaunchPaths&) = delete;
    ~SetLaunchPaths() {
        if (before_) {
            ::setenv(k_name, before_->c_str(), 1);
        } else {
            ::unsetenv(k_name);
        }
    }

  private:
    static constexpr const char* k_name = "MINIM_CUDA_PATHS";
    std::optional<std::string> before_;
};

}  // namespace minim::test
