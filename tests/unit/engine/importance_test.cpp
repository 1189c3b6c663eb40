// SPDX-License-Identifier: Apache-2.0
// Importance data of the tiny model against what NumPy computed from the same text (tests/data/importance).
#include "engine/importance.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "placement/backends.h"
#include "support.h"
#include "support/files.h"
#include "support/tiny_model.h"

using namespace minim;
using namespace minim::test;
using checkpoint::ImportanceData;
using checkpoint::ImportanceEntry;
using engine::Importance;
using engine::ImportanceParams;
using engine::Session;
using engine::SessionParams;

namespace {

constexpr int64_t k_chunk = 256;
const std::string k_importance = std::string(MINIM_TEST_DATA) + "/importance/";

std::shared_ptr<const model::Model> open_on(const std::string& path, std::string_view backend,
                                            int32_t n_threads = 2) {
    const Logger silent;
    return std::make_shared<const model::Model>(
        path, placement::make_backend(backend, std::make_shared<ThreadPool>(n_threads), active_cpu_level()),
        model::OpenOptions{}, silent);
}

std::string bf16_path() {
    return std::string(MINIM_TEST_MODELS) + "/minim-tiny-bf16.gguf";
}

// Evaluates the ids in chunks, and returns the logits after the last one.
std::vector<float> evaluate_chunks(Session& session, std::span<const int32_t> ids, int64_t chunk) {
    std::vector<float> logits(static_cast<size_t>(session.model().config().n_vocab));
    for (int64_t at = 0; at + chunk <= std::ssize(ids); at += chunk) {
        session.truncate(0);
        session.eval(ids.subspan(at, chunk), false, logits, nullptr);
    }
    return logits;
}

Session session_for(const std::shared_ptr<const model::Model>& model, int64_t n_context,
                    int64_t n_ubatch = 512, Format kv_format = Format::f16) {
    SessionParams params;
    params.n_context = n_context;
    params.n_ubatch = n_ubatch;
    params.k_format = params.v_format = kv_format;
    const Logger silent;
    return {model, params, silent};
}

ImportanceData collect(const std::shared_ptr<const model::Model>& model, std::span<const int32_t> ids,
                       const ImportanceParams& params, int64_t n_ubatch) {
    const Importance importance(model, params);
    Session session = session_for(model, params.chunk_size, n_ubatch);
    session.observe(importance.inputs());
    evaluate_chunks(session, ids, params.chunk_size);
    return importance.data();
}

void check_same(const ImportanceData& a, const ImportanceData& b) {
    REQUIRE(a.entries.size() == b.entries.size());
    for (size_t i = 0; i < a.entries.size(); ++i) {
        INFO(a.entries[i].name);
        CHECK(a.entries[i].name == b.entries[i].name);
        CHECK(a.entries[i].counts == b.entries[i].counts);
        CHECK(a.entries[i].sums == b.entries[i].sums);
        CHECK(a.entries[i].in_max == b.entries[i].in_max);
        CHECK(a.entries[i].out_norm == b.entries[i].out_norm);
    }
}

// Returns the largest difference, relative to the reference value or to the mean of the entry if that is larger.
double largest_difference(const std::vector<float>& values, const std::vector<float>& reference) {
    REQUIRE(values.size() == reference.size());
    double mean = 0.0;
    for (const float value : reference) mean += static_cast<double>(value);
    mean /= static_cast<double>(std::max<size_t>(reference.size(), 1));
    double largest = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double scale = std::max(static_cast<double>(reference[i]), 0.01 * mean);
        if (values[i] != reference[i])
            largest = std::max(largest, std::abs(static_cast<double>(values[i] - reference[i])) / scale);
    }
    return largest;
}

}  // namespace

TEST_CASE("importance data of the reference backend is that of NumPy") {
    const auto model = open_on(bf16_path(), "reference");
    const std::vector<int32_t> ids = model->text().tokenizer().encode(
        text_of(k_importance + "calibration.txt"), tokenizer::Specials::exact);
    const ImportanceParams params = {
        .dataset = "calibration.txt", .chunk_size = k_chunk, .with_head = true, .text_hash = 0};
    const Importance importance(model, params);
    Session session = session_for(model, k_chunk, 100, Format::f32);
    session.observe(importance.inputs());
    evaluate_chunks(session, ids, k_chunk);
    const ImportanceData data = importance.data();
    const ImportanceData golden = checkpoint::read_importance(k_importance + "tiny.gguf");
    CHECK(data.chunks == golden.chunks);
    CHECK(data.chunk_size == golden.chunk_size);
    CHECK(data.datasets == golden.datasets);
    REQUIRE(data.entries.size() == golden.entries.size());
    for (size_t i = 0; i < data.entries.size(); ++i) {
        const ImportanceEntry& entry = data.entries[i];
        const ImportanceEntry& expected = golden.entries[i];
        INFO(entry.name);
        CHECK(entry.name == expected.name);
        CHECK(entry.columns == expected.columns);
        CHECK(entry.counts == expected.counts);
        CHECK(largest_difference(entry.sums, expected.sums) < 2e-3);
        CHECK(largest_difference(entry.in_max, expected.in_max) < 1e-3);
        // The reference writes norms for ffn_down_exps alone, as this does.
        CHECK(largest_difference(entry.out_norm, expected.out_norm) < 1e-3);
    }
}

TEST_CASE("importance data does not depend on threads and on the rows of a step") {
    const TemporaryFolder folder;
    const std::string path = folder / "tiny.gguf";
    TinyModel().write(path);
    std::vector<int32_t> ids = some_ids(96);
    for (int32_t& id : ids) id %= 256;
    const ImportanceParams params = {.dataset = "", .chunk_size = 48, .with_head = true, .text_hash = 7};
    const ImportanceData expected = collect(open_on(path, "cpu", 1), ids, params, 48);
    CHECK(expected.chunks == 2);
    CHECK(expected.text_hash == 7);
    CHECK(expected.find("output.weight")->counts == std::vector<float>{96});
    for (const int32_t n_threads : {1, 3})
        for (const int64_t n_ubatch : {1, 7, 48})
            check_same(collect(open_on(path, "cpu", n_threads), ids, params, n_ubatch), expected);
}

TEST_CASE("observing changes no logit, and ends when it is told to") {
    const auto model = bundled_model();
    const std::vector<int32_t> ids = some_ids(100);
    Session plain = session_for(model, 100);
    const std::vector<float> expected = evaluate_chunks(plain, ids, 100);
    const Importance importance(model, {.chunk_size = 100});
    Session observed = session_for(model, 100);
    observed.observe(importance.inputs());
    const std::vector<float> logits = evaluate_chunks(observed, ids, 100);
    CHECK(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)) == 0);
    CHECK(importance.inputs()->n_rows() == 100);
    observed.observe(nullptr);
    evaluate_chunks(observed, ids, 100);
    CHECK(importance.inputs()->n_rows() == 100);
}

TEST_CASE("several sessions add to the same data") {
    const auto model = bundled_model();
    const std::vector<int32_t> ids = some_ids(60);
    const Importance importance(model, {.chunk_size = 60});
    const auto evaluate = [&] {
        Session session = session_for(model, 60, 20);
        session.observe(importance.inputs());
        for (int i = 0; i < 3; ++i) evaluate_chunks(session, ids, 60);
    };
    std::thread other(evaluate);
    evaluate();
    other.join();
    const ImportanceData data = importance.data();
    CHECK(data.chunks == 6);
    const ImportanceData one = collect(model, ids, {.chunk_size = 60}, 60);
    for (const ImportanceEntry& entry : data.entries) {
        const ImportanceEntry& single = *one.find(entry.name);
        for (size_t i = 0; i < entry.counts.size(); ++i) CHECK(entry.counts[i] == 6 * single.counts[i]);
        CHECK(entry.in_max == single.in_max);
    }
}

TEST_CASE("data of files and of sessions is merged, saved and described") {
    const auto model = bundled_model();
    const std::vector<int32_t> ids = some_ids(64);
    const TemporaryFolder folder;
    const ImportanceParams params = {.dataset = "a.txt", .chunk_size = 32, .text_hash = 9};
    Importance importance(model, params);
    Session session = session_for(model, 32);
    session.observe(importance.inputs());
    evaluate_chunks(session, std::span(ids).first(32), 32);
    importance.save(folder / "half.gguf", checkpoint::ImportanceForm::gguf);
    evaluate_chunks(session, std::span(ids).subspan(32), 32);
    const ImportanceData whole = importance.data();

    Importance resumed(model, params);
    resumed.merge(Importance(checkpoint::read_importance(folder / "half.gguf"), 0));
    session.observe(resumed.inputs());
    evaluate_chunks(session, std::span(ids).subspan(32), 32);
    const ImportanceData again = resumed.data();
    CHECK(again.chunks == 2);
    CHECK(again.text_hash == 9);
    CHECK(again.model_hash == model->fingerprint());
    for (size_t i = 0; i < whole.entries.size(); ++i) {
        CHECK(again.entries[i].counts == whole.entries[i].counts);
        CHECK(largest_difference(again.entries[i].sums, whole.entries[i].sums) < 1e-6);
    }
    const auto json = nlohmann::json::parse(engine::to_json(again));
    CHECK(json["format"] == "gguf");
    CHECK(json["datasets"] == std::vector<std::string>{"a.txt"});
    CHECK(json["chunk_size"] == 32);
    CHECK(json["text_hash"] == "0000000000000009");
    CHECK(json["tensors"].size() == again.entries.size());

    Importance unknown(checkpoint::read_importance(k_importance + "small.dat"), 0);
    expect_error(Status::invalid, "has no counts", [&] { importance.merge(unknown); });
    expect_error(Status::invalid, "chunk of 0 tokens", [&] { Importance(model, {.chunk_size = 0}); });
}

TEST_CASE("a description says what a file has, in numbers") {
    const auto json =
        nlohmann::json::parse(engine::to_json(checkpoint::read_importance(k_importance + "small.gguf")));
    const auto& down = json["tensors"][1];
    CHECK(down["name"] == "blk.0.ffn_down_exps.weight");
    CHECK(down["matrices"] == 4);
    CHECK(down["columns"] == 8);
    CHECK(down["without_data"] == 1);
    // Mean squares: 60 / 2, 0, 59.5 / 1 and 51.5 / 5 in all, of 32 values.
    CHECK(std::abs(down["mean"].get<double>() - (30.0 + 59.5 + 10.3) / 32.0) < 1e-6);
    CHECK(down["max"] == 13.0);
    CHECK(down["rows"]["least"] == 0);
    CHECK(down["rows"]["median"] == 2);
    CHECK(down["rows"]["most"] == 5);
    CHECK(down["rows"]["below_16"] == 4);
    // The two largest of 1/16 .. 2048 have 3/4 of the sum, the four largest 15/16.
    CHECK(json["tensors"][2]["share_90"] == 4.0 / 16.0);
    const auto older =
        nlohmann::json::parse(engine::to_json(checkpoint::read_importance(k_importance + "small.dat")));
    CHECK(older["format"] == "dat");
    CHECK(older["chunk_size"].is_null());
    CHECK(older["tensors"][0]["rows"].is_null());
}

TEST_CASE("an input that is not finite is an error that names layer, expert and chunk") {
    const TemporaryFolder folder;
    const std::string path = folder / "huge.gguf";
    TinyModel tiny;
    // gate and up of layer 1 are so large that their product overflows.
    for (const char* name : {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight"}) {
        for (float& value : tiny.tensors.at(name).values) value *= 1e25F;
        tiny.store_as(name, Format::f32);
    }
    tiny.write(path);
    const auto model = open_on(path, "reference");
    const Importance importance(model, {.chunk_size = 8});
    Session session = session_for(model, 8);
    session.observe(importance.inputs());
    const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
    const auto error = error_of([&] { evaluate_chunks(session, ids, 8); });
    REQUIRE(error);
    CHECK(error->status() == Status::format);
    const std::string message = error->what();
    INFO(message);
    CHECK(message.find("layer 1, expert ") != std::string::npos);
    CHECK(message.find("the input of down is not finite in chunk 1") != std::string::npos);
}
