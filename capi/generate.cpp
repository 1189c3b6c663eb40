// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "handles.h"
#include "structs.h"
#include "texts.h"
#include "token_view.h"

using namespace minim;
using namespace minim::capi;

namespace {

// The struct of callers that were compiled before stop_text was added ends here.
constexpr uint32_t k_first_result = offsetof(minim_generate_result, stop_text);

static_assert(static_cast<int>(engine::Finish::loop) == MINIM_FINISH_LOOP);
static_assert(static_cast<int>(engine::Finish::end) == MINIM_FINISH_END);
static_assert(static_cast<int>(engine::Finish::stopped) == MINIM_FINISH_STOPPED);

void begin(minim_session& session, const minim_sampling* options, std::span<const int32_t> prompt,
           const CancelToken* cancel) {
    session.top.reserve(
        sampling::k_max_top_logprobs);  // later calls must not fail between choosing and reporting a token
    engine::GenerateParams params;
    if (options != nullptr) params = SamplingReader(*options).params();
    session.end_generation();
    session.generation.emplace(*session.session, params, prompt, cancel);
}

// Generates the next token. Returns false if the text has ended.
bool next(minim_session& session, const CancelToken* cancel) {
    std::optional<engine::TokenEvent> event = session.generation->next(cancel);
    if (event) session.event = std::move(*event);
    return event.has_value();
}

}  // namespace

minim_status minim_generate(minim_session* session, const minim_sampling* sampling, const int32_t* prompt,
                            size_t count, minim_token_fn on_token, void* user_data, minim_cancel* cancel,
                            minim_generate_result* result, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        if (result != nullptr)
            result_to(result, "minim_generate_result", minim_generate_result{}, k_first_result);
        begin(*session, sampling, ids_argument(prompt, count, "prompt"), token_of(cancel));
        const auto report = [&] {
            if (result != nullptr)
                result_to(result, "minim_generate_result",
                          result_of<minim_generate_result>(session->generation->state()));
        };
        try {
            while (next(*session, token_of(cancel))) {
                if (on_token == nullptr) continue;
                const minim_token token = token_view(session->event, session->top);
                session->publish_status();
                if (on_token(user_data, &token) != 0 || session->in_use.is_released())
                    session->generation->stop();
            }
        } catch (...) {
            session->generation->stop();
            report();
            throw;
        }
        report();
    });
}

minim_status minim_generate_begin(minim_session* session, const minim_sampling* sampling,
                                  const int32_t* prompt, size_t count, minim_cancel* cancel,
                                  minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        begin(*session, sampling, ids_argument(prompt, count, "prompt"), token_of(cancel));
    });
}

minim_status minim_generate_next(minim_session* session, minim_token* token, int32_t* has_token,
                                 minim_cancel* cancel, minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        if (!session->generation) fail(Status::invalid, "no generation was begun in this session");
        required(has_token, "has_token");
        result_to(token, "minim_token", minim_token{},
                  k_first_token);  // checks the struct before a token is taken
        const bool found = next(*session, token_of(cancel));
        if (found) result_to(token, "minim_token", token_view(session->event, session->top), k_first_token);
        *has_token = found ? 1 : 0;
    });
}

minim_status minim_generate_state(const minim_session* session, minim_generate_result* result,
                                  minim_error* err) {
    return guard(err, [&] {
        std::optional<engine::GenerationState> state;
        {
            const std::lock_guard lock(required(session, "session").status_mutex);
            state = session->generation_state;
        }
        if (!state) fail(Status::invalid, "no generation was begun in this session");
        result_to(result, "minim_generate_result", result_of<minim_generate_result>(*state), k_first_result);
    });
}
