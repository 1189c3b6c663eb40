// SPDX-License-Identifier: Apache-2.0
// Attention over long contexts: the fast kernels beside exact ones on the same GPU, and once beside the CPU. Then the
// top-k of rows of logits.
#include <cmath>
#include <cstring>
#include <string>

#include "base/format_text.h"
#include "base/half.h"
#include "gpu/selfcheck/report.h"
#include "gpu/selfcheck/rig.h"
#include "kv/sequence.h"
#include "runtime/top_k_space.h"
#include "support/top_k.h"

namespace minim::selfcheck {
namespace {

using backend::KvLayout;

double expected_error(Format format) {
    if (format == Format::f16) return 2e-3;
    return format == Format::f32 ? 2e-3 : 1e-2;  // queries and weights are halves
}

// The KV cache of sequences in a device's memory: pages that differ, the same on every device.
class Cache {
  public:
    Cache(Device& device, const KvLayout& layout, int64_t n_sequences, int64_t n_context)
        : pool_(std::make_shared<kv::PagePool>(
              layout, std::vector<kv::DeviceLayers>{{device.shared(), layout.n_layer}})) {
        const std::vector<std::vector<std::byte>> contents = page_contents(layout);
        pool_->keep_pages(n_sequences * kv::page_count(n_context));
        sequences_.reserve(static_cast<size_t>(n_sequences));
        for (int64_t s = 0; s < n_sequences; ++s) {
            kv::Sequence& sequence = sequences_.emplace_back(pool_, n_context);
            sequence.hold(0, n_context);
            for (int64_t i = 0; i < sequence.n_pages(); ++i)
                pool_->write(sequence.page(i),
                             contents[static_cast<size_t>(s * 3 + i) % contents.size()].data());
        }
    }

    const backend::KvSequence& view(size_t sequence) const { return sequences_[sequence].view(); }

  private:
    // Returns pages of numbers of about 1.
    static std::vector<std::vector<std::byte>> page_contents(const KvLayout& layout) {
        test::Random random(11);
        std::vector<std::vector<std::byte>> pages;
        const FormatTraits& f = traits(layout.k_format);
        const int64_t cols = layout.page_bytes() / f.block_bytes * f.block_elems;
        for (int i = 0; i < 7; ++i) {
            const test::TestMatrix page(f.format, 1, cols, random);
            pages.push_back(page.bytes);
        }
        return pages;
    }

    std::shared_ptr<kv::PagePool> pool_;
    std::vector<kv::Sequence> sequences_;
};

struct AttendCase {
    Format kv;
    int64_t context;  // positions before the first row of a sequence, and the rows themselves
    int64_t n;
    int64_t n_sequences;
};

struct Inputs {
    std::vector<float> q, k, v, q_norm, k_norm, frequency;
};

std::vector<float> attend(Device& device, const Shapes& s, const AttendCase& c, const Inputs& in) {
    const KvLayout layout = {2, s.n_head_kv, s.head_dim, c.kv, c.kv};
    const int64_t rows_each = c.n / c.n_sequences;
    const Cache cache(device, layout, c.n_sequences, std::max(c.context, rows_each));
    std::vector<backend::KvRow> rows;
    for (int64_t i = 0; i < c.n; ++i) {
        const int64_t first = std::max<int64_t>(c.context - rows_each, 0);
        rows.push_back({&cache.view(static_cast<size_t>(i / rows_each)), first + i % rows_each});
    }
    const int64_t q_width = s.n_head * s.head_dim;
    const int64_t kv_width = s.n_head_kv * s.head_dim;
    backend::AttendArgs args;
    args.n = c.n;
    args.q = device.put(in.q);
    args.k = device.put(in.k);
    args.v = device.put(in.v);
    args.o = device.put(std::vector<float>(in.q.size(), NAN));
    args.rows = rows;
    args.layer = 1;
    args.n_head = s.n_head;
    args.n_head_kv = s.n_head_kv;
    args.head_dim = s.head_dim;
    args.q_norm = {device.put(in.q_norm), q_width};
    args.k_norm = {device.put(in.k_norm), kv_width};
    args.norm_eps = 1e-6F;
    args.rope_frequency = in.frequency;
    device.backend().attend(device.stream(), args);
    return device.get(args.o, c.n * q_width);
}

void check(Rig& rig, Report& report, const AttendCase& c, Device& reference, const char* which) {
    const Shapes& s = rig.shapes;
    const std::string name =
        format_text("attend {}/{}/{} {} of {}, {} rows of {}, beside {}", s.n_head, s.n_head_kv, s.head_dim,
                    std::string(traits(c.kv).name), c.context, c.n, c.n_sequences, which);
    if (!report.wants(name)) return;
    rig.gpu.clear();
    reference.clear();
    const int64_t q_width = s.n_head * s.head_dim;
    const int64_t kv_width = s.n_head_kv * s.head_dim;
    Inputs in = {rig.random.normal(c.n * q_width),  rig.random.normal(c.n * kv_width),
                 rig.random.normal(c.n * kv_width), rig.random.normal(q_width),
                 rig.random.normal(kv_width),       {}};
    for (int i = 0; i < 32; ++i) in.frequency.push_back(std::pow(5e6F, -static_cast<float>(i) / 32.0F));
    report.add(name, relative_error(attend(rig.gpu, s, c, in), attend(reference, s, c, in)),
               expected_error(c.kv));
}

}  // namespace

void check_attend(Rig& rig, Report& report) {
    const Shapes& s = rig.shapes;
    for (const Format kv : {Format::f16, Format::q8_0, Format::q4_0, Format::f32}) {
        for (const int64_t context : s.contexts) {
            for (const int64_t n : s.attend_rows) {
                if (n > context && context > 1) continue;
                check(rig, report, {kv, context, n, 1}, rig.exact, "exact");
            }
        }
        check(rig, report, {kv, s.contexts.back(), 4, 2}, rig.exact, "exact");
        check(rig, report, {kv, s.host_context, 5, 1}, rig.host, "the CPU");
    }
    for (const Format kv : {Format::f16, Format::q8_0})
        check(rig, report, {kv, s.long_context, 1, 1}, rig.exact, "exact");
}

void check_top_k(Rig& rig, Report& report) {
    const int64_t n_vocab = rig.shapes.n_vocab;
    for (const int32_t n_candidates : {1, 40, 256}) {
        const std::string name = format_text("top-k of {}, {} candidates", n_vocab, n_candidates);
        if (!report.wants(name)) continue;
        rig.gpu.clear();
        const std::vector<float> logits = rig.random.normal(n_vocab, 3.0F);
        const TopKQuery query = {n_candidates, {5, 17}, 1.0 / 0.7, false};
        runtime::TopKSpace space(rig.gpu.backend(), 1);
        const float* on_gpu = rig.gpu.put(logits);
        space.ask({&query, 1});
        space.upload(rig.gpu.stream(), 0);
        rig.gpu.backend().top_k(rig.gpu.stream(), on_gpu, 1, n_vocab, space.task(0));
        space.download(rig.gpu.stream(), 0);
        rig.gpu.backend().synchronize(rig.gpu.stream());
        const TopK top = space.answer(0);
        const test::HostTopK expected = test::make_top_k(logits, query);
        bool is_same = top.candidates.size() == expected.candidates.size() &&
                       top.named_logits.size() == expected.named_logits.size();
        for (size_t i = 0; is_same && i < top.candidates.size(); ++i)
            is_same = top.candidates[i].token == expected.candidates[i].token &&
                      float_to_bits(top.candidates[i].logit) == float_to_bits(expected.candidates[i].logit);
        for (size_t i = 0; is_same && i < top.named_logits.size(); ++i)
            is_same = float_to_bits(top.named_logits[i]) == float_to_bits(expected.named_logits[i]);
        report.add(name, is_same ? std::abs(top.total / expected.total - 1.0) : NAN, top_k_error(n_vocab));
    }
}

}  // namespace minim::selfcheck
