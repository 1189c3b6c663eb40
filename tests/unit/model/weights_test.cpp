// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plain_forward.h"
#include "support.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr size_t k_ids = 20;

GgufTensor& tensor_of(GgufWriter& gguf, const std::string& name) {
    const auto found = std::ranges::find(gguf.tensors, name, &GgufTensor::name);
    REQUIRE(found != gguf.tensors.end());
    return *found;
}

void remove(GgufWriter& gguf, const std::string& name) {
    REQUIRE(std::erase_if(gguf.tensors, [&](const GgufTensor& t) { return t.name == name; }) == 1);
}

void append(std::vector<std::byte>& out, const std::vector<std::byte>& more) {
    out.insert(out.end(), more.begin(), more.end());
}

// Writes the file, opens it and returns the logits of `ids`.
std::vector<float> logits_of(const GgufWriter& gguf, const std::vector<int32_t>& ids,
                             std::string_view backend) {
    const TemporaryFolder folder;
    gguf.write(folder / "m.gguf");
    return test::logits_of(*open_model(folder / "m.gguf", backend), ids);
}

// Checks that opening the file fails with this status, and a message that contains `part`.
void expect_refusal(const GgufWriter& gguf, Status status, std::string_view part) {
    const TemporaryFolder folder;
    gguf.write(folder / "m.gguf");
    expect_error(status, part, [&] { open_model(folder / "m.gguf"); });
}

// Returns one tensor with the rows of several, in their order.
GgufTensor joined_rows(GgufWriter& gguf, const std::vector<std::string>& names, const std::string& name) {
    GgufTensor whole = tensor_of(gguf, names[0]);
    whole.name = name;
    for (size_t i = 1; i < names.size(); ++i) {
        const GgufTensor& part = tensor_of(gguf, names[i]);
        whole.dims[1] += part.dims[1];
        append(whole.data, part.data);
    }
    for (const std::string& old : names) remove(gguf, old);
    return whole;
}

// Returns a tensor with gate and up of each expert one after the other: [n_expert, 2 ff, hidden].
GgufTensor joined_gate_up(GgufWriter& gguf, const std::string& blk) {
    const GgufTensor gate = tensor_of(gguf, blk + "ffn_gate_exps.weight");
    const GgufTensor up = tensor_of(gguf, blk + "ffn_up_exps.weight");
    GgufTensor whole = gate;
    whole.name = blk + "ffn_gate_up_exps.weight";
    whole.dims[1] *= 2;
    whole.data.clear();
    const auto part = static_cast<ptrdiff_t>(gate.data.size() / gate.dims[2]);
    for (ptrdiff_t e = 0; e < static_cast<ptrdiff_t>(gate.dims[2]); ++e) {
        append(whole.data, {gate.data.begin() + e * part, gate.data.begin() + (e + 1) * part});
        append(whole.data, {up.data.begin() + e * part, up.data.begin() + (e + 1) * part});
    }
    remove(gguf, gate.name);
    remove(gguf, up.name);
    return whole;
}

TinyModel two_layers(uint64_t seed = 1) {
    TinyShape shape;
    shape.n_layer = 2;
    return TinyModel(shape, seed);
}

}  // namespace

TEST_CASE("a missing tensor is a format error that names it") {
    for (const char* name :
         {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_norm.weight",
          "blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
          "blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.1.ffn_norm.weight",
          "blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
          "blk.0.ffn_down_exps.weight"}) {
        GgufWriter gguf = two_layers().writer();
        remove(gguf, name);
        expect_refusal(gguf, Status::format, std::string("tensor ") + name + " is missing");
    }
}

TEST_CASE("a correction bias that only some layers have is a format error") {
    GgufWriter gguf = two_layers().writer();
    remove(gguf, "blk.1.exp_probs_b.bias");
    expect_refusal(gguf, Status::format, "tensor blk.1.exp_probs_b.bias is missing");
}

TEST_CASE("a model without any correction bias chooses by the scores alone") {
    TinyModel tiny = two_layers();
    GgufWriter gguf = tiny.writer();
    remove(gguf, "blk.0.exp_probs_b.bias");
    remove(gguf, "blk.1.exp_probs_b.bias");
    const auto ids = tiny.random_ids(k_ids);
    const auto expected = plain_logits(tiny, ids, Mistake::bias_dropped);
    for (const char* backend : {"reference", "cpu"})
        CHECK(relative_rms(logits_of(gguf, ids, backend), expected) < 1e-4);
}

TEST_CASE("a tensor of the wrong shape is a format error with both shapes") {
    for (const char* name :
         {"blk.0.attn_q.weight", "blk.0.attn_q_norm.weight", "blk.1.ffn_norm.weight",
          "blk.0.ffn_up_exps.weight", "output.weight", "output_norm.weight", "blk.1.exp_probs_b.bias"}) {
        GgufWriter gguf = two_layers().writer();
        GgufTensor& tensor = tensor_of(gguf, name);
        // Halves the rows of a matrix, or the values of a vector.
        const size_t rows = tensor.dims.size() == 1 ? 0 : 1;
        const uint64_t before = tensor.dims[rows];
        tensor.dims[rows] = before / 2;
        tensor.data.resize(tensor.data.size() / before * (before / 2));
        const TemporaryFolder folder;
        gguf.write(folder / "m.gguf");
        INFO(name);
        CHECK(reason_of([&] { open_model(folder / "m.gguf"); }) == "shape");
    }
}

TEST_CASE("a transposed matrix is the wrong shape") {
    GgufWriter gguf = two_layers().writer();
    std::swap(tensor_of(gguf, "blk.0.attn_q.weight").dims[0], tensor_of(gguf, "blk.0.attn_q.weight").dims[1]);
    expect_refusal(gguf, Status::format,
                   "blk.0.attn_q.weight has shape [96, 192], the configuration asks for [192, 96]");
}

TEST_CASE("a tensor nobody asked for is refused by name") {
    for (const char* name :
         {"blk.0.attn_q.bias", "blk.0.attn_sinks.weight", "rope_freqs.weight", "blk.2.attn_q.weight",
          "blk.0.ffn_up_shexp.weight", "blk.0.attn_qkv_extra", "output.bias"}) {
        GgufWriter gguf = two_layers().writer();
        gguf.add_f32(name, {4}, {1, 2, 3, 4});
        expect_refusal(gguf, Status::unsupported, name);
    }
}

TEST_CASE("a tensor in two spellings is refused") {
    GgufWriter gguf = two_layers().writer();
    GgufTensor twin = tensor_of(gguf, "blk.1.ffn_norm.weight");
    twin.name = "blk.1.post_attention_norm.weight";
    gguf.add_tensor(twin);
    expect_refusal(gguf, Status::unsupported, twin.name);
}

TEST_CASE("the older spelling of the second norm is understood") {
    TinyModel tiny = two_layers();
    GgufWriter gguf = tiny.writer();
    const auto ids = tiny.random_ids(k_ids);
    const auto expected = logits_of(gguf, ids, "cpu");
    for (const char* layer : {"0", "1"}) {
        tensor_of(gguf, std::string("blk.") + layer + ".ffn_norm.weight").name =
            std::string("blk.") + layer + ".post_attention_norm.weight";
    }
    CHECK(same_bits(logits_of(gguf, ids, "cpu"), expected));
}

TEST_CASE("weights in a type that holds none are unsupported, with tensor and type") {
    GgufWriter gguf = two_layers().writer();
    tensor_of(gguf, "blk.1.attn_k.weight").type = traits(Format::i32).gguf_type;
    expect_refusal(gguf, Status::unsupported, "tensor blk.1.attn_k.weight is of type I32");
}

TEST_CASE("packed norms are unsupported, with tensor and type") {
    TinyModel tiny = two_layers();
    tiny.store_as("blk.1.attn_norm.weight", Format::q8_0);
    expect_refusal(tiny.writer(), Status::unsupported, "tensor blk.1.attn_norm.weight is of type Q8_0");
}

TEST_CASE("norms, router and bias in half precision are widened") {
    for (const Format format : {Format::f16, Format::bf16}) {
        TinyModel tiny = two_layers();
        for (const char* name : {"blk.0.attn_norm.weight", "blk.0.attn_q_norm.weight",
                                 "blk.1.attn_k_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight",
                                 "blk.1.exp_probs_b.bias", "blk.0.ffn_gate_inp.weight"}) {
            tiny.store_as(name, format);
        }
        const auto ids = tiny.random_ids(k_ids);
        const auto expected = plain_logits(tiny, ids);
        for (const char* backend : {"reference", "cpu"}) {
            CHECK(relative_rms(logits_of(tiny.writer(), ids, backend), expected) < 1e-4);
        }
    }
}

TEST_CASE("fused query, key and value rows give the bits of the separate ones") {
    const auto [format, backend] = GENERATE(std::pair(Format::f32, "reference"),
                                            std::pair(Format::f32, "cpu"), std::pair(Format::q8_0, "cpu"));
    TinyModel tiny = two_layers();
    const std::vector<std::string> parts = {"blk.1.attn_q.weight", "blk.1.attn_k.weight",
                                            "blk.1.attn_v.weight"};
    for (const std::string& part : parts) tiny.store_as(part, format);
    const auto ids = tiny.random_ids(k_ids);
    GgufWriter gguf = tiny.writer();
    const auto expected = logits_of(gguf, ids, backend);
    gguf.add_tensor(joined_rows(gguf, parts, "blk.1.attn_qkv.weight"));
    CHECK(same_bits(logits_of(gguf, ids, backend), expected));
}

TEST_CASE("fused gate and up rows of the experts give the bits of the separate ones") {
    const auto [format, backend] = GENERATE(std::pair(Format::f32, "reference"),
                                            std::pair(Format::f32, "cpu"), std::pair(Format::q8_0, "cpu"));
    TinyModel tiny = two_layers();
    for (const char* part : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"})
        tiny.store_as(part, format);
    const auto ids = tiny.random_ids(k_ids);
    GgufWriter gguf = tiny.writer();
    const auto expected = logits_of(gguf, ids, backend);
    gguf.add_tensor(joined_gate_up(gguf, "blk.0."));
    CHECK(same_bits(logits_of(gguf, ids, backend), expected));
}

TEST_CASE("fused and separate rows side by side are refused") {
    GgufWriter gguf = two_layers().writer();
    const GgufTensor twin = tensor_of(gguf, "blk.1.attn_v.weight");
    gguf.add_tensor(joined_rows(gguf, {"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight"},
                                "blk.1.attn_qkv.weight"));
    gguf.add_tensor(twin);
    expect_refusal(gguf, Status::unsupported, "blk.1.attn_v.weight");
}

TEST_CASE("scales beside a tensor multiply it, one for all or one an expert") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(k_ids);
    GgufWriter gguf = tiny.writer();
    TinyModel scaled = tiny;
    const auto scale_by = [&](const std::string& stem, const std::vector<float>& scales) {
        gguf.add_f32(stem + ".scale", {scales.size()}, scales);
        std::vector<float> values = tiny.values(stem + ".weight");
        for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[i * scales.size() / values.size()];
        scaled.put(stem + ".weight", scaled.tensors.at(stem + ".weight").shape, values);
    };
    scale_by("token_embd", {0.5F});
    scale_by("output", {1.5F});
    scale_by("blk.0.attn_q", {3.0F});
    scale_by("blk.0.attn_v", {0.75F});
    scale_by("blk.1.attn_output", {1.25F});
    scale_by("blk.0.ffn_gate_inp", {1.5F});
    scale_by("blk.0.ffn_up_exps", {1.75F});
    scale_by("blk.1.ffn_gate_exps", {0.5F, 1.0F, 1.5F, 2.0F, 0.75F, 1.25F, 0.25F});
    scale_by("blk.1.ffn_down_exps", {1.5F, 0.5F, 0.25F, 1.0F, 2.0F, 0.75F, 1.25F});
    const auto expected = plain_logits(scaled, ids);
    CHECK(relative_rms(plain_logits(tiny, ids), expected) > 1e-2);
    for (const char* backend : {"reference", "cpu"}) {
        INFO(backend);
        CHECK(relative_rms(logits_of(gguf, ids, backend), expected) < 1e-4);
    }
}

TEST_CASE("a number of scales that fits neither the tensor nor its experts is a format error") {
    for (const auto& [stem, count] : {std::pair("blk.0.ffn_up_exps", 6), std::pair("blk.0.attn_q", 2)}) {
        GgufWriter gguf = two_layers().writer();
        gguf.add_f32(std::string(stem) + ".scale", {static_cast<uint64_t>(count)},
                     std::vector<float>(static_cast<size_t>(count), 1.0F));
        expect_refusal(gguf, Status::format, stem);
    }
}

TEST_CASE("scales of another type than F32 are unsupported") {
    GgufWriter gguf = two_layers().writer();
    gguf.add_tensor({"blk.0.attn_q.scale", traits(Format::f16).gguf_type, {1}, std::vector<std::byte>(2)});
    expect_refusal(gguf, Status::unsupported, "blk.0.attn_q.scale");
}

TEST_CASE("input scales are for activation quantisation and change nothing") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(k_ids);
    GgufWriter gguf = tiny.writer();
    const auto expected = logits_of(gguf, ids, "cpu");
    gguf.add_f32("blk.0.attn_q.input_scale", {1}, {17.0F});
    CHECK(same_bits(logits_of(gguf, ids, "cpu"), expected));
}

TEST_CASE("multi-token-prediction tensors are skipped with one line in the log") {
    TinyModel tiny = two_layers();
    const auto ids = tiny.random_ids(k_ids);
    GgufWriter gguf = tiny.writer();
    const auto expected = logits_of(gguf, ids, "cpu");
    gguf.add_f32("blk.2.nextn.eh_proj.weight", {4}, {1, 2, 3, 4});
    gguf.add_f32("blk.2.attn_q.weight", {4}, {1, 2, 3, 4});
    gguf.add_f32("blk.3.nextn.enorm.weight", {4}, {1, 2, 3, 4});
    const TemporaryFolder folder;
    gguf.write(folder / "m.gguf");
    Lines lines;
    const auto model = open_model(folder / "m.gguf", "cpu", &lines.log);
    CHECK(lines.holding("3 tensors of multi-token-prediction layers skipped") == 1);
    CHECK(lines.holding("multi-token") == 1);
    CHECK(model->config().n_layer == 2);
    CHECK(same_bits(test::logits_of(*model, ids), expected));
}

// Opens a model of two layers to which a test adds layers, and checks that it computes as without them.
void check_two_layers(const std::function<void(GgufWriter&)>& change, int64_t block_count, int64_t announced,
                      std::string_view line) {
    INFO(block_count << " counted, " << announced << " announced");
    TinyShape shape;
    shape.n_layer = 2;
    TinyModel tiny(shape);
    const auto ids = tiny.random_ids(k_ids);
    const auto expected = logits_of(tiny.writer(), ids, "cpu");
    tiny.shape.n_layer = block_count;
    GgufWriter gguf = tiny.writer();
    if (announced > 0) gguf.add("minimax-m2.nextn_predict_layers", static_cast<uint32_t>(announced));
    change(gguf);
    const TemporaryFolder folder;
    gguf.write(folder / "m.gguf");
    Lines lines;
    const auto model = open_model(folder / "m.gguf", "cpu", &lines.log);
    CHECK(model->config().n_layer == 2);
    CHECK((line.empty() || lines.holding(line) == 1));
    CHECK(same_bits(test::logits_of(*model, ids), expected));
}

TEST_CASE("layers of multi-token prediction may be counted or not, announced or not, and there or not") {
    const auto nothing = [](GgufWriter&) {};
    const auto whole = [](GgufWriter& gguf) {  // a layer as the others, and what only such layers have
        for (GgufTensor tensor : std::vector<GgufTensor>(gguf.tensors)) {
            if (!tensor.name.starts_with("blk.1.")) continue;
            tensor.name.replace(0, 6, "blk.2.");
            gguf.add_tensor(tensor);
        }
        gguf.add_f32("blk.2.nextn.eh_proj.weight", {4}, {1, 2, 3, 4});
        gguf.add_f32("blk.2.nextn.shared_head_norm.weight", {4}, {1, 2, 3, 4});
    };
    const auto unmarked = [](GgufWriter& gguf) { gguf.add_f32("blk.2.attn_q.weight", {4}, {1, 2, 3, 4}); };
    check_two_layers(nothing, 2, 1, "");
    check_two_layers(nothing, 2, 2, "");
    check_two_layers(nothing, 2, 5, "");
    check_two_layers(nothing, 3, 1, "1 of 3 layers are of multi-token prediction");
    check_two_layers(nothing, 5, 3, "3 of 5 layers are of multi-token prediction");
    for (const int64_t announced : {0, 1, 3}) {
        check_two_layers(whole, 2, announced, "multi-token-prediction layers skipped");
        check_two_layers(whole, 3, announced, "multi-token-prediction layers skipped");
    }
    check_two_layers(unmarked, 2, 1, "1 tensors of multi-token-prediction layers skipped");
}

TEST_CASE(
    "a layer that is neither counted nor announced nor marked is refused, and a missing one is missing") {
    GgufWriter gguf = two_layers().writer();
    gguf.add_f32("blk.2.attn_q.weight", {4}, {1, 2, 3, 4});
    expect_refusal(gguf, Status::unsupported, "blk.2.attn_q.weight");
    // A mark in the middle makes no layer one of prediction.
    gguf = two_layers().writer();
    gguf.add_f32("blk.0.nextn.eh_proj.weight", {4}, {1, 2, 3, 4});
    expect_refusal(gguf, Status::unsupported, "blk.0.nextn.eh_proj.weight");
    for (const auto& [counted, announced] :
         {std::pair(3, 0), std::pair(4, 1), std::pair(INT32_MAX, INT32_MAX)}) {
        TinyModel tiny = two_layers();
        tiny.shape.n_layer = counted;
        gguf = tiny.writer();
        if (announced > 0) gguf.add("minimax-m2.nextn_predict_layers", static_cast<uint32_t>(announced));
        expect_refusal(gguf, Status::format, counted < 10 ? "blk.2." : "layer count");
    }
}

TEST_CASE("dimensions of 1 at the outer end may be stated, or left out") {
    TinyShape shape;
    shape.n_layer = 2;
    shape.n_expert = 1;
    shape.n_expert_used = 1;
    for (const int64_t n_expert : {int64_t{1}, int64_t{7}}) {
        shape.n_expert = n_expert;
        TinyModel tiny(shape);
        const auto ids = tiny.random_ids(k_ids);
        GgufWriter gguf = tiny.writer();
        const auto expected = logits_of(gguf, ids, "cpu");
        for (GgufTensor& tensor : gguf.tensors) tensor.dims.resize(4, 1);
        CHECK(same_bits(logits_of(gguf, ids, "cpu"), expected));
        for (GgufTensor& tensor : gguf.tensors)
            while (tensor.dims.size() > 1 && tensor.dims.back() == 1) tensor.dims.pop_back();
        CHECK(same_bits(logits_of(gguf, ids, "cpu"), expected));
    }
}

TEST_CASE("a pruned model takes its expert count from the router") {
    TinyModel tiny = two_layers();
    tiny.add_experts(0, 5);
    tiny.add_experts(1, 5);
    const auto ids = tiny.random_ids(k_ids);
    const TemporaryFolder folder;
    const auto model = open_model(tiny, folder);
    CHECK(model->config().n_expert == 5);
    CHECK(relative_rms(test::logits_of(*model, ids), plain_logits(tiny, ids)) < 1e-5);
}

TEST_CASE("fewer experts than a token uses, or more than declared, are a format error") {
    for (const int64_t n_expert : {2, 8}) {
        TinyModel tiny = two_layers();
        tiny.add_experts(1, n_expert);
        expect_refusal(tiny.writer(), Status::format,
                       "blk.1.ffn_gate_inp.weight has " + std::to_string(n_expert) + " rows");
    }
}

TEST_CASE("experts and router of different numbers are a format error") {
    TinyModel tiny = two_layers();
    TinyModel other = two_layers(2);
    other.add_experts(1, 5);
    tiny.tensors["blk.1.ffn_up_exps.weight"] = other.tensors["blk.1.ffn_up_exps.weight"];
    expect_refusal(tiny.writer(), Status::format, "blk.1.ffn_up_exps.weight");
}
