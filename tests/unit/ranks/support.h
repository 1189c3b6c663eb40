// SPDX-License-Identifier: Apache-2.0
// Simulated processes of a launch: a thread each.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ranks/processes.h"
#include "support/catch.h"
#include "unit/ranks/memory_link.h"

namespace minim::test {

// Processes that end at once after an error.
inline constexpr ranks::ProcessOptions k_options = {.lead = {}};

// Runs a function in each process. Returns what each has thrown, or nothing. A process that throws abandons the others, as a rank
// of a model does.
std::vector<std::optional<Error>> run_processes(int32_t n, const ranks::ProcessOptions& options,
                                                const std::function<void(ranks::Processes&)>& process,
                                                const Disturbance& disturbance = {});

// Throws if the condition does not hold: assertions are for one thread.
void require_here(bool holds, std::string_view what);

void expect_no_errors(const std::vector<std::optional<Error>>& errors);
// Checks that all have thrown an error with this status, which has this text.
void expect_errors(const std::vector<std::optional<Error>>& errors, Status status, std::string_view part);

}  // namespace minim::test
