// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of this folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "convert/convert.h"
#include "support/files.h"
#include "support/helpers.h"

namespace minim::convert::testing {

using nlohmann::json;
using test::error_of;
using test::TemporaryFolder;
using test::text_of;

inline const std::string k_q8_0 = MINIM_EXAMPLE_MODELS "/minim-tiny-q8_0.gguf";
inline const std::string k_mix = MINIM_EXAMPLE_MODELS "/minim-tiny-mix-ik.gguf";
inline const std::string k_folder = MINIM_TEST_MODELS "/minim-tiny";

inline Options options_of(std::string source, std::string output) {
    Options options;
    options.source = std::move(source);
    options.output = std::move(output);
    options.program_version = "test";
    return options;
}

inline Options quantize_options(std::string source, std::string output, const char* recipe) {
    Options options = options_of(std::move(source), std::move(output));
    options.is_quantize = true;
    options.types.recipe = find_recipe(recipe);
    options.types.target = Target::recipe;
    options.types.is_pure = true;  // one type: few encoders
    return options;
}

inline const ThreadPool& two_threads() {
    static const ThreadPool k_pool(2);
    return k_pool;
}

inline json run(const Options& options, const Logger& log = {}, const ProgressFunction& progress = nullptr) {
    return json::parse(convert_model(options, two_threads(), nullptr, progress, log));
}

inline json plan(const Options& options) {
    return json::parse(plan_conversion(options, two_threads(), Logger()));
}

// The bytes of all tensors of a checkpoint by name.
inline std::map<std::string, std::vector<std::byte>> tensors_of(const std::string& path) {
    const auto checkpoint = checkpoint::Checkpoint::open(path, Logger());
    std::map<std::string, std::vector<std::byte>> tensors;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) {
        std::vector<std::byte> bytes(tensor.bytes);
        checkpoint.read(tensor, 0, bytes);
        tensors.emplace(tensor.name, std::move(bytes));
    }
    return tensors;
}

}  // namespace minim::convert::testing
