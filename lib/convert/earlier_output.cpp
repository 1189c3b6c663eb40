// SPDX-License-Identifier: Apache-2.0
#include "convert/earlier_output.h"

#include "base/error.h"
#include "base/format_text.h"
#include "checkpoint/printable.h"
#include "format/encode/encode_rows.h"

namespace minim::convert {

std::string encoders_text(const Options& options, const Importance* importance) {
    const std::string data = importance == nullptr ? "none" : format_text("{:016x}", importance->hash());
    return format_text("version {}, effort {}, importance {}", k_encoder_version,
                       options.effort == EncodeEffort::fast ? "fast" : "full", data);
}

EarlierOutput::EarlierOutput(const std::string& path, const std::string& encoders, const Logger& log)
    : checkpoint_(checkpoint::Checkpoint::open(path, log)) {
    const checkpoint::Metadata& metadata = checkpoint_.metadata();
    const auto tensors = checkpoint_.tensors();
    const auto hashes_of = [&](std::string_view key) -> const checkpoint::MetaValue& {
        const checkpoint::MetaValue* stated = metadata.find(key);
        if (stated == nullptr || stated->element_type != checkpoint::MetaType::u64 ||
            stated->count != tensors.size())
            fail(Status::invalid, "{} is no earlier output: it has no {} of its {} tensors",
                 checkpoint::printable(path), key, tensors.size());
        return *stated;
    };
    const checkpoint::MetaValue& hashes = hashes_of("minim.tensor_xxh3");
    const checkpoint::MetaValue& source_hashes = hashes_of("minim.tensor_source_xxh3");
    for (size_t i = 0; i < tensors.size(); ++i)
        tensors_.emplace(tensors[i].name,
                         EarlierTensor{&tensors[i], hashes.unsigned_at(i), source_hashes.unsigned_at(i)});
    const auto stated = metadata.string(k_encoders_key);
    has_same_encoders_ = stated && *stated == encoders;
    if (!has_same_encoders_)
        log.warning("nothing is reused of {}: it was encoded with '{}', not '{}'",
                    checkpoint::printable(path), stated ? *stated : "unknown encoders", encoders);
}

// The factors of NVFP4 are those of two tensors together, so it is always made again.
const EarlierTensor* EarlierOutput::find(const PlannedTensor& tensor) const {
    if (!has_same_encoders_ || tensor.work != Work::encode || tensor.type == Format::nvfp4) return nullptr;
    const auto found = tensors_.find(tensor.name);
    if (found == tensors_.end()) return nullptr;
    const checkpoint::Tensor& earlier = *found->second.tensor;
    const bool is_same_kind =
        earlier.format == tensor.type && earlier.shape == tensor.shape && earlier.bytes == tensor.bytes;
    return is_same_kind ? &found->second : nullptr;
}

}  // namespace minim::convert
