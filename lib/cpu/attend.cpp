#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "cpu/kernel_tables.h"
#include "cpu/operations.h"

namespace minim::cpu {
namespace {

using backend::AttendArgs;
using backend::k_kv_page_tokens;
using backend::KvLayout;
using backend::KvRow;

// One product of position and frequency an angle, in double: near the end of the context a float angle is off
// by 0.005.
void find_rotation(int64_t position, std::span<const float> frequency, float* cosine, float* sine) {
    for (size_t i = 0; i < frequency.size(); ++i) {
        const double angle = static_cast<double>(position) * static_cast<double>(frequency[i]);
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(std::sin(angle));
    }
}

// Pairs (i, i + m) of each head, m frequencies; components from 2m on pass unchanged.
void rotate_heads(float* heads, int64_t n_head, int64_t head_dim, int64_t m, const float* cosine,
                  const float* sine) {
    for (int64_t head = 0; head < n_head; ++head) {
        float* first = heads + head * head_dim;
        float* second = first + m;
        for (int64_t i = 0; i < m; ++i) {
            const float a = first[i];
            const float b = second[i];
            first[i] = a * cosine[i] - b * sine[i];
            second[i] = b * cosine[i] + a * sine[i];
        }
    }
}

void store(const KernelTable& kernels, Format format, const float* values, int64_t count, std::byte* out) {
    if (format == Format::f32) {
        std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    } else {
        kernels.narrow_f16(values, count, out);
    }
}

// Normalises and rotates q and k of row i, and puts k and v into the row's page.
void prepare_row(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args, int64_t i,
                 int32_t thread) {
    const KvRow& row = args.rows[static_cast<size_t>(i)];
    const KvLayout& layout = *row.sequence->layout;
    assert(row.position < scratch.limits.n_context);
    float* q = args.q + i * args.n_head * args.head_dim;
    float* k = args.k + i * args.n_head_kv * args.head_dim;
    const float* v = args.v + i * args.n_head_kv * args.head_dim;
    machine.kernels.rms_norm(q, args.q_norm.size, args.q_norm.data, args.norm_eps, q);
    machine.kernels.rms_norm(k, args.k_norm.size, args.k_norm.data, args.norm_eps, k);

    const auto m = static_cast<int64_t>(args.rope_frequency.size());
    float* cosine = scratch.rotation + thread * scratch.limits.head_dim;
    float* sine = cosine + m;
    find_rotation(row.position, args.rope_frequency, cosine, sine);
    rotate_heads(q, args.n_head, args.head_dim, m, cosine, sine);
    rotate_heads(k, args.n_head_kv, args.head_dim, m, cosine, sine);

    std::byte* page = row.sequence->pages[static_cast<size_t>(row.position / k_kv_page_tokens)];
    const int64_t slot = row.position % k_kv_page_tokens;
    for (int64_t head = 0; head < args.n_head_kv; ++head) {
        std::byte* k_slot = page + layout.k_offset(args.layer, head) + slot * layout.k_token_bytes();
        std::byte* v_slot = page + layout.v_offset(args.layer, head) + slot * layout.v_token_bytes();
        store(machine.kernels, layout.k_format, k + head * args.head_dim, args.head_dim, k_slot);
        store(machine.kernels, layout.v_format, v + head * args.head_dim, args.head_dim, v_slot);
    }
}

// The query heads that share one KV head, for one row: the unit of parallel work. Each page is read once for
// the group.
struct HeadGroup {
    const KvRow& row;
    const KvLayout& layout;
    int64_t layer;
    int64_t head_kv;
    int64_t n_heads;
    int64_t head_dim;
    float* scores;  // [n_heads] rows of `stride` floats
    int64_t stride;

    int64_t n_positions() const { return row.position + 1; }
    // Positions of the page that starts at position `first`.
    int64_t n_in_page(int64_t first) const { return std::min(k_kv_page_tokens, n_positions() - first); }
    const std::byte* page(int64_t first) const {
        return row.sequence->pages[static_cast<size_t>(first / k_kv_page_tokens)];
    }
};

// Scores are a linear whose weights are the keys of a page and whose tokens are the query heads.
void find_scores(const KernelTable& kernels, const HeadGroup& group, const float* q) {
    LinearArgs args = {};
    args.row_bytes = group.layout.k_token_bytes();
    args.cols = group.head_dim;
    args.scale = 1.0F / std::sqrt(static_cast<float>(group.head_dim));
    args.input = reinterpret_cast<const std::byte*>(q);
    args.input_row_bytes = group.head_dim * static_cast<int64_t>(sizeof(float));
    args.n_tokens = group.n_heads;
    args.y_stride = group.stride;
    const LinearKernel& kernel = *linear_kernel(kernels, group.layout.k_format);
    for (int64_t first = 0; first < group.n_positions(); first += k_kv_page_tokens) {
        args.weight = group.page(first) + group.layout.k_offset(group.layer, group.head_kv);
        args.n_rows = group.n_in_page(first);
        args.y = group.scores + first;
        kernel.run(args);
    }
}

// o = sum over positions, in their order, of score * v: neither pages nor batches show in the result.
void sum_values(const KernelTable& kernels, const HeadGroup& group, float* o) {
    std::fill_n(o, group.n_heads * group.head_dim, 0.0F);
    WeightedSumArgs args = {};
    args.row_bytes = group.layout.v_token_bytes();
    args.cols = group.head_dim;
    args.weight_stride = group.stride;
    args.n_sums = group.n_heads;
    args.y = o;
    args.y_stride = group.head_dim;
    const auto run =
        group.layout.v_format == Format::f16 ? kernels.weighted_sum_f16 : kernels.weighted_sum_f32;
    for (int64_t first = 0; first < group.n_positions(); first += k_kv_page_tokens) {
        args.rows = group.page(first) + group.layout.v_offset(group.layer, group.head_kv);
        args.n_rows = group.n_in_page(first);
        args.weight = group.scores + first;
        run(args);
    }
}

void attend_group(const Machine& machine, const CpuScratch& scratch, const AttendArgs& args, int64_t i,
                  int64_t head_kv, int32_t thread) {
    const KvRow& row = args.rows[static_cast<size_t>(i)];
    const int64_t n_heads = args.n_head / args.n_head_kv;
    const int64_t stride = scratch.limits.n_context;
    const HeadGroup group = {.row = row,
                             .layout = *row.sequence->layout,
                             .layer = args.layer,
                             .head_kv = head_kv,
                             .n_heads = n_heads,
                             .head_dim = args.head_dim,
                             .scores = scratch.scores + thread * n_heads * stride,
                             .stride = stride};
    const int64_t first_head = (i * args.n_head + head_kv * n_heads) * args.head_dim;
    float* sums = scratch.score_sums + thread * n_heads;
    float* o = args.o + first_head;
    find_scores(machine.kernels, group, args.q + first_head);
    for (int64_t head = 0; head < n_heads; ++head) {
        sums[head] = machine.kernels.softmax_exp(group.scores + head * stride, group.n_positions());
    }
    sum_values(machine.kernels, group, o);
    for (int64_t head = 0; head < n_heads; ++head) {
        for (int64_t c = 0; c < args.head_dim; ++c) o[head * args.head_dim + c] /= sums[head];
    }
}

}  // namespace

void attend(const Machine& machine, CpuScratch& scratch, const AttendArgs& args) {
    assert(args.n <= scratch.limits.n_rows);
    // Rows of one sequence see each other through the cache: all are stored before the first is attended.
    machine.pool.run(args.n,
                     [&](int64_t i, int32_t thread) { prepare_row(machine, scratch, args, i, thread); });
    machine.pool.run(args.n * args.n_head_kv, [&](int64_t task, int32_t thread) {
        attend_group(machine, scratch, args, task / args.n_head_kv, task % args.n_head_kv, thread);
    });
}

}  // namespace minim::cpu
