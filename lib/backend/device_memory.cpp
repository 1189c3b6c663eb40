#include "backend/device_memory.h"

#include <utility>

#include "base/error.h"
#include "base/format_text.h"

namespace minim::backend {

class DeviceMemory::Block : public Memory {
  public:
    Block(DeviceMemory& owner, std::byte* data, uint64_t size, MemoryUse use)
        : Memory(data, size), owner_(owner), use_(use) {}
    ~Block() override { owner_.release(data_, size_, use_); }

  private:
    DeviceMemory& owner_;
    MemoryUse use_;
};

DeviceMemory::DeviceMemory(std::string device, BlockSource& source)
    : device_(std::move(device)), source_(source) {}

std::unique_ptr<Memory> DeviceMemory::allocate(uint64_t bytes, std::string_view what, MemoryUse use) {
    std::byte* block = source_.take(bytes);
    if (block == nullptr) fail(bytes, what);
    {
        const std::lock_guard lock(mutex_);
        used_bytes_[static_cast<size_t>(use)] += bytes;
    }
    try {
        return std::make_unique<Block>(*this, block, bytes, use);
    } catch (...) {
        release(block, bytes, use);
        throw;
    }
}

void DeviceMemory::release(std::byte* block, uint64_t bytes, MemoryUse use) noexcept {
    source_.give_back(block, bytes);
    const std::lock_guard lock(mutex_);
    used_bytes_[static_cast<size_t>(use)] -= bytes;
}

MemoryState DeviceMemory::state() const noexcept {
    MemoryState state;
    state.free_bytes = source_.free_bytes();
    const std::lock_guard lock(mutex_);
    state.used_bytes = used_bytes_;
    return state;
}

void DeviceMemory::fail(uint64_t bytes, std::string_view what) const {
    const uint64_t available = state().free_bytes;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(bytes);
    facts.available = static_cast<int64_t>(available);
    throw Error(
        Status::out_of_device_memory, Reason::none,
        format_text("{}: {} bytes for {} needed, {} bytes available", device_, bytes, what, available),
        facts);
}

}  // namespace minim::backend
