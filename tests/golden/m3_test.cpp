// SPDX-License-Identifier: Apache-2.0
// MiniMax-M3 in small against logits that were computed in float64: of its safetensors folder, with either spelling of config.json.
// 40 tokens need no choice of blocks, 300 do.
#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "models.h"
#include "placement/backends.h"
#include "support/catch.h"
#include "support/npy.h"
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

// Returns the error of each row: root mean square of the difference over that of the row.
std::vector<double> errors_of(const std::string& path, const std::string& backend,
                              const std::string& golden) {
    const Logger silent;
    const auto model = std::make_shared<const model::Model>(
        path, placement::make_backend(backend, std::make_shared<ThreadPool>(2), active_cpu_level()),
        model::OpenOptions{}, silent);
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
    check_errors(errors_of(folder.path(), backend, golden), backend);
}

TEST_CASE("chosen blocks of M3 meet the golden logits at every position") {
    const std::string backend = GENERATE("reference", "cpu");
    const auto [config, golden] =
        GENERATE(std::tuple("config.json", "b128-300"), std::tuple("config.b32.json", "b32-300"));
    INFO(backend << " " << config << " " << golden);
    const M3Folder folder(config);
    check_errors(errors_of(folder.path(), backend, golden), backend);
}

}  // namespace minim::test
