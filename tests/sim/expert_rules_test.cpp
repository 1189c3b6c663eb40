// SPDX-License-Identifier: Apache-2.0
// Tests which experts are placed where, as the caller's rules say.
#include "base/error.h"
#include "placement/place.h"
#include "placement/rules.h"
#include "runtime/placement.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

// Ten layers on the first two of three devices, and the rules of a request applied to them.
class Ten {
  public:
    Ten() : machine(machine_of({devices.begin(), devices.end()})) {}

    std::string placed(const placement::Request& request) {
        model::Config config;
        config.n_layer = 10;
        const placement::Rules rules = placement::read_rules(request, machine, config);
        placement::Plan plan;
        plan.places.resize(4);
        plan.layer_place = layers;
        placement::check_rules(rules, machine, plan.layer_place);
        n_ruled = 0;
        for (size_t l = 0; l < layers.size(); ++l) {
            plan.expert_place.push_back(rules.experts[l].value_or(layers[l]));
            n_ruled += rules.experts[l] ? 1 : 0;
        }
        return to_string(runtime::Placement(stages_of(plan, machine)));
    }

    std::string overridden(std::string text, int64_t n_host_experts = 0) {
        return placed({.overrides = std::move(text), .n_host_experts = n_host_experts});
    }

    Devices devices = make_devices(3);
    placement::Machine machine;
    std::vector<int64_t> layers = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    int64_t n_ruled = 0;
};

std::string parsed(std::string_view text) {
    std::string all;
    for (const auto& [pattern, device] : placement::parse_overrides(text))
        all.append("<").append(pattern).append("|").append(device).append(">");
    return all;
}

}  // namespace

TEST_CASE("overrides are taken apart at commas that no pattern has") {
    CHECK(parsed("exps=cpu") == "<exps|cpu>");
    CHECK(parsed("exps=CPU,ffn_up=cuda:1") == "<exps|CPU><ffn_up|cuda:1>");
    CHECK(parsed(R"(blk\.\d{1,2}\.ffn=sim:0,a=b)") == R"(<blk\.\d{1,2}\.ffn|sim:0><a|b>)");
    CHECK(parsed("a=b=c") == "<a=b|c>");
    // No tensor's name has a comma: the pattern is refused when it is looked for.
    CHECK(parsed("exps=cpu,,a=b") == "<exps|cpu><,a|b>");
    for (const char* bad : {"", "exps", "=cpu", "exps=", "exps=cpu,", "exps=cpu,x", "exps=,a=b"})
        expect_error(Status::invalid, "is not of the form PATTERN=DEVICE", [&] { parsed(bad); });
}

TEST_CASE("experts of the first or the last layers stay with the host") {
    Ten ten;
    const auto with = [&](int64_t n) { return ten.placed({.n_host_experts = n}); };
    const std::string layers = "sim:0 (layers 0-5), sim:1 (layers 6-9)";
    CHECK(with(0) == layers);
    CHECK(ten.n_ruled == 0);
    CHECK(with(1) == layers + ", cpu (experts of layer 0)");
    CHECK(with(7) == layers + ", cpu (experts of layers 0-6)");
    CHECK(ten.n_ruled == 7);
    CHECK(with(10) == layers + ", cpu (experts of layers 0-9)");
    CHECK(with(INT32_MAX) == layers + ", cpu (experts of layers 0-9)");
    CHECK(with(-2) == layers + ", cpu (experts of layers 8-9)");
    CHECK(with(-99) == layers + ", cpu (experts of layers 0-9)");
}

TEST_CASE("the first override that matches decides, and devices need no layers of their own") {
    Ten ten;
    const std::string layers = "sim:0 (layers 0-5), sim:1 (layers 6-9)";
    CHECK(ten.overridden("exps=cpu") == layers + ", cpu (experts of layers 0-9)");
    CHECK(ten.overridden("exps=sim:0") == "sim:0 (layers 0-5, experts of layers 6-9), sim:1 (layers 6-9)");
    CHECK(ten.overridden("exps=sim:2") == layers + ", sim:2 (experts of layers 0-9)");
    CHECK(ten.overridden(R"(blk\.(3|4)\..*exps=sim:1)") ==
          "sim:0 (layers 0-5), sim:1 (layers 6-9, experts of layers 3-4)");
    CHECK(ten.overridden(R"(blk\.(3|4|7)\..*exps=sim:2,exps=cpu)") ==
          layers + ", cpu (experts of layers 0-2, 5-6, 8-9), sim:2 (experts of layers 3-4, 7)");
    CHECK(ten.overridden(R"(blk\.[0-4]\.ffn_(gate|up|down)_exps\.weight=cpu)") ==
          layers + ", cpu (experts of layers 0-4)");
    // The number of layers applies to the experts that no override names.
    CHECK(ten.overridden(R"(blk\.1\..*exps=sim:2)", 3) ==
          layers + ", cpu (experts of layers 0, 2), sim:2 (experts of layer 1)");
    // An exception for the layer's own device.
    CHECK(ten.overridden(R"(blk\.1\.ffn=sim:0)", 3) == layers + ", cpu (experts of layers 0, 2)");
}

TEST_CASE("a layer of the CPU keeps its experts there, whatever the CPU's backend is") {
    Ten ten;
    ten.machine = machine_of({cpu_backend(), ten.devices[0], ten.devices[1]});
    CHECK(ten.placed({.n_host_experts = 7}) ==
          "cpu (layers 0-5), sim:0 (layers 6-9), cpu (experts of layer 6)");
    ten.layers = {3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK(ten.placed({.n_host_experts = 3}) == "cpu (layers 0-1, experts of layer 2), sim:0 (layers 2-9)");
}

TEST_CASE("devices are named as on command lines") {
    Ten ten;
    const std::string layers = "sim:0 (layers 0-5), sim:1 (layers 6-9)";
    CHECK(ten.overridden("exps=SIM2") == layers + ", sim:2 (experts of layers 0-9)");
    expect_error(Status::invalid,
                 "override exps=sim:7: device 'sim:7' is not in the plan (there are: cpu, sim:0",
                 [&] { ten.overridden("exps=sim:7"); });
}

TEST_CASE("an override that moves nothing, or more than experts, is refused by name") {
    Ten ten;
    expect_error(Status::invalid,
                 "override expz=cpu: no tensor has such a name; the names are like blk.0.ffn_up_exps.weight",
                 [&] { ten.overridden("expz=cpu"); });
    expect_error(Status::invalid, "override blk\\.10\\.=cpu: no tensor",
                 [&] { ten.overridden("blk\\.10\\.=cpu"); });
    expect_error(Status::invalid,
                 "override ffn_up_exps=sim:2: earlier overrides place all tensors that it matches",
                 [&] { ten.overridden("exps=cpu,ffn_up_exps=sim:2"); });
    expect_error(Status::unsupported,
                 "override attn=cpu: blk.0.attn_norm.weight stays on sim:0 with its layer",
                 [&] { ten.overridden("attn=cpu"); });
    expect_error(Status::unsupported, "token_embd.weight stays on sim:0",
                 [&] { ten.overridden("embd=cpu"); });
    expect_error(Status::unsupported, "output.weight stays on sim:1",
                 [&] { ten.overridden("^output\\.w=cpu"); });
    expect_error(Status::unsupported,
                 "experts of layer 0 would be on sim:0 and on cpu (blk.0.ffn_down_exps.weight); a layer's "
                 "stay together",
                 [&] { ten.overridden("ffn_down_exps=cpu"); });
    expect_error(Status::unsupported,
                 "experts of layer 2 would be on sim:0 and on sim:2 (blk.2.ffn_up_exps.weight)",
                 [&] { ten.overridden(R"(blk\.2\.ffn_up_exps=sim:2,blk\.2\.ffn_gate=sim:0)"); });
    // The number of host layers counts for the matrices that no override names.
    CHECK(ten.overridden(R"(blk\.0\.ffn_up_exps=cpu)", 1) ==
          "sim:0 (layers 0-5), sim:1 (layers 6-9), cpu (experts of layer 0)");
    expect_error(Status::unsupported,
                 "experts of layer 0 would be on cpu and on sim:0 (blk.0.ffn_up_exps.weight)",
                 [&] { ten.overridden(R"(blk\.0\.ffn_up_exps=sim:0)", 1); });
    expect_error(Status::invalid, "at byte", [&] { ten.overridden("(=cpu"); });
    expect_error(Status::unsupported, "the regular expression", [&] { ten.overridden(R"((u)\1exps=cpu)"); });
}

TEST_CASE("a pattern that a backtracking search would never end with is looked for in no time") {
    Ten ten;
    expect_error(Status::invalid, "no tensor has such a name", [&] { ten.overridden("((.|.)*)*Q=cpu"); });
}

}  // namespace minim::test
