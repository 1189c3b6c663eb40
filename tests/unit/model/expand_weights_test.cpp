// SPDX-License-Identifier: Apache-2.0
// Models with codebooks unpacked at load.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/memory_info.h"
#include "format/iq1_m.h"
#include "placement/backends.h"
#include "support.h"
#include "weights/expand.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr Format k_grids[] = {Format::iq1_s, Format::iq1_m,   Format::iq2_xxs, Format::iq2_xs,
                              Format::iq2_s, Format::iq3_xxs, Format::iq3_s};

// Sets a block's scale to a small number. All other bytes are codes, for which any value is valid.
void put_scale(Format format, std::byte* block) {
    constexpr uint16_t k_d = 0x1C00;  // 2^-8
    if (format != Format::iq1_m) return static_cast<void>(std::memcpy(block, &k_d, sizeof(k_d)));
    for (int i = 0; i < 4; ++i) {
        std::byte& upper = block[IQ1_M::scales_at + 2 * i + 1];
        upper = (upper & std::byte{0x0F}) | static_cast<std::byte>((k_d >> (4 * i) & 15) << 4);
    }
}

void store_by_chance(TinyModel& tiny, const std::string& name, Format format, std::mt19937& random) {
    TinyTensor& tensor = tiny.tensors.at(name);
    const auto n_blocks = tensor.values.size() / static_cast<size_t>(traits(format).block_elems);
    const auto block_bytes = static_cast<size_t>(traits(format).block_bytes);
    tensor.format = format;
    tensor.data.resize(n_blocks * block_bytes);
    for (std::byte& byte : tensor.data) byte = static_cast<std::byte>(random() & 255U);
    for (size_t b = 0; b < n_blocks; ++b) put_scale(format, tensor.data.data() + b * block_bytes);
}

// Returns a model in which some matrices end with a partly filled panel, and some have fewer rows than one panel.
TinyModel model_of(Format format) {
    TinyModel tiny(
        {.n_layer = 2, .hidden = 256, .n_head = 8, .n_head_kv = 1, .n_expert = 3, .expert_ff = 256});
    std::mt19937 random(static_cast<uint32_t>(format));
    store_by_chance(tiny, "output.weight", format, random);
    for (const char* layer : {"blk.0.", "blk.1."}) {
        for (const char* matrix :
             {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"})
            store_by_chance(tiny, layer + std::string(matrix) + ".weight", format, random);
    }
    return tiny;
}

std::unique_ptr<const model::Model> opened(const std::string& path, weights::Expand expand, CpuLevel level) {
    static const Logger silent;
    model::OpenOptions options;
    options.residence = checkpoint::HostStorage::owned;
    options.expand = expand;
    return std::make_unique<const model::Model>(
        path, placement::make_backend("cpu", std::make_shared<ThreadPool>(2), level), options, silent);
}

}  // namespace

TEST_CASE("unpacked codebooks give the logits of the packed ones, bit for bit") {
    const Format format = GENERATE(from_range(std::begin(k_grids), std::end(k_grids)));
    INFO(traits(format).name);
    TinyModel tiny = model_of(format);
    const TemporaryFolder folder;
    const std::string path = folder / "tiny.gguf";
    tiny.write(path);
    const std::vector<int32_t> ids = tiny.random_ids(40);
    for (const CpuLevel level : {CpuLevel::scalar, active_cpu_level()}) {
        const auto points = opened(path, weights::Expand::off, level);
        const auto unpacked = opened(path, weights::Expand::on, level);
        CHECK(points->weights().layers[1].experts.down.format == format);
        CHECK(unpacked->weights().layers[1].experts.down.format == unpacked_format(format));
        CHECK(unpacked->weights().layers[0].wv.format == unpacked_format(format));
        CHECK(unpacked->weights().output.format == unpacked_format(format));
        CHECK(unpacked->weight_bytes().front().total > points->weight_bytes().front().total);
        CHECK(unpacked->weight_bytes().front().experts > points->weight_bytes().front().experts);
        CHECK(unpacked->fingerprint() == points->fingerprint());
        for (const size_t chunk : {0, 1, 7})
            CHECK(same_bits(logits_of(*unpacked, ids, Format::f16, chunk),
                            logits_of(*points, ids, Format::f16, chunk)));
    }
}

TEST_CASE("little weight, other formats and mapped weights are not expanded") {
    const TemporaryFolder folder;
    const std::string path = folder / "tiny.gguf";
    model_of(Format::iq3_s).write(path);
    const auto small = opened(path, weights::Expand::automatic, active_cpu_level());
    CHECK(small->weights().output.format == Format::iq3_s);

    static const Logger silent;
    model::OpenOptions options;
    options.residence = checkpoint::HostStorage::mapped;
    options.expand = weights::Expand::on;
    const auto backend = placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level());
    const model::Model mapped(path, backend, options, silent);
    CHECK(mapped.weights().output.format == Format::iq3_s);

    const std::string others = folder / "others.gguf";
    TinyModel().write(others);
    CHECK(opened(others, weights::Expand::on, active_cpu_level())->weights().output.format == Format::f32);
    options.residence = checkpoint::HostStorage::owned;
    const model::Model plain(
        path, placement::make_backend("reference", std::make_shared<ThreadPool>(2), active_cpu_level()),
        options, silent);
    CHECK(plain.weights().output.format == Format::iq3_s);
}

TEST_CASE("codebooks whose unpacked form would fill the memory stay packed, unless asked for") {
    const auto backend = placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level());
    // Only the shapes of weights matter here. Unpacked, the experts in IQ3_S and IQ2_S fit at first; with the experts that are
    // added below they do not.
    constexpr int64_t k_rows = 1 << 16;
    std::vector<weights::WeightSpec> specs;
    const auto add_experts = [&](Format format, int64_t n_expert) {
        weights::WeightSpec spec = {.layer = 0, .use = weights::Use::product, .format = format};
        spec.rows = k_rows;
        spec.cols = 1024;
        spec.row_bytes = row_bytes(format, 1024);
        for (int64_t e = 0; e < n_expert; ++e) specs.push_back(spec);
    };
    for (const Format format : {Format::iq3_s, Format::iq2_s, Format::iq4_xs}) add_experts(format, 4);
    const Lines lines;
    const auto chosen = [&](weights::Expand expand) {
        std::vector<const weights::WeightSpec*> all;
        for (const weights::WeightSpec& spec : specs) all.push_back(&spec);
        return weights::choose_unpacked(*backend->host(), all, expand, lines.log);
    };
    const auto all = chosen(weights::Expand::on);
    CHECK((all.contains(Format::iq3_s) && all.contains(Format::iq2_s) && !all.contains(Format::iq4_xs)));
    CHECK(all.stored_format(Format::iq3_s) == Format::x3_s);
    CHECK(all.stored_format(Format::iq4_xs) == Format::iq4_xs);
    CHECK(lines.all.empty());
    const auto none = chosen(weights::Expand::off);
    CHECK((!none.contains(Format::iq3_s) && !none.contains(Format::iq2_s)));

    chosen(weights::Expand::automatic);
    CHECK(lines.holding("unpacked codebooks of IQ3_S take") == 1);
    CHECK(lines.holding("unpacked codebooks of IQ2_S take") == 1);
    CHECK(lines.holding("codebooks stay packed") == 0);

    add_experts(Format::iq4_xs, static_cast<int64_t>(available_memory_bytes() / specs.back().bytes()));
    const auto small = chosen(weights::Expand::automatic);
    CHECK((!small.contains(Format::iq3_s) && !small.contains(Format::iq2_s)));
    CHECK(lines.holding("codebooks stay packed") == 1);
    CHECK(lines.all.size() == 3);
    CHECK(chosen(weights::Expand::on).contains(Format::iq3_s));
}

TEST_CASE("the relative time of unpacked codebooks can be measured for every format") {
    const auto backend = placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level());
    for (const Format format : k_grids) {
        const double time = weights::unpacked_time(*backend->host(), format);
        INFO(traits(format).name << ": " << time);
        CHECK(time > 0.01);
        CHECK(time < 100.0);
    }
}
