// The one place where exceptions become status codes: every export that can fail runs its body in guard().
#pragma once

#include <string_view>
#include <utility>

#include "base/error.h"
#include "minim/minim.h"

namespace minim::capi {

// Fills what fits into the caller's struct; null is fine. `device`: minim_error.device.
void fill_error(minim_error* out, const Error& error, int32_t device) noexcept;

// index_of(name): what minim_error.device is for the device that an error names.
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

// For calls that have to do with no device.
template <typename Body>
minim_status guard(minim_error* out, Body&& body) noexcept {
    return guard(
        out, [](std::string_view) { return -1; }, std::forward<Body>(body));
}

// Of a field that is 0 or 1. Throws invalid, naming it.
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
