// SPDX-License-Identifier: Apache-2.0
#include "ranks/follower.h"

#include <functional>
#include <variant>

#include "base/error.h"

namespace minim::ranks {
namespace {

class Follower {
  public:
    Follower(Processes& processes, FollowerCalls& calls) : processes_(processes), calls_(calls) {}

    void run() {
        while (!has_stopped_) {
            const std::vector<std::byte> bytes = processes_.receive(0);
            const Message message = parse_message(bytes, n_received_++);
            std::visit([&](const auto& of_kind) { take(of_kind); }, message);
        }
    }

  private:
    void take(const StepMessage& message) {
        try {
            calls_.step(message);
        } catch (const Error& error) {
            if (error.status() != Status::cancelled) throw;
        }
    }
    void take(const MakeSpaceMessage& message) {
        answer([&](AnswerMessage&) { calls_.make_space(message.space, message.n_rows, message.n_context); });
    }
    void take(const EndSpaceMessage& message) { calls_.end_space(message.space); }
    void take(const MakePoolMessage& message) {
        answer([&](AnswerMessage&) { calls_.make_pool(message.pool, message.layout); });
    }
    void take(const EndPoolMessage& message) { calls_.end_pool(message.pool); }
    void take(const AddSlabMessage& message) {
        answer([&](AnswerMessage&) { calls_.add_slab(message.pool, message.slab, message.n_pages); });
    }
    void take(const DropSlabMessage& message) { calls_.drop_slab(message.pool, message.slab); }
    void take(const CopyPageMessage& message) { calls_.copy(message.pool, message.from, message.to); }
    void take(const ReadPageMessage& message) {
        answer([&](AnswerMessage& answer) { answer.bytes = calls_.read(message.pool, message.page); });
    }
    void take(const WritePageMessage& message) { calls_.write(message.pool, message.page, message.bytes); }
    void take(const StopMessage&) { has_stopped_ = true; }
    void take(const AnswerMessage&) {
        fail_internal("the leader has sent an answer, which nobody has asked for");
    }

    // Answers with what the call returns, or with the error that it throws.
    void answer(const std::function<void(AnswerMessage&)>& call) {
        AnswerMessage answer;
        try {
            call(answer);
        } catch (...) {
            const Error error = current_error();
            answer = {.status = error.status(), .text = error.what(), .bytes = {}};
        }
        processes_.send(0, encode(answer, n_answers_++));
    }

    Processes& processes_;
    FollowerCalls& calls_;
    uint64_t n_received_ = 0;
    uint64_t n_answers_ = 0;
    bool has_stopped_ = false;
};

}  // namespace

void follow(Processes& processes, FollowerCalls& calls) {
    try {
        Follower(processes, calls).run();
    } catch (...) {
        const Error error = current_error();
        processes.abandon(error);
        throw Error(error);
    }
    processes.leave();
}

}  // namespace minim::ranks
