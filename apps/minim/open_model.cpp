// SPDX-License-Identifier: Apache-2.0
#include "open_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "options/find_model.h"
#include "options/open_model.h"
#include "output.h"
#include "progress_bar.h"

namespace cli {

minim::Runtime open_runtime(const Options& options) {
    minim::RuntimeOptions runtime = program::runtime_options(options);
    runtime.log = [](int32_t, const char* line) { print_note(fmt::format("minim: {}\n", printable(line))); };
    return minim::Runtime(runtime);
}

minim::SessionOptions session_options(const Options& options, uint64_t n_context) {
    minim::SessionOptions session;
    session.max_context = n_context;
    session.n_batch = options.n_batch;
    session.n_ubatch = options.n_ubatch;
    session.k_format = options.k_format;
    session.v_format = options.v_format;
    return session;
}

void print_expert_caches(const minim::Model& model) {
    const std::vector<minim_device_memory> devices = model.memory();
    for (size_t i = 0; const minim_expert_cache& cache : model.expert_caches()) {
        const char* device = devices[i++].name;
        if (cache.n_places == 0) continue;
        const auto uses = static_cast<double>(std::max<int64_t>(cache.n_hits + cache.n_misses, 1));
        print_note(fmt::format("experts:    {}: {} cached, {:.1f} % of uses hit, {} moved\n", device,
                               cache.n_places, 100.0 * static_cast<double>(cache.n_hits) / uses,
                               cache.n_moves));
    }
}

void save_expert_profile(const minim::Model& model, const Options& options) {
    const auto has_cache = [](const minim_expert_cache& cache) { return cache.n_places > 0; };
    if (!options.expert_profile.empty() && std::ranges::any_of(model.expert_caches(), has_cache))
        model.save_expert_profile(options.expert_profile);
}

minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel) {
    ProgressBar bar;
    const std::string path = program::find_model_or_keep(options.model);
    std::vector<std::string> notes;
    minim::ModelOptions model = program::model_options(runtime, options, path, {options.n_context, 0}, notes);
    for (const std::string& note : notes) print_note(fmt::format("minim: note: {}\n", printable(note)));
    model.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) {
        bar.show(done_bytes, total_bytes);
        return true;
    };
    minim::Model opened =
        program::naming_options(options, [&] { return minim::Model(runtime, path, model, &cancel); });
    if (opened.info().process > 0) {
        opened.follow();
        throw FollowedToTheEnd();
    }
    return opened;
}

}  // namespace cli
