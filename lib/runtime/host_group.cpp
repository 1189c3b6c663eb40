// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "runtime/transfer.h"

namespace minim::runtime {

using backend::chunk_of_sum;
using backend::SumChunk;

namespace {

float* floats_of(const backend::Memory& memory) {
    return reinterpret_cast<float*>(memory.data());
}

}  // namespace

HostGroup::HostGroup(const backend::Backend& backend, Transport& transport, const GroupLimits& limits)
    : backend_(backend), is_on_host_(backend.uses_host_memory()), transport_(transport) {
    const int64_t n = transport.size();
    const int64_t slots = limits.n_slots * limits.hidden;
    const int64_t n_to_all = std::min(limits.n_sum, k_max_floats_to_all) * n;
    const int64_t n_chunks = limits.n_sum + 2 * n * backend::k_chunk_floats;
    const int64_t n_others = std::max({n_to_all, n_chunks, slots, limits.n_gather});
    others_ = backend.allocate_staging(float_bytes(n_others, 1), "exchange between ranks");
    if (is_on_host_) return;
    own_ = backend.allocate_staging(float_bytes(std::max({limits.n_sum, slots, limits.n_gather}), 1),
                                    "exchange between ranks");
    ids_ = backend.allocate_staging(static_cast<uint64_t>(limits.n_slots) * sizeof(int32_t),
                                    "exchange between ranks");
}

void HostGroup::send(int32_t to, const float* data, int64_t count) {
    if (count > 0) tickets_.push_back(transport_.send(to, std::as_bytes(std::span(data, count))));
}

void HostGroup::receive(int32_t from, float* data, int64_t count) {
    if (count > 0)
        tickets_.push_back(transport_.receive(from, std::as_writable_bytes(std::span(data, count))));
}

void HostGroup::wait() {
    const std::vector<Transport::Ticket> tickets = std::exchange(tickets_, {});
    transport_.wait(tickets);
}

// Returns the data in host memory, as the stream has computed it so far.
float* HostGroup::on_host(backend::Scratch& scratch, float* data, int64_t count) {
    if (is_on_host_) return data;
    backend_.download(scratch, own_->data(), reinterpret_cast<const std::byte*>(data), float_bytes(count, 1));
    backend_.wait(scratch);
    return floats_of(*own_);
}

void HostGroup::sum(backend::Scratch& scratch, float* data, int64_t count) {
    if (size() == 1) return;
    float* const own = on_host(scratch, data, count);
    if (count <= k_max_floats_to_all) {
        sum_to_all(own, count);
    } else {
        sum_by_chunks(own, count);
    }
    if (is_on_host_) return;
    backend_.upload(scratch, reinterpret_cast<std::byte*>(data), own_->data(), float_bytes(count, 1));
}

void HostGroup::sum_to_all(float* data, int64_t count) {
    float* const others = floats_of(*others_);
    for (int32_t r = 0; r < size(); ++r)
        if (r != rank()) receive(r, others + r * count, count);
    for (int32_t r = 0; r < size(); ++r)
        if (r != rank()) send(r, data, count);
    wait();
    const auto part = [&](int32_t r) { return r == rank() ? data : others + r * count; };
    // Within others_: `data` is one of the terms.
    float* const total = others + rank() * count;
    std::copy_n(part(0), count, total);
    for (int32_t r = 1; r < size(); ++r) {
        const float* const term = part(r);
        for (int64_t i = 0; i < count; ++i) total[i] += term[i];
    }
    std::copy_n(total, count, data);
}

void HostGroup::sum_by_chunks(float* data, int64_t count) {
    const SumChunk mine = chunk_of_sum(count, rank(), size());
    const int64_t n = mine.size();
    float* const others = floats_of(*others_);
    for (int32_t r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        const SumChunk theirs = chunk_of_sum(count, r, size());
        receive(r, others + r * n, n);
        send(r, data + theirs.begin, theirs.size());
    }
    wait();
    std::copy_n(data + mine.begin, n, others + rank() * n);
    float* const total = data + mine.begin;
    std::copy_n(others, n, total);
    for (int32_t r = 1; r < size(); ++r) {
        const float* const term = others + r * n;
        for (int64_t i = 0; i < n; ++i) total[i] += term[i];
    }
    for (int32_t r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        const SumChunk theirs = chunk_of_sum(count, r, size());
        receive(r, data + theirs.begin, theirs.size());
        send(r, total, n);
    }
    wait();
}

void HostGroup::share_slots(backend::Scratch& scratch, const int32_t* ids, int64_t n_slots, int64_t hidden,
                            float* out) {
    if (size() == 1) return;
    if (!is_on_host_) {
        backend_.download(scratch, ids_->data(), reinterpret_cast<const std::byte*>(ids),
                          static_cast<uint64_t>(n_slots) * sizeof(int32_t));
        backend_.wait(scratch);
        ids = reinterpret_cast<const int32_t*>(ids_->data());
    }
    // others_ has the slots sorted by rank, [n_slots, hidden].
    std::vector<int64_t> first(size() + 1, 0);
    for (int64_t slot = 0; slot < n_slots; ++slot) ++first[ids[slot] % size() + 1];
    for (int32_t r = 0; r < size(); ++r) first[r + 1] += first[r];
    float* const sorted = floats_of(*others_);
    const auto for_each_slot_of = [&](bool of_this_rank, const auto& visit) {
        std::vector<int64_t> next = first;
        for (int64_t slot = 0; slot < n_slots; ++slot) {
            const int32_t owner = ids[slot] % size();
            const int64_t at = next[owner]++;
            if ((owner == rank()) == of_this_rank) visit(out + slot * hidden, sorted + at * hidden);
        }
    };
    const uint64_t bytes = float_bytes(hidden, 1);
    for_each_slot_of(true, [&](const float* data, float* place) {
        backend_.download(scratch, reinterpret_cast<std::byte*>(place),
                          reinterpret_cast<const std::byte*>(data), bytes);
    });
    backend_.wait(scratch);
    const int64_t n_own = first[rank() + 1] - first[rank()];
    for (int32_t r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        receive(r, sorted + first[r] * hidden, (first[r + 1] - first[r]) * hidden);
        send(r, sorted + first[rank()] * hidden, n_own * hidden);
    }
    wait();
    for_each_slot_of(false, [&](float* data, const float* place) {
        backend_.upload(scratch, reinterpret_cast<std::byte*>(data),
                        reinterpret_cast<const std::byte*>(place), bytes);
    });
}

void HostGroup::gather_rows(backend::Scratch& scratch, const float* part, int64_t n, int64_t width,
                            float* whole) {
    float* const parts = floats_of(*others_);  // [size, n, width]
    float* const own = parts + rank() * n * width;
    backend_.download(scratch, reinterpret_cast<std::byte*>(own), reinterpret_cast<const std::byte*>(part),
                      float_bytes(n, width));
    backend_.wait(scratch);
    if (rank() != 0) {
        send(0, own, n * width);
        wait();
        return;
    }
    for (int32_t r = 1; r < size(); ++r) receive(r, parts + r * n * width, n * width);
    wait();
    for (int64_t row = 0; row < n; ++row)
        for (int32_t r = 0; r < size(); ++r)
            backend_.upload(scratch, reinterpret_cast<std::byte*>(whole + (row * size() + r) * width),
                            reinterpret_cast<const std::byte*>(parts + (r * n + row) * width),
                            float_bytes(width, 1));
}

void HostGroup::go_on(const CancelToken* cancel) {
    std::array<std::byte, 1> stops = {};
    if (rank() == 0) {
        stops[0] = std::byte(is_cancelled(cancel) ? 1 : 0);
        for (int32_t r = 1; r < size(); ++r) tickets_.push_back(transport_.send(r, stops));
    } else {
        tickets_.push_back(transport_.receive(0, stops));
    }
    wait();
    if (stops[0] != std::byte(0)) fail(Status::cancelled, "cancelled during evaluation");
}

std::unique_ptr<backend::Group> make_group(const backend::Backend& backend, Transport& transport,
                                           backend::GroupLink* link, const GroupLimits& limits) {
    if (link == nullptr) return std::make_unique<HostGroup>(backend, transport, limits);
    return link->make_group(std::make_unique<HostGroup>(backend, transport, link->over_host(limits)), limits);
}

}  // namespace minim::runtime
