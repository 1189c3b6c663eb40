// SPDX-License-Identifier: Apache-2.0
// The shares that ranks compute of a layer's attention and experts, one rank after the other on one device, and their sums
// as a group makes them: in rank order.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "support/upload_places.h"

namespace minim::test {

// A stream of a device, and copies of host data in its memory.
class RankDevice {
  public:
    RankDevice(const backend::Backend& device, const backend::StepLimits& limits)
        : device_(device), scratch_(device.reserve(limits)) {}

    const backend::Backend& device() const { return device_; }
    backend::Scratch& scratch() { return *scratch_; }
    template <typename T>
    T* put(const std::vector<T>& data) {
        blocks_.push_back(device_.allocate(std::max<uint64_t>(data.size() * sizeof(T), 1), "a test"));
        device_.write(blocks_.back()->data(), reinterpret_cast<const std::byte*>(data.data()),
                      data.size() * sizeof(T));
        return reinterpret_cast<T*>(blocks_.back()->data());
    }
    template <typename T>
    std::vector<T> get(const T* data, size_t count) {
        device_.synchronize(*scratch_);
        std::vector<T> out(count);
        device_.read(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(data),
                     count * sizeof(T));
        return out;
    }

  private:
    const backend::Backend& device_;
    std::unique_ptr<backend::Scratch> scratch_;
    std::vector<std::unique_ptr<backend::Memory>> blocks_;
};

// a += b
inline void add_to(std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
}

inline std::vector<float> random_floats(uint32_t seed, int64_t count, float size) {
    std::mt19937 engine(seed);
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i)
        all.push_back(size * (static_cast<float>(engine() % 20001U) / 10000.0F - 1.0F));
    return all;
}

// ---- attention ----

// The rows of a prompt from position 0 on, before normalisation. One mean square is of all heads.
struct HeadRows {
    int64_t n;
    int64_t n_head;
    int64_t n_head_kv;
    int64_t head_dim;
    Format kv_format;
    std::vector<float> q, k, v, q_norm, k_norm, frequency;

    HeadRows(int64_t rows, int64_t heads, int64_t heads_kv, int64_t dim, Format format)
        : n(rows), n_head(heads), n_head_kv(heads_kv), head_dim(dim), kv_format(format) {
        q = random_floats(1, n * n_head * dim, 3.0F);
        k = random_floats(2, n * n_head_kv * dim, 2.0F);
        v = random_floats(3, n * n_head_kv * dim, 1.0F);
        q_norm = random_floats(4, n_head * dim, 2.0F);
        k_norm = random_floats(5, n_head_kv * dim, 2.0F);
        for (int64_t i = 0; i < dim / 4; ++i)
            frequency.push_back(std::pow(1e4F, -4.0F * static_cast<float>(i) / static_cast<float>(dim)));
    }
    backend::StepLimits limits() const {
        return {.n_rows = n, .n_context = n, .n_head = n_head, .n_head_kv = n_head_kv, .head_dim = head_dim};
    }
};

// Returns part `part` of n_parts of the columns of rows [n, width].
inline std::vector<float> columns(const std::vector<float>& all, int64_t n, int64_t part, int64_t n_parts) {
    const int64_t width = std::ssize(all) / n;
    const int64_t some = width / n_parts;
    std::vector<float> out;
    for (int64_t i = 0; i < n; ++i) {
        const auto first = all.begin() + i * width + part * some;
        out.insert(out.end(), first, first + some);
    }
    return out;
}

// The heads of one of n_ranks ranks, on a device, with a KV cache of their own.
class HeadRank {
  public:
    HeadRank(const backend::Backend& device, const HeadRows& rows, int64_t rank, int64_t n_ranks)
        : rows_(rows),
          on_(device, rows.limits()),
          layout_{1, rows.n_head_kv / n_ranks, rows.head_dim, rows.kv_format, rows.kv_format} {
        const auto part = [&](const std::vector<float>& all, int64_t n) {
            return on_.put(columns(all, n, rank, n_ranks));
        };
        for (int64_t i = 0; i < rows.n; i += backend::k_kv_page_tokens)
            pages_.push_back(on_.put(std::vector<std::byte>(static_cast<size_t>(layout_.page_bytes()))));
        sequence_ = {&layout_, pages_};
        whole_.n_head = rows.n_head / n_ranks;
        whole_.n_head_kv = layout_.n_head_kv;
        whole_.head_dim = rows.head_dim;
        whole_.q = part(rows.q, rows.n);
        whole_.k = part(rows.k, rows.n);
        whole_.v = part(rows.v, rows.n);
        whole_.o = on_.put(std::vector<float>(static_cast<size_t>(rows.n * q_size()), NAN));
        whole_.q_norm = {part(rows.q_norm, 1), q_size()};
        whole_.k_norm = {part(rows.k_norm, 1), k_size()};
        whole_.norm_eps = 1e-6F;
        whole_.rope_frequency = rows.frequency;
    }
    HeadRank(const HeadRank&) = delete;

    // Returns head_squares() of rows first .. first + count - 1.
    std::vector<float> squares(int64_t first, int64_t count) {
        const auto size = static_cast<size_t>(2 * count);
        float* out = on_.put(std::vector<float>(size, NAN));
        on_.device().head_squares(on_.scratch(), args_of(first, count), out);
        return on_.get(out, size);
    }
    // Attends these rows; `squares`: of all ranks, or null.
    void attend(int64_t first, int64_t count, const std::vector<float>* squares) {
        backend::AttendArgs args = args_of(first, count);
        std::vector<backend::KvRow> rows;
        for (int64_t i = first; i < first + count; ++i) rows.push_back({&sequence_, i});
        args.rows = rows;
        if (squares != nullptr) {
            args.squares = on_.put(*squares);
            args.n_head_all = rows_.n_head;
            args.n_head_kv_all = rows_.n_head_kv;
        }
        on_.device().attend(on_.scratch(), args);
        on_.device().synchronize(on_.scratch());
    }
    // Returns o of row i.
    std::vector<float> output(int64_t i) {
        return on_.get(whole_.o + i * q_size(), static_cast<size_t>(q_size()));
    }

  private:
    int64_t q_size() const { return whole_.n_head * whole_.head_dim; }
    int64_t k_size() const { return whole_.n_head_kv * whole_.head_dim; }
    backend::AttendArgs args_of(int64_t first, int64_t count) const {
        backend::AttendArgs args = whole_;
        args.n = count;
        args.q += first * q_size();
        args.k += first * k_size();
        args.v += first * k_size();
        args.o += first * q_size();
        return args;
    }

    const HeadRows& rows_;
    RankDevice on_;
    backend::KvLayout layout_;
    std::vector<std::byte*> pages_;
    backend::KvSequence sequence_;
    backend::AttendArgs whole_;  // of all rows, without `rows`
};

// Returns o [n, n_head * head_dim] of heads that n_ranks ranks divide, `chunk` rows at a time. n_ranks 0: one device without
// sums of squares.
inline std::vector<float> attend_on_ranks(const backend::Backend& device, const HeadRows& rows,
                                          int64_t n_ranks, int64_t chunk) {
    std::vector<std::unique_ptr<HeadRank>> ranks;
    for (int64_t r = 0; r < std::max<int64_t>(n_ranks, 1); ++r)
        ranks.push_back(std::make_unique<HeadRank>(device, rows, r, std::max<int64_t>(n_ranks, 1)));
    for (int64_t first = 0; first < rows.n; first += chunk) {
        const int64_t count = std::min(chunk, rows.n - first);
        std::vector<float> squares;
        for (int64_t r = 0; r < n_ranks; ++r) {
            const std::vector<float> own = ranks[static_cast<size_t>(r)]->squares(first, count);
            if (r == 0) squares.assign(own.size(), 0.0F);
            add_to(squares, own);
        }
        for (const auto& rank : ranks) rank->attend(first, count, n_ranks == 0 ? nullptr : &squares);
    }
    std::vector<float> all;
    for (int64_t i = 0; i < rows.n; ++i) {
        for (const auto& rank : ranks) {
            const std::vector<float> part = rank->output(i);
            all.insert(all.end(), part.begin(), part.end());
        }
    }
    return all;
}

// ---- experts ----

// Rows with their choices.
struct ExpertRows {
    int64_t n;
    int64_t n_used;
    int64_t hidden;
    std::vector<float> h, gates;
    std::vector<float> before;  // y, before the experts are added
    std::vector<int32_t> ids;

    ExpertRows(int64_t rows, int64_t used, int64_t n_expert, int64_t width)
        : n(rows), n_used(used), hidden(width) {
        h = random_floats(6, n * hidden, 0.2F);
        before = random_floats(7, n * hidden, 1.0F);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t s = 0; s < n_used; ++s) {
                // Most of many rows choose expert 1, which then has more slots than a tile of a product for many rows.
                const bool is_popular = n > 32 && s == 0;
                ids.push_back(static_cast<int32_t>(is_popular ? 1 : (5 * i + 2 * s) % n_expert));
                gates.push_back(1.0F / static_cast<float>(s + 2));
            }
        }
    }
};

// Returns the weights of the experts for which has() is true, as a rank on that device has them. The others have no
// addresses on a host device. In a device's table only that of gate is null: the other two must not be read.
// `is_on_device` belongs to the result.
template <typename Has>
backend::ExpertWeights experts_of_rank(RankDevice& on, const backend::ExpertWeights& all, const Has& has,
                                       std::vector<uint8_t>& is_on_device) {
    backend::ExpertWeights own = all;
    is_on_device.clear();
    for (int64_t e = 0; e < all.n_expert(); ++e) {
        const auto i = static_cast<size_t>(e);
        is_on_device.push_back(has(e) ? 0 : 1);
        if (!has(e)) own.gate.expert[i] = own.up.expert[i] = own.down.expert[i] = nullptr;
    }
    if (on.device().host() != nullptr) {
        own.is_on_device = is_on_device.data();
        return own;
    }
    std::vector<backend::ExpertPlace> places = backend::places_of(own);
    for (backend::ExpertPlace& place : places) {
        if (place.gate != nullptr) continue;
        place.up = place.down = std::bit_cast<const std::byte*>(uintptr_t{16});
        place.gate_scale = place.up_scale = place.down_scale = NAN;
    }
    own.places = on.put(places);
    return own;
}

// Returns y after experts() on some of the experts, from `before` on.
template <typename Has>
std::vector<float> experts_on_rank(RankDevice& on, const backend::ExpertWeights& all, const ExpertRows& rows,
                                   const Has& has, const std::vector<float>& before, bool add,
                                   int64_t chunk) {
    std::vector<uint8_t> is_on_device;
    const backend::ExpertWeights own = experts_of_rank(on, all, has, is_on_device);
    const float* h = on.put(rows.h);
    const int32_t* ids = on.put(rows.ids);
    const float* gates = on.put(rows.gates);
    float* y = on.put(before);
    for (int64_t first = 0; first < rows.n; first += chunk) {
        const int64_t slot = first * rows.n_used;
        on.device().experts(on.scratch(), h + first * rows.hidden, std::min(chunk, rows.n - first),
                            ids + slot, gates + slot, rows.n_used, own, y + first * rows.hidden, add);
    }
    return on.get(y, before.size());
}

// Returns the sum over n_groups ranks in rank order; rank r has the experts e with e % n_groups == r. Rank 0 adds to y, the
// others overwrite NaN.
inline std::vector<float> experts_on_ranks(RankDevice& on, const backend::ExpertWeights& all,
                                           const ExpertRows& rows, int64_t n_groups, int64_t chunk) {
    const std::vector<float> nothing(rows.before.size(), NAN);
    std::vector<float> sum;
    for (int64_t r = 0; r < n_groups; ++r) {
        const auto has = [&](int64_t e) { return e % n_groups == r; };
        const std::vector<float> own =
            experts_on_rank(on, all, rows, has, r == 0 ? rows.before : nothing, r == 0, chunk);
        if (r == 0) {
            sum = own;
        } else {
            add_to(sum, own);
        }
    }
    return sum;
}

// Returns the largest difference in proportion to the largest value; infinity if one is no number.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 1e-30;
    double difference = a.size() == b.size() ? 0.0 : INFINITY;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
        const double off = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        difference = std::isnan(off) ? INFINITY : std::max(difference, off);
    }
    return difference / largest;
}

}  // namespace minim::test
