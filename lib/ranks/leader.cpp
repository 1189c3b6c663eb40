// SPDX-License-Identifier: Apache-2.0
#include "ranks/leader.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/format_text.h"
#include "runtime/forward_pass.h"

namespace minim::ranks {
namespace {

// All that is asked of every process allocates memory; the pages of a large KV cache are cleared for a while.
constexpr std::chrono::milliseconds k_allocation_limit{60'000};

}  // namespace

Leader::Leader(Processes& processes)
    : processes_(processes), n_sent_(processes.size(), 0), n_answers_(processes.size(), 0) {}

Leader::~Leader() {
    tell_all(StopMessage{});
    processes_.leave();
}

// ---- messages ----

// The caller has the lock.
void Leader::send(int32_t process, const Message& message) {
    processes_.send(process, encode(message, n_sent_[process]++));
}

void Leader::send_to_all(const Message& message) {
    const std::lock_guard lock(send_mutex_);
    for (int32_t p = 1; p < processes_.size(); ++p) send(p, message);
}

// Messages that end something are not refused. If they cannot be sent, the processes are not in step any more.
void Leader::tell_all(const Message& message) noexcept {
    try {
        send_to_all(message);
    } catch (...) {
        processes_.abandon(current_error());
    }
}

AnswerMessage Leader::answer_of(int32_t process, std::chrono::milliseconds limit) {
    const std::vector<std::byte> bytes = processes_.receive(process, limit);
    Message message = parse_message(bytes, n_answers_[process]++);
    auto* const answer = std::get_if<AnswerMessage>(&message);
    if (answer == nullptr) fail_internal("{} has sent no answer", processes_.name(process));
    return std::move(*answer);
}

void Leader::throw_refusal(int32_t process, const AnswerMessage& answer) const {
    throw Error(answer.status, Reason::none, format_text("{}: {}", processes_.name(process), answer.text));
}

// Asks all processes for the same. If one refuses, undoes it in those that have done it.
void Leader::ask_all(const Message& request, const Message& undo) {
    const std::lock_guard asking(ask_mutex_);
    send_to_all(request);
    const std::chrono::milliseconds limit = std::max(processes_.timeout(), k_allocation_limit);
    std::vector<AnswerMessage> answers(processes_.size());
    int32_t refusing = 0;
    for (int32_t p = processes_.size() - 1; p > 0; --p) {
        answers[p] = answer_of(p, limit);
        if (answers[p].status != Status::ok) refusing = p;
    }
    if (refusing == 0) return;
    {
        const std::lock_guard lock(send_mutex_);
        for (int32_t p = 1; p < processes_.size(); ++p)
            if (answers[p].status == Status::ok) send(p, undo);
    }
    throw_refusal(refusing, answers[refusing]);
}

// ---- ranks ----

uint32_t Leader::make_space(int64_t n_rows, int64_t n_context) {
    const uint32_t space = ++n_spaces_;
    ask_all(MakeSpaceMessage{space, n_rows, n_context}, EndSpaceMessage{space});
    return space;
}

void Leader::end_space(uint32_t space) noexcept {
    tell_all(EndSpaceMessage{space});
}

void Leader::start(uint32_t space, std::span<const runtime::StepRow> rows) {
    send_to_all(make_step(space, rows));
}

StepMessage make_step(uint32_t space, std::span<const runtime::StepRow> rows) {
    StepMessage step;
    step.space = space;
    step.rows.reserve(rows.size());
    std::unordered_map<const backend::KvSequence*, int32_t> numbers;
    for (const runtime::StepRow& row : rows) {
        const backend::KvSequence& sequence = *row.at.sequence;
        const auto [known, is_new] = numbers.try_emplace(&sequence, static_cast<int32_t>(numbers.size()));
        if (is_new) {
            if (sequence.numbers.empty()) fail_internal("a sequence of a step has no numbers of pages");
            step.sequences.push_back({.pool = sequence.pool,
                                      .first_page = static_cast<uint32_t>(step.pages.size()),
                                      .n_pages = static_cast<uint32_t>(sequence.numbers.size())});
            step.pages.insert(step.pages.end(), sequence.numbers.begin(), sequence.numbers.end());
        }
        step.rows.push_back({.token = row.token,
                             .sequence = known->second,
                             .position = row.at.position,
                             .wants_logits = row.wants_logits ? 1 : 0});
    }
    return step;
}

// ---- pages ----

uint32_t Leader::make_pool(const backend::KvLayout& whole) {
    const uint32_t pool = ++n_pools_;
    ask_all(MakePoolMessage{pool, whole}, EndPoolMessage{pool});
    return pool;
}

void Leader::end_pool(uint32_t pool) noexcept {
    tell_all(EndPoolMessage{pool});
}

void Leader::add_slab(uint32_t pool, int32_t slab, int64_t n_pages) {
    ask_all(AddSlabMessage{pool, slab, n_pages}, DropSlabMessage{pool, slab});
}

void Leader::drop_slab(uint32_t pool, int32_t slab) noexcept {
    tell_all(DropSlabMessage{pool, slab});
}

void Leader::copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept {
    tell_all(CopyPageMessage{pool, from, to});
}

std::vector<std::byte> Leader::read(uint32_t pool, backend::KvPage page, int32_t process) {
    const std::lock_guard asking(ask_mutex_);
    {
        const std::lock_guard lock(send_mutex_);
        send(process, ReadPageMessage{pool, page});
    }
    AnswerMessage answer = answer_of(process, processes_.timeout());
    if (answer.status != Status::ok) throw_refusal(process, answer);
    return std::move(answer.bytes);
}

void Leader::write(uint32_t pool, backend::KvPage page, int32_t process, std::span<const std::byte> bytes) {
    const WritePageMessage message = {pool, page, {bytes.begin(), bytes.end()}};
    const std::lock_guard lock(send_mutex_);
    send(process, message);
}

}  // namespace minim::ranks
