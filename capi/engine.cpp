// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "handles.h"
#include "kv_format.h"
#include "structs.h"
#include "texts.h"
#include "token_view.h"

using namespace minim;
using namespace minim::capi;

namespace {

using Clock = engine::Request::Clock;

static_assert(static_cast<int>(engine::Finish::timeout) == MINIM_FINISH_TIMEOUT);

// Returns the time in timeout_ms milliseconds. A negative timeout never ends.
Clock::time_point deadline_after(int64_t timeout_ms) {
    constexpr int64_t k_longest = int64_t{1000} * 3600 * 24 * 365;
    if (timeout_ms < 0 || timeout_ms > k_longest) return Clock::time_point::max();
    return Clock::now() + std::chrono::milliseconds(timeout_ms);
}

engine::EngineParams engine_params(const minim_engine_params& p) {
    engine::EngineParams params;
    if (p.kv_tokens > INT64_MAX)
        fail(Status::invalid, "a KV cache of {} tokens is not possible: kv_tokens is too large", p.kv_tokens);
    params.n_kv_tokens = static_cast<int64_t>(p.kv_tokens);
    params.k_format = kv_format(p.k_format, "k_format");
    params.v_format = kv_format(p.v_format, "v_format");
    if (p.n_requests != 0) params.n_requests = p.n_requests;
    params.fewer_requests = flag(p.fewer_requests, "fewer_requests") || p.n_requests == 0;
    params.warm_up = flag(p.warm_up, "warm_up");
    params.n_batch = p.n_batch;
    params.n_prompt_rows = p.n_prompt_rows;
    if (p.max_context > INT64_MAX)
        fail(Status::invalid, "a context of {} tokens is not possible", p.max_context);
    params.n_context = static_cast<int64_t>(p.max_context);
    params.keep_prefixes = !flag(p.forget_prefixes, "forget_prefixes");
    params.host_cache_bytes = p.host_cache_bytes;
    return params;
}

engine::RequestParams request_params(const minim_sampling* sampling, const minim_request_params& p) {
    engine::RequestParams params;
    if (p.reserved != 0) fail(Status::invalid, "reserved is {}; it must be 0", p.reserved);
    if (sampling != nullptr) params.generate = SamplingReader(*sampling).params();
    params.priority = p.priority;
    params.timeout_ms = p.timeout_ms;
    if (p.notify != nullptr)
        params.notify = [notify = p.notify, user_data = p.notify_user_data] { notify(user_data); };
    return params;
}

}  // namespace

minim_status minim_engine_create(minim_model* model, const minim_engine_params* params, minim_engine** out,
                                 minim_error* err) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel open = computing(required(model, "model"));
        open.runtime->require_threads();
        const engine::EngineParams p = engine_params(
            params_of(params, "minim_engine_params", offsetof(minim_engine_params, fewer_requests)));
        auto handle = std::make_unique<minim_engine>();
        handle->open = open;
        handle->engine = std::make_unique<engine::Engine>(open.model, p, open.runtime->log);
        *out = handle.release();
    });
}

void minim_engine_free(minim_engine* engine) {
    if (engine == nullptr) return;
    if (engine->engine->is_left()) return;  // its thread is not in this process
    if (!engine->engine->free_after_callback([engine] { delete engine; })) delete engine;
}

minim_status minim_engine_drain(minim_engine* engine, int64_t timeout_ms, int32_t* done, minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        minim_engine& handle = required(engine, "engine");
        required(done, "done");
        *done = handle.engine->drain(deadline_after(timeout_ms)) ? 1 : 0;
    });
}

minim_status minim_engine_get_state(const minim_engine* engine, minim_engine_state* out, minim_error* err) {
    return guard(err, [&] {
        const engine::EngineState state = required(engine, "engine").engine->state();
        minim_engine_state result{};
        result.n_waiting = static_cast<uint64_t>(state.n_waiting);
        result.n_running = static_cast<uint64_t>(state.n_running);
        result.n_steps = static_cast<uint64_t>(state.n_steps);
        result.n_evaluated = static_cast<uint64_t>(state.n_rows);
        result.n_preempted = static_cast<uint64_t>(state.n_preempted);
        result.n_pages = static_cast<uint64_t>(state.n_pages);
        result.n_pages_held = static_cast<uint64_t>(state.n_pages_held);
        result.n_pages_cached = static_cast<uint64_t>(state.n_pages_cached);
        const engine::Engine& e = *engine->engine;
        result.max_context = static_cast<uint64_t>(e.params().n_context);
        result.n_requests = static_cast<uint64_t>(e.params().n_requests);
        result.n_batch = static_cast<uint64_t>(e.params().n_batch);
        result.sizes = e.sizes_text().c_str();
        result.host_cache_bytes = state.host_cache_bytes;
        result.n_host_pages = static_cast<uint64_t>(state.n_host_pages);
        result.n_host_stored = static_cast<uint64_t>(state.n_host_stored);
        result.n_host_restored = static_cast<uint64_t>(state.n_host_restored);
        result_to(out, "minim_engine_state", result, offsetof(minim_engine_state, max_context));
    });
}

minim_status minim_engine_save_prefixes(minim_engine* engine, const char* path, minim_cancel* cancel,
                                        minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        minim_engine& handle = required(engine, "engine");
        handle.engine->save_prefixes(&required(path, "path"), token_of(cancel));
    });
}

minim_status minim_engine_load_prefixes(minim_engine* engine, const char* path, minim_cancel* cancel,
                                        uint64_t* n_pages, minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        minim_engine& handle = required(engine, "engine");
        const int64_t n_read = handle.engine->load_prefixes(&required(path, "path"), token_of(cancel));
        if (n_pages != nullptr) *n_pages = static_cast<uint64_t>(n_read);
    });
}

minim_status minim_engine_save_prefix(minim_engine* engine, const int32_t* tokens, size_t count,
                                      const char* path, minim_cancel* cancel, uint64_t* n_tokens,
                                      minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        minim_engine& handle = required(engine, "engine");
        const std::span<const int32_t> ids = ids_argument(tokens, count, "tokens");
        const int64_t n_saved =
            handle.engine->save_prefix({ids.begin(), ids.end()}, &required(path, "path"), token_of(cancel));
        if (n_tokens != nullptr) *n_tokens = static_cast<uint64_t>(n_saved);
    });
}

minim_status minim_engine_load_prefix(minim_engine* engine, const char* path, minim_cancel* cancel,
                                      minim_tokens** out, minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        required(out, "out") = nullptr;
        minim_engine& handle = required(engine, "engine");
        auto tokens = std::make_unique<minim_tokens>();
        tokens->ids = handle.engine->load_prefix(&required(path, "path"), token_of(cancel));
        *out = tokens.release();
    });
}

minim_status minim_engine_erase_prefix(minim_engine* engine, const int32_t* tokens, size_t count,
                                       uint64_t* n_tokens, minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        minim_engine& handle = required(engine, "engine");
        const std::span<const int32_t> ids = ids_argument(tokens, count, "tokens");
        const int64_t n_erased = handle.engine->erase_prefix({ids.begin(), ids.end()});
        if (n_tokens != nullptr) *n_tokens = static_cast<uint64_t>(n_erased);
    });
}

void minim_notify_fd(void* user_data) {
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(user_data));
    const uint64_t one = 1;
    while (::write(descriptor, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

minim_status minim_engine_submit(minim_engine* engine, const minim_sampling* sampling, const int32_t* prompt,
                                 size_t count, const minim_request_params* params, minim_request** out,
                                 minim_error* err) {
    return minim_engine_submit_n(engine, sampling, prompt, count, params, 1, out, err);
}

minim_status minim_engine_submit_n(minim_engine* engine, const minim_sampling* sampling,
                                   const int32_t* prompt, size_t count, const minim_request_params* params,
                                   size_t n_answers, minim_request** out, minim_error* err) {
    return guard(err, DevicesOf(engine), [&] {
        constexpr size_t k_max_answers = 1024;
        required(out, "out");
        if (n_answers < 1 || n_answers > k_max_answers)
            fail(Status::invalid, "n_answers is {}; 1 to {} are possible", n_answers, k_max_answers);
        std::fill_n(out, n_answers, nullptr);
        minim_engine& handle = required(engine, "engine");
        const std::span<const int32_t> ids = ids_argument(prompt, count, "prompt");
        handle.engine->check_length(count);  // before copying the prompt: its length may be a mistake
        std::vector<std::unique_ptr<minim_request>> requests;
        for (size_t i = 0; i < n_answers; ++i) {
            auto& request = requests.emplace_back(std::make_unique<minim_request>());
            request->top.reserve(sampling::k_max_top_logprobs);
            request->open = handle.open;
        }
        const auto submitted = handle.engine->submit(
            {ids.begin(), ids.end()}, request_params(sampling, params_of(params, "minim_request_params")),
            static_cast<int64_t>(n_answers));
        for (size_t i = 0; i < n_answers; ++i) {
            requests[i]->request = submitted[i];
            out[i] = requests[i].release();
        }
    });
}

minim_status minim_request_next(minim_request* request, int64_t timeout_ms, minim_token* token, int32_t* next,
                                minim_error* err) {
    return guard(err, DevicesOf(request), [&] {
        required(request, "request").request->require_home();
        const Use use(*request);
        required(next, "next");
        result_to(token, "minim_token", minim_token{},
                  k_first_token);  // checks the struct before a token is taken
        switch (request->request->take(request->event, deadline_after(timeout_ms))) {
            case engine::Request::Take::token:
                result_to(token, "minim_token", token_view(request->event, request->top), k_first_token);
                *next = MINIM_NEXT_TOKEN;
                break;
            case engine::Request::Take::ended:
                *next = MINIM_NEXT_END;
                break;
            case engine::Request::Take::nothing_yet:
                *next = MINIM_NEXT_PENDING;
                break;
        }
    });
}

void minim_request_cancel(minim_request* request) {
    if (request != nullptr) request->request->cancel();
}

minim_status minim_request_get_state(const minim_request* request, minim_request_state* out,
                                     minim_error* err) {
    return guard(err, [&] {
        const engine::RequestState state = required(request, "request").request->state();
        auto result = result_of<minim_request_state>(state);
        result.n_cached = static_cast<uint64_t>(state.n_cached);
        result.n_preempted = static_cast<uint64_t>(state.n_preempted);
        result.queue_us = static_cast<uint64_t>(state.queue_us);
        result.n_prompt_done = static_cast<uint64_t>(state.n_prompt_done);
        result_to(out, "minim_request_state", result, offsetof(minim_request_state, stop_text));
    });
}

void minim_request_free(minim_request* request) {
    if (request != nullptr && request->request->is_left()) return;
    minim_request_cancel(request);
    release(request);
}
