// SPDX-License-Identifier: Apache-2.0
#include "backend/device_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/format_text.h"

namespace minim::backend {
namespace {

constexpr size_t k_max_kept_blocks = 64;

}  // namespace

uint64_t MemoryState::used() const noexcept {
    return std::accumulate(used_bytes.begin(), used_bytes.end(), uint64_t{0});
}

std::string budget_text(const MemoryState& state) {
    if (state.budget_bytes == k_no_budget) return {};
    return format_text("; {} of the budget of {} bytes are used", state.used(), state.budget_bytes);
}

class DeviceMemory::Block : public Memory {
  public:
    Block(DeviceMemory& owner, Allocation place, uint64_t size, MemoryUse use)
        : Memory(place.data, size), owner_(owner), bytes_(place.bytes), use_(use) {}
    ~Block() override { owner_.release({data_, bytes_}, use_); }

  private:
    DeviceMemory& owner_;
    const uint64_t bytes_;  // at least the bytes requested
    const MemoryUse use_;
};

// At most an eighth of the device's memory is kept in free blocks, because other programs on the device cannot use them.
DeviceMemory::DeviceMemory(std::string device, BlockSource& source, uint64_t budget_bytes, Status none_left)
    : device_(std::move(device)),
      source_(source),
      budget_bytes_(budget_bytes),
      none_left_(none_left),
      most_kept_bytes_(std::min(budget_bytes, source.free_bytes()) / 8) {
    state_.budget_bytes = budget_bytes;
    kept_.reserve(k_max_kept_blocks);
}

DeviceMemory::~DeviceMemory() {
    give_back_kept();
}

std::unique_ptr<Memory> DeviceMemory::allocate(uint64_t bytes, std::string_view what, MemoryUse use) {
    const Allocation place = take(bytes, use);
    if (place.data == nullptr) fail(bytes, what);
    try {
        return std::make_unique<Block>(*this, place, bytes, use);
    } catch (...) {
        release(place, use);
        throw;
    }
}

DeviceMemory::Allocation DeviceMemory::take(uint64_t bytes, MemoryUse use) {
    const std::lock_guard lock(mutex_);
    Allocation place = take_kept(bytes);
    if (place.data == nullptr) {
        if (bytes > budget_bytes_ - state_.used()) return {};
        // Frees kept blocks if the budget or the device needs the memory.
        while (bytes > budget_bytes_ - state_.used() - state_.kept_bytes) give_back_oldest();
        place = {source_.take(bytes), bytes};
        while (place.data == nullptr && !kept_.empty()) {
            give_back_oldest();
            place.data = source_.take(bytes);
        }
        if (place.data == nullptr) return {};
    }
    state_.used_bytes[static_cast<size_t>(use)] += place.bytes;
    return place;
}

// Returns the smallest block that is large enough and wastes at most an eighth.
DeviceMemory::Allocation DeviceMemory::take_kept(uint64_t bytes) noexcept {
    auto best = kept_.end();
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        const bool fits = kept->bytes >= bytes && kept->bytes - bytes <= bytes / 8;
        if (fits && (best == kept_.end() || kept->bytes < best->bytes)) best = kept;
    }
    if (best == kept_.end()) return {};
    const Allocation place = *best;
    kept_.erase(best);
    state_.kept_bytes -= place.bytes;
    return place;
}

void DeviceMemory::release(Allocation place, MemoryUse use) noexcept {
    const std::lock_guard lock(mutex_);
    state_.used_bytes[static_cast<size_t>(use)] -= place.bytes;
    if (place.bytes == 0 || place.bytes > most_kept_bytes_) {
        source_.give_back(place.data, place.bytes);
        return;
    }
    while (kept_.size() == k_max_kept_blocks || state_.kept_bytes + place.bytes > most_kept_bytes_)
        give_back_oldest();
    kept_.push_back(place);
    state_.kept_bytes += place.bytes;
}

void DeviceMemory::give_back_oldest() noexcept {
    const Allocation place = kept_.front();
    kept_.erase(kept_.begin());
    state_.kept_bytes -= place.bytes;
    source_.give_back(place.data, place.bytes);
}

void DeviceMemory::give_back_kept() noexcept {
    const std::lock_guard lock(mutex_);
    while (!kept_.empty()) give_back_oldest();
}

MemoryState DeviceMemory::state() const noexcept {
    const std::lock_guard lock(mutex_);
    MemoryState state = state_;
    const uint64_t on_device = source_.free_bytes();
    const uint64_t with_kept =
        on_device > UINT64_MAX - state.kept_bytes ? UINT64_MAX : on_device + state.kept_bytes;
    const uint64_t in_budget = budget_bytes_ == k_no_budget ? UINT64_MAX : budget_bytes_ - state.used();
    state.free_bytes = std::min(with_kept, in_budget);
    return state;
}

void DeviceMemory::fail(uint64_t bytes, std::string_view what) const {
    const MemoryState now = state();
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(bytes);
    facts.available = static_cast<int64_t>(now.free_bytes);
    if (none_left_ == Status::out_of_device_memory) facts.device = DeviceName(device_);
    throw Error(none_left_, Reason::none,
                format_text("{}: {} bytes for {} needed, {} bytes available{}", device_, bytes, what,
                            now.free_bytes, budget_text(now)),
                facts);
}

}  // namespace minim::backend
