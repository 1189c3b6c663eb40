// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_count.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace minim::test {
namespace {

thread_local bool counting = false;
thread_local uint64_t total = 0;
thread_local uint64_t largest = 0;
thread_local uint64_t n_blocks = 0;

}  // namespace

void* counted_allocate(std::size_t bytes) noexcept {
    if (counting) {
        total += bytes;
        largest = std::max<uint64_t>(largest, bytes);
        ++n_blocks;
    }
    return std::malloc(bytes != 0 ? bytes : 1);
}

void* counted_new(std::size_t bytes) {
    void* block = counted_allocate(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

AllocationCount::AllocationCount() {
    total = 0;
    largest = 0;
    n_blocks = 0;
    counting = true;
}

AllocationCount::~AllocationCount() {
    counting = false;
}

uint64_t AllocationCount::total_bytes() const {
    return total;
}

uint64_t AllocationCount::largest_bytes() const {
    return largest;
}

uint64_t AllocationCount::blocks() const {
    return n_blocks;
}

}  // namespace minim::test

using minim::test::counted_allocate;
using minim::test::counted_new;

void* operator new(std::size_t bytes) {
    return counted_new(bytes);
}
void* operator new[](std::size_t bytes) {
    return counted_new(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted_allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted_allocate(bytes);
}
void operator delete(void* block) noexcept {
    std::free(block);
}
void operator delete[](void* block) noexcept {
    std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
    std::free(block);
}
void operator delete[](void* block, std::size_t) noexcept {
    std::free(block);
}
void operator delete(void* block, const std::nothrow_t&) noexcept {
    std::free(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
    std::free(block);
}
