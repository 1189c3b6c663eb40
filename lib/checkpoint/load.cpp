#include "checkpoint/load.h"

#include <algorithm>
#include <span>
#include <string>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "checkpoint/load_counter.h"

namespace minim::checkpoint {
namespace {

constexpr uint64_t k_tensor_alignment = 64;  // a cache line, and the widest vector

// Small tensors share a buffer: a checkpoint of 100,000 tensors would otherwise exceed the mappings of a
// process.
constexpr uint64_t k_buffer_bytes = uint64_t{64} << 20;

// The wanted tensors in the order of their bytes on disk.
std::vector<const Tensor*> reading_order(const Contents& contents, const TensorFilter& wanted) {
    std::vector<const Tensor*> order;
    for (const Tensor& tensor : contents.tensors) {
        if (!wanted || wanted(tensor)) order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
        return std::tuple(a->part, a->offset, a->index) < std::tuple(b->part, b->offset, b->index);
    });
    return order;
}

void map(const Contents& contents, std::span<const Tensor* const> order, bool reads_ahead,
         LoadCounter& counter, Residents& residents) {
    for (const File& file : contents.files) residents.maps.emplace_back(file);
    for (const Tensor* tensor : order) {
        const std::span<const std::byte> bytes =
            residents.maps[static_cast<size_t>(tensor->part)].bytes().subspan(tensor->offset, tensor->bytes);
        residents.data[static_cast<size_t>(tensor->index)] = bytes.data();
        for (uint64_t at = 0; at < bytes.size(); at += k_load_block_bytes) {
            const auto block = bytes.subspan(at, std::min<uint64_t>(k_load_block_bytes, bytes.size() - at));
            if (reads_ahead) read_ahead(block);
            counter.add(block.size());
        }
    }
}

// Reads tensors into one buffer, each at a multiple of k_tensor_alignment.
void read_group(const Contents& contents, std::span<const Tensor* const> group, uint64_t bytes,
                LoadCounter& counter, Residents& residents) {
    constexpr const char* k_what = "weights in host memory";
    const Buffer& buffer = residents.buffers.emplace_back(bytes, k_what, Buffer::Presence::later);
    uint64_t used = 0;
    for (const Tensor* tensor : group) {
        std::byte* const out = buffer.data() + used;
        const File& file = contents.files[static_cast<size_t>(tensor->part)];
        for (uint64_t at = 0; at < tensor->bytes; at += k_load_block_bytes) {
            const uint64_t count = std::min(k_load_block_bytes, tensor->bytes - at);
            buffer.make_present(used + at, count, k_what);
            file.read_at(tensor->offset + at, {out + at, count});
            counter.add(count);
        }
        residents.data[static_cast<size_t>(tensor->index)] = out;
        used += align_up(tensor->bytes, k_tensor_alignment);
    }
}

void read(const Contents& contents, std::span<const Tensor* const> order, LoadCounter& counter,
          Residents& residents) {
    size_t first = 0;
    while (first < order.size()) {
        size_t last = first;
        uint64_t bytes = 0;
        do {
            bytes += align_up(order[last]->bytes, k_tensor_alignment);
            ++last;
        } while (last < order.size() && bytes + order[last]->bytes <= k_buffer_bytes);
        read_group(contents, order.subspan(first, last - first), bytes, counter, residents);
        first = last;
    }
}

}  // namespace

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted) {
    const std::vector<const Tensor*> order = reading_order(contents, wanted);
    uint64_t total = 0;
    for (const Tensor* tensor : order) total += tensor->bytes;
    const uint64_t available = available_memory_bytes();
    if (how == Residence::owned && total > available) {
        fail_out_of_memory("weights in host memory", total, available);
    }
    Residents residents;
    residents.data.resize(contents.tensors.size());
    LoadCounter counter(total, progress, cancel);
    if (how != Residence::mapped)
        for (const File& file : contents.files) file.expect_reads_in_order();
    if (how == Residence::owned) {
        read(contents, order, counter, residents);
    } else {
        map(contents, order, how == Residence::mapped && total <= available, counter, residents);
    }
    return residents;
}

}  // namespace minim::checkpoint
