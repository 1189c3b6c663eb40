// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: they give a shape that can be computed, or an error that says what is wrong or not supported.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "config_shape.h"
#include "model/config.h"
#include "require.h"

using minim::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        minim::fuzz::require_shape(
            minim::model::config_from_json({reinterpret_cast<const char*>(data), size}, minim::Logger()));
    } catch (const minim::Error& error) {
        require(error.status() == minim::Status::format || error.status() == minim::Status::unsupported,
                "a configuration is good, wrong or not supported");
        require(error.status() != minim::Status::format || error.reason() != minim::Reason::none,
                "a bad file has a reason");
    }
    return 0;
}
