// SPDX-License-Identifier: Apache-2.0
// Copies structs across the ABI: the caller's `size` shows the version that it was compiled with, older or newer than
// ours.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace minim::capi {

// Copies min(size, known) bytes of the caller's struct into `known`. Throws invalid if `size` is smaller than the
// struct's first version or larger than any possible version, unsupported if the part beyond `known` is not all zero.
void read_struct(const void* caller, const char* name, uint32_t first_version_bytes, void* known,
                 uint32_t known_bytes);

// Copies the fields of `known` that fit into the caller's struct, without changing the caller's `size`.
void write_struct(void* caller, const char* name, uint32_t first_version_bytes, const void* known,
                  uint32_t known_bytes);

// Returns parameters with defaults: all zero if the caller passed NULL, or an older struct without them.
template <typename T>
T params_of(const T* caller, const char* name, uint32_t first_version_bytes = sizeof(T)) {
    T params{};
    if (caller != nullptr) read_struct(caller, name, first_version_bytes, &params, sizeof(T));
    params.size = sizeof(T);
    if (params.flags != 0)
        fail(Status::unsupported, "{}.flags is {:#x}; no flag is defined", name, params.flags);
    return params;
}

template <typename T>
void result_to(T* caller, const char* name, const T& value, uint32_t first_version_bytes = sizeof(T)) {
    write_struct(caller, name, first_version_bytes, &value, sizeof(T));
}

}  // namespace minim::capi
