// SPDX-License-Identifier: Apache-2.0
// Figures of the process and of what it serves, in the text form of Prometheus, beside the counts of metrics.h.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "serving.h"

namespace server {

// Returns CPU time, memory, open files and start time of this process, by the names that Prometheus' own libraries use.
std::string process_metrics();

// Returns the version of the program, and of each model its name, placement, bytes, context and slots.
std::string model_metrics(const std::string& prefix, std::span<const std::shared_ptr<ServedModel>> models);

}  // namespace server
