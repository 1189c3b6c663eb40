// SPDX-License-Identifier: Apache-2.0
// Kernels give the same bits in every order that a machine may choose (Emulation), as far as the emulations can show a
// missing barrier, wait or atomic operation.
#include <cmath>
#include <string>
#include <utility>

#include "gpu/attend_support.h"
#include "gpu/emulated_thread.h"
#include "gpu/fixture.h"
#include "gpu/launch_paths.h"
#include "gpu/recorder.h"
#include "gpu/text_on_device.h"
#include "runtime/top_k_space.h"
#include "support/catch.h"
#include "support/sparse_attention.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

struct Way {
    const char* name;
    Emulation how;
};
// Each setting alone, if it makes a difference alone, and some together.
constexpr Way k_ways[] = {
    {"backwards", {.backwards = true}},
    {"copies at once", {.copies_at_once = true}},
    {"copies at once, backwards", {.backwards = true, .copies_at_once = true}},
    {"blocks at random", {.seed = 1}},
    {"early starts", {.starts_early = true}},
    {"all", {.backwards = true, .copies_at_once = true, .starts_early = true, .seed = 2}},
};

// Sets the shared memory of a block in its scope.
struct SetSharedBytes {
    explicit SetSharedBytes(int64_t bytes) : before(std::exchange(block_shared_bytes(), bytes)) {}
    SetSharedBytes(const SetSharedBytes&) = delete;
    SetSharedBytes& operator=(const SetSharedBytes&) = delete;
    ~SetSharedBytes() { block_shared_bytes() = before; }
    int64_t before;
};

// The settings that make a difference to rings of stages.
constexpr Way k_ring_ways[] = {k_ways[1], k_ways[2]};

template <typename Run>
void check_all_ways(const Run& run, std::span<const Way> ways = k_ways) {
    const auto expected = run();
    for (const Way& way : ways) {
        INFO(way.name);
        const Emulating how(way.how);
        const auto result = run();
        CHECK(result.size() == expected.size());
        CHECK(std::memcmp(result.data(), expected.data(), expected.size() * sizeof(expected[0])) == 0);
    }
}

struct Shape {
    int64_t hidden;
    int64_t ff;
    int64_t n_expert;
    int64_t n_used;
};

// Returns the results of norm, products, products of these, norm, routing, experts and norm of n rows, one after the other.
std::vector<float> some_operations(const Shape& shape, Format format, int64_t n) {
    Fixture f(Arithmetic::fast);
    backend::StepLimits limits = k_limits;
    limits.hidden = limits.expert_ff = std::max(shape.hidden, shape.ff);
    f.stream = f.device->reserve(limits);
    Random random(9);
    const TestMatrix wide(format, shape.ff, shape.hidden, random);
    const TestMatrix down(format, shape.hidden, shape.ff, random);
    const TestMatrix router(Format::f32, shape.n_expert, shape.hidden, random);
    const Matrix router_weight = f.put(router);
    const Matrix weight = f.put_packed(wide);
    const auto stack_of = [&](const Matrix& matrix) {
        ExpertStack stack;
        for (int64_t e = 0; e < shape.n_expert; ++e)
            add_expert(stack, matrix, 1.0F + 0.125F * static_cast<float>(e));
        return stack;
    };
    const ExpertStack gate = stack_of(weight);
    const Matrix down_weight = f.put_packed(down);
    const ExpertWeights experts = f.with_table({gate, gate, stack_of(down_weight)});
    const auto n_x = static_cast<size_t>(n * shape.hidden);
    const auto n_y = static_cast<size_t>(n * shape.ff);
    const auto n_slots = static_cast<size_t>(n * shape.n_used);
    float* x = f.put(random.normal(n * shape.hidden));
    float* h = f.put(std::vector<float>(n_x));
    float* y = f.put(std::vector<float>(n_y));
    int32_t* ids = f.put(std::vector<int32_t>(n_slots));
    float* gates = f.put(std::vector<float>(n_slots));
    float* z = f.put(std::vector<float>(n_x));
    const LinearTask task = {&weight, y, true};
    const LinearTask last = {&down_weight, z, false};
    const backend::Vector norm = {f.put(random.normal(shape.hidden)), shape.hidden};
    const backend::Vector bias = {f.put(random.normal(shape.n_expert, 0.5F)), shape.n_expert};
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    f.device->linear(*f.stream, h, n, {&task, 1});
    f.device->linear(*f.stream, y, n, {&last, 1});  // of floats that the kernel before writes
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    f.device->route(*f.stream, h, n, router_weight, bias, shape.n_used, ids, gates);
    f.device->experts(*f.stream, h, n, ids, gates, shape.n_used, experts, x, true);
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    std::vector<float> all = f.get(x, n_x);
    for (const std::vector<float>& some : {f.get(h, n_x), f.get(y, n_y), f.get(z, n_x)})
        all.insert(all.end(), some.begin(), some.end());
    return all;
}

// Returns the results of norm, routing, the slots of every other expert, of the others and of none, their sum, and norm
// again.
std::vector<float> some_slots(Format gate_format, Format up_format, Format down_format, int64_t n) {
    constexpr int64_t k_width = 256;
    constexpr int64_t k_experts = 9;
    constexpr int64_t k_used = 3;
    Fixture f(Arithmetic::fast);
    Random random(9);
    const auto stack = [&](Format format) {
        ExpertStack some;
        for (int64_t e = 0; e < k_experts; ++e)
            add_expert(some, f.put_packed(TestMatrix(format, k_width, k_width, random)), 0.9F);
        return some;
    };
    const ExpertWeights all = {stack(gate_format), stack(up_format), stack(down_format)};
    const Matrix router = f.put(TestMatrix(Format::f32, k_experts, k_width, random));
    const auto n_slots = static_cast<size_t>(n * k_used);
    float* x = f.put(random.normal(n * k_width));
    float* h = f.put(std::vector<float>(static_cast<size_t>(n * k_width)));
    int32_t* ids = f.put(std::vector<int32_t>(n_slots));
    float* gates = f.put(std::vector<float>(n_slots));
    float* out = f.put(std::vector<float>(n_slots * k_width));
    const backend::Vector norm = {f.put(random.normal(k_width)), k_width};
    std::vector<ExpertWeights> parts;
    for (const int64_t part : {0, 1, 2}) {
        std::vector<backend::ExpertPlace> places = backend::places_of(all);
        for (int64_t e = 0; e < k_experts; ++e)
            if (e % 2 != part) places[static_cast<size_t>(e)] = {};
        parts.push_back(all);
        parts.back().places = f.put(places);
    }
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    f.device->route(*f.stream, h, n, router, {}, k_used, ids, gates);
    for (const ExpertWeights& part : parts) f.device->expert_slots(*f.stream, h, n, ids, k_used, part, out);
    f.device->add_slots(*f.stream, out, gates, n, k_used, k_width, x);
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    std::vector<float> result = f.get(x, static_cast<size_t>(n * k_width));
    for (const std::vector<float>& some : {f.get(h, result.size()), f.get(out, n_slots * k_width)})
        result.insert(result.end(), some.begin(), some.end());
    return result;
}

// Returns the results of a rank's half of the heads, and of every other expert of a layer without `add`, between norms.
std::vector<float> some_of_rank(Format format, int64_t n) {
    constexpr int64_t k_width = 256;
    constexpr int64_t k_experts = 9;
    constexpr int64_t k_used = 3;
    Fixture f(Arithmetic::fast);
    Random random(9);
    const auto stack = [&] {
        ExpertStack some;
        for (int64_t e = 0; e < k_experts; ++e)
            add_expert(some, f.put_packed(TestMatrix(format, k_width, k_width, random)), 0.9F);
        return some;
    };
    ExpertWeights weights = {stack(), stack(), stack()};
    for (size_t e = 1; e < k_experts; e += 2)
        weights.gate.expert[e] = weights.up.expert[e] = weights.down.expert[e] = nullptr;
    weights = f.with_table(weights);
    const Matrix qkv = f.put_packed(TestMatrix(format, k_width, k_width, random));
    const Matrix router = f.put(TestMatrix(Format::f32, k_experts, k_width, random));
    const auto n_x = static_cast<size_t>(n * k_width);
    const auto n_slots = static_cast<size_t>(n * k_used);
    float* x = f.put(random.normal(n * k_width));
    float* h = f.put(std::vector<float>(n_x));
    float* q = f.put(std::vector<float>(n_x));
    float* k = f.put(std::vector<float>(n_x));
    float* squares = f.put(std::vector<float>(static_cast<size_t>(2 * n)));
    float* y = f.put(std::vector<float>(n_x, NAN));
    int32_t* ids = f.put(std::vector<int32_t>(n_slots));
    float* gates = f.put(std::vector<float>(n_slots));
    const backend::Vector norm = {f.put(random.normal(k_width)), k_width};
    backend::AttendArgs args;
    args.n = n;
    args.q = q;
    args.k = k;
    args.n_head = args.n_head_kv = 2;
    args.head_dim = 128;
    const LinearTask tasks[] = {{&qkv, q, false}, {&qkv, k, false}};
    f.device->norm(*f.stream, x, n, norm, 1e-6F, h);
    f.device->linear(*f.stream, h, n, tasks);
    f.device->head_squares(*f.stream, args, squares);
    f.device->norm(*f.stream, q, n, norm, 1e-6F, h);
    f.device->route(*f.stream, h, n, router, {}, k_used, ids, gates);
    f.device->experts(*f.stream, h, n, ids, gates, k_used, weights, y, false);
    f.device->experts(*f.stream, h, n, ids, gates, k_used, weights, x, true);
    f.device->norm(*f.stream, y, n, norm, 1e-6F, h);
    std::vector<float> result = f.get(squares, static_cast<size_t>(2 * n));
    for (const std::vector<float>& some : {f.get(x, n_x), f.get(y, n_x), f.get(h, n_x)})
        result.insert(result.end(), some.begin(), some.end());
    return result;
}

// Returns the results of some top-k tasks on rows in which most logits occur several times.
std::vector<std::byte> some_top_k() {
    constexpr int64_t k_vocab = 9000;
    Fixture f(Arithmetic::fast);
    Random random(10);
    const auto stream = f.device->reserve({.n_rows = 3,
                                           .n_context = 64,
                                           .hidden = 32,
                                           .n_head = 1,
                                           .n_head_kv = 1,
                                           .head_dim = 32,
                                           .n_vocab = k_vocab});
    std::vector<float> logits = random.normal(3 * k_vocab, 4.0F);
    for (float& logit : logits) logit = std::round(logit * 8.0F);
    const float* rows = f.put(logits);
    f.device->synchronize(*f.stream);
    runtime::TopKSpace space(*f.device, 3);
    space.ask(std::vector<TopKQuery>{{256, {}, 1.0, true}, {1, {}, 0.5, false}, {9, {4, 8999}, 2.0, true}});
    space.upload(*stream, 0);
    f.device->top_k(*stream, rows, 3, k_vocab, space.task(0));
    space.download(*stream, 0);
    f.device->synchronize(*stream);
    std::vector<std::byte> all;
    const auto add = [&](const auto& span) {
        const auto bytes = std::as_bytes(span);
        all.insert(all.end(), bytes.begin(), bytes.end());
    };
    for (int64_t row = 0; row < 3; ++row) {
        const TopK top = space.answer(row);
        const double totals[] = {top.total, top.exact_total};
        add(top.candidates);
        add(top.named_logits);
        add(std::span(totals));
    }
    return all;
}

}  // namespace

TEST_CASE("emulated threads: in all ways the operations give the same bits") {
    for (const Format format :
         {Format::q8_0, Format::q4_k, Format::iq2_s, Format::iq4_ks, Format::bf16, Format::fp8_e4m3_b128}) {
        for (const int64_t n : {1, 3, 11}) {
            INFO(traits(format).name << ", " << n << " rows");
            check_all_ways([&] { return some_operations({256, 256, 9, 3}, format, n); });
        }
    }
}

TEST_CASE("emulated threads: in all ways the slots of some experts are the same bits") {
    struct Case {
        Format gate, up, down;
    };
    for (const Case& c :
         {Case{Format::q4_k, Format::q4_k, Format::iq4_xs}, Case{Format::iq2_s, Format::iq3_s, Format::q8_0},
          Case{Format::bf16, Format::bf16, Format::bf16},
          Case{Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::q8_0}}) {
        for (const int64_t n : {1, 5, 33}) {
            INFO(traits(c.gate).name << ", " << n << " rows");
            check_all_ways([&] { return some_slots(c.gate, c.up, c.down, n); });
        }
    }
}

TEST_CASE("emulated threads: in all ways a rank's share of a layer has the same bits") {
    for (const Format format : {Format::q4_k, Format::bf16, Format::fp8_e4m3_b128}) {
        for (const int64_t n : {1, 5, 33}) {
            INFO(traits(format).name << ", " << n << " rows");
            check_all_ways([&] { return some_of_rank(format, n); });
        }
    }
}

TEST_CASE("emulated threads: in all ways the tile kernel gives the same bits, in both sizes") {
    const SetLaunchPaths set("tiles");
    struct Case {
        int64_t kilobytes;
        Format format;
    };
    for (const Case& c : {Case{227, Format::iq2_s}, Case{99, Format::q8_0}, Case{227, Format::bf16},
                          Case{99, Format::fp8_e4m3_b128}}) {
        const SetSharedBytes shared(c.kilobytes << 10);
        INFO(traits(c.format).name << ", " << c.kilobytes << " KB");
        check_all_ways([&] { return some_operations({512, 256, 9, 3}, c.format, 33); });
    }
}

TEST_CASE(
    "emulated threads: in all ways the stream kernel gives the same bits, also where its ring goes round") {
    const SetLaunchPaths set("stream");
    struct Case {
        int64_t kilobytes;
        Format format;
        Shape shape;
    };
    for (const Case& c :
         {Case{227, Format::iq4_ks, {768, 256, 9, 3}}, Case{99, Format::q8_0, {7 * 256, 256, 9, 1}}}) {
        const SetSharedBytes shared(c.kilobytes << 10);
        for (const int64_t n : {1, 3, 11}) {
            if (n == (c.kilobytes == 99 ? 1 : 11)) continue;
            INFO(traits(c.format).name << ", " << c.kilobytes << " KB, " << n << " rows");
            check_all_ways([&] { return some_operations(c.shape, c.format, n); });
        }
    }
}

// A faulty count of blocks goes wrong seldom, so several orders are tried.
TEST_CASE("emulated threads: whatever the order of the blocks, the operations give the same bits") {
    for (const Format format : {Format::q4_k, Format::bf16}) {
        for (const int64_t n : {1, 5}) {
            INFO(traits(format).name << ", " << n << " rows");
            std::vector<Way> ways;
            for (uint32_t seed = 3; seed < 23; ++seed) ways.push_back({"blocks at random", {.seed = seed}});
            check_all_ways([&] { return some_operations({256, 256, 9, 3}, format, n); }, ways);
        }
    }
}

TEST_CASE("emulated threads: copies at once give the same bits where rings of stages go round") {
    constexpr int64_t k_long = 7 * 256;  // a stage more than the largest ring has
    for (const Format format : {Format::q8_0, Format::q4_k, Format::bf16, Format::fp8_e4m3_b128}) {
        for (const int64_t n : {1, 11}) {
            INFO(traits(format).name << ", " << n << " rows");
            for (const Shape& shape : {Shape{k_long, 256, 2, 1}, Shape{256, k_long, 2, 1}})
                check_all_ways([&] { return some_operations(shape, format, n); }, k_ring_ways);
        }
    }
}

TEST_CASE("emulated threads: in all orders the top-k of rows has the same bits") {
    check_all_ways([] { return some_top_k(); });
}

TEST_CASE("emulated threads: in all ways attention gives the same bits") {
    const Heads heads = {6, 2, 64};
    for (const Formats& formats : {Formats{Format::f16, Format::f16}, Formats{Format::q8_0, Format::q4_0}}) {
        INFO(traits(formats.k).name << " " << traits(formats.v).name);
        const TestCache test(heads, formats.k, formats.v, {300, 140});
        std::vector<KvRow> rows = {test.row(0, 299)};
        for (const KvRow& row : run_of(test, 1, 110, 24)) rows.push_back(row);
        std::vector<uint16_t> query;
        for (const float x : Random(9).normal(std::ssize(rows) * heads.n_head * heads.head_dim, 1.5F))
            query.push_back(float_to_f16(x * fast::query_scale(heads.head_dim)));
        check_all_ways([&] { return attend_once(test, rows, query, {.wide = 2, .narrow = 4}); });
    }
}

// The kernels of attention read tables that a kernel of the same step has written.
TEST_CASE("emulated threads: in all ways attention to chosen blocks gives the same bits") {
    const SparseModel model = {.n_head = 6,
                               .head_dim = 32,
                               .rotary = 16,
                               .sparse = {.n_head = 3, .dim = 32, .block = 64, .top = 2},
                               .k_format = Format::f16,
                               .v_format = Format::f16};
    const SparseRows rows(model, 160, 7);
    check_all_ways([&] {
        const auto device = cuda::make_cuda_backend(0, Arithmetic::fast);
        SparseSequence sequence(*device, model, rows, 40);
        return sequence.attend_all(40);
    });
}

// The pages of earlier steps are read before the row's key and value are there.
TEST_CASE("emulated threads: in all ways a row is prepared and attended with the same bits") {
    for (const Format format : {Format::f16, Format::q8_0}) {
        for (const int64_t position : {64, 299}) {
            INFO(traits(format).name << ", position " << position);
            check_all_ways([&] {
                Fixture f(Arithmetic::fast);
                TextOnDevice text(f, format, 1, position);
                std::vector<float> o = text.attend();
                CHECK(text.is_near_reference());
                return o;
            });
        }
    }
}

}  // namespace minim::test
