// What holds of every placement, whatever lies where.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/devices.h"

namespace minim::test {

// `count` tokens that follow a prompt, with guesses.
std::vector<int32_t> answer_on(const std::shared_ptr<const model::Model>& model,
                               const std::vector<int32_t>& prompt, int64_t count);

// Texts, drafts, forks and truncation are those of the processor.
void check_texts(const std::shared_ptr<const model::Model>& model);

using OpenModel = std::function<std::shared_ptr<const model::Model>(const model::OpenOptions& options)>;

// Progress comes to its end, and a load that is cancelled at any of its reports leaves nothing on the devices.
void check_cancelled_loads(const Devices& devices, const OpenModel& open);

// A session whose evaluation is cancelled goes on from where it was.
void check_cancelled_evaluation(const std::shared_ptr<const model::Model>& model);

}  // namespace minim::test
