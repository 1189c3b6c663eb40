// SPDX-License-Identifier: Apache-2.0
#include "convert/importance.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::convert {
namespace {

using checkpoint::ImportanceData;
using checkpoint::ImportanceForm;

SourceTensor tensor_of(const char* name, int64_t n_columns, int64_t n_matrices) {
    SourceTensor tensor;
    tensor.name = name;
    tensor.n_columns = n_columns;
    tensor.n_rows = 1;
    tensor.matrices.resize(n_matrices);
    return tensor;
}

// An entry of two experts: 4 rows and none; an entry of one matrix.
ImportanceData some_data() {
    ImportanceData data;
    data.datasets = {"text.txt"};
    data.chunks = 3;
    data.chunk_size = 8;
    data.entries.resize(2);
    data.entries[0].name = "blk.0.attn_q.weight";
    data.entries[0].columns = 2;
    data.entries[0].sums = {6, 2};
    data.entries[0].counts = {2};
    data.entries[1].name = "blk.0.ffn_up_exps.weight";
    data.entries[1].columns = 2;
    data.entries[1].matrices = 2;
    data.entries[1].sums = {8, 4, 0, 0};
    data.entries[1].counts = {4, 0};
    return data;
}

struct Written {
    test::TemporaryFolder folder;
    std::string path;

    explicit Written(const ImportanceData& data, ImportanceForm form = ImportanceForm::gguf)
        : path(folder / (form == ImportanceForm::gguf ? "i.gguf" : "i.dat")) {
        checkpoint::write_importance(path, data, form);
    }
};

}  // namespace

TEST_CASE("an expert that no row reached has the importance of the others") {
    const Written file(some_data());
    const Importance importance(file.path, {}, {});
    const SourceTensor experts = tensor_of("blk.0.ffn_up_exps.weight", 2, 2);
    // The mean of all rows is (2, 1); 16 of these rows are added to each expert: ((8 + 32) / 20, (4 + 16) / 20).
    CHECK(importance.of_matrix(experts, 0) == std::vector<float>{2.0F, 1.0F});
    CHECK(importance.of_matrix(experts, 1) == std::vector<float>{2.0F, 1.0F});
    CHECK(importance.of_matrix(tensor_of("blk.0.attn_q.weight", 2, 1), 0) == std::vector<float>{3.0F, 1.0F});
    CHECK(importance.of_matrix(tensor_of("blk.0.attn_k.weight", 2, 1), 0).empty());
    CHECK(importance.file_name() == "i.gguf");
    CHECK(importance.dataset() == "text.txt");
    CHECK(importance.n_entries() == 2);
    CHECK(importance.n_chunks() == 3);
}

TEST_CASE("experts with other rows differ by as much as the rows say") {
    ImportanceData data = some_data();
    data.entries[1].sums = {8, 4, 0, 48};
    data.entries[1].counts = {4, 12};
    const Written file(data);
    const Importance importance(file.path, {}, {});
    const SourceTensor experts = tensor_of("blk.0.ffn_up_exps.weight", 2, 2);
    // The mean is (8 / 16, 52 / 16).
    CHECK(importance.of_matrix(experts, 0) ==
          std::vector<float>{(8.0F + 8.0F) / 20.0F, (4.0F + 52.0F) / 20.0F});
    CHECK(importance.of_matrix(experts, 1) == std::vector<float>{8.0F / 28.0F, (48.0F + 52.0F) / 28.0F});
}

TEST_CASE("tensors are chosen by parts of their names") {
    const Written file(some_data());
    CHECK(Importance(file.path, {"attn"}, {}).has("blk.0.attn_q.weight"));
    CHECK_FALSE(Importance(file.path, {"attn"}, {}).has("blk.0.ffn_up_exps.weight"));
    CHECK_FALSE(Importance(file.path, {}, {"attn", "x"}).has("blk.0.attn_q.weight"));
    CHECK(Importance(file.path, {}, {"attn"}).has("blk.0.ffn_up_exps.weight"));
    CHECK(Importance(file.path, {"attn"}, {}).hash() != Importance(file.path, {}, {"attn"}).hash());
    CHECK(Importance(file.path, {}, {}).hash() == Importance(file.path, {}, {}).hash());
}

TEST_CASE("an older file gives its values as they are") {
    ImportanceData data = some_data();
    checkpoint::ImportanceEntry& entry = data.entries[1];
    entry.columns = 4;
    entry.matrices = 1;
    entry.sums = {8, 4, 1, 1};
    entry.counts.clear();
    entry.calls = 1;
    data.entries.erase(data.entries.begin());
    const Written file(data, ImportanceForm::dat);
    const Importance importance(file.path, {}, {});
    const SourceTensor experts = tensor_of("blk.0.ffn_up_exps.weight", 2, 2);
    CHECK(importance.of_matrix(experts, 0) == std::vector<float>{8.0F, 4.0F});
    CHECK(importance.of_matrix(experts, 1) == std::vector<float>{1.0F, 1.0F});
}

TEST_CASE("an entry of another size is refused by its name") {
    const Written file(some_data());
    const Importance importance(file.path, {}, {});
    importance.check(tensor_of("blk.0.ffn_up_exps.weight", 2, 2));
    importance.check(tensor_of("blk.0.ffn_down_exps.weight", 2, 2));  // has none
    test::expect_error(Status::invalid, "blk.0.ffn_up_exps.weight",
                       [&] { importance.check(tensor_of("blk.0.ffn_up_exps.weight", 3, 2)); });
}

}  // namespace minim::convert
