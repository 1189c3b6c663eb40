// SPDX-License-Identifier: Apache-2.0
#include "base/host_memory.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "base/page.h"

namespace minim {
namespace {

constexpr size_t k_max_samples = 16384;

[[noreturn]] void fail_lock(std::string_view what, uint64_t bytes, int code) {
    const LockLimit lock = lock_limit();
    ErrorFacts facts;
    facts.os_code = code;
    facts.requested = static_cast<int64_t>(bytes);
    std::string text =
        format_text("{}: {} bytes cannot be locked in memory: {}", what, bytes, std::strerror(code));
    if (lock.limit != UINT64_MAX) {
        facts.available = static_cast<int64_t>(lock.left());
        text += format_text(
            "; the process may lock {} bytes (RLIMIT_MEMLOCK) and has locked {}: raise the limit (ulimit -l, "
            "LimitMEMLOCK= of a service, --ulimit memlock= of a container) or do not ask for locked memory",
            lock.limit, lock.locked);
    }
    throw Error(Status::out_of_memory, Reason::none, text, facts);
}

}  // namespace

const PlacementCalls& HostMemory::calls() const noexcept {
    return plan_ == nullptr ? system_placement_calls() : *plan_->calls;
}

int32_t HostMemory::n_nodes() const noexcept {
    return plan_ != nullptr && plan_->splits_rows() ? static_cast<int32_t>(plan_->topology.nodes.size()) : 1;
}

std::vector<int64_t> HostMemory::rows_of_nodes(int64_t n_rows, int64_t granule) const {
    return minim::rows_of_nodes(n_rows, plan_->n_threads, granule);
}

Buffer HostMemory::take(uint64_t bytes, std::string_view what, int32_t node,
                        Buffer::Presence presence) const {
    if (!is_placed() && !locks_) return Buffer(bytes, what, presence);
    Buffer buffer(bytes, what, Buffer::Presence::later);
    if (bytes == 0) return buffer;
    if (is_placed()) {
        std::vector<int32_t> nodes = plan_->node_numbers();
        if (node != k_any_node) nodes = {nodes[node]};
        if (const int code = calls().bind_memory(buffer.data(), bytes, nodes); code != 0)
            fail(Status::unsupported, "{}: {} bytes cannot be placed on NUMA node {}: {}", what, bytes,
                 fmt::join(nodes, ","), std::strerror(code));
    }
    if (locks_) lock(buffer.data(), bytes, what);
    if (presence == Buffer::Presence::now) buffer.prefault(0, bytes, what);
    return buffer;
}

void HostMemory::lock(const void* data, uint64_t bytes, std::string_view what) const {
    if (bytes == 0) return;
    if (const int code = calls().lock_memory(data, bytes); code != 0) fail_lock(what, bytes, code);
}

std::map<int32_t, uint64_t> HostMemory::bytes_on_nodes(
    std::span<const std::span<const std::byte>> blocks) const {
    const uint64_t page = system_page_bytes();
    uint64_t n_pages = 0;
    for (const auto block : blocks) n_pages += (block.size() + page - 1) / page;
    const uint64_t step = std::max<uint64_t>(1, (n_pages + k_max_samples - 1) / k_max_samples) * page;
    std::vector<void*> pages;
    std::vector<uint64_t> page_bytes;  // the bytes that each sampled page stands for
    for (const auto block : blocks) {
        for (uint64_t at = 0; at < block.size(); at += step) {
            const auto address = reinterpret_cast<uintptr_t>(block.data() + at);
            pages.push_back(reinterpret_cast<void*>(address / page * page));
            page_bytes.push_back(std::min(step, block.size() - at));
        }
    }
    std::vector<int> nodes(pages.size(), -1);
    if (const int code = pages.empty() ? 0 : calls().find_pages(pages, nodes); code != 0)
        fail(Status::unsupported, "the system does not report the NUMA nodes of pages: {}",
             std::strerror(code));
    std::map<int32_t, uint64_t> bytes;
    for (size_t i = 0; i < pages.size(); ++i)
        if (nodes[i] >= 0) bytes[nodes[i]] += page_bytes[i];
    return bytes;
}

}  // namespace minim
