// SPDX-License-Identifier: Apache-2.0
#include "reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <Eigen/Core>

#include "backend/hadamard.h"
#include "backend/host_device.h"
#include "format/encode.h"

namespace minim::reference {
namespace {

using backend::AttendArgs;
using backend::ExpertWeights;
using backend::KvLayout;
using backend::KvRow;
using backend::LinearTask;
using backend::Matrix;
using backend::Scratch;
using backend::Vector;

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

RowMatrix decoded(const Matrix& weight) {
    RowMatrix w(weight.rows, weight.cols);
    const FormatTraits& format = traits(weight.format);
    for (int64_t r = 0; r < weight.rows; ++r) {
        format.decode_row(weight.data + r * weight.row_bytes, weight.cols, w.data() + r * weight.cols);
    }
    if (weight.scale != 1.0F) w *= weight.scale;
    return w;
}

// y [n, rows] = h [n, cols] times the transposed weight. One product for each row, of operands that lie alike in memory: Eigen's
// product of matrices adds in an order that depends on the number of rows, and the bits would depend on how a prompt is cut.
RowMatrix multiply(const float* h, int64_t n, const Matrix& weight) {
    const RowMatrix w = decoded(weight);
    RowMatrix y(n, weight.rows);
    Eigen::VectorXf input(weight.cols);
    Eigen::VectorXf output(weight.rows);
    for (int64_t i = 0; i < n; ++i) {
        input = Eigen::Map<const Eigen::VectorXf>(h + i * weight.cols, weight.cols);
        output.noalias() = w * input;
        y.row(i) = output.transpose();
    }
    return y;
}

float sigmoid(float z) {
    return 1.0F / (1.0F + std::exp(-z));
}

float activated_of(float gate, float up, const backend::Activation& activation) {
    if (activation.limit == 0.0F) return gate * sigmoid(gate) * up;
    const float g = std::min(gate, activation.limit);  // the first argument if it is NaN
    const float u = std::clamp(up, -activation.limit, activation.limit);
    return g * sigmoid(activation.alpha * g) * (u + 1.0F);
}

double sum_squares(const float* x, int64_t size) {
    double sum = 0.0;
    for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
}

void normalise(const float* x, double mean, const Vector& weight, float eps, float* h) {
    const auto factor = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
    for (int64_t i = 0; i < weight.size; ++i) h[i] = x[i] * factor * weight.data[i];
}

void rms_norm(const float* x, const Vector& weight, float eps, float* h) {
    normalise(x, sum_squares(x, weight.size) / static_cast<double>(weight.size), weight, eps, h);
}

// Normalises q and k of a row with the mean squares of the heads of all ranks.
void normalise_divided(const AttendArgs& args, const float* squares, float* q, float* k) {
    const auto mean = [&](float sum, int64_t n_head_all) {
        return static_cast<double>(sum) / static_cast<double>(n_head_all * args.head_dim);
    };
    normalise(q, mean(squares[0], args.n_head_all), args.q_norm, args.norm_eps, q);
    normalise(k, mean(squares[1], args.n_head_kv_all), args.k_norm, args.norm_eps, k);
}

// Rotates the pairs (i, i + m) of one head, m = number of frequencies; the components from 2m on pass
// unchanged.
void rotate(float* head, int64_t position, std::span<const float> frequency) {
    const size_t m = frequency.size();
    for (size_t i = 0; i < m; ++i) {
        const double angle = static_cast<double>(position) * static_cast<double>(frequency[i]);
        const auto cosine = static_cast<float>(std::cos(angle));
        const auto sine = static_cast<float>(std::sin(angle));
        const float a = head[i];
        const float b = head[i + m];
        head[i] = a * cosine - b * sine;
        head[i + m] = b * cosine + a * sine;
    }
}

// Returns the address of a position in a run of token_bytes for each slot, at `offset` of each page.
std::byte* slot_of(const KvRow& row, int64_t position, int64_t offset, int64_t token_bytes) {
    std::byte* page = row.sequence->pages[position / backend::k_kv_page_tokens];
    return page + offset + position % backend::k_kv_page_tokens * token_bytes;
}

// Returns K or V of one head at some positions: [positions, head_dim].
RowMatrix gather(const KvRow& row, bool keys, int64_t layer, int64_t head,
                 std::span<const int64_t> positions) {
    const KvLayout& layout = *row.sequence->layout;
    const Format format = keys ? layout.k_format : layout.v_format;
    const int64_t offset = keys ? layout.k_offset(layer, head) : layout.v_offset(layer, head);
    const int64_t token_bytes = keys ? layout.k_token_bytes() : layout.v_token_bytes();
    RowMatrix values(std::ssize(positions), layout.head_dim);
    float* value = values.data();
    for (const int64_t position : positions) {
        traits(format).decode_row(slot_of(row, position, offset, token_bytes), layout.head_dim, value);
        value += layout.head_dim;
    }
    return values;
}

void store_row(const AttendArgs& args, int64_t i) {
    const KvRow& row = args.rows[i];
    const KvLayout& layout = *row.sequence->layout;
    std::byte* page = row.sequence->pages[row.position / backend::k_kv_page_tokens];
    const int64_t slot = row.position % backend::k_kv_page_tokens;
    for (int64_t head = 0; head < args.n_head_kv; ++head) {
        const int64_t at = (i * args.n_head_kv + head) * args.head_dim;
        row_encoder(layout.k_format)(
            args.k + at, args.head_dim,
            page + layout.k_offset(args.layer, head) + slot * layout.k_token_bytes());
        row_encoder(layout.v_format)(
            args.v + at, args.head_dim,
            page + layout.v_offset(args.layer, head) + slot * layout.v_token_bytes());
    }
}

// Normalises and rotates the index queries and the index key of row i, and stores the key.
void store_index(const AttendArgs& args, int64_t i) {
    const backend::IndexArgs& index = *args.index;
    const KvRow& row = args.rows[i];
    const KvLayout& layout = *row.sequence->layout;
    const int64_t dim = index.shape.dim;
    const auto prepare = [&](float* head, const Vector& weight) {
        rms_norm(head, weight, args.norm_eps, head);
        rotate(head, row.position, args.rope_frequency);
    };
    for (int64_t head = 0; head < index.shape.n_head; ++head)
        prepare(index.q + (i * index.shape.n_head + head) * dim, index.q_norm);
    prepare(index.k + i * dim, index.k_norm);
    row_encoder(layout.index_format)(
        index.k + i * dim, dim,
        slot_of(row, row.position, layout.index_offset(args.layer), layout.index_token_bytes()));
}

// Returns the score of each block that row i sees, for an index head.
std::vector<float> block_scores(const AttendArgs& args, int64_t i, int64_t head) {
    const backend::IndexArgs& index = *args.index;
    const KvRow& row = args.rows[i];
    const KvLayout& layout = *row.sequence->layout;
    const int64_t dim = index.shape.dim;
    const Eigen::Map<const Eigen::VectorXf> query(index.q + (i * index.shape.n_head + head) * dim, dim);
    std::vector<float> scores(row.position / index.shape.block + 1, -std::numeric_limits<float>::infinity());
    Eigen::VectorXf key(dim);
    for (int64_t p = 0; p <= row.position; ++p) {
        traits(layout.index_format)
            .decode_row(slot_of(row, p, layout.index_offset(args.layer), layout.index_token_bytes()), dim,
                        key.data());
        const float product = query.dot(key);
        float& score = scores[p / index.shape.block];
        if (product > score) score = product;  // false for NaN
    }
    return scores;
}

// Returns the positions of the blocks that row i attends to with the query heads of an index head.
std::vector<int64_t> chosen_positions(const AttendArgs& args, int64_t i, int64_t head) {
    const backend::SparseAttention& shape = args.index->shape;
    const int64_t n_positions = args.rows[i].position + 1;
    const std::vector<float> scores = block_scores(args, i, head);
    const auto n_blocks = std::ssize(scores);
    std::vector<int64_t> blocks(n_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    // The own block and those before it are first, then the first blocks, then the highest scores.
    const auto rank = [&](int64_t block) {
        if (block >= n_blocks - shape.local) return 0;
        return block < shape.init ? 1 : 2;
    };
    std::ranges::stable_sort(blocks, [&](int64_t a, int64_t b) {
        if (rank(a) != rank(b)) return rank(a) < rank(b);
        if (rank(a) == 0) return a > b;
        return rank(a) == 2 && scores[a] > scores[b];
    });
    blocks.resize(std::min(n_blocks, shape.top));
    std::ranges::sort(blocks);
    std::vector<int64_t> positions;
    for (const int64_t block : blocks)
        for (int64_t p = block * shape.block; p < std::min((block + 1) * shape.block, n_positions); ++p)
            positions.push_back(p);
    return positions;
}

void attend_row(const AttendArgs& args, int64_t i) {
    const KvRow& row = args.rows[i];
    std::vector<int64_t> positions(row.position + 1);
    std::iota(positions.begin(), positions.end(), 0);
    const int64_t group = args.n_head / args.n_head_kv;
    const float scale = 1.0F / std::sqrt(static_cast<float>(args.head_dim));
    for (int64_t head_kv = 0; head_kv < args.n_head_kv; ++head_kv) {
        if (args.index != nullptr) positions = chosen_positions(args, i, head_kv);
        const RowMatrix keys = gather(row, true, args.layer, head_kv, positions);
        const RowMatrix values = gather(row, false, args.layer, head_kv, positions);
        for (int64_t head = head_kv * group; head < (head_kv + 1) * group; ++head) {
            const int64_t at = (i * args.n_head + head) * args.head_dim;
            const Eigen::VectorXf query = Eigen::Map<const Eigen::VectorXf>(args.q + at, args.head_dim);
            Eigen::VectorXf score = keys * query * scale;
            score = (score.array() - score.maxCoeff()).exp().matrix();
            score /= score.sum();
            Eigen::Map<Eigen::VectorXf>(args.o + at, args.head_dim) = values.transpose() * score;
        }
    }
}

// y += gate * output, slot after slot of each row; slots for which is_added(slot) is false add nothing.
template <typename IsAdded>
void add_outputs(const float* out, const float* gates, int64_t n, int64_t n_used, int64_t hidden, float* y,
                 const IsAdded& is_added) {
    const Eigen::Map<const RowMatrix> output(out, n * n_used, hidden);
    for (int64_t i = 0; i < n; ++i) {
        Eigen::Map<Eigen::RowVectorXf> row(y + i * hidden, hidden);
        for (int64_t slot = i * n_used; slot < (i + 1) * n_used; ++slot)
            if (is_added(slot)) row += gates[slot] * output.row(slot);
    }
}

class ReferenceScratch : public Scratch {};

class ReferenceBackend : public backend::HostDevice {
  public:
    explicit ReferenceBackend(const HostMemory& memory) : memory_(nullptr, memory.locks()) {}

    std::string_view name() const noexcept override { return "reference"; }
    const HostMemory& host_memory() const noexcept override { return memory_; }

    std::unique_ptr<Scratch> reserve(const backend::StepLimits&) const override {
        return std::make_unique<ReferenceScratch>();
    }
    uint64_t step_bytes(const backend::StepLimits&) const override { return 0; }

    void embed(Scratch&, const Matrix& table, std::span<const int32_t> ids, float* x) const override {
        for (size_t i = 0; i < ids.size(); ++i) {
            float* row = x + static_cast<int64_t>(i) * table.cols;
            traits(table.format).decode_row(table.data + ids[i] * table.row_bytes, table.cols, row);
            for (int64_t c = 0; c < table.cols; ++c) row[c] *= table.scale;
        }
    }

    void norm(Scratch&, const float* x, int64_t n, const Vector& weight, float eps, float* h) const override {
        for (int64_t i = 0; i < n; ++i) rms_norm(x + i * weight.size, weight, eps, h + i * weight.size);
    }

    void linear(Scratch&, const float* h, int64_t n, std::span<const LinearTask> tasks) const override {
        for (const LinearTask& task : tasks) {
            Eigen::Map<RowMatrix> y(task.y, n, task.weight->rows);
            if (task.add) {
                y += multiply(h, n, *task.weight);
            } else {
                y = multiply(h, n, *task.weight);
            }
        }
    }

    void head_squares(Scratch&, const AttendArgs& args, float* squares) const override {
        const int64_t q_size = args.n_head * args.head_dim;
        const int64_t k_size = args.n_head_kv * args.head_dim;
        for (int64_t i = 0; i < args.n; ++i) {
            squares[2 * i] = static_cast<float>(sum_squares(args.q + i * q_size, q_size));
            squares[2 * i + 1] = static_cast<float>(sum_squares(args.k + i * k_size, k_size));
        }
    }

    void attend(Scratch&, const AttendArgs& args) const override {
        for (int64_t i = 0; i < args.n; ++i) {
            float* q = args.q + i * args.n_head * args.head_dim;
            float* k = args.k + i * args.n_head_kv * args.head_dim;
            const int64_t position = args.rows[i].position;
            const auto norm = [&](float* heads, int64_t n_head, const Vector& weight) {
                for (int64_t at = 0; at < n_head * args.head_dim; at += weight.size)
                    rms_norm(heads + at, weight, args.norm_eps, heads + at);
            };
            if (args.squares != nullptr) {
                normalise_divided(args, args.squares + 2 * i, q, k);
            } else {
                norm(q, args.n_head, args.q_norm);
                norm(k, args.n_head_kv, args.k_norm);
            }
            for (int64_t head = 0; head < args.n_head; ++head)
                rotate(q + head * args.head_dim, position, args.rope_frequency);
            for (int64_t head = 0; head < args.n_head_kv; ++head)
                rotate(k + head * args.head_dim, position, args.rope_frequency);
            if (args.rows[i].sequence->layout->rotates_keys()) {
                backend::hadamard_rows(q, args.n_head, args.head_dim);
                backend::hadamard_rows(k, args.n_head_kv, args.head_dim);
            }
            store_row(args, i);
            if (args.index != nullptr) store_index(args, i);
            attend_row(args, i);
        }
    }

    void route(Scratch&, const float* h, int64_t n, const Matrix& router, const Vector& bias, int64_t n_used,
               int32_t* ids, float* gates) const override {
        const RowMatrix score = multiply(h, n, router).unaryExpr(&sigmoid);
        std::vector<int32_t> order(router.rows);
        for (int64_t i = 0; i < n; ++i) {
            // NaN sorts last: comparisons with NaN itself would not define an order.
            const auto biased = [&](int32_t e) {
                const float sum = score(i, e) + (bias.size > 0 ? bias.data[e] : 0.0F);
                return std::isnan(sum) ? -std::numeric_limits<float>::infinity() : sum;
            };
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(),
                             [&](int32_t a, int32_t b) { return biased(a) > biased(b); });
            float total = 0.0F;
            for (int64_t s = 0; s < n_used; ++s) total += score(i, order[s]);
            total = std::max(total, 0x1p-14F);
            for (int64_t s = 0; s < n_used; ++s) {
                const int32_t expert = order[s];
                ids[i * n_used + s] = expert;
                gates[i * n_used + s] = score(i, expert) / total;
            }
        }
    }

    void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y, bool add) const override {
        const int64_t hidden = weights.gate.cols;
        RowMatrix output(n * n_used, hidden);
        expert_slots(scratch, h, n, ids, n_used, weights, output.data());
        if (!add) std::fill_n(y, n * hidden, 0.0F);
        add_outputs(output.data(), gates, n, n_used, hidden, y,
                    [&](int64_t slot) { return weights.is_here(ids[slot]); });
    }

    void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                      const ExpertWeights& weights, float* out) const override {
        observe_slots(scratch, h, n, ids, n_used, weights, nullptr, out);
    }

    bool observes_slots() const noexcept override { return true; }

    // Computes one expert at a time, for all rows that chose it, so that each matrix is decoded once per call. `middle` may be
    // null.
    void observe_slots(Scratch&, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                       const ExpertWeights& weights, float* middle, float* out) const override {
        const int64_t hidden = weights.gate.cols;
        Eigen::Map<RowMatrix> output(out, n * n_used, hidden);  // row i * n_used + s
        for (int64_t e = 0; e < weights.n_expert(); ++e) {
            if (!weights.is_here(e)) continue;
            std::vector<int64_t> slots;
            for (int64_t slot = 0; slot < n * n_used; ++slot) {
                if (ids[slot] == e) slots.push_back(slot);
            }
            if (slots.empty()) continue;
            const auto count = static_cast<int64_t>(slots.size());
            RowMatrix input(count, hidden);
            for (int64_t i = 0; i < count; ++i) {
                input.row(i) = Eigen::Map<const Eigen::RowVectorXf>(h + slots[i] / n_used * hidden, hidden);
            }
            const RowMatrix gate = multiply(input.data(), count, weights.gate.matrix(e));
            const RowMatrix up = multiply(input.data(), count, weights.up.matrix(e));
            const RowMatrix activated =
                gate.binaryExpr(up, [&](float g, float u) { return activated_of(g, u, weights.activation); });
            const RowMatrix result = multiply(activated.data(), count, weights.down.matrix(e));
            for (int64_t i = 0; i < count; ++i) output.row(slots[i]) = result.row(i);
            for (int64_t i = 0; i < count && middle != nullptr; ++i)
                std::copy_n(activated.data() + i * activated.cols(), activated.cols(),
                            middle + slots[i] * activated.cols());
        }
    }

    void add_slots(Scratch&, const float* out, const float* gates, int64_t n, int64_t n_used, int64_t hidden,
                   float* y) const override {
        add_outputs(out, gates, n, n_used, hidden, y, [](int64_t) { return true; });
    }

  private:
    const HostMemory memory_;
};

}  // namespace

std::unique_ptr<backend::HostDevice> make_reference_backend(const HostMemory& memory) {
    return std::make_unique<ReferenceBackend>(memory);
}

}  // namespace minim::reference
