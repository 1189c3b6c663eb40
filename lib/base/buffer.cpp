// SPDX-License-Identifier: Apache-2.0
#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/page.h"

namespace minim {
namespace {

constexpr uint64_t k_huge_page_bytes = uint64_t{2} << 20;

// Prefaults every page. Returns false if the machine does not have enough memory.
bool populate(std::byte* data, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
#endif
    // Kernels before 5.14: write to each page the value that it has.
    volatile std::byte* page = data;
    for (uint64_t at = 0; at < bytes; at += system_page_bytes()) page[at] = page[at];
    return true;
}

}  // namespace

Buffer::Buffer(uint64_t bytes, std::string_view what, Presence presence) {
    if (bytes == 0) return;
    const uint64_t available = available_memory_bytes();
    if (bytes > available) fail_out_of_memory(what, bytes, available);
    const uint64_t mapped = align_up(bytes, system_page_bytes());
    void* block = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) fail_out_of_memory(what, bytes, available);
    auto* data = static_cast<std::byte*>(block);
    if (bytes >= k_huge_page_bytes)
        ::madvise(data, mapped, MADV_HUGEPAGE);  // advice: failure changes speed only
    if (presence == Presence::now && !populate(data, mapped)) {
        ::munmap(data, mapped);
        fail_out_of_memory(what, bytes, available_memory_bytes());
    }
    data_ = data;
    size_ = bytes;
}

void Buffer::prefault(uint64_t from, uint64_t count, std::string_view what) const {
    if (count == 0) return;
    const uint64_t begin = from / system_page_bytes() * system_page_bytes();
    const uint64_t end = align_up(from + count, system_page_bytes());
    if (!populate(data_ + begin, end - begin)) {
        fail_out_of_memory(what, end - begin, available_memory_bytes());
    }
}

Buffer::~Buffer() {
    release();
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this != &other) {
        release();
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void Buffer::release() noexcept {
    if (data_ != nullptr) ::munmap(data_, align_up(size_, system_page_bytes()));
    data_ = nullptr;
    size_ = 0;
}

}  // namespace minim
