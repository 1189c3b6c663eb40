// SPDX-License-Identifier: Apache-2.0
// The checks of a checkpoint's files, without computing anything with the model: headers, configuration, vocabulary, hashes and
// weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "check/reading.h"
#include "check/report.h"
#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "weights/spec.h"

namespace minim::check {

// A checkpoint whose headers are right. The weights point into the checkpoint.
struct Opened {
    checkpoint::Checkpoint checkpoint;
    model::Config config;
    std::vector<weights::WeightSpec> weights;
};

// Opens the files and reads their configuration. Nothing if this fails: the faults say why.
std::optional<Opened> open_files(const std::string& path, Report& report, const Logger& log);

// Compares the configuration with what all released models of the family have.
void check_configuration(const Opened& opened, Report& report);

// Reads the vocabulary and the chat template.
void check_vocabulary(const Opened& opened, Report& report, const Logger& log);

// Compares files with `sums`, a text as sha256sum writes it: a line for each file, named relative to the checkpoint's folder.
void check_sums(const Opened& opened, std::string_view sums, const Reading& reading, Report& report);
// Returns such a text for the checkpoint's files.
std::string sums_of(const checkpoint::Checkpoint& checkpoint, const Reading& reading);

// Reads all tensors once. Compares their bytes with the hashes that the file has (minim.tensor_xxh3), if it has any; looks for NaN and
// infinity in all weights, and for matrices that are zero or of another size than others of their role. Quick: only some hashes.
void check_tensors(const Opened& opened, const Reading& reading, Report& report);

}  // namespace minim::check
