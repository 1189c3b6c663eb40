// SPDX-License-Identifier: Apache-2.0
// What checking a model has found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::check {

enum class FaultClass : uint8_t {
    header,     // the files do not open, or tensors are missing or of another shape
    config,     // the configuration is none of a released model
    tokenizer,  // vocabulary, end tokens, chat template
    hash,       // bytes differ from a stored hash
    nan,        // numbers that are none
    range,      // matrices or experts that are zero, or far larger or smaller than others of their role
    probe,      // what the model computes
    machine,    // kernels, devices or storage give wrong numbers
    reference,  // numbers differ from those of another model
    answers,    // what the model computes differs from a record
};

std::string_view name_of(FaultClass kind) noexcept;

struct Finding {
    FaultClass kind = FaultClass::header;
    std::string tensor;  // or the file or key at fault
    std::string detail;  // what is, and what should be
};

struct Report {
    std::vector<Finding> faults;
    std::vector<Finding> warnings;
    std::vector<std::string> stages;  // that have run, in their order

    void fault(FaultClass kind, std::string tensor, std::string detail) {
        faults.push_back({kind, std::move(tensor), std::move(detail)});
    }
    void warn(FaultClass kind, std::string tensor, std::string detail) {
        warnings.push_back({kind, std::move(tensor), std::move(detail)});
    }
};

// {"faults": [{"class", "tensor", "detail"}], "warnings": [the same], "stages": [names]}
std::string to_json(const Report& report);

}  // namespace minim::check
