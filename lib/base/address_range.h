// Addresses that nothing else has and no memory lies at: names for bytes that are made when they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minim {

class AddressRange {
  public:
    AddressRange() = default;
    // Throws out_of_memory naming `what` where the process may not have so many addresses.
    AddressRange(uint64_t bytes, std::string_view what);
    ~AddressRange();
    AddressRange(AddressRange&& other) noexcept;
    AddressRange& operator=(AddressRange&& other) noexcept;
    AddressRange(const AddressRange&) = delete;
    AddressRange& operator=(const AddressRange&) = delete;

    const std::byte* begin() const noexcept { return begin_; }
    bool contains(const std::byte* address) const noexcept;

  private:
    const std::byte* begin_ = nullptr;
    uint64_t bytes_ = 0;
};

}  // namespace minim
