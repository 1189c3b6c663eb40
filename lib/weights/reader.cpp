// SPDX-License-Identifier: Apache-2.0
#include "weights/reader.h"

#include <cstring>
#include <vector>

#include "layouts/layout.h"

namespace minim::weights {
namespace {

bool is_widened(const WeightSpec& weight) {
    return weight.use == Use::vector && weight.source.tensor->format != weight.format;
}

}  // namespace

void Reader::read(const WeightSpec& weight, uint64_t at, std::span<std::byte> out) const {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr)
        return layouts::read_assembled(*checkpoint_, *source.assembled, source.offset + at, out);
    if (!is_widened(weight)) return checkpoint_->read(*source.tensor, source.offset + at, out);
    // The weight is a vector of another type. All of it is converted: it has some thousand numbers.
    std::vector<std::byte> stored(source.tensor->bytes);
    checkpoint_->read(*source.tensor, 0, stored);
    std::vector<float> values(weight.cols);
    traits(*source.tensor->format).decode_row(stored.data(), weight.cols, values.data());
    std::memcpy(out.data(), std::as_bytes(std::span(values)).data() + at, out.size());
}

float Reader::factor(const WeightSpec& weight) const {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr) return source.assembled->factor(*checkpoint_);
    if (source.factor == nullptr) return 1.0F;
    float value = 0.0F;
    checkpoint_->read(*source.factor, static_cast<uint64_t>(source.factor_index) * sizeof(value),
                      std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

const std::byte* Reader::mapped(const WeightSpec& weight) const {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr || is_widened(weight)) return nullptr;
    const std::byte* data = checkpoint_->data(*source.tensor) + source.offset;
    const bool is_misplaced =
        weight.use == Use::vector && reinterpret_cast<uintptr_t>(data) % alignof(float) != 0;
    return is_misplaced ? nullptr : data;
}

void Reader::read_ahead(const WeightSpec& weight, uint64_t at, uint64_t bytes) const noexcept {
    const WeightSource& source = weight.source;
    if (source.assembled != nullptr || is_widened(weight)) return;
    checkpoint_->read_ahead(*source.tensor, source.offset + at, bytes);
}

}  // namespace minim::weights
