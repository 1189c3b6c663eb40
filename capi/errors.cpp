// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "guard.h"

namespace {

// A caller that forgot to set `size` still gets the first version of the struct.
constexpr uint32_t k_first_version_bytes = sizeof(minim_error);

constexpr const char* k_status_names[] = {
    "MINIM_OK",
    "MINIM_E_INVALID",
    "MINIM_E_NOT_FOUND",
    "MINIM_E_IO",
    "MINIM_E_FORMAT",
    "MINIM_E_UNSUPPORTED",
    "MINIM_E_OUT_OF_MEMORY",
    "MINIM_E_OUT_OF_DEVICE_MEMORY",
    "MINIM_E_CONTEXT_FULL",
    "MINIM_E_CANCELLED",
    "MINIM_E_DEVICE_LOST",
    "MINIM_E_BUSY",
    "MINIM_E_INTERNAL",
    "MINIM_E_PEER_LOST",
};

constexpr const char* k_reason_names[] = {
    "none", "truncated", "format", "limit", "type", "shape", "offset", "duplicate", "value", "io",
};

static_assert(std::size(k_status_names) == MINIM_E_PEER_LOST + 1);
static_assert(std::size(k_reason_names) == MINIM_REASON_IO + 1);
static_assert(static_cast<int>(minim::Status::unsupported) == MINIM_E_UNSUPPORTED);
static_assert(static_cast<int>(minim::Status::context_full) == MINIM_E_CONTEXT_FULL);
static_assert(static_cast<int>(minim::Status::internal) == MINIM_E_INTERNAL);
static_assert(static_cast<int>(minim::Status::peer_lost) == MINIM_E_PEER_LOST);
static_assert(static_cast<int>(minim::Reason::duplicate) == MINIM_REASON_DUPLICATE);
static_assert(static_cast<int>(minim::Reason::io) == MINIM_REASON_IO);

}  // namespace

namespace minim::capi {

void fill_error(minim_error* out, const Error& error, int32_t device) noexcept {
    if (out == nullptr) return;
    minim_error value{};
    value.status = static_cast<int32_t>(error.status());
    value.reason = static_cast<int32_t>(error.reason());
    value.device = device;
    value.os_code = error.facts().os_code;
    value.requested = error.facts().requested;
    value.available = error.facts().available;
    value.offset = error.facts().offset;
    const std::string_view message = error.what();
    message.copy(value.message, sizeof(value.message) - 1);
    const uint32_t size = out->size == 0 ? k_first_version_bytes : out->size;
    value.size = size;
    std::memcpy(out, &value, std::min<size_t>(size, sizeof(value)));
}

}  // namespace minim::capi

const char* minim_status_name(minim_status status) {
    const auto index = static_cast<size_t>(status);
    return status >= 0 && index < std::size(k_status_names) ? k_status_names[index] : nullptr;
}

const char* minim_reason_name(int32_t reason) {
    const auto index = static_cast<size_t>(reason);
    return reason >= 0 && index < std::size(k_reason_names) ? k_reason_names[index] : nullptr;
}
