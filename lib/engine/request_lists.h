// SPDX-License-Identifier: Apache-2.0
// The requests of an engine that have not ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "engine/answer.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "model/text.h"

namespace minim::engine {

// A request that is running, waiting, or preempted.
struct Work {
    // The parameters of the request have a seed.
    explicit Work(std::shared_ptr<Request> r) : request(std::move(r)) {
        sequence.tokens.assign(request->prompt().begin(), request->prompt().end());
        state.n_prompt = sequence.n_tokens();
        state.seed = request->params().generate.sampling.seed;
        n_scored = request->params().generate.first_prompt_logprob - 1;
    }

    // Makes the answer, which has counters for the whole vocabulary (megabytes).
    void make_answer(const model::Text& text) {
        answer.emplace(text, request->params().generate);
        answer->follow(sequence.tokens);
        sequence.answer = &*answer;
    }

    std::shared_ptr<Request> request;
    int64_t order = 0;  // of submission
    Request::Clock::time_point submitted = Request::Clock::now();
    Request::Clock::time_point first_token{};
    std::optional<Answer> answer;  // once the request was started
    std::optional<Error> failure;  // why it could not be started
    Sequence sequence;             // its tokens: the prompt and what was chosen
    bool ended = false;
    RequestState state;
    // Tokens after which the log-probability of the next prompt token has been reported, or is not asked for.
    int64_t n_scored = 0;

    // True once its prompt is read: it has chosen a token, perhaps before it was preempted.
    bool is_answering() const { return sequence.n_due() == 1 && state.prompt_us > 0; }
    // True while log-probabilities of the prompt are still to be computed.
    bool is_scoring() const {
        return request->params().generate.n_prompt_logprobs >= 0 && n_scored < state.n_prompt - 1;
    }
    // Returns the number of leading tokens whose KV cache may come from other texts. The last token is evaluated for its logits,
    // and so are those whose successor's log-probability is asked for.
    int64_t n_shareable() const { return is_scoring() ? n_scored : sequence.n_tokens() - 1; }
    int32_t priority() const { return request->params().priority; }
    bool goes_before(const Work& other) const {
        return priority() != other.priority() ? priority() > other.priority() : order < other.order;
    }
};

using WorkList = std::list<std::unique_ptr<Work>>;

// Both lists are in order of precedence: higher priorities first, then older requests.
struct RequestLists {
    WorkList waiting;
    WorkList running;

    // Moves all requests of a list to the waiting ones.
    void add(WorkList& submitted) noexcept {
        while (!submitted.empty()) move(submitted.begin(), submitted, waiting);
    }
    // Moves the first waiting request to the running ones.
    void start_first() noexcept { move(waiting.begin(), waiting, running); }
    // Moves a running request back to the waiting ones.
    void stop(WorkList::iterator work) noexcept { move(work, running, waiting); }
    void remove_ended() noexcept {
        for (WorkList* list : {&waiting, &running})
            list->remove_if([](const std::unique_ptr<Work>& work) { return work->ended; });
    }

  private:
    static void move(WorkList::iterator work, WorkList& from, WorkList& to) noexcept {
        const auto place =
            std::ranges::find_if(to, [&](const auto& other) { return (*work)->goes_before(*other); });
        to.splice(place, from, work);
    }
};

}  // namespace minim::engine
