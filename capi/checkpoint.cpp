// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "handles.h"
#include "model/recommended_sampling.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

// Opens path(). Calls path() only after it has checked the other arguments.
template <typename Path>
minim_status open_checkpoint(minim_runtime* runtime, const Path& path, minim_checkpoint** out,
                             minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const std::shared_ptr<Runtime> shared = required(runtime, "runtime").runtime;
        auto opened = checkpoint::Checkpoint::open(path(), shared->log);
        *out =
            new minim_checkpoint{shared, std::make_shared<const checkpoint::Checkpoint>(std::move(opened))};
    });
}

}  // namespace

minim_status minim_checkpoint_open(minim_runtime* runtime, const char* path, minim_checkpoint** out,
                                   minim_error* err) {
    const auto given = [&] { return std::string(&required(path, "path")); };
    return open_checkpoint(runtime, given, out, err);
}

minim_status minim_checkpoint_open_fd(minim_runtime* runtime, int32_t descriptor, minim_checkpoint** out,
                                      minim_error* err) {
    const auto given = [&] { return descriptor_argument(descriptor); };
    return open_checkpoint(runtime, given, out, err);
}

void minim_checkpoint_close(minim_checkpoint* checkpoint) {
    delete checkpoint;
}

size_t minim_checkpoint_file_count(const minim_checkpoint* checkpoint) {
    return checkpoint == nullptr ? 0 : checkpoint->checkpoint->files().size();
}

uint64_t minim_checkpoint_file_bytes(const minim_checkpoint* checkpoint) {
    return checkpoint == nullptr ? 0 : checkpoint->checkpoint->file_bytes();
}

size_t minim_checkpoint_metadata_count(const minim_checkpoint* checkpoint) {
    return checkpoint == nullptr ? 0 : checkpoint->checkpoint->metadata().entries().size();
}

const char* minim_checkpoint_metadata_key(const minim_checkpoint* checkpoint, size_t index) {
    if (index >= minim_checkpoint_metadata_count(checkpoint)) return nullptr;
    return checkpoint->checkpoint->metadata().entries()[index].key.c_str();
}

minim_status minim_checkpoint_metadata(const minim_checkpoint* checkpoint, const char* key, size_t max_array,
                                       minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const auto& metadata = required(checkpoint, "checkpoint").checkpoint->metadata();
        const checkpoint::MetaValue* value = metadata.find(&required(key, "key"));
        if (value == nullptr) fail(Status::not_found, "there is no metadata key {}", key);
        if (value->type == checkpoint::MetaType::string) {
            *out = new minim_text{std::string(value->string_at(0))};
        } else {
            *out = new minim_text{checkpoint::to_text(*value, max_array == 0 ? SIZE_MAX : max_array)};
        }
    });
}

minim_status minim_checkpoint_recommended_sampling(const minim_checkpoint* checkpoint,
                                                   minim_recommended_sampling* out, minim_error* err) {
    return guard(err, [&] {
        const minim_checkpoint& handle = required(checkpoint, "checkpoint");
        const model::RecommendedSampling sampling =
            model::read_recommended_sampling(*handle.checkpoint, handle.runtime->log);
        minim_recommended_sampling result{};
        result.top_k = sampling.top_k;
        result.temperature = sampling.temperature;
        result.top_p = sampling.top_p;
        result.min_p = sampling.min_p;
        result.repetition_penalty = sampling.repetition_penalty;
        result.penalty_last_n = sampling.penalty_last_n;
        result.source = sampling.source;
        result_to(out, "minim_recommended_sampling", result);
    });
}

size_t minim_checkpoint_tensor_count(const minim_checkpoint* checkpoint) {
    return checkpoint == nullptr ? 0 : checkpoint->checkpoint->tensors().size();
}

minim_status minim_checkpoint_tensor(const minim_checkpoint* checkpoint, size_t index, minim_tensor_info* out,
                                     minim_error* err) {
    return guard(err, [&] {
        const auto tensors = required(checkpoint, "checkpoint").checkpoint->tensors();
        if (index >= tensors.size()) fail(Status::invalid, "tensor {} of {}", index, tensors.size());
        const checkpoint::Tensor& tensor = tensors[index];
        minim_tensor_info info{};
        if (tensor.shape.size() > std::size(info.dims)) {
            fail(Status::unsupported, "tensor {} has {} dimensions", tensor.name, tensor.shape.size());
        }
        info.n_dims = static_cast<int32_t>(tensor.shape.size());
        std::ranges::copy(tensor.shape, info.dims);
        info.bytes = tensor.bytes;
        info.name = tensor.name.c_str();
        info.format = tensor.type_name.data();
        result_to(out, "minim_tensor_info", info);
    });
}
