#include "open_model.h"

#include <fmt/format.h>

#include "output.h"
#include "progress_bar.h"

namespace cli {

minim::Runtime open_runtime(const Options& options) {
    minim::RuntimeOptions runtime;
    runtime.n_threads = options.n_threads;
    runtime.log_level = options.verbose ? MINIM_LOG_DEBUG : MINIM_LOG_WARNING;
    runtime.log = [](int32_t, const char* line) { print_note(fmt::format("minim: {}\n", printable(line))); };
    return minim::Runtime(runtime);
}

minim::Model open_model(const minim::Runtime& runtime, const Options& options, const minim::Cancel& cancel) {
    ProgressBar bar;
    minim::ModelOptions model;
    model.backend = options.backend;
    model.residence = options.no_mmap ? MINIM_RESIDENCE_OWNED : MINIM_RESIDENCE_MAPPED;
    model.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) {
        bar.show(done_bytes, total_bytes);
        return true;
    };
    return minim::Model(runtime, options.model, model, &cancel);
}

}  // namespace cli
