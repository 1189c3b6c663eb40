// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "checkpoint/choose_file.h"
#include "checkpoint/file_names.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"
#include "checkpoint/safetensors_index.h"

namespace minim::checkpoint {
namespace {

// Enough for the codes, scales and zero points of the matrices that the threads of a load share.
constexpr size_t k_max_views = 24;
// They stay in memory, so that large ones are fewer; some are needed at once.
constexpr uint64_t k_max_view_bytes = uint64_t{128} << 20;
constexpr size_t k_min_views = 6;

bool is_full(const std::vector<ViewCache::Range>& ranges, uint64_t more) {
    uint64_t bytes = more;
    for (const ViewCache::Range& range : ranges) bytes += range.count;
    return ranges.size() >= k_max_views || (ranges.size() >= k_min_views && bytes > k_max_view_bytes);
}

// Chooses the reader by the file's name, because an index and a safetensors file have no magic. Every other file is
// read as GGUF, which has one.
Contents open_contents(const std::string& path, const Logger& log) {
    if (ends_in(path, ".json")) return open_safetensors_index(path, log);
    if (ends_in(path, ".safetensors")) return open_safetensors(path);
    return open_gguf(path);
}

// Adds to the error of a damaged file what its name says about it.
Contents open_and_explain(const std::string& path, const Logger& log) {
    try {
        return open_contents(path, log);
    } catch (const Error& error) {
        const bool is_damaged = error.reason() == Reason::truncated || error.reason() == Reason::format ||
                                error.reason() == Reason::limit;
        const std::string why =
            is_damaged ? describe_name(std::filesystem::path(path).filename().string()) : std::string();
        if (why.empty()) throw;
        throw Error(error.status(), error.reason(), format_text("{}; {}", error.what(), why), error.facts());
    }
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path, const Logger& log) {
    Descriptor kept;
    if (const std::optional<int> open = descriptor_of(path)) kept = Descriptor::copy_of(*open);
    const std::string file = choose_file(kept.number() < 0 ? path : descriptor_path(kept.number()));
    const std::string folder = std::filesystem::path(file).parent_path().string();
    Checkpoint checkpoint(open_and_explain(file, log), folder.empty() ? "." : folder, std::move(kept));
    log.info("{}: {} tensors, {} bytes in {} file(s)", file, checkpoint.tensors().size(),
             checkpoint.tensor_bytes(), checkpoint.files().size());
    return checkpoint;
}

Checkpoint::Checkpoint(Contents contents, std::string folder, Descriptor kept)
    : kept_(std::move(kept)),
      contents_(std::move(contents)),
      folder_(std::move(folder)),
      order_(order_by_name(contents_.tensors, &Tensor::name)),
      views_(std::make_unique<ViewCache>()) {
    int32_t index = 0;
    for (Tensor& tensor : contents_.tensors) {
        tensor.index = index++;
        tensor_bytes_ += tensor.bytes;
    }
    for (const File& file : contents_.files) file_bytes_ += file.size();
}

const Tensor* Checkpoint::find(std::string_view name) const {
    const auto index = find_by_name(contents_.tensors, order_, &Tensor::name, name);
    return index ? &contents_.tensors[*index] : nullptr;
}

void Checkpoint::map() {
    std::vector<MappedFile> maps;
    for (const File& file : contents_.files) maps.emplace_back(file);
    maps_ = std::move(maps);
}

void Checkpoint::check_sizes() const {
    for (const File& file : contents_.files) file.check_size();
}

const std::byte* Checkpoint::data(const Tensor& tensor) const noexcept {
    return maps_.empty() ? nullptr : maps_[tensor.part].bytes().data() + tensor.offset;
}

void Checkpoint::read(const Tensor& tensor, uint64_t from, std::span<std::byte> out) const {
    if (from > tensor.bytes || out.size() > tensor.bytes - from) {
        fail_internal("tensor {}: bytes {} to {} of {} were asked for", printable(tensor.name), from,
                      from + out.size(), tensor.bytes);
    }
    contents_.files[tensor.part].read_at(tensor.offset + from, out);
}

View Checkpoint::view(const Tensor& tensor, uint64_t from, uint64_t count) const {
    if (const std::byte* mapped = data(tensor)) return {mapped + from};
    const std::lock_guard lock(views_->mutex);
    std::vector<ViewCache::Range>& ranges = views_->ranges;
    const auto same = [&](const ViewCache::Range& range) {
        return range.tensor == tensor.index && range.from == from && range.count == count;
    };
    auto found = std::ranges::find_if(ranges, same);
    if (found == ranges.end()) {
        const auto bytes = std::make_shared<std::vector<std::byte>>(count);
        read(tensor, from, *bytes);
        while (is_full(ranges, count)) ranges.pop_back();
        found = ranges.insert(ranges.end(), {tensor.index, from, count, bytes});
    }
    std::rotate(ranges.begin(), found, found + 1);
    return {ranges.front().bytes->data(), ranges.front().bytes};
}

void Checkpoint::read_ahead(const Tensor& tensor, uint64_t from, uint64_t count) const noexcept {
    contents_.files[tensor.part].read_ahead(tensor.offset + from, count);
}

void Checkpoint::forget(const Tensor& tensor, uint64_t from, uint64_t count) const noexcept {
    contents_.files[tensor.part].forget(tensor.offset + from, count);
}

}  // namespace minim::checkpoint
