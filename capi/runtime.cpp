// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/cpu_features.h"
#include "base/float_environment.h"
#include "handles.h"
#include "structs.h"

using namespace minim;
using namespace minim::capi;

namespace {

void write_to_standard_error(void*, int32_t, const char* line) {
    std::fprintf(stderr, "minim: %s\n", line);
}

// Installs the host's logger. Without one, installs a logger to standard error if the environment variable MINIM_LOG is set to
// a level.
void install_logger(Logger& log, const minim_runtime_params& params) {
    if (params.log_level < MINIM_LOG_OFF || params.log_level > MINIM_LOG_DEBUG) {
        fail(Status::invalid, "log_level is {}; it goes from {} to {}", params.log_level, int{MINIM_LOG_OFF},
             int{MINIM_LOG_DEBUG});
    }
    if (params.log != nullptr) {
        log.set(params.log, params.log_user_data, static_cast<LogLevel>(params.log_level));
        return;
    }
    const char* wanted = std::getenv("MINIM_LOG");
    if (wanted == nullptr || wanted[0] < '1' || wanted[0] > '4' || wanted[1] != '\0') return;
    log.set(write_to_standard_error, nullptr, static_cast<LogLevel>(wanted[0] - '0'));
}

constexpr int32_t k_max_threads = 1024;

int32_t thread_count(int32_t count, const char* name) {
    if (count < 0 || count > k_max_threads)
        fail(Status::invalid, "{} is {}; it goes from 0 to {}", name, count, k_max_threads);
    return count;
}

Numa numa_of(int32_t numa) {
    if (numa == MINIM_NUMA_AUTO) return Numa::automatic;
    if (numa == MINIM_NUMA_OFF) return Numa::off;
    if (numa == MINIM_NUMA_INTERLEAVE) return Numa::interleave;
    if (numa == MINIM_NUMA_SPLIT) return Numa::split;
    fail(Status::invalid, "numa is {}; auto (0), off (1), interleave (2) and split (3) are known", numa);
}

placement::Threads make_threads(const minim_runtime_params& p, const Logger& log) {
    const int32_t wanted = thread_count(p.n_threads, "n_threads");
    const int32_t wanted_decode = thread_count(p.n_threads_decode, "n_threads_decode");
    const bool is_pinned = flag(p.pin_threads, "pin_threads");
    const Numa numa = numa_of(p.numa);
    if (p.reserved != 0) fail(Status::invalid, "reserved is {}; it must be 0", p.reserved);
    if (p.parallel_for != nullptr) {
        if (wanted == 0)
            fail(Status::invalid, "n_threads is 0; with parallel_for it is the number of its slots");
        if (wanted_decode != 0 || is_pinned)
            fail(Status::invalid,
                 "n_threads_decode and pin_threads are for the library's threads, not the host's");
        if (numa == Numa::split)
            fail(Status::invalid,
                 "numa split is for the library's threads: it does not know where the host's run");
        const HostThreads host = {p.parallel_for, p.parallel_for_user_data};
        const auto pool = std::make_shared<const ThreadPool>(wanted, host);
        const Numa for_memory = numa == Numa::automatic ? Numa::off : numa;
        const auto plan =
            std::make_shared<const NumaPlan>(plan_numa(for_memory, find_topology(), wanted, log));
        return {pool, pool, HostMemory(plan)};
    }
    placement::ThreadOptions options;
    options.n_threads = wanted == 0 ? usable_core_count() : wanted;
    options.n_threads_decode = wanted_decode;
    // Cores of several speeds: a step of one token is divided evenly, so little cores would delay it.
    if (wanted == 0 && wanted_decode == 0) options.n_threads_decode = usable_big_core_count();
    options.affinity = is_pinned ? Affinity::pinned : Affinity::free;
    options.numa = numa;
    return placement::make_threads(options, find_topology(), log);
}

}  // namespace

minim_status minim_runtime_create(const minim_runtime_params* params, minim_runtime** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        constexpr uint32_t k_first_version = offsetof(minim_runtime_params, n_threads_decode);
        const minim_runtime_params p = params_of(params, "minim_runtime_params", k_first_version);
        auto runtime = std::make_shared<Runtime>();
        install_logger(runtime->log, p);
        if (const std::string_view bits = flushing_bits(); !bits.empty())
            runtime->log.warning(
                "this thread flushes subnormal numbers to zero ({}), and the runtime's threads inherit that: "
                "results may differ "
                "in their last bits from those of other machines",
                bits);
        runtime->cpu_level = active_cpu_level();
        runtime->threads = make_threads(p, runtime->log);
        runtime->log.info("{} threads, {} for single tokens, {} kernels, numa {}",
                          runtime->threads.prompt->n_threads(), runtime->threads.decode->n_threads(),
                          to_string(runtime->cpu_level), to_string(runtime->threads.memory.plan()->mode));
        *out = new minim_runtime{std::move(runtime)};
    });
}

void minim_runtime_free(minim_runtime* runtime) {
    delete runtime;
}

int32_t minim_runtime_thread_count(const minim_runtime* runtime) {
    return runtime == nullptr ? 0 : runtime->runtime->threads.prompt->n_threads();
}

const char* minim_runtime_numa(const minim_runtime* runtime) {
    return runtime == nullptr ? "" : to_string(runtime->runtime->threads.memory.plan()->mode).data();
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
