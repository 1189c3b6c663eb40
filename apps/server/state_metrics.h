// SPDX-License-Identifier: Apache-2.0
// Figures of the process and of what it serves, in the text form of Prometheus, beside the counts of metrics.h.
#pragma once

#include <string>

#include "serving.h"

namespace server {

// Returns the version of the program, and CPU time, memory, open files and start time of this process, by the names that Prometheus'
// own libraries use.
std::string process_metrics(const std::string& prefix);

// Returns a model's placement, bytes, context and slots.
std::string model_metrics(const std::string& prefix, const ServedModel& served);

}  // namespace server
