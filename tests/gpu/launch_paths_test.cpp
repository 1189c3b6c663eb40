// SPDX-License-Identifier: Apache-2.0
// The paths that MINIM_CUDA_PATHS enables give the bits of the paths that are the default.
#include "gpu/launch_paths.h"

#include <cstring>
#include <variant>

#include "cuda/fast/operations.h"
#include "cuda/fast_step.h"
#include "cuda/stream.h"
#include "cuda/views.h"
#include "format/format.h"
#include "gpu/fixture.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "support/catch.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using backend::ExpertPlace;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::LinearTask;
using backend::Matrix;

// The formats that have tables.
constexpr Format k_table_formats[] = {Format::iq4_nl, Format::iq4_xs, Format::iq4_k,
                                      Format::iq4_ks, Format::iq5_k,  Format::iq5_ks,
                                      Format::iq6_k,  Format::mxfp4,  Format::nvfp4};

// Returns the products of one row: with halves of the columns, with all columns in one part, and with its norm.
std::vector<float> products_of_row(const char* paths, Format format) {
    const SetLaunchPaths set(paths);
    Fixture f(Arithmetic::fast);
    Random random(12);
    std::vector<float> all;
    for (const int64_t cols : {1024, 768}) {
        const Matrix weight = f.put_packed(TestMatrix(format, 48, cols, random));
        CHECK(weight.packed);
        const float* x = f.put(random.normal(cols));
        const backend::Vector norm = {f.put(random.normal(cols)), cols};
        float* h = f.put(std::vector<float>(static_cast<size_t>(cols)));
        float* y = f.put(std::vector<float>(48));
        const LinearTask task = {&weight, y, false};
        f.device->linear(*f.stream, x, 1, {&task, 1});
        const std::vector<float> plain = f.get(y, 48);
        f.device->norm(*f.stream, x, 1, norm, 1e-6F, h);
        f.device->linear(*f.stream, h, 1, {&task, 1});
        const std::vector<float> normed = f.get(y, 48);
        all.insert(all.end(), plain.begin(), plain.end());
        all.insert(all.end(), normed.begin(), normed.end());
    }
    return all;
}

struct Layer {
    Layer(Fixture& f, Format format) {
        Random random(13);
        const auto stack = [&](int64_t rows, int64_t cols) {
            ExpertStack s;
            for (int64_t e = 0; e < 9; ++e)
                add_expert(s, f.put_packed(TestMatrix(format, rows, cols, random)),
                           1.0F + static_cast<float>(e) / 8.0F);
            return s;
        };
        weights = f.with_table({stack(256, 512), stack(256, 512), stack(512, 256)});
    }
    ExpertWeights weights;
};

std::vector<float> experts_of(const char* paths, Format format, int64_t n) {
    const SetLaunchPaths set(paths);
    Fixture f(Arithmetic::fast);
    const Layer layer(f, format);
    Random random(14);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 3 * n; ++i) ids.push_back(static_cast<int32_t>((i / 3 + 2 * (i % 3)) % 9));
    float* y = f.put(random.normal(n * 512));
    f.device->experts(*f.stream, f.put(random.normal(n * 512)), n, f.put(ids), f.put(random.normal(3 * n)), 3,
                      layer.weights, y, true);
    return f.get(y, static_cast<size_t>(n * 512));
}

// A router of 40 experts and rows on a device, and the table of a layer; entries are told apart by their bytes.
struct Router {
    static constexpr int64_t k_experts = 40;
    static constexpr int64_t k_cols = 96;
    static constexpr int64_t k_max = 32;  // experts of a row

    explicit Router(Fixture& fixture) : f(fixture) {
        Random random(15);
        for (int64_t e = 0; e < k_experts; ++e) {
            ExpertPlace place;
            place.gate = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(0x1000 + e));
            place.down_scale = static_cast<float>(e);
            place.reserved[6] = static_cast<uint32_t>(e);
            table.push_back(place);
        }
        router = f.put(TestMatrix(Format::f32, k_experts, k_cols, random));
        x = f.put(random.normal(33 * k_cols));
        norm = f.put(random.normal(k_cols));
        h = f.put(std::vector<float>(k_cols));
        score = f.put(std::vector<float>(33 * k_experts));
        partial = f.put(std::vector<float>(static_cast<size_t>(cuda::fast::route_partial_floats(33))));
        arrived = f.put(std::vector<int32_t>(static_cast<size_t>(cuda::fast::route_counters(33))));
        quantized = f.put(std::vector<cuda::fast::Q8Block>(k_cols / 32));
        places = f.put(table);
        f.device->synchronize(*f.stream);
    }
    // Checks the entries that route() has copied. `with_norm`: of one row.
    void check(int64_t n, int64_t n_used, bool with_norm) {
        const size_t count = static_cast<size_t>(n * n_used);
        int32_t* ids = f.put(std::vector<int32_t>(count));
        float* gates = f.put(std::vector<float>(count));
        ExpertPlace* chosen = f.put(std::vector<ExpertPlace>(count + 1));
        const cuda::fast::Choice choice = {nullptr, n_used, ids, gates, places, chosen};
        const cuda::fast::RouteWork work = {score, partial, arrived, false};
        const cuda::exact::Weight weight = cuda::weight_of(router);
        if (with_norm) {
            cuda::fast::route_norm(nullptr, weight, {x, norm, k_cols, 1e-6F, h, quantized}, choice, work);
        } else {
            cuda::fast::route_float(nullptr, weight, x, n, choice, work, false);
        }
        f.device->synchronize(*f.stream);
        const std::vector<int32_t> host_ids = f.get(ids, count);
        const std::vector<ExpertPlace> copied = f.get(chosen, count + 1);
        for (size_t i = 0; i < count; ++i)
            CHECK(std::memcmp(&copied[i], &table[static_cast<size_t>(host_ids[i])], sizeof(ExpertPlace)) ==
                  0);
        CHECK(copied[count].gate == nullptr);  // nothing behind them
    }

    Fixture& f;
    std::vector<ExpertPlace> table;
    Matrix router;
    float* x;
    float* norm;
    float* h;
    float* score;
    float* partial;
    int32_t* arrived;
    cuda::fast::Q8Block* quantized;
    const ExpertPlace* places;
};

constexpr const char* k_both_paths = "two-tables,chosen-places";

}  // namespace

TEST_CASE("gpu paths: products by tables have the bits of products by codes, in every format") {
    if (!has_devices(1)) return;
    for (const Format format : k_table_formats) {
        if (!cuda::fast::has_panels(format)) continue;  // of those that emulated_kernels.cpp leaves out
        INFO(traits(format).name);
        CHECK(same_bits(products_of_row("two-tables", format), products_of_row("", format)));
        for (const int64_t n : {1, 3})
            CHECK(same_bits(experts_of("two-tables", format, n), experts_of("", format, n)));
    }
}

TEST_CASE("gpu paths: a choice copies the entries of its experts") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    Router router(f);
    for (const int64_t n_used : {int64_t{1}, int64_t{8}, int64_t{11}, Router::k_max}) {
        for (const int64_t n : {1, 4, 33}) {
            INFO(n << " rows, " << n_used << " experts of each");
            router.check(n, n_used, false);
        }
        router.check(1, n_used, true);
    }
}

TEST_CASE("gpu paths: a choice is asked for entries only if the kernels after it read them") {
    if (!has_devices(1)) return;
    const auto is_shared = [](const char* paths, Format format, int64_t n_route, int64_t n) {
        const SetLaunchPaths set(paths);
        Fixture f(Arithmetic::fast);
        const Layer layer(f, format);
        auto& s = static_cast<cuda::Stream&>(*f.stream);
        CHECK(s.paths.two_tables == (std::strstr(paths, "two-tables") != nullptr));
        auto* ids = f.put(std::vector<int32_t>(static_cast<size_t>(3 * k_limits.n_rows)));
        const cuda::fast::Choice choice = {nullptr, 3, ids, nullptr};
        s.list.operations.push_back({.call = cuda::ChooseCall{n_route, 9, choice}});
        s.list.operations.push_back(
            {.call = cuda::ExpertsCall{nullptr, n, ids, 3, cuda::ExpertViews(layer.weights), nullptr, nullptr,
                                       false}});
        cuda::fast::share_places(s);
        const auto& asked = std::get<cuda::ChooseCall>(s.list.operations[0].call).choice;
        const auto& experts = std::get<cuda::ExpertsCall>(s.list.operations[1].call);
        CHECK(asked.chosen == experts.chosen);
        CHECK(asked.places == (asked.chosen != nullptr ? layer.weights.places : nullptr));
        s.list.clear();
        return experts.chosen != nullptr;
    };
    CHECK(is_shared("chosen-places", Format::iq4_xs, 1, 1));
    CHECK(is_shared(k_both_paths, Format::iq4_xs, 32, 32));
    CHECK_FALSE(is_shared("two-tables", Format::iq4_xs, 1, 1));
    CHECK_FALSE(is_shared("chosen-places", Format::iq4_xs, 33, 33));  // slots are sorted by expert
    CHECK_FALSE(is_shared("chosen-places", Format::iq4_xs, 2, 1));
    CHECK_FALSE(is_shared("chosen-places", Format::bf16, 1, 1));
}

TEST_CASE("gpu paths: slots with entries of their own, some of experts that are not here") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    const Layer layer(f, Format::iq4_xs);
    Random random(16);
    const std::vector<int32_t> ids = {2, 7, 0, 5, 8, 2};
    const int64_t n_slots = std::ssize(ids);
    std::vector<ExpertPlace> table = backend::places_of(layer.weights);
    for (const size_t absent : {7U, 5U}) {
        table[absent].gate = nullptr;
        table[absent].up = table[absent].down = reinterpret_cast<const std::byte*>(uintptr_t{16});
    }
    std::vector<ExpertPlace> chosen;
    for (const int32_t id : ids) chosen.push_back(table[static_cast<size_t>(id)]);
    ExpertWeights weights = layer.weights;
    weights.places = f.put(table);
    const cuda::ExpertViews views(weights);
    const int32_t* device_ids = f.put(ids);
    const ExpertPlace* device_chosen = f.put(chosen);
    const float* h = f.put(random.normal(2 * 512));
    auto* input = f.put(std::vector<cuda::fast::Q8Block>(2 * 512 / 32));
    const auto run = [&](const cuda::fast::Slots& slots) {
        auto* activated = f.put(std::vector<cuda::fast::Q8Block>(static_cast<size_t>(n_slots * 256 / 32)));
        float* y = f.put(std::vector<float>(static_cast<size_t>(n_slots * 512), -1.0F));
        f.device->synchronize(*f.stream);
        cuda::fast::quantize(nullptr, h, 2, 512, input);
        cuda::fast::activate(nullptr, views.gate, views.up, input, 3, slots, activated);
        cuda::fast::project(nullptr, views.down, activated, 1, slots, y, nullptr);
        f.device->synchronize(*f.stream);
        return f.get(y, static_cast<size_t>(n_slots * 512));
    };
    const std::vector<float> expected = run({device_ids, n_slots, nullptr});
    CHECK(same_bits(expected, run({nullptr, n_slots, nullptr, false, device_chosen})));
    CHECK(same_bits(expected, run({nullptr, n_slots, nullptr, true, device_chosen})));
    for (size_t slot = 0; slot < ids.size(); ++slot)
        CHECK((expected[512 * slot] == -1.0F) == (ids[slot] == 7 || ids[slot] == 5));
}

TEST_CASE(
    "gpu paths: a model's logits have the same bits, computed and recorded, for one row and for several") {
    if (!has_devices(1)) return;
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-mix-ik.gguf";
    const auto logits_with = [&](const char* paths, size_t chunk) {
        const SetLaunchPaths set(paths);
        return logits(open_on(path, {0}, Arithmetic::fast), Format::f16, 5, chunk);
    };
    for (const size_t chunk : {1, 5})
        CHECK(same_bits(logits_with("", chunk), logits_with(k_both_paths, chunk)));
}

}  // namespace minim::test
