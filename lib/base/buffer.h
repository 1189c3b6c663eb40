// Host memory for weights, KV pages and work space: zeroed, page-aligned, made present at allocation, so that
// running out is an error here and not a signal later. Huge pages are asked for where the block is large
// enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minim {

// Move-only owner of one block on the host.
class Buffer {
  public:
    Buffer() = default;
    // Throws out_of_memory naming `what`, the bytes asked and the bytes available. Zero bytes give an empty
    // buffer.
    Buffer(uint64_t bytes, std::string_view what);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::byte* data() const noexcept { return data_; }
    uint64_t size() const noexcept { return size_; }

    template <typename T>
    T* as() const noexcept {
        return reinterpret_cast<T*>(data_);
    }

  private:
    void release() noexcept;

    std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace minim
