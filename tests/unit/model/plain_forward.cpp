// SPDX-License-Identifier: Apache-2.0
#include "plain_forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace minim::test {
namespace {

using Row = std::vector<double>;

class PlainForward {
  public:
    PlainForward(const TinyModel& model, Mistake mistake, double gate_scale)
        : model_(model), s_(model.shape), mistake_(mistake), gate_scale_(gate_scale) {}

    std::vector<double> logits(std::span<const int32_t> ids) {
        std::vector<Row> x;
        for (const int32_t id : ids) x.push_back(weight_row("token_embd.weight", id, s_.hidden));
        for (int64_t layer = 0; layer < s_.n_layer; ++layer) {
            blk_ = "blk." + std::to_string(layer) + ".";
            add_attention(x);
            for (Row& row : x) add_experts(row);
        }
        std::vector<double> all;
        for (const Row& row : x) {
            const Row h = is(Mistake::no_final_norm) ? row : norm(row, model_.values("output_norm.weight"));
            const char* head = is(Mistake::tied_head) ? "token_embd.weight" : "output.weight";
            const Row y = multiply(model_.values(head), 0, s_.n_vocab, h);
            all.insert(all.end(), y.begin(), y.end());
        }
        return all;
    }

  private:
    bool is(Mistake mistake) const { return mistake_ == mistake; }
    const std::vector<float>& weight(const std::string& name) const { return model_.values(blk_ + name); }

    Row weight_row(const std::string& name, int64_t index, int64_t size) const {
        const float* first = model_.values(name).data() + index * size;
        return {first, first + size};
    }

    // Returns y = W x, where W is `rows` rows of w from `first_row` on.
    static Row multiply(const std::vector<float>& w, int64_t first_row, int64_t rows, const Row& x) {
        Row y(static_cast<size_t>(rows), 0.0);
        for (size_t r = 0; r < y.size(); ++r) {
            const float* row = w.data() + (static_cast<size_t>(first_row) + r) * x.size();
            for (size_t c = 0; c < x.size(); ++c) y[r] += static_cast<double>(row[c]) * x[c];
        }
        return y;
    }

    // Returns the RMS norm over the whole of v, or over pieces of it, for the mistake of a norm for each head.
    Row norm(const Row& v, const std::vector<float>& gain, size_t piece = 0) const {
        const double eps = is(Mistake::larger_epsilon) ? 1e-5 : static_cast<double>(s_.norm_eps);
        const size_t size = piece == 0 ? v.size() : piece;
        Row out(v.size());
        for (size_t first = 0; first < v.size(); first += size) {
            double sum = 0.0;
            for (size_t i = first; i < first + size; ++i) sum += v[i] * v[i];
            const double root = std::sqrt(sum / static_cast<double>(size) + eps);
            for (size_t i = first; i < first + size; ++i) out[i] = static_cast<double>(gain[i]) * v[i] / root;
        }
        return out;
    }

    void rotate(Row& heads, int64_t position) const {
        const auto head_dim = static_cast<size_t>(s_.head_dim);
        const auto width =
            static_cast<size_t>(is(Mistake::rotation_of_whole_head) ? s_.head_dim : s_.rotary_dim);
        const auto divisor = static_cast<double>(is(Mistake::frequency_over_head_dim) ? head_dim : width);
        for (size_t head = 0; head < heads.size(); head += head_dim) {
            for (size_t i = 0; i < width / 2; ++i) {
                const double theta = static_cast<double>(position) *
                                     std::pow(s_.rope_theta, -2.0 * static_cast<double>(i) / divisor);
                const bool adjacent = is(Mistake::adjacent_pairs);
                double& first = heads[head + (adjacent ? 2 * i : i)];
                double& second = heads[head + (adjacent ? 2 * i + 1 : i + width / 2)];
                const double a = first;
                const double b = second;
                first = a * std::cos(theta) - b * std::sin(theta);
                second = b * std::cos(theta) + a * std::sin(theta);
            }
        }
    }

    Row normed_and_rotated(const Row& heads, const std::vector<float>& gain, int64_t position) const {
        if (is(Mistake::qk_norm_after_rotation)) {
            Row out = heads;
            rotate(out, position);
            return norm(out, gain);
        }
        Row out = norm(heads, gain, is(Mistake::qk_norm_per_head) ? static_cast<size_t>(s_.head_dim) : 0);
        rotate(out, position);
        return out;
    }

    void add_attention(std::vector<Row>& x) const {
        std::vector<Row> q, k, v;
        for (size_t t = 0; t < x.size(); ++t) {
            const auto position = static_cast<int64_t>(t);
            const Row h = norm(x[t], weight("attn_norm.weight"));
            const int64_t q_rows = s_.n_head * s_.head_dim;
            const int64_t kv_rows = s_.n_head_kv * s_.head_dim;
            q.push_back(normed_and_rotated(multiply(weight("attn_q.weight"), 0, q_rows, h),
                                           weight("attn_q_norm.weight"), position));
            k.push_back(normed_and_rotated(multiply(weight("attn_k.weight"), 0, kv_rows, h),
                                           weight("attn_k_norm.weight"), position));
            v.push_back(multiply(weight("attn_v.weight"), 0, kv_rows, h));
        }
        for (size_t t = 0; t < x.size(); ++t) {
            const size_t n_seen = is(Mistake::not_causal) ? x.size() : t + 1;
            const Row o = attend(q[t], k, v, n_seen);
            const Row y = multiply(weight("attn_output.weight"), 0, s_.hidden, o);
            for (size_t c = 0; c < y.size(); ++c) x[t][c] += y[c];
        }
    }

    Row attend(const Row& q, const std::vector<Row>& k, const std::vector<Row>& v, size_t n_seen) const {
        const auto head_dim = static_cast<size_t>(s_.head_dim);
        const double scale =
            1.0 /
            std::sqrt(static_cast<double>(is(Mistake::scale_by_rotary_dim) ? s_.rotary_dim : s_.head_dim));
        Row out(q.size(), 0.0);
        for (int64_t head = 0; head < s_.n_head; ++head) {
            const int64_t kv_head =
                is(Mistake::kv_head_by_modulo) ? head % s_.n_head_kv : head / (s_.n_head / s_.n_head_kv);
            const size_t q_at = static_cast<size_t>(head) * head_dim;
            const size_t kv_at = static_cast<size_t>(kv_head) * head_dim;
            Row p(n_seen, 0.0);
            for (size_t t = 0; t < n_seen; ++t) {
                for (size_t c = 0; c < head_dim; ++c) p[t] += q[q_at + c] * k[t][kv_at + c] * scale;
            }
            const double largest = *std::max_element(p.begin(), p.end());
            for (double& score : p) score = std::exp(score - largest);
            const double sum = std::accumulate(p.begin(), p.end(), 0.0);
            for (size_t t = 0; t < n_seen; ++t) {
                for (size_t c = 0; c < head_dim; ++c) out[q_at + c] += p[t] / sum * v[t][kv_at + c];
            }
        }
        return out;
    }

    static double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

    void add_experts(Row& x) const {
        const Row h = norm(x, weight("ffn_norm.weight"));
        const auto n_expert = static_cast<int64_t>(weight("exp_probs_b.bias").size());
        Row score = multiply(weight("ffn_gate_inp.weight"), 0, n_expert, h);
        for (double& value : score) value = sigmoid(value);
        Row choice = score;
        if (!is(Mistake::bias_dropped)) {
            for (size_t e = 0; e < choice.size(); ++e)
                choice[e] += static_cast<double>(weight("exp_probs_b.bias")[e]);
        }
        std::vector<size_t> order(choice.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return choice[a] > choice[b]; });
        order.resize(static_cast<size_t>(s_.n_expert_used));

        const Row& gate_source = is(Mistake::gates_from_biased_scores) ? choice : score;
        double sum = 0.0;
        for (const size_t e : order) sum += gate_source[e];
        if (is(Mistake::gates_not_renormalised)) sum = 1.0;
        Row y(x.size(), 0.0);
        for (const size_t e : order) {
            const Row out = expert(static_cast<int64_t>(e), h);
            for (size_t c = 0; c < y.size(); ++c) y[c] += gate_scale_ * gate_source[e] / sum * out[c];
        }
        for (size_t c = 0; c < x.size(); ++c) x[c] += y[c];
    }

    Row expert(int64_t e, const Row& h) const {
        Row gate = multiply(weight("ffn_gate_exps.weight"), e * s_.expert_ff, s_.expert_ff, h);
        Row up = multiply(weight("ffn_up_exps.weight"), e * s_.expert_ff, s_.expert_ff, h);
        if (is(Mistake::gate_and_up_swapped)) std::swap(gate, up);
        for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
        return multiply(weight("ffn_down_exps.weight"), e * s_.hidden, s_.hidden, gate);
    }

    const TinyModel& model_;
    const TinyShape& s_;
    Mistake mistake_;
    double gate_scale_;
    std::string blk_;
};

}  // namespace

std::string_view name_of(Mistake mistake) {
    constexpr std::string_view k_names[] = {
        "none",
        "correction bias dropped",
        "gates from biased scores",
        "gates not renormalised",
        "QK-norm per head",
        "QK-norm after rotation",
        "adjacent rotary pairs",
        "rotation of the whole head",
        "frequency exponent over the head",
        "gate and up swapped",
        "scores scaled by the rotary width",
        "KV head by modulo",
        "epsilon of 1e-5",
        "no final norm",
        "tied head",
        "no causal mask",
    };
    static_assert(std::size(k_names) == static_cast<size_t>(Mistake::count_));
    return k_names[static_cast<size_t>(mistake)];
}

std::vector<double> plain_logits(const TinyModel& model, std::span<const int32_t> ids, Mistake mistake,
                                 double gate_scale) {
    return PlainForward(model, mistake, gate_scale).logits(ids);
}

}  // namespace minim::test
