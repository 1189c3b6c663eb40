// SPDX-License-Identifier: Apache-2.0
// Converts exceptions to status codes: every exported function that can fail runs its body in guard().
#pragma once

#include <string_view>
#include <utility>

#include "base/error.h"
#include "minim/minim.h"

namespace minim::capi {

// Fills the fields that fit into the caller's struct, which may be null. `device`: minim_error.device.
void fill_error(minim_error* out, const Error& error, int32_t device) noexcept;

// Runs `body` and returns the status. index_of(name) returns minim_error.device for the device that an error names.
template <typename IndexOf, typename Body>
minim_status guard(minim_error* out, const IndexOf& index_of, Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return MINIM_OK;
    } catch (...) {
        const Error error = current_error();
        const std::string_view device = error.facts().device.text();
        fill_error(out, error, device.empty() ? -1 : index_of(device));
        return static_cast<minim_status>(error.status());
    }
}

// Does the same for calls that use no devices.
template <typename Body>
minim_status guard(minim_error* out, Body&& body) noexcept {
    return guard(
        out, [](std::string_view) { return -1; }, std::forward<Body>(body));
}

// Returns a field that must be 0 or 1. Throws invalid, naming it.
inline bool flag(int32_t value, const char* name) {
    if (value != 0 && value != 1) fail(Status::invalid, "{} is {}; 0 and 1 are known", name, value);
    return value == 1;
}

// Throws invalid, naming the argument.
template <typename T>
T& required(T* pointer, const char* name) {
    if (pointer == nullptr) fail(Status::invalid, "argument {} is NULL", name);
    return *pointer;
}

}  // namespace minim::capi
