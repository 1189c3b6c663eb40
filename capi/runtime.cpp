#include <cstdio>
#include <cstdlib>

#include "handles.h"
#include "structs.h"

using namespace minim;
using namespace minim::capi;

namespace {

void write_to_standard_error(void*, int32_t, const char* line) {
    std::fprintf(stderr, "minim: %s\n", line);
}

// The host's logger; without one, MINIM_LOG may ask for lines on standard error.
void install_logger(Logger& log, const minim_runtime_params& params) {
    if (params.log_level < MINIM_LOG_OFF || params.log_level > MINIM_LOG_DEBUG) {
        fail(Status::invalid, "log_level is {}; it goes from {} to {}", params.log_level, MINIM_LOG_OFF,
             MINIM_LOG_DEBUG);
    }
    if (params.log != nullptr) {
        log.set(params.log, params.log_user_data, static_cast<LogLevel>(params.log_level));
        return;
    }
    const char* wanted = std::getenv("MINIM_LOG");
    if (wanted == nullptr || wanted[0] < '1' || wanted[0] > '4' || wanted[1] != '\0') return;
    log.set(write_to_standard_error, nullptr, static_cast<LogLevel>(wanted[0] - '0'));
}

}  // namespace

minim_status minim_runtime_create(const minim_runtime_params* params, minim_runtime** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        constexpr int32_t k_most_threads = 1024;
        const minim_runtime_params p = params_of(params, "minim_runtime_params");
        if (p.n_threads < 0 || p.n_threads > k_most_threads) {
            fail(Status::invalid, "n_threads is {}; it goes from 0 to {}", p.n_threads, k_most_threads);
        }
        auto runtime = std::make_shared<Runtime>();
        install_logger(runtime->log, p);
        runtime->cpu_level = active_cpu_level();
        runtime->threads = std::make_shared<ThreadPool>(p.n_threads == 0 ? usable_core_count() : p.n_threads);
        runtime->log.info("{} threads, {} kernels", runtime->threads->n_threads(),
                          to_string(runtime->cpu_level));
        *out = new minim_runtime{std::move(runtime)};
    });
}

void minim_runtime_free(minim_runtime* runtime) {
    delete runtime;
}

int32_t minim_runtime_thread_count(const minim_runtime* runtime) {
    return runtime == nullptr ? 0 : runtime->runtime->threads->n_threads();
}

const char* minim_runtime_cpu_level(const minim_runtime* runtime) {
    return runtime == nullptr ? "" : to_string(runtime->runtime->cpu_level).data();
}

namespace minim::capi {

const CancelToken* token_of(const minim_cancel* cancel) noexcept {
    return cancel == nullptr ? nullptr : &cancel->token;
}

}  // namespace minim::capi

minim_status minim_cancel_create(minim_cancel** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = new minim_cancel;
    });
}

void minim_cancel_trigger(minim_cancel* cancel) {
    if (cancel != nullptr) cancel->token.trigger();
}

void minim_cancel_reset(minim_cancel* cancel) {
    if (cancel != nullptr) cancel->token.reset();
}

void minim_cancel_free(minim_cancel* cancel) {
    delete cancel;
}
