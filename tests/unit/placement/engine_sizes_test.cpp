// SPDX-License-Identifier: Apache-2.0
// Sizes of engines, and plans of full-size models with them: 62 layers of 256 experts, of which 8 are used.
#include "kv/engine_sizes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/roles.h"
#include "placement/cards.h"
#include "placement/planner.h"
#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using namespace minim::kv;
using namespace minim::placement;
using model::Role;

namespace {

constexpr uint64_t k_gib = uint64_t{1} << 30;
constexpr int64_t k_trained = 196608;

// Returns a rule by which the tokens of the KV cache and a hundredth of the context (for work space) share a memory of so many
// tokens, `spare` of which weights also want.
FitOf memory_of(int64_t tokens, int64_t spare = 0) {
    return [=](const EngineSizes& sizes) {
        const int64_t needed = sizes.n_kv_tokens + sizes.n_rows;
        if (needed > tokens) return Fit::no;
        if (needed > tokens - tokens / 16) return Fit::tight;
        if (needed <= tokens - tokens / 16 - spare) return Fit::nothing;
        return 2 * needed <= tokens ? Fit::beside : Fit::yes;
    };
}

EngineSizes sizes_of(int64_t n_context, int64_t memory, bool is_asked = false, int64_t spare = 0) {
    const EngineWish wish = {.n_context = n_context,
                             .longest = k_trained,
                             .n_requests = 16,
                             .fewer_requests = !is_asked,
                             .n_rows = 512,
                             .fewer_rows = true};
    return choose_sizes(wish, memory_of(memory, spare));
}

struct Mix {
    std::string name;
    Format gate, up, down, dense;
};

const Mix k_mixes[] = {{"IQ5_K", Format::iq5_k, Format::iq5_k, Format::iq6_k, Format::q8_0},
                       {"IQ4_XS", Format::iq4_xs, Format::iq4_xs, Format::iq4_xs, Format::q8_0},
                       {"IQ3_S", Format::iq3_s, Format::iq3_s, Format::iq4_xs, Format::q8_0},
                       {"IQ2_S", Format::iq2_s, Format::iq2_s, Format::iq2_s, Format::q8_0},
                       {"Q4_K", Format::q4_k, Format::q4_k, Format::q4_k, Format::q8_0},
                       {"Q8_0", Format::q8_0, Format::q8_0, Format::q8_0, Format::q8_0},
                       {"BF16", Format::bf16, Format::bf16, Format::bf16, Format::bf16}};

const Mix& mix_of(std::string_view name) {
    return *std::ranges::find(k_mixes, name, &Mix::name);
}

model::Config full_config() {
    model::Config config;
    config.n_layer = 62;
    config.hidden = 3072;
    config.n_head = 48;
    config.n_head_kv = 8;
    config.head_dim = 128;
    config.n_expert = 256;
    config.n_expert_used = 8;
    config.expert_ff = 1536;
    config.n_vocab = 200064;
    config.n_context_train = k_trained;
    return config;
}

std::vector<weights::WeightSpec> full_weights(const Mix& mix) {
    const model::Config config = full_config();
    std::vector<weights::WeightSpec> all;
    const auto add = [&](Role role, int64_t layer, int64_t expert, Format format, int64_t rows,
                         int64_t cols) {
        all.push_back({.role = static_cast<int32_t>(role),
                       .layer = static_cast<int32_t>(layer),
                       .expert = static_cast<int32_t>(expert),
                       .use = weights::Use::product,
                       .format = format,
                       .rows = rows,
                       .cols = cols,
                       .row_bytes = row_bytes(format, cols)});
    };
    add(Role::embedding, -1, -1, mix.dense, config.n_vocab, config.hidden);
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
        add(Role::wq, layer, -1, mix.dense, 48 * 128 + 2 * 8 * 128, config.hidden);
        add(Role::wo, layer, -1, mix.dense, config.hidden, 48 * 128);
        add(Role::router, layer, -1, Format::f32, config.n_expert, config.hidden);
        for (int64_t e = 0; e < config.n_expert; ++e) {
            add(Role::gate, layer, e, mix.gate, config.expert_ff, config.hidden);
            add(Role::up, layer, e, mix.up, config.expert_ff, config.hidden);
            add(Role::down, layer, e, mix.down, config.hidden, config.expert_ff);
        }
    }
    add(Role::output, -1, -1, mix.dense, config.n_vocab, config.hidden);
    return all;
}

Request engine_request(int64_t n_context) {
    return {.n_context = n_context, .n_sequences = 16, .for_engine = true, .cache_bytes = k_cache_all_room};
}

// Returns the plan of an engine of 16 requests.
Plan engine_plan(const std::vector<weights::WeightSpec>& weights, const std::vector<std::string>& cards,
                 uint64_t host_gib, int64_t n_context) {
    Machine machine = {.host = {host_gib * k_gib, 1e11, false}};
    if (!cards.empty())
        for (const DescribedDevice& device : parse_devices(cards)) machine.devices.push_back(device.facts);
    return make_plan(engine_request(n_context), machine, full_config(), weights);
}

uint64_t sum(const PlannedPlace& place) {
    return place.dense_bytes + place.expert_bytes + place.kv_bytes + place.work_bytes;
}

}  // namespace

TEST_CASE("an engine takes what was asked for, and between one context and one for each request") {
    CHECK(sizes_of(4096, 1'000'000) == EngineSizes{4096, 16 * 4096, 16, 512});
    CHECK(sizes_of(65536, 1'000'000) == EngineSizes{65536, k_usual_kv_tokens, 16, 512});
    CHECK(sizes_of(200'000, 1'000'000) == EngineSizes{200'000, 200'000, 16, 512});
    CHECK(sizes_of(0, 1'000'000) == EngineSizes{k_trained, k_trained, 16, 512});
    const EngineSizes some = sizes_of(4096, 20'000);
    CHECK(some.n_context == 4096);
    CHECK(some.n_kv_tokens == 284 * 64);  // 15/16 of the memory, less the rows
    CHECK(some.n_requests == 16);
    CHECK(sizes_of(4000, 4700).n_kv_tokens == 4032);  // whole pages; of the reserve, as it was asked for
}

TEST_CASE("an engine takes the longest context that fits, and fewer rows and requests last") {
    const EngineSizes longest = sizes_of(0, 80'000);
    CHECK(longest.n_context == 74'432);
    CHECK(longest.n_kv_tokens == longest.n_context);
    CHECK(longest.n_requests == 16);
    CHECK(longest.n_rows == 512);
    // 15/16 of 550 tokens are 515: a page fits beside 256 rows.
    const EngineSizes little = sizes_of(0, 550);
    CHECK(little == EngineSizes{256, 256, 4, 256});
    CHECK(sizes_of(0, 80).n_context == 0);
    CHECK(sizes_of(0, 120) == EngineSizes{64, 64, 1, 32});
}

TEST_CASE("what was asked for and does not fit is not replaced") {
    CHECK(sizes_of(65536, 60'000).n_context == 0);
    CHECK(longest_context({.n_context = 65536,
                           .longest = k_trained,
                           .n_requests = 16,
                           .fewer_requests = true,
                           .n_rows = 512},
                          memory_of(60'000)) == 55'680);
    // Each of 16 requests needs a page.
    CHECK(sizes_of(64, 1000, true).n_context == 0);
    CHECK(sizes_of(64, 1000, false) == EngineSizes{64, 384, 6, 512});
    const EngineWish many = {.n_context = 64, .n_requests = 4096, .n_rows = 4096, .fewer_rows = true};
    CHECK(most_requests(many, memory_of(5000)) == 76);  // 76 rows and pages of 64 tokens, of all memory
    CHECK(most_requests(many, memory_of(60)) == 0);
    CHECK(sizes_of(64, 2000, true) == EngineSizes{64, 1024, 16, 512});
}

TEST_CASE("the KV cache leaves to weights at least what it takes from them") {
    CHECK(sizes_of(4096, 200'000, false, 150'000).n_kv_tokens == 36'928);  // takes nothing from them
    CHECK(sizes_of(65536, 200'000, false, 190'000).n_kv_tokens == 99'456);
    CHECK(sizes_of(150'016, 200'000, false, 190'000).n_kv_tokens == 150'016);
    CHECK(sizes_of(0, 200'000, false, 150'000).n_context == 36'928);
    CHECK(sizes_of(0, 200'000, false, 190'000).n_context == 99'456);
}

TEST_CASE("engines of full-size models take what fits on machines of 24 to 256 GB") {
    const std::vector<std::vector<std::string>> machines = {
        {},         {"RTX 3090"}, {"RTX PRO 6000"}, {"4x RTX 3090"}, {"RTX PRO 6000", "RTX 4080", "RTX 4080"},
        {"2x B200"}};
    for (const Mix& mix : k_mixes) {
        const auto weights = full_weights(mix);
        for (const auto& cards : machines) {
            for (const int64_t n_context : {int64_t{0}, int64_t{65536}}) {
                Plan before;
                for (const uint64_t host : {24, 64, 128, 256}) {
                    INFO(mix.name << ", " << (cards.empty() ? "no card" : cards[0]) << ", host " << host
                                  << ", -c " << n_context);
                    const Plan plan = engine_plan(weights, cards, host, n_context);
                    for (size_t d = 0; d < plan.devices().size(); ++d)
                        CHECK(sum(plan.devices()[d]) <= parse_devices(cards)[d].facts.memory_bytes);
                    CHECK(plan.host().kv_bytes + plan.host().work_bytes <= host * k_gib);
                    CHECK(plan.n_context >= (n_context > 0 ? n_context : 8192));
                    CHECK(plan.n_kv_tokens >= plan.n_context);
                    CHECK(plan.n_kv_tokens <= std::max(k_usual_kv_tokens, plan.n_context));
                    CHECK(plan.n_sequences == 16);
                    // More memory gives a longer context, unless all weights then have room beside a shorter one.
                    if (cards.empty() && plan.fits == before.fits) CHECK(plan.n_context >= before.n_context);
                    if (cards.empty() && !plan.fits) CHECK(plan.n_kv_tokens == plan.n_context);
                    before = plan;
                }
            }
        }
    }
}

TEST_CASE("a context that does not fit is named with the one that does") {
    const auto weights = full_weights(mix_of("IQ5_K"));
    const model::Config config = full_config();
    const Machine machine = {.host = {24 * k_gib, 1e11, false}};
    const ModelBytes bytes = model_bytes(config, weights, machine.host);
    const Rules rules = read_rules({}, machine, config);
    // Returns the longest context that fits, if this one does not.
    const auto longest_for = [&](int64_t n_context) {
        Request request = engine_request(n_context);
        const int64_t longest = choose_kv(request, machine, bytes, rules);
        CHECK(request.n_context == n_context);
        CHECK(Planner(request, machine, bytes, rules).place().fits == false);
        return longest;
    };
    const int64_t longest = longest_for(k_trained);
    CHECK(longest > 65536);
    CHECK(longest < 100'000);
    CHECK(longest_for(longest) == 0);
    CHECK(longest_for(longest + 64) == longest);
}

TEST_CASE("decoding on an H100 and an H200 is predicted within 12 %") {
    // Measured (docs/performance.md), at short contexts.
    const std::map<std::string, std::map<std::string, double>> measured = {
        {"H100", {{"IQ2_S", 200}, {"IQ4_XS", 184}, {"Q4_K", 188}, {"IQ5_K", 131}, {"Q8_0", 160}}},
        {"H200", {{"IQ2_S", 256}, {"IQ4_XS", 227}, {"Q4_K", 241}, {"IQ5_K", 149}, {"Q8_0", 213}}}};
    for (const auto& [card, speeds] : measured) {
        DeviceFacts device = *find_card(card);
        device.name = "cuda:0";
        device.memory_bytes = 400 * k_gib;  // the figures of 62 layers are computed from 8
        for (const bool is_known : {true, false}) {
            if (!is_known) device.multiprocessor_hz = 0.0;
            for (const auto& [mix, speed] : speeds) {
                const auto weights = full_weights(mix_of(mix));
                const Plan plan = make_plan({.n_context = 128, .cache_bytes = k_cache_all_room},
                                            {.devices = {device}, .host = {400 * k_gib, 1e11, false}},
                                            full_config(), weights);
                INFO(card << ", " << mix << ", card is known: " << is_known);
                CHECK(std::abs(plan.decode_tokens_per_second / speed - 1.0) < 0.12);
            }
        }
    }
}
