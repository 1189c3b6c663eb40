// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.h"

#include <algorithm>
#include <span>
#include <string>
#include <tuple>

#include "checkpoint/load_counter.h"

namespace minim::checkpoint {
namespace {

// Returns the wanted tensors in the order of their bytes on disk.
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

void map(const Contents& contents, std::span<const Tensor* const> order, Residents& residents) {
    for (const File& file : contents.files) residents.maps.emplace_back(file);
    for (const Tensor* tensor : order) {
        const std::span<const std::byte> bytes = residents.maps[static_cast<size_t>(tensor->part)].bytes();
        residents.data[static_cast<size_t>(tensor->index)] = bytes.data() + tensor->offset;
    }
}

}  // namespace

Residents load_tensors(const Contents& contents, Residence how, const Progress& progress,
                       const CancelToken* cancel, const TensorFilter& wanted) {
    const std::vector<const Tensor*> order = reading_order(contents, wanted);
    uint64_t total = 0;
    for (const Tensor* tensor : order) total += tensor->bytes;
    Residents residents;
    residents.data.resize(contents.tensors.size());
    residents.is_loaded.resize(contents.tensors.size());
    LoadCounter counter(total, progress, cancel);
    if (how == Residence::mapped) {
        map(contents, order, residents);
    } else {
        for (const File& file : contents.files) file.check_size();
    }
    for (const Tensor* tensor : order) {
        residents.is_loaded[static_cast<size_t>(tensor->index)] = true;
        for (uint64_t at = 0; at < tensor->bytes; at += k_load_block_bytes)
            counter.add(std::min<uint64_t>(k_load_block_bytes, tensor->bytes - at));
    }
    return residents;
}

}  // namespace minim::checkpoint
