// SPDX-License-Identifier: Apache-2.0
// Opens models and runs them through the forward pass alone, without sessions.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "model/model.h"
#include "support/helpers.h"
#include "support/tiny_model.h"

namespace minim::test {

std::unique_ptr<const model::Model> open_model(const std::string& path,
                                               std::string_view backend = "reference",
                                               const Logger* log = nullptr);

// Opens a model on the CPU, with two threads.
std::unique_ptr<const model::Model> open_with(const std::string& path, const model::OpenOptions& options,
                                              const Logger& log = Logger());

// Writes the model into `folder` and opens it.
std::unique_ptr<const model::Model> open_model(const TinyModel& model, const TemporaryFolder& folder,
                                               std::string_view backend = "reference");

// Returns the logits of every position, [ids.size(), n_vocab], evaluated in steps of `chunk` rows (0: all in one step).
std::vector<float> logits_of(const model::Model& model, std::span<const int32_t> ids, Format kv = Format::f32,
                             size_t chunk = 0);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

// Returns the root mean square of the difference, divided by that of `expected`.
template <typename Actual>
double relative_rms(const std::vector<Actual>& actual, const std::vector<double>& expected) {
    double difference = 0.0;
    double square = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double d = static_cast<double>(actual[i]) - expected[i];
        difference += d * d;
        square += expected[i] * expected[i];
    }
    return std::sqrt(difference / square);
}

}  // namespace minim::test
