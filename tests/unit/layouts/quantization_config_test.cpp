// SPDX-License-Identifier: Apache-2.0
// Checks the declarations in the files of a quantised folder, and that two files that declare methods must agree.
#include "layouts/quantization_config.h"

#include <string>

#include "support/catch.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using layouts::Method;

namespace {

layouts::Declaration of_config(const std::string& quantization) {
    return layouts::declared_methods(json::parse(quantization, "config.json", json::Source::file));
}

// Returns the declarations of both files; an empty text stands for a missing file.
layouts::PackingHints hints_of(const std::string& quantization, const std::string& hf_quant) {
    layouts::PackingHints hints;
    if (!quantization.empty()) hints.declarations.push_back(of_config(quantization));
    layouts::add_hf_quant_config(hf_quant, hints);
    return hints;
}

std::string hf_file(const std::string& quantization) {
    return R"({"producer": {"name": "modelopt"}, "quantization": )" + quantization + "}";
}

bool is(const layouts::Declaration::Entry& entry, Method method, int64_t group = 0) {
    return entry.method == method && entry.group == group;
}

}  // namespace

TEST_CASE("config.json declares methods in the words of its writer") {
    const auto single = [](const std::string& quantization) {
        const auto declared = of_config(quantization);
        REQUIRE(declared.entries.size() == 1);
        CHECK(declared.file == "config.json");
        return declared.entries.front();
    };
    CHECK(is(single(R"({"quant_method": "fp8"})"), Method::fp8));
    CHECK(is(single(R"({"quant_method": "mxfp4"})"), Method::mxfp4));
    CHECK(is(single(R"({"quant_method": "mxfp8"})"), Method::mxfp8));
    CHECK(is(single(R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": 16})"),
             Method::nvfp4, 16));
    CHECK(is(single(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
                    {"num_bits": 4, "type": "float", "group_size": 32}}}})"),
             Method::mxfp4, 32));
    const auto experts = of_config(R"({"quant_method": "mxfp8", "moe_quant_algo": "NVFP4"})");
    REQUIRE(experts.entries.size() == 2);
    CHECK(is(experts.entries[1], Method::nvfp4));
    const auto groups = of_config(R"({"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}})");
    REQUIRE(groups.entries.size() == 3);  // FP8 or MXFP8, and integers
    CHECK(is(groups.entries[2], Method::integers));
}

TEST_CASE("nothing is declared by writers whose words are not known") {
    for (const char* quantization :
         {R"({"quant_method": "quark"})", R"({"quant_method": "gptq", "bits": 4})",
          R"({"quant_method": "modelopt", "quant_algo": "SPARSE_X"})", R"({"quant_algo": null})",
          R"({"quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "X"}}})",
          R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": null}}})",
          R"({"quant_method": "compressed-tensors", "config_groups": [1, "a", null]})",
          R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
              {"num_bits": 6, "type": "float"}}}})"}) {
        const auto declared = of_config(quantization);
        CHECK(declared.entries.empty());
        CHECK(declared.modules.empty());
    }
}

TEST_CASE("hf_quant_config.json names one method or those of single modules") {
    const auto one = hints_of("", hf_file(R"({"quant_algo": "FP8_PB_WO", "kv_cache_quant_algo": "FP8"})"));
    REQUIRE(one.declarations.size() == 1);
    CHECK(one.declarations[0].file == "hf_quant_config.json");
    REQUIRE(one.declarations[0].entries.size() == 1);
    CHECK(is(one.declarations[0].entries[0], Method::fp8));
    CHECK(is(hints_of("", R"({"quant_algo": "NVFP4"})").declarations[0].entries[0], Method::nvfp4));
    const auto mixed = hints_of("", hf_file(R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "m.a": {"quant_algo": "MXFP8"}, "m.b": {"quant_algo": "W4A8_AWQ", "group_size": 128}}})"));
    CHECK(is(mixed.declarations[0].modules.at("m.a"), Method::mxfp8));
    CHECK(is(mixed.declarations[0].modules.at("m.b"), Method::integers, 128));
    CHECK(hints_of("", hf_file(R"({"quant_algo": null})")).declarations[0].entries.empty());
}

TEST_CASE("two files that contradict each other are refused with both names") {
    const std::string fp8 = R"({"quant_method": "modelopt", "quant_algo": "FP8"})";
    CHECK(hints_of(fp8, hf_file(R"({"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"})")).declarations.size() == 2);
    CHECK_NOTHROW(hints_of(R"({"quant_method": "quark"})", hf_file(R"({"quant_algo": "NVFP4"})")));
    CHECK_NOTHROW(
        hints_of(R"({"quant_algo": "NVFP4"})", hf_file(R"({"quant_algo": "NVFP4", "group_size": 16})")));

    const auto refused = [](const std::string& quantization, const std::string& hf_quant,
                            std::string_view part) {
        expect_error(Status::format, part, [&] { hints_of(quantization, hf_quant); });
    };
    refused(fp8, hf_file(R"({"quant_algo": "NVFP4", "group_size": 16})"),
            "hf_quant_config.json declares quant_algo \"NVFP4\", group_size 16, config.json declares "
            "quant_algo \"FP8\"");
    refused(R"({"quant_algo": "NVFP4", "group_size": 16})",
            hf_file(R"({"quant_algo": "NVFP4", "group_size": 32})"), "group_size 32, config.json declares");
    refused(R"({"quant_method": "fp8"})", hf_file(R"({"quant_algo": "MXFP4"})"),
            "config.json declares quant_method fp8");
    refused("", "[]", "hf_quant_config.json is not a JSON object");
    refused("", R"({"quantization": )", "hf_quant_config.json");
}
