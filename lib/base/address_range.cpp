#include "base/address_range.h"

#include <sys/mman.h>

#include <functional>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"

namespace minim {

AddressRange::AddressRange(uint64_t bytes, std::string_view what) {
    if (bytes == 0) return;
    void* range = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) fail_out_of_memory(what, bytes, available_memory_bytes());
    begin_ = static_cast<const std::byte*>(range);
    bytes_ = bytes;
}

AddressRange::~AddressRange() {
    if (begin_ != nullptr) ::munmap(const_cast<std::byte*>(begin_), bytes_);
}

AddressRange::AddressRange(AddressRange&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

AddressRange& AddressRange::operator=(AddressRange&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

bool AddressRange::contains(const std::byte* address) const noexcept {
    constexpr std::less<> before;
    return begin_ != nullptr && !before(address, begin_) && before(address, begin_ + bytes_);
}

}  // namespace minim
