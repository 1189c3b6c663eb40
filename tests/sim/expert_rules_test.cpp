// SPDX-License-Identifier: Apache-2.0
// Tests which experts are placed where, as the caller's rules say.
#include "placement/expert_rules.h"

#include "base/error.h"
#include "placement/devices.h"
#include "runtime/placement.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using placement::ExpertRules;
using placement::Override;

// Ten layers on two devices, and the rules applied to them.
class Ten {
  public:
    Ten() : devices(make_devices(3)), host(cpu_backend()) {}

    std::string placed(ExpertRules rules) {
        std::vector<runtime::Stage> stages = {{devices[0], 6}, {devices[1], 4}};
        rules.host = host;
        placement::place_experts(rules, stages);
        is_pinned.clear();
        for (const auto& device : placement::expert_devices(rules, 10))
            is_pinned.push_back(device != nullptr);
        return to_string(runtime::Placement(stages));
    }

    // "exps=cpu,...": devices by their names.
    std::string overridden(std::string_view text, int64_t n_host_layers = 0) {
        ExpertRules rules;
        rules.n_host_layers = n_host_layers;
        for (const auto& [pattern, name] : placement::parse_overrides(text)) {
            Override rule = {pattern, host};
            for (const auto& device : devices)
                if (device->name() == name) rule.device = device;
            rules.overrides.push_back(rule);
        }
        return placed(rules);
    }

    Devices devices;
    std::shared_ptr<const backend::Backend> host;
    std::vector<bool> is_pinned;
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
    const auto with = [&](int64_t n) { return ten.placed({.n_host_layers = n}); };
    const std::string layers = "sim:0 (layers 0-5), sim:1 (layers 6-9)";
    CHECK(with(0) == layers);
    CHECK(std::ranges::count(ten.is_pinned, true) == 0);
    CHECK(with(1) == layers + ", cpu (experts of layer 0)");
    CHECK(with(7) == layers + ", cpu (experts of layers 0-6)");
    CHECK(std::ranges::count(ten.is_pinned, true) == 7);
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
    std::vector<runtime::Stage> stages = {{cpu_backend(), 2}, {make_devices(1)[0], 2}};
    placement::place_experts({.n_host_layers = 3, .host = cpu_backend()}, stages);
    CHECK(to_string(runtime::Placement(stages)) ==
          "cpu (layers 0-1), sim:0 (layers 2-3), cpu (experts of layer 2)");
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
    expect_error(Status::invalid, "at byte", [&] { ten.overridden("(=cpu"); });
    expect_error(Status::unsupported, "the regular expression", [&] { ten.overridden(R"((u)\1exps=cpu)"); });
}

TEST_CASE("a pattern that a backtracking search would never end with is looked for in no time") {
    Ten ten;
    expect_error(Status::invalid, "no tensor has such a name", [&] { ten.overridden("((.|.)*)*Q=cpu"); });
}

}  // namespace minim::test
