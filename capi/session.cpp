// SPDX-License-Identifier: Apache-2.0
#include "handles.h"
#include "kv_format.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

engine::SessionParams session_params(const minim_session_params& p) {
    engine::SessionParams params;
    if (p.max_context > INT64_MAX)
        fail(Status::invalid, "a context of {} tokens is not possible", p.max_context);
    params.n_context = static_cast<int64_t>(p.max_context);
    params.k_format = kv_format(p.k_format, "k_format");
    params.v_format = kv_format(p.v_format, "v_format");
    if (p.n_batch < 0) fail(Status::invalid, "n_batch is {}; it must not be negative", p.n_batch);
    if (p.n_ubatch != 0) params.n_ubatch = p.n_ubatch;
    return params;
}

minim_session* new_session(const OpenModel& open, std::unique_ptr<engine::Session> session) {
    auto handle = std::make_unique<minim_session>();
    handle->open = open;
    handle->session = std::move(session);
    handle->publish_status();
    return handle.release();
}

}  // namespace

minim_status minim_session_create(minim_model* model, const minim_session_params* params, minim_session** out,
                                  minim_error* err) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel open = required(model, "model").open;
        open.runtime->require_threads();
        const engine::SessionParams p = session_params(params_of(params, "minim_session_params"));
        *out = new_session(open, std::make_unique<engine::Session>(open.model, p, open.runtime->log));
    });
}

void minim_session_free(minim_session* session) {
    release(session);
}

size_t minim_session_token_count(const minim_session* session) {
    if (session == nullptr) return 0;
    const std::lock_guard lock(session->status_mutex);
    return session->n_tokens;
}

minim_status minim_session_get_tokens(minim_session* session, minim_tokens** out, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        required(out, "out") = nullptr;
        const SessionUse use(required(session, "session"));
        const auto ids = session->session->tokens().first(static_cast<size_t>(session->n_reported()));
        *out = new minim_tokens{{ids.begin(), ids.end()}};
    });
}

size_t minim_session_context_size(const minim_session* session) {
    return session == nullptr ? 0 : static_cast<size_t>(session->session->n_context());
}

uint64_t minim_session_kv_bytes(const minim_session* session) {
    return session == nullptr ? 0 : session->session->kv_bytes();
}

minim_status minim_session_truncate(minim_session* session, size_t count, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        const int64_t n_tokens = session->n_reported();
        if (count > static_cast<uint64_t>(n_tokens))
            fail(Status::invalid, "cannot truncate to {} tokens: the session holds {}", count, n_tokens);
        session->end_generation();
        session->session->truncate(static_cast<int64_t>(count));
    });
}

minim_status minim_session_fork(minim_session* session, minim_session** out, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        required(out, "out") = nullptr;
        const SessionUse use(required(session, "session"));
        std::unique_ptr<engine::Session> fork = session->session->fork();
        fork->truncate(session->n_reported());
        *out = new_session(session->open, std::move(fork));
    });
}

minim_status minim_session_save(minim_session* session, const char* path, minim_cancel* cancel,
                                minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        session->session->save(&required(path, "path"), session->n_reported(), token_of(cancel));
    });
}

minim_status minim_session_restore(minim_model* model, const char* path, const minim_session_params* params,
                                   minim_cancel* cancel, minim_session** out, minim_error* err) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel open = required(model, "model").open;
        open.runtime->require_threads();
        required(path, "path");
        const engine::SessionParams p = session_params(params_of(params, "minim_session_params"));
        *out = new_session(
            open, engine::Session::restore(open.model, path, p, token_of(cancel), open.runtime->log));
    });
}

minim_status minim_session_eval(minim_session* session, const int32_t* ids, size_t count, int32_t all_logits,
                                float* logits, size_t capacity, minim_cancel* cancel, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        const bool wants_all = flag(all_logits, "all_logits");
        if (logits != nullptr && capacity == 0) fail(Status::invalid, "the capacity of the logits is 0");
        const std::span<float> out(logits, logits == nullptr ? 0 : capacity);
        const std::span<const int32_t> tokens = ids_argument(ids, count, "ids");
        if (session->generation) {  // bad arguments do not end it
            session->session->check_eval(tokens, wants_all, out, session->n_unreported());
            session->end_generation();
        }
        session->session->eval(tokens, wants_all, out, token_of(cancel));
    });
}
