// SPDX-License-Identifier: Apache-2.0
// The contents of the opaque handles of minim.h. A handle has shared references to everything it needs, so handles may be
// released in any order.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/cpu_features.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "chat/output_parser.h"
#include "checkpoint/checkpoint.h"
#include "constraint/constraint.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/importance.h"
#include "engine/session.h"
#include "guard.h"
#include "model/model.h"
#include "placement/backends.h"
#include "tokenizer/stream_decoder.h"

namespace minim::capi {

struct Runtime {
    Logger log;
    placement::Threads threads;
    CpuLevel cpu_level = CpuLevel::scalar;

    // Throws invalid in a child of fork(), which has no threads. Call it before taking any lock: a thread of the
    // parent may have locked it.
    void require_threads() const {
        threads.prompt->require_threads();
        threads.decode->require_threads();
    }
};

// A model with the runtime whose logger and threads it uses. Members are destroyed in reverse order: the model
// before the runtime.
struct OpenModel {
    std::shared_ptr<Runtime> runtime;
    std::shared_ptr<const model::Model> model;
};

// The state of a handle that belongs to one call at a time. If the handle is released during that call, by a callback or
// another thread, the end of the call deletes the handle.
class InUse {
  public:
    // Throws busy.
    void begin() {
        State idle = State::idle;
        if (!state_.compare_exchange_strong(idle, State::in_use, std::memory_order_acquire))
            fail(Status::busy,
                 "the handle is in use by another call, of another thread or one that a callback is part of");
    }
    // Returns false if the handle was released meanwhile: delete it now.
    [[nodiscard]] bool end() noexcept {
        return state_.exchange(State::idle, std::memory_order_acq_rel) != State::released;
    }
    // Returns false if the handle is in use; otherwise delete it now.
    [[nodiscard]] bool release() noexcept {
        State in_use = State::in_use;
        return !state_.compare_exchange_strong(in_use, State::released, std::memory_order_acq_rel) &&
               in_use == State::idle;
    }
    bool is_released() const noexcept { return state_.load(std::memory_order_acquire) == State::released; }

  private:
    enum class State : uint8_t { idle, in_use, released };
    std::atomic<State> state_{State::idle};
};

// Marks a handle with an InUse as in use during a call.
template <typename Handle>
class Use {
  public:
    explicit Use(Handle& handle) : handle_(handle) { handle.in_use.begin(); }
    ~Use() {
        if (!handle_.in_use.end()) delete &handle_;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

  private:
    Handle& handle_;
};

template <typename Handle>
void release(Handle* handle) noexcept {
    if (handle != nullptr && handle->in_use.release()) delete handle;
}

const CancelToken* token_of(const minim_cancel* cancel) noexcept;

}  // namespace minim::capi

struct minim_runtime {
    std::shared_ptr<minim::capi::Runtime> runtime;
};

struct minim_checkpoint {
    std::shared_ptr<minim::capi::Runtime> runtime;
    std::shared_ptr<const minim::checkpoint::Checkpoint> checkpoint;
};

struct minim_model {
    minim::capi::OpenModel open;
    std::string placement;
    std::atomic<bool> has_followed = false;
    const minim::model::Model& model() const { return *open.model; }
};

struct minim_session {
    minim::capi::OpenModel open;
    std::unique_ptr<minim::engine::Session> session;
    std::optional<minim::engine::Generation> generation;
    minim::engine::TokenEvent event;  // the pointers of the last minim_token point into it
    std::vector<minim_token_probability> top;
    minim::capi::InUse in_use;

    // The state that callbacks and other threads may read during a call.
    mutable std::mutex status_mutex;
    size_t n_tokens = 0;
    std::optional<minim::engine::GenerationState> generation_state;

    // n_unreported() counts the tokens that were generated but not reported, because their text may still change. n_reported()
    // counts all other tokens.
    int64_t n_unreported() const { return generation ? generation->n_unreported() : 0; }
    int64_t n_reported() const { return session->n_tokens() - n_unreported(); }

    // Ends the generation. The session keeps the prompt and the reported tokens, and drops the unreported ones.
    void end_generation() {
        if (generation) generation->stop();
        generation.reset();
    }

    void publish_status() {
        const std::lock_guard lock(status_mutex);
        n_tokens = n_reported();
        generation_state.reset();
        if (generation) generation_state = generation->state();
    }
};

namespace minim::capi {

// Returns the model for a handle that computes. Throws invalid if another process plans the steps of this one.
inline const OpenModel& computing(const minim_model& model) {
    const model::Model& m = model.model();
    if (m.process() != 0)
        fail(Status::invalid,
             "this process follows {}, which alone has sessions and engines: here, minim_model_follow "
             "computes",
             m.net().processes->name(0));
    return model.open;
}

// Returns the index of the device that an error names, for minim_model_device_memory, or -1.
class DevicesOf {
  public:
    // `handle`: a model, session, engine or request; may be null.
    template <typename Handle>
    explicit DevicesOf(const Handle* handle) noexcept
        : model_(handle == nullptr ? nullptr : handle->open.model) {}

    int32_t operator()(std::string_view device) const noexcept {
        if (model_ == nullptr) return -1;
        const std::span<const runtime::Shard> shards = model_->placement().shards();
        for (size_t i = 0; i < shards.size(); ++i)
            if (shards[i].backend->name() == device) return static_cast<int32_t>(i);
        return -1;
    }

  private:
    std::shared_ptr<const model::Model> model_;  // shared, because the call may delete the handle
};

// Exclusive use of a session during a call; publishes its state at the end.
class SessionUse {
  public:
    explicit SessionUse(minim_session& session) : use_(checked(session)), session_(session) {}
    ~SessionUse() { session_.publish_status(); }
    SessionUse(const SessionUse&) = delete;
    SessionUse& operator=(const SessionUse&) = delete;

  private:
    static minim_session& checked(minim_session& session) {
        session.open.runtime->require_threads();
        return session;
    }

    Use<minim_session> use_;
    minim_session& session_;
};

}  // namespace minim::capi

struct minim_engine {
    minim::capi::OpenModel open;
    std::unique_ptr<minim::engine::Engine> engine;
};

struct minim_request {
    minim::capi::OpenModel open;
    std::shared_ptr<minim::engine::Request> request;
    minim::engine::TokenEvent event;  // the pointers of the last minim_token point into it
    std::vector<minim_token_probability> top;
    minim::capi::InUse in_use;
};

struct minim_importance {
    std::shared_ptr<minim::capi::Runtime> runtime;  // of the model; null: it collects nothing
    std::unique_ptr<minim::engine::Importance> importance;
};

struct minim_constraint {
    std::shared_ptr<const minim::constraint::Constraint> constraint;
};

struct minim_sampling {
    minim::engine::GenerateParams params;
    mutable std::shared_mutex mutex;  // use only try_lock: a call that does not get the lock fails with busy
};

namespace minim::capi {

// Locks the options of a sampling while a call reads or changes them. Throws busy if another thread changes them meanwhile, or
// reads them while this call would change them.
class SamplingReader {
  public:
    explicit SamplingReader(const minim_sampling& sampling)
        : sampling_(sampling), lock_(sampling.mutex, std::try_to_lock) {
        if (!lock_) fail(Status::busy, "another thread is changing the sampling");
    }
    const engine::GenerateParams& params() const noexcept { return sampling_.params; }

  private:
    const minim_sampling& sampling_;
    std::shared_lock<std::shared_mutex> lock_;
};

class SamplingWriter {
  public:
    explicit SamplingWriter(minim_sampling& sampling)
        : sampling_(sampling), lock_(sampling.mutex, std::try_to_lock) {
        if (!lock_) fail(Status::busy, "the sampling is in use by another thread");
    }
    engine::GenerateParams& params() const noexcept { return sampling_.params; }

  private:
    minim_sampling& sampling_;
    std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace minim::capi

struct minim_tokens {
    std::vector<int32_t> ids;
};

struct minim_text {
    std::string text;
};

struct minim_decoder {
    minim::capi::OpenModel open;
    minim::tokenizer::StreamDecoder stream;
    bool skip_special = false;
    std::string text;
    minim::capi::InUse in_use = {};
};

struct minim_output_parser {
    minim::chat::OutputParser parser;
    minim::capi::InUse in_use = {};
};

struct minim_output {
    minim::chat::ParsedOutput output;
    int32_t finish_reason = 0;
};

struct minim_cancel {
    minim::CancelToken token;
};
