// SPDX-License-Identifier: Apache-2.0
#include "runtime/logits.h"

#include <algorithm>

#include "base/error.h"

namespace minim::runtime {

namespace {

uint64_t group_bytes(int64_t n_vocab, int64_t n_rows) {
    return float_bytes(std::min(n_rows, backend::k_max_top_k_rows), n_vocab);
}

}  // namespace

// Ranks that share the output head have no top-k: another query for a row of an earlier group would need all ranks again.
Logits::Logits(const Stage& last, int64_t n_vocab, int64_t n_rows, const RankLinks& links)
    : n_vocab_(n_vocab * links.share.tensor) {
    if (links.shares_heads()) part_ = last.backend->allocate(group_bytes(n_vocab, n_rows), "logits");
    if (last.is_on_host() || (part_ && links.share.rank != 0)) return;
    memory_ = last.backend->allocate(group_bytes(n_vocab_, n_rows), "logits");
    if (!part_ && last.backend->makes_top_k())
        top_k_lists_ = std::make_unique<TopKSpace>(*last.backend, n_rows);
}

uint64_t Logits::device_bytes(const Stage& last, int64_t n_vocab, int64_t n_rows, const RankLinks& links) {
    const bool has_part = links.shares_heads();
    const uint64_t part = has_part ? group_bytes(n_vocab, n_rows) : 0;
    if (last.is_on_host() || (has_part && links.share.rank != 0)) return part;
    const uint64_t bytes = part + group_bytes(n_vocab * links.share.tensor, n_rows);
    return !has_part && last.backend->makes_top_k() ? bytes + TopKSpace::device_bytes(n_rows) : bytes;
}

int64_t Logits::group_rows() const noexcept {
    return memory_ || part_ ? backend::k_max_top_k_rows : std::max<int64_t>(n_wanted_, 1);
}

int64_t Logits::count_of(int64_t first) const noexcept {
    return std::min(group_rows(), n_wanted_ - first);
}

void Logits::begin(int64_t n_wanted, const StepOutput& output) {
    if (!output.queries.empty() && (!stay() || std::ssize(output.queries) != n_wanted))
        fail_internal("{} top-k queries for {} rows of logits", output.queries.size(), n_wanted);
    if (!output.queries.empty()) top_k_lists_->ask(output.queries);
    output_ = output;
    n_wanted_ = n_wanted;
    first_ = 0;
}

const float* Logits::on_device(int64_t row) const noexcept {
    return reinterpret_cast<const float*>(memory_->data()) + (row - first_) * n_vocab_;
}

void Logits::project(const Side& last, const float* h, int64_t first, const Architecture& architecture,
                     backend::Group* ranks) {
    first_ = first;
    float* place = nullptr;
    if (memory_)
        place = reinterpret_cast<float*>(memory_->data());
    else if (output_.logits != nullptr)
        place = output_.logits + first * n_vocab_;
    const float* rows = h + first * architecture.shape.hidden;
    float* part = part_ ? reinterpret_cast<float*>(part_->data()) : place;
    architecture.project(last.backend, last.scratch, rows, count_of(first), part);
    if (part_) ranks->gather_rows(last.scratch, part, count_of(first), architecture.shape.n_vocab, place);
}

void Logits::upload_queries(const Side& last, int64_t first) {
    if (has_queries()) top_k_lists_->upload(last.scratch, first);
}

void Logits::compute(const Side& last, const float* h, int64_t first, const Architecture& architecture,
                     backend::Group* ranks) {
    project(last, h, first, architecture, ranks);
    if (has_queries())
        last.backend.top_k(last.scratch, on_device(first), count_of(first), n_vocab_,
                           top_k_lists_->task(first));
}

void Logits::download(const Side& last, int64_t first, int64_t count, float* logits) const {
    last.backend.download(last.scratch, reinterpret_cast<std::byte*>(logits),
                          reinterpret_cast<const std::byte*>(on_device(first)), float_bytes(count, n_vocab_));
}

void Logits::fetch(const Side& last, int64_t first) {
    if (!memory_) return;  // the logits are already where the caller wants them
    const auto fetch_rows = [&](int64_t row, int64_t count) {
        if (output_.logits != nullptr) download(last, row, count, output_.logits + row * n_vocab_);
    };
    if (!has_queries()) return fetch_rows(first, count_of(first));
    top_k_lists_->download(last.scratch, first);
    for (int64_t row = first; row < first + count_of(first); ++row)
        if (output_.queries[row].n_candidates == 0) fetch_rows(row, 1);
}

// Computes the group of a row again if another group has taken its place. The whole group is computed, as before, so
// that the row has the same bits.
void Logits::bring_back(const Side& last, const float* h, int64_t row, const Architecture& architecture) {
    if (!stay() || row >= n_wanted_)
        fail_internal("logits of row {} of {} that a device was to keep", row, n_wanted_);
    const int64_t first = row / group_rows() * group_rows();
    if (first != first_) project(last, h, first, architecture, nullptr);
}

void Logits::fetch_row(const Side& last, const float* h, int64_t row, float* logits,
                       const Architecture& architecture) {
    bring_back(last, h, row, architecture);
    download(last, row, 1, logits);
    last.backend.synchronize(last.scratch);
}

TopK Logits::ask_again(const Side& last, const float* h, int64_t row, const TopKQuery& query,
                       const Architecture& architecture) {
    bring_back(last, h, row, architecture);
    top_k_lists_->ask({&query, 1});
    top_k_lists_->upload(last.scratch, 0);
    last.backend.top_k(last.scratch, on_device(row), 1, n_vocab_, top_k_lists_->task(0));
    top_k_lists_->download(last.scratch, 0);
    last.backend.synchronize(last.scratch);
    return top_k_lists_->answer(0);
}

}  // namespace minim::runtime
