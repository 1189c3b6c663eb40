// SPDX-License-Identifier: Apache-2.0
#include "runtime/top_k_space.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace minim::runtime {
namespace {

using backend::k_max_top_k_rows;
using backend::TopKFacts;
using backend::TopKRow;

constexpr uint64_t k_alignment = 256;

uint64_t aligned(uint64_t bytes) {
    return align_up(bytes, k_alignment);
}

uint64_t most_asked_bytes(int64_t n_rows) {
    return aligned(static_cast<uint64_t>(n_rows) * (sizeof(TopKRow) + k_max_named * sizeof(int32_t)));
}

uint64_t most_answer_bytes(int64_t n_rows) {
    constexpr uint64_t k_row =
        sizeof(TopKFacts) + k_max_candidates * sizeof(Candidate) + k_max_named * sizeof(float);
    return aligned(static_cast<uint64_t>(n_rows) * aligned(k_row));
}

template <typename T>
T* place(std::byte* base, uint64_t at) {
    return reinterpret_cast<T*>(base + at);
}

}  // namespace

uint64_t TopKSpace::device_bytes(int64_t n_rows) {
    const int64_t n_device = std::min(n_rows, k_max_top_k_rows);
    return most_asked_bytes(n_device) + most_answer_bytes(n_device);
}

TopKSpace::TopKSpace(const backend::Backend& backend, int64_t n_rows) : backend_(backend) {
    // Parts begin aligned.
    const uint64_t n_parts = static_cast<uint64_t>(n_rows / k_max_top_k_rows + 1);
    const uint64_t asked_bytes = most_asked_bytes(n_rows) + n_parts * k_alignment;
    device_ = backend.allocate(device_bytes(n_rows), "candidates of tokens");
    device_answers_ = device_->data() + most_asked_bytes(std::min(n_rows, k_max_top_k_rows));
    host_ = backend.allocate_staging(asked_bytes + most_answer_bytes(n_rows), "candidates of tokens");
    host_answers_ = host_->data() + asked_bytes;
    parts_.reserve(n_parts);
}

void TopKSpace::ask(std::span<const TopKQuery> queries) {
    parts_.clear();
    uint64_t asked_at = 0;
    uint64_t answers_at = 0;
    for (size_t first = 0; first < queries.size(); first += k_max_top_k_rows) {
        const auto some = queries.subspan(first, std::min<size_t>(k_max_top_k_rows, queries.size() - first));
        auto* rows = place<TopKRow>(host_->data(), asked_at);
        auto* named = reinterpret_cast<int32_t*>(rows + some.size());
        int32_t n_named = 0;
        uint64_t end = some.size() * sizeof(TopKFacts);
        for (size_t i = 0; i < some.size(); ++i) {
            const TopKQuery& query = some[i];
            if (query.n_candidates > k_max_candidates || query.named.size() > size_t{k_max_named})
                fail_internal("{} candidates and {} ids of a row are asked for", query.n_candidates,
                              query.named.size());
            rows[i] = {.inverse_temperature = query.inverse_temperature,
                       .n_candidates = query.n_candidates,
                       .n_named = static_cast<int32_t>(query.named.size()),
                       .first_named = n_named,
                       .candidates_at = static_cast<int32_t>(end),
                       .named_at = 0,
                       .wants_exact_total = query.exact_total ? 1 : 0};
            end += static_cast<uint64_t>(query.n_candidates) * sizeof(Candidate);
            std::ranges::copy(query.named, named + n_named);
            n_named += rows[i].n_named;
        }
        for (size_t i = 0; i < some.size(); ++i) {
            rows[i].named_at = static_cast<int32_t>(end);
            end += some[i].named.size() * sizeof(float);
        }
        const uint64_t asked_bytes =
            some.size() * sizeof(TopKRow) + static_cast<uint64_t>(n_named) * sizeof(int32_t);
        parts_.push_back({std::ssize(some), asked_at, asked_bytes, answers_at, end});
        asked_at += aligned(asked_bytes);
        answers_at += aligned(end);
    }
}

const TopKSpace::Part& TopKSpace::part_of(int64_t row) const {
    return parts_[row / k_max_top_k_rows];
}

void TopKSpace::upload(backend::Scratch& scratch, int64_t first) {
    const Part& part = part_of(first);
    backend_.upload(scratch, device_->data(), host_->data() + part.asked_at, part.asked_bytes);
}

backend::TopKTask TopKSpace::task(int64_t first) const {
    const auto n = static_cast<uint64_t>(part_of(first).n_rows);
    return {place<const TopKRow>(device_->data(), 0),
            place<const int32_t>(device_->data(), n * sizeof(TopKRow)), device_answers_};
}

void TopKSpace::download(backend::Scratch& scratch, int64_t first) {
    const Part& part = part_of(first);
    backend_.download(scratch, host_answers_ + part.answers_at, device_answers_, part.answers_bytes);
}

TopK TopKSpace::answer(int64_t row) const {
    const Part& part = part_of(row);
    const int64_t i = row % k_max_top_k_rows;
    const auto* rows = place<const TopKRow>(host_->data(), part.asked_at);
    const auto* named = reinterpret_cast<const int32_t*>(rows + part.n_rows) + rows[i].first_named;
    std::byte* answers = host_answers_ + part.answers_at;
    const TopKFacts& facts = place<const TopKFacts>(answers, 0)[i];
    const auto n_named = static_cast<size_t>(rows[i].n_named);
    TopK top;
    top.n_nan = facts.n_nan;
    top.candidates = {place<const Candidate>(answers, static_cast<uint64_t>(rows[i].candidates_at)),
                      static_cast<size_t>(facts.n_candidates)};
    top.is_complete = facts.n_candidates < rows[i].n_candidates;
    top.named = {named, n_named};
    top.named_logits = {place<const float>(answers, static_cast<uint64_t>(rows[i].named_at)), n_named};
    top.inverse_temperature = rows[i].inverse_temperature;
    top.total = facts.total;
    top.exact_total = facts.exact_total;
    return top;
}

}  // namespace minim::runtime
