// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/format_text.h"
#include "handles.h"
#include "kv/state_file.h"
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
    params.n_ubatch = p.n_ubatch;
    return params;
}

minim_session* new_session(const OpenModel& open, std::unique_ptr<engine::Session> session) {
    auto handle = std::make_unique<minim_session>();
    handle->open = open;
    handle->session = std::move(session);
    handle->publish_status();
    return handle.release();
}

// Restores the session of open(), a kv::StateFile.
template <typename OpenState>
minim_status restore_session(minim_model* model, const minim_session_params* params, minim_cancel* cancel,
                             minim_session** out, minim_error* err, const OpenState& open) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel shared = computing(required(model, "model"));
        shared.runtime->require_threads();
        const engine::SessionParams p = session_params(params_of(params, "minim_session_params"));
        const kv::StateFile file = open();
        *out = new_session(
            shared, engine::Session::restore(shared.model, file, p, token_of(cancel), shared.runtime->log));
    });
}

void require_room(uint64_t bytes, size_t capacity) {
    if (bytes <= capacity) return;
    ErrorFacts facts;
    facts.requested = static_cast<int64_t>(bytes);
    facts.available = static_cast<int64_t>(capacity);
    throw Error(Status::invalid, Reason::none,
                format_text("the session has {} bytes, the capacity is {}", bytes, capacity), facts);
}

}  // namespace

minim_status minim_session_create(minim_model* model, const minim_session_params* params, minim_session** out,
                                  minim_error* err) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel open = computing(required(model, "model"));
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
        const auto ids = session->session->tokens().first(session->n_reported());
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

minim_status minim_session_save_memory(minim_session* session, void* data, size_t capacity, size_t* size,
                                       minim_cancel* cancel, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        const int64_t n_saved = session->n_reported();
        size_t& written = required(size, "size");
        if (data == nullptr && capacity > 0) fail(Status::invalid, "argument data is NULL");
        const uint64_t bytes = session->session->saved_bytes(n_saved);
        if (data != nullptr) {
            require_room(bytes, capacity);
            auto* to = static_cast<std::byte*>(data);
            const auto append = [&](std::span<const std::byte> part) {
                to = std::ranges::copy(part, to).out;
            };
            session->session->save(append, n_saved, token_of(cancel));
        }
        written = bytes;
    });
}

minim_status minim_session_save_fd(minim_session* session, int32_t descriptor, minim_cancel* cancel,
                                   minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        const auto append = [&](std::span<const std::byte> part) { write_to(descriptor, part); };
        session->session->save(append, session->n_reported(), token_of(cancel));
    });
}

minim_status minim_session_restore(minim_model* model, const char* path, const minim_session_params* params,
                                   minim_cancel* cancel, minim_session** out, minim_error* err) {
    return restore_session(model, params, cancel, out, err,
                           [&] { return kv::StateFile(&required(path, "path")); });
}

minim_status minim_session_restore_memory(minim_model* model, const void* data, size_t size,
                                          const minim_session_params* params, minim_cancel* cancel,
                                          minim_session** out, minim_error* err) {
    return restore_session(model, params, cancel, out, err, [&] {
        if (data == nullptr) fail(Status::invalid, "argument data is NULL");
        const std::span bytes(static_cast<const std::byte*>(data), size);
        return kv::StateFile(kv::KvBytes("the session in memory", bytes), kv::Behind::nothing);
    });
}

minim_status minim_session_restore_fd(minim_model* model, int32_t descriptor,
                                      const minim_session_params* params, minim_cancel* cancel,
                                      minim_session** out, minim_error* err) {
    uint64_t end = 0;
    const minim_status status = restore_session(model, params, cancel, out, err, [&] {
        const uint64_t start = position_of(descriptor);
        kv::StateFile file(kv::KvBytes(File(descriptor_path(descriptor)), start), kv::Behind::anything);
        end = start + file.bytes();
        return file;
    });
    if (status == MINIM_OK) set_position(descriptor, end);
    return status;
}

minim_status minim_session_eval(minim_session* session, const int32_t* ids, size_t count, int32_t all_logits,
                                float* logits, size_t capacity, minim_cancel* cancel, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        const bool wants_all = flag(all_logits, "all_logits");
        if (logits != nullptr && capacity == 0) fail(Status::invalid, "the capacity of the logits is 0");
        const std::span<float> out(logits, logits == nullptr ? 0 : capacity);
        const std::span<const int32_t> tokens = ids_argument(ids, count, "ids");
        if (session->generation) {  // check first: bad arguments must not end the generation
            session->session->check_eval(tokens, wants_all, out, session->n_unreported());
            session->end_generation();
        }
        session->session->eval(tokens, wants_all, out, token_of(cancel));
    });
}
