// SPDX-License-Identifier: Apache-2.0
// The keys of an architecture in GGUF metadata, without its prefix, and what the configurations of all families have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "checkpoint/metadata.h"
#include "model/config.h"

namespace minim::model {

class GgufKeys {
  public:
    // Both must outlive the keys.
    GgufKeys(const checkpoint::Metadata& metadata, std::string_view architecture)
        : metadata_(metadata), architecture_(architecture) {}

    const checkpoint::Metadata& metadata() const noexcept { return metadata_; }
    std::string full(std::string_view key) const;

    // All throw format for values of another kind, and `required` for absent ones; they name the key.
    int64_t required(std::string_view key) const;
    int64_t integer_or(std::string_view key, int64_t otherwise) const;
    std::optional<double> number_of(std::string_view key) const;
    double number_or(std::string_view key, double otherwise) const;
    double required_number(std::string_view key) const;
    bool boolean_or(std::string_view key, bool otherwise) const;

    // All throw unsupported, with the key and its value.
    void refuse_above(std::string_view key, int64_t allowed, const char* meaning) const;
    void refuse_factor(std::string_view key, const char* meaning) const;  // a factor of 1 changes nothing
    void refuse_number(std::string_view key, const char* meaning) const;

  private:
    int64_t bounded(std::string_view key, int64_t value) const;

    const checkpoint::Metadata& metadata_;
    const std::string_view architecture_;
};

// Refuses sliding windows, soft-capping, scales, router functions other than sigmoid, rope scaling, and the like.
void refuse_what_no_family_has(const GgufKeys& keys);

// Reads what every family has: name, layers, widths, heads, rotation, norms, the mixture of experts except expert_ff, and context.
Config common_config(const GgufKeys& keys, const Logger& log);

}  // namespace minim::model
