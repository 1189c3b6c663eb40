// SPDX-License-Identifier: Apache-2.0
// MiniMax-M3 in small against logits that were computed in float64: of its safetensors folder, with either spelling of config.json.
// 40 tokens need no choice of blocks, 300 do. Ranks that divide the heads choose the same blocks.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models.h"
#include "placement/backends.h"
#include "placement/ranks.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/npy.h"
#include "support/safetensors_folder.h"
#include "support/temporary_folder.h"

namespace minim::test {
namespace {

namespace fs = std::filesystem;

// A copy of the folder with another config.json.
class M3Folder {
  public:
    explicit M3Folder(const std::string& config) {
        for (const auto& file : fs::directory_iterator(MINIM_TEST_DATA "/models/minim-tiny-m3"))
            if (!file.path().filename().string().starts_with("config"))
                fs::create_symlink(file.path(), folder_ / file.path().filename().string());
        fs::copy_file(MINIM_TEST_DATA "/models/minim-tiny-m3/" + config, folder_ / "config.json");
    }
    const std::string& path() const { return folder_.path(); }

  private:
    TemporaryFolder folder_;
};

// The same model with twice as many KV heads and index heads: each is there twice, so that every query head reads what it read.
class FourKvHeads {
  public:
    explicit FourKvHeads(const std::string& config) {
        constexpr int64_t k_head_rows = 128;
        const std::string source = MINIM_TEST_DATA "/models/minim-tiny-m3/";
        const auto checkpoint =
            checkpoint::Checkpoint::open(source + "model.safetensors.index.json", Logger());
        Folder tensors;
        for (const checkpoint::Tensor& tensor : checkpoint.tensors()) {
            Stored own = {std::string(tensor.type_name), tensor.shape, std::vector<std::byte>(tensor.bytes)};
            checkpoint.read(tensor, 0, own.data);
            const std::string_view name = tensor.name;
            if (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight") ||
                name.ends_with("index_q_proj.weight")) {
                if (!name.ends_with("index_k_proj.weight")) repeat_heads(k_head_rows, own);
            }
            tensors[tensor.name] = std::move(own);
        }
        write(tensors, folder_ / "model.safetensors");
        for (const char* file : {"tokenizer.json", "generation_config.json"})
            fs::copy_file(source + file, folder_ / file);
        auto object = nlohmann::json::parse(text_of(source + config));
        object["text_config"]["num_key_value_heads"] = 4;
        object["text_config"]["sparse_attention_config"]["sparse_num_index_heads"] = 4;
        const std::string text = object.dump();
        write_bytes(folder_ / "config.json", std::as_bytes(std::span(text)));
    }
    const std::string& path() const { return folder_.path(); }

  private:
    static void repeat_heads(int64_t rows, Stored& tensor) {
        const auto bytes = std::ssize(tensor.data) / tensor.shape[0] * rows;  // of a head
        std::vector<std::byte> repeated;
        for (auto at = tensor.data.begin(); at != tensor.data.end(); at += bytes)
            for (int copy = 0; copy < 2; ++copy) repeated.insert(repeated.end(), at, at + bytes);
        tensor.data = std::move(repeated);
        tensor.shape[0] *= 2;
    }

    TemporaryFolder folder_;
};

std::shared_ptr<const model::Model> m3_on(const std::string& path, const std::string& backend) {
    return std::make_shared<const model::Model>(
        path, placement::make_backend(backend, std::make_shared<ThreadPool>(2), active_cpu_level()),
        model::OpenOptions{}, Logger());
}

std::shared_ptr<const model::Model> m3_on_ranks(const std::string& path, const std::string& backend,
                                                int64_t tensor) {
    static const Logger silent;
    model::OpenOptions options;
    placement::RankOptions ranks = {.request = {.tensor = tensor}, .compares_choices = true, .log = &silent};
    for (int64_t rank = 0; rank < tensor; ++rank)
        ranks.devices.push_back(
            placement::make_backend(backend, std::make_shared<ThreadPool>(1), active_cpu_level()));
    return std::make_shared<const model::Model>(path, placement::place_on_ranks(ranks, options), options,
                                                silent);
}

// Returns the error of each row: root mean square of the difference over that of the row.
std::vector<double> errors_of(const std::shared_ptr<const model::Model>& model, const std::string& golden) {
    const auto ids = load_npy<int32_t>(golden_path("m3/" + golden + ".ids.npy")).values;
    const auto expected = load_npy<float>(golden_path("m3/" + golden + ".logits.npy"));
    const auto columns = load_npy<int32_t>(golden_path("m3/columns.npy")).values;
    engine::Session session = make_session(model, Format::f32);
    const std::vector<float> logits = all_logits(session, ids);
    const auto n_vocab = static_cast<size_t>(model->config().n_vocab);
    const bool has_all = expected.shape.back() == model->config().n_vocab;
    std::vector<double> errors;
    for (size_t row = 0; row < ids.size(); ++row) {
        std::vector<float> own(logits.begin() + static_cast<int64_t>(row * n_vocab),
                               logits.begin() + static_cast<int64_t>((row + 1) * n_vocab));
        if (!has_all) {
            std::vector<float> some;
            for (const int32_t column : columns) some.push_back(own[static_cast<size_t>(column)]);
            own = some;
        }
        errors.push_back(relative_rms(own.data(), expected.row(static_cast<int64_t>(row)), own.size()));
    }
    return errors;
}

void check_errors(std::vector<double> errors, const std::string& backend) {
    const bool is_reference = backend == "reference";
    std::ranges::sort(errors);
    CHECK(errors[errors.size() / 2] < (is_reference ? 1e-3 : 1.5e-2));
    CHECK(errors[(errors.size() - 1) * 99 / 100] < (is_reference ? 2e-3 : 3e-2));
}

}  // namespace

TEST_CASE("the folder of M3 meets the golden logits at every position") {
    const std::string backend = GENERATE("reference", "cpu");
    const auto [config, golden] =
        GENERATE(std::tuple("config.json", "b128-40"), std::tuple("config.b32.json", "b32-40"),
                 std::tuple("config.flat.json", "b128-40"));
    INFO(backend << " " << config << " " << golden);
    const M3Folder folder(config);
    check_errors(errors_of(m3_on(folder.path(), backend), golden), backend);
}

TEST_CASE("chosen blocks of M3 meet the golden logits at every position") {
    const std::string backend = GENERATE("reference", "cpu");
    const auto [config, golden] =
        GENERATE(std::tuple("config.json", "b128-300"), std::tuple("config.b32.json", "b32-300"));
    INFO(backend << " " << config << " " << golden);
    const M3Folder folder(config);
    check_errors(errors_of(m3_on(folder.path(), backend), golden), backend);
}

TEST_CASE("ranks that divide the heads of M3 choose the blocks of the golden logits") {
    const std::string backend = GENERATE("reference", "cpu");
    const int64_t tensor = GENERATE(2, 4);
    INFO(backend << ", " << tensor << " ranks");
    // A wrong block is an error of 11 % or more in the median row.
    const FourKvHeads folder("config.b32.json");
    check_errors(errors_of(m3_on(folder.path(), backend), "b32-300"), backend);
    check_errors(errors_of(m3_on_ranks(folder.path(), backend, tensor), "b32-300"), backend);
}

}  // namespace minim::test
