// SPDX-License-Identifier: Apache-2.0
// Finds the family of a model by GGUF metadata; m2_config.cpp and m3_config.cpp read the rest.
#include <string_view>

#include "base/error.h"
#include "checkpoint/printable.h"
#include "model/config.h"
#include "model/m2_config.h"
#include "model/m3_config.h"
#include "model/other_models.h"

namespace minim::model {
namespace {

using checkpoint::Metadata;
using checkpoint::printable;

constexpr std::string_view k_runs = "minimax-m2 and minimax-m3";

Family family_of(const Metadata& metadata) {
    const auto architecture = metadata.string("general.architecture");
    if (architecture && *architecture == "clip")
        fail(Status::unsupported,
             "the file holds a vision tower (general.architecture = clip), not a model; pictures are not "
             "supported: open the file of the language model alone");
    const auto type = metadata.string("general.type");
    if (type && *type != "model") {
        fail(Status::unsupported, "the file holds {} (general.type), not a model", printable(*type));
    }
    if (!architecture) fail_file(Reason::value, "metadata key general.architecture is missing");
    if (*architecture == "minimax-m2") return Family::m2;
    if (*architecture == "minimax-m3") return Family::m3;
    if (const std::string_view what = other_model(*architecture); !what.empty()) {
        fail(Status::unsupported,
             "the model is {} (general.architecture = {}), and not supported; this library runs {}", what,
             printable(*architecture), k_runs);
    }
    fail(Status::unsupported, "architecture {} is not supported; this library runs {}",
         printable(*architecture), k_runs);
}

}  // namespace

Config config_from_gguf(const Metadata& metadata, const Logger& log) {
    return family_of(metadata) == Family::m2 ? m2_config(metadata, log) : m3_config(metadata, log);
}

}  // namespace minim::model
