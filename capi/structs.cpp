// SPDX-License-Identifier: Apache-2.0
#include "structs.h"

#include <algorithm>

namespace minim::capi {
namespace {

// If `size` exceeds the known struct by more than this, it is not a newer version's but was not initialised.
constexpr uint32_t k_max_unknown_bytes = 4096;

uint32_t checked_size(const void* caller, const char* name, uint32_t first_version_bytes,
                      uint32_t known_bytes) {
    if (caller == nullptr) fail(Status::invalid, "argument {} is NULL", name);
    uint32_t size = 0;
    std::memcpy(&size, caller, sizeof(size));
    if (size < first_version_bytes) {
        fail(Status::invalid,
             "{}.size is {}, at least {} is expected: initialise the struct with its INIT macro", name, size,
             first_version_bytes);
    }
    if (size > known_bytes && size - known_bytes > k_max_unknown_bytes) {
        fail(Status::invalid,
             "{}.size is {}, at most {} is expected: initialise the struct with its INIT macro", name, size,
             known_bytes);
    }
    return size;
}

}  // namespace

void read_struct(const void* caller, const char* name, uint32_t first_version_bytes, void* known,
                 uint32_t known_bytes) {
    const uint32_t size = checked_size(caller, name, first_version_bytes, known_bytes);
    const auto* bytes = static_cast<const unsigned char*>(caller);
    for (uint32_t i = known_bytes; i < size; ++i) {
        if (bytes[i] != 0) {
            fail(Status::unsupported,
                 "{} holds a value at offset {} that this version of the library does not know", name, i);
        }
    }
    std::memcpy(known, caller, std::min(size, known_bytes));
}

void write_struct(void* caller, const char* name, uint32_t first_version_bytes, const void* known,
                  uint32_t known_bytes) {
    const uint32_t size = checked_size(caller, name, first_version_bytes, known_bytes);
    std::memcpy(caller, known, std::min(size, known_bytes));
    std::memcpy(caller, &size, sizeof(size));
}

}  // namespace minim::capi
