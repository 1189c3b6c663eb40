// SPDX-License-Identifier: Apache-2.0
// Tests the outputs of the slots of some of a layer's experts, and their sum, against the operation that does both for
// all experts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "format/format.h"
#include "gpu/fixture.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;

constexpr int64_t k_experts = 9;
constexpr int64_t k_used = 3;

struct Case {
    Format gate, up, down;
    int64_t ff, hidden;
};

std::string name_of(const Case& c) {
    std::string name;
    for (const Format format : {c.gate, c.up, c.down}) name += std::string(traits(format).name) + " ";
    return name;
}

// A layer on a device, with tables of some of its experts.
class Layer {
  public:
    Layer(Fixture& f, const Case& c) : f_(f) {
        Random random(5);
        const auto stack = [&](Format format, int64_t rows, int64_t cols) {
            ExpertStack s;
            for (int64_t e = 0; e < k_experts; ++e)
                add_expert(s, f.put_packed(TestMatrix(format, rows, cols, random)),
                           1.0F + static_cast<float>(e) / 8.0F);
            return s;
        };
        all_ = f.with_table(
            {stack(c.gate, c.ff, c.hidden), stack(c.up, c.ff, c.hidden), stack(c.down, c.hidden, c.ff)});
    }

    const ExpertWeights& all() const { return all_; }
    // Returns a table of the experts for which has() is true. For the other experts it names places that must not be
    // read.
    std::vector<ExpertPlace> table(const std::function<bool(int64_t)>& has) const {
        std::vector<ExpertPlace> places = backend::places_of(all_);
        for (int64_t e = 0; e < k_experts; ++e) {
            ExpertPlace& place = places[static_cast<size_t>(e)];
            if (has(e)) continue;
            place.gate = nullptr;
            place.up = place.down = reinterpret_cast<const std::byte*>(uintptr_t{16});
            place.gate_scale = place.up_scale = place.down_scale = NAN;
        }
        return places;
    }
    ExpertWeights some(const std::function<bool(int64_t)>& has) {
        ExpertWeights weights = all_;
        weights.places = f_.put(table(has));
        return weights;
    }

  private:
    Fixture& f_;
    ExpertWeights all_;
};

// Rows on a device with their choices.
struct Rows {
    Rows(Fixture& f, int64_t n_rows, int64_t width) : n(n_rows), hidden(width) {
        Random random(static_cast<uint32_t>(n_rows));
        host_ids.reserve(static_cast<size_t>(n * k_used));
        std::vector<float> host_gates;
        for (int64_t i = 0; i < n * k_used; ++i) {
            // Most of many rows choose expert 4, which then has more slots than a tile of a product for many rows.
            host_ids.push_back(static_cast<int32_t>(
                n > 32 && i % k_used == 0 ? 4 : (i / k_used + 2 * (i % k_used)) % k_experts));
            host_gates.push_back(0.2F + static_cast<float>(i % k_used) / 5.0F);
        }
        before = random.normal(n * hidden);
        h = f.put(random.normal(n * hidden, 0.05F));
        ids = f.put(host_ids);
        gates = f.put(host_gates);
    }

    size_t n_outputs() const { return static_cast<size_t>(n * k_used * hidden); }

    int64_t n;
    int64_t hidden;
    std::vector<int32_t> host_ids;
    std::vector<float> before;  // y, before the experts are added
    const float* h;
    const int32_t* ids;
    const float* gates;
};

// A number that no product can be.
const float k_untouched = -123456.0F;

bool is_untouched(const std::vector<float>& out, const Rows& rows, int64_t slot) {
    const auto first = out.begin() + slot * rows.hidden;
    return std::all_of(first, first + rows.hidden, [](float x) { return x == k_untouched; });
}

std::vector<float> sum_of(Fixture& f, const Rows& rows, const ExpertWeights& weights) {
    float* y = f.put(rows.before);
    f.device->experts(*f.stream, rows.h, rows.n, rows.ids, rows.gates, k_used, weights, y, true);
    return f.get(y, rows.before.size());
}

// The experts of one table, then those of the other, and the sum of all slots.
void check_halves(Fixture& f, Layer& layer, const Rows& rows, const std::function<bool(int64_t)>& is_first) {
    const ExpertWeights parts[] = {layer.some(is_first), layer.some([&](int64_t e) { return !is_first(e); })};
    float* out = f.put(std::vector<float>(rows.n_outputs(), k_untouched));
    f.device->expert_slots(*f.stream, rows.h, rows.n, rows.ids, k_used, parts[0], out);
    const std::vector<float> after_one = f.get(out, rows.n_outputs());
    for (int64_t slot = 0; slot < rows.n * k_used; ++slot)
        CHECK(is_untouched(after_one, rows, slot) == !is_first(rows.host_ids[static_cast<size_t>(slot)]));
    f.device->expert_slots(*f.stream, rows.h, rows.n, rows.ids, k_used, parts[1], out);
    float* y = f.put(rows.before);
    f.device->add_slots(*f.stream, out, rows.gates, rows.n, k_used, rows.hidden, y);
    CHECK(same_bits(f.get(y, rows.before.size()), sum_of(f, rows, layer.all())));
}

// Gate and up in one launch and in two; rows beyond the last panel; floats; tensor cores for floats of 8 and 16 bits; formats
// that have exact kernels alone.
const Case k_cases[] = {{Format::q8_0, Format::q8_0, Format::q8_0, 96, 128},
                        {Format::iq2_s, Format::iq2_s, Format::iq4_xs, 256, 256},
                        {Format::q4_k, Format::q5_k, Format::iq3_s, 256, 256},
                        {Format::iq5_k, Format::iq5_k, Format::iq6_k, 256, 256},
                        {Format::bf16, Format::bf16, Format::q8_0, 64, 40},
                        {Format::nvfp4, Format::nvfp4, Format::bf16, 64, 128},
                        {Format::f32, Format::f32, Format::f32, 23, 42},
                        {Format::f16, Format::f16, Format::f16, 128, 128},
                        {Format::bf16, Format::fp8_e4m3_b128, Format::f16, 128, 256},
                        {Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, Format::fp8_e4m3_b128, 128, 128}};

}  // namespace

TEST_CASE("gpu: slots of some experts and of the others add up to the bits of all experts") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::deterministic, Arithmetic::exact}) {
        Fixture f(arithmetic);
        for (const Case& c : k_cases) {
            Layer layer(f, c);
            for (const int64_t n : {1, 4, 40}) {
                INFO(name_of(c) << n << " rows, arithmetic " << static_cast<int>(arithmetic));
                const Rows rows(f, n, c.hidden);
                check_halves(f, layer, rows, [](int64_t e) { return e % 3 != 1; });
                if (n != 4) check_halves(f, layer, rows, [](int64_t e) { return e == 4; });
            }
        }
    }
}

TEST_CASE("gpu: a table without experts leaves all slots as they are, and no rows are no slots") {
    if (!has_devices(1)) return;
    for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::exact}) {
        Fixture f(arithmetic);
        for (const Case& c : {k_cases[0], k_cases[2], k_cases[4], k_cases[7]}) {
            INFO(name_of(c));
            Layer layer(f, c);
            const ExpertWeights none = layer.some([](int64_t) { return false; });
            for (const int64_t n : {1, 40}) {
                const Rows rows(f, n, c.hidden);
                float* out = f.put(std::vector<float>(rows.n_outputs(), k_untouched));
                f.device->expert_slots(*f.stream, rows.h, n, rows.ids, k_used, none, out);
                f.device->expert_slots(*f.stream, rows.h, 0, rows.ids, k_used, layer.all(), out);
                f.device->add_slots(*f.stream, out, rows.gates, 0, k_used, c.hidden, out);
                const std::vector<float> result = f.get(out, rows.n_outputs());
                CHECK(std::ranges::all_of(result, [](float x) { return x == k_untouched; }));
            }
            // Later operations of the stream are not disturbed.
            const Rows rows(f, 4, c.hidden);
            check_halves(f, layer, rows, [](int64_t e) { return e < 5; });
        }
    }
}

TEST_CASE("gpu: a table that changes between two steps is read anew") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    const Case& c = k_cases[1];
    Layer layer(f, c);
    for (const int64_t n : {1, 40}) {
        const Rows rows(f, n, c.hidden);
        ExpertWeights weights = layer.some([](int64_t e) { return e < 4; });
        float* out = f.put(std::vector<float>(rows.n_outputs(), k_untouched));
        f.device->expert_slots(*f.stream, rows.h, n, rows.ids, k_used, weights, out);
        f.device->synchronize(*f.stream);
        // Experts 0 .. 3 have left the device, and the others have arrived.
        const std::vector<ExpertPlace> changed = layer.table([](int64_t e) { return e >= 4; });
        f.device->upload(
            *f.stream, const_cast<std::byte*>(reinterpret_cast<const std::byte*>(weights.places)),
            reinterpret_cast<const std::byte*>(changed.data()), changed.size() * sizeof(ExpertPlace));
        f.device->expert_slots(*f.stream, rows.h, n, rows.ids, k_used, weights, out);
        float* y = f.put(rows.before);
        f.device->add_slots(*f.stream, out, rows.gates, n, k_used, c.hidden, y);
        CHECK(same_bits(f.get(y, rows.before.size()), sum_of(f, rows, layer.all())));
    }
}

TEST_CASE("gpu: experts without a table fail the step, and the device goes on") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Layer layer(f, k_cases[0]);
    const Rows rows(f, 1, k_cases[0].hidden);
    ExpertWeights weights = layer.all();
    weights.places = nullptr;
    float* out = f.put(std::vector<float>(rows.n_outputs()));
    f.device->expert_slots(*f.stream, rows.h, 1, rows.ids, k_used, weights, out);
    expect_error(Status::internal, "have no table", [&] { f.device->synchronize(*f.stream); });
    check_halves(f, layer, rows, [](int64_t e) { return e < 5; });
}

}  // namespace minim::test
