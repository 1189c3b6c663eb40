// SPDX-License-Identifier: Apache-2.0
#include "convert/earlier_output.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using namespace testing;
using test::expect_error;

const std::string k_importance = MINIM_TEST_DATA "/importance/tiny.gguf";

Options q4_options(const TemporaryFolder& folder, const std::string& name) {
    return quantize_options(k_folder, folder / name, "Q4_0");
}

}  // namespace

TEST_CASE("tensors of an earlier output are copied if they would be the same") {
    const TemporaryFolder folder;
    run(q4_options(folder, "earlier.gguf"));
    Options options = q4_options(folder, "x.gguf");
    options.types.rules = {"ffn_down_exps=q5_0"};
    const json wanted = run(options);
    CHECK(wanted["reused"] == 0);
    options.output = folder / "y.gguf";
    options.reuse = folder / "earlier.gguf";
    const json report = run(options);
    CHECK(text_of(folder / "y.gguf") == text_of(folder / "x.gguf"));
    // Attention, gate, up, embedding and output; norms and routers stay as they are or are F32.
    CHECK(report["reused"] >= 3 * 6 + 2);
    CHECK(report["reused"] < report["tensors"].size() - 2);
    for (size_t i = 0; i < report["tensors"].size(); ++i) {
        INFO(report["tensors"][i]["name"]);
        CHECK(report["tensors"][i]["xxh3"] == wanted["tensors"][i]["xxh3"]);
        CHECK(report["tensors"][i].value("rmse", -1.0) == wanted["tensors"][i].value("rmse", -1.0));
    }
}

TEST_CASE("an earlier output of other importance data or effort gives nothing") {
    const TemporaryFolder folder;
    run(q4_options(folder, "earlier.gguf"));
    Options options = q4_options(folder, "x.gguf");
    options.reuse = folder / "earlier.gguf";
    options.imatrix = k_importance;
    CHECK(run(options)["reused"] == 0);
    options.imatrix.clear();
    options.effort = EncodeEffort::fast;
    options.overwrites = true;
    CHECK(run(options)["reused"] == 0);
}

TEST_CASE("tensors of an earlier output that changed, or come of other weights, are made again") {
    const TemporaryFolder folder;
    run(q4_options(folder, "earlier.gguf"));
    const std::string wanted = text_of(folder / "earlier.gguf");
    std::string damaged = wanted;
    damaged[damaged.size() - 100'000] ^= 1;
    std::ofstream(folder / "damaged.gguf", std::ios::binary) << damaged;
    Options options = q4_options(folder, "x.gguf");
    options.reuse = folder / "damaged.gguf";
    const int64_t n_reused = run(options)["reused"];
    CHECK(text_of(folder / "x.gguf") == wanted);
    options.overwrites = true;
    options.reuse = folder / "earlier.gguf";
    CHECK(run(options)["reused"] == n_reused + 1);
    // Other weights: those of the NVFP4 folder.
    Options other = quantize_options(MINIM_TEST_MODELS "/minim-tiny-nvfp4", folder / "y.gguf", "Q4_0");
    other.types.allows_requantize = true;
    run(other);
    Options again = other;
    again.output = folder / "z.gguf";
    again.reuse = folder / "earlier.gguf";
    run(again);
    CHECK(text_of(folder / "z.gguf") == text_of(folder / "y.gguf"));
}

TEST_CASE("a file without hashes is no earlier output") {
    const TemporaryFolder folder;
    Options options = q4_options(folder, "x.gguf");
    options.reuse = k_q8_0;
    expect_error(Status::invalid, "minim.tensor_xxh3", [&] { run(options); });
    options.reuse = folder / "nowhere.gguf";
    expect_error(Status::not_found, "nowhere.gguf", [&] { run(options); });
    CHECK_FALSE(std::filesystem::exists(folder / "x.gguf.partial"));
}

}  // namespace minim::convert
