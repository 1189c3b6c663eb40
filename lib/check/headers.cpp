// SPDX-License-Identifier: Apache-2.0
#include "model/headers.h"

#include <utility>

#include "base/error.h"
#include "check/files.h"
#include "model/bind.h"

namespace minim::check {
namespace {

// What is wrong with a file is a fault; a file that is not there or cannot be read is an error of the check.
bool is_fault(const Error& error) {
    return error.status() == Status::format || error.status() == Status::unsupported;
}

}  // namespace

std::optional<Opened> open_files(const std::string& path, Report& report, const Logger& log) {
    report.stages.emplace_back("headers");
    std::optional<checkpoint::Checkpoint> checkpoint;
    FaultClass kind = FaultClass::header;
    try {
        checkpoint = checkpoint::Checkpoint::open(path, log);
        kind = FaultClass::config;
        model::Config config = model::read_config(*checkpoint, log);
        kind = FaultClass::header;
        std::vector<weights::WeightSpec> weights = model::bind_weights(*checkpoint, config, log);
        // Moved as a whole: tensors keep their addresses in a checkpoint that is moved.
        return Opened{std::move(*checkpoint), std::move(config), std::move(weights)};
    } catch (const Error& error) {
        if (!is_fault(error)) throw;
        report.fault(kind, path, error.what());
        return std::nullopt;
    }
}

}  // namespace minim::check
