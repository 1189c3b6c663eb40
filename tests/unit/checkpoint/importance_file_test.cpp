// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/importance_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "support.h"
#include "support/files.h"

namespace minim::checkpoint::testing {
namespace {

const std::string k_data = std::string(MINIM_TEST_DATA) + "/importance/";

std::vector<float> squares_of_powers() {
    std::vector<float> sums;
    for (int i = -4; i < 12; ++i) sums.push_back(std::ldexp(1.0F, i));
    return sums;
}

ImportanceEntry entry_of(std::string name, int64_t columns, std::vector<float> sums,
                         std::vector<float> counts) {
    ImportanceEntry entry;
    entry.name = std::move(name);
    entry.columns = columns;
    entry.matrices = std::ssize(counts);
    entry.sums = std::move(sums);
    entry.counts = std::move(counts);
    return entry;
}

std::string message_of(const std::function<void()>& call) {
    const auto error = error_of(call);
    return error ? error->what() : "";
}

void check_close(const std::vector<float>& a, const std::vector<float>& b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i)
        if (std::abs(a[i] - b[i]) > 1e-5F * std::abs(b[i])) FAIL_CHECK(i << ": " << a[i] << " " << b[i]);
}

TEST_CASE("importance data of a GGUF file is read as it is stored") {
    const ImportanceData data = read_importance(k_data + "small.gguf");
    CHECK(data.form == ImportanceForm::gguf);
    REQUIRE(data.datasets.size() == 2);
    CHECK(data.datasets[1] == "second.txt");
    CHECK(data.chunks == 2);
    CHECK(data.chunk_size == 4);
    REQUIRE(data.entries.size() == 3);
    const ImportanceEntry* down = data.find("blk.0.ffn_down_exps.weight");
    REQUIRE(down != nullptr);
    CHECK(down->columns == 8);
    CHECK(down->matrices == 4);
    CHECK(down->counts == std::vector<float>{2, 0, 1, 5});
    CHECK(down->in_max == std::vector<float>{1.5, 0, 0.25, 8});
    CHECK(down->out_norm == std::vector<float>{1, 0, 0.5, 6.25});
    CHECK(down->sums[1] == 14.75F);
    CHECK(down->sums[16] == 7.75F);
    const ImportanceEntry* output = data.find("blk.1.attn_output.weight");
    REQUIRE(output != nullptr);
    CHECK(output->sums == squares_of_powers());
    CHECK(output->out_norm.empty());
    CHECK(data.find("blk.1.attn_output") == nullptr);
}

TEST_CASE("files of both forms are written as the reference writes them") {
    const TemporaryFolder folder;
    for (const std::string name : {"small", "tiny"}) {
        INFO(name);
        ImportanceData data = read_importance(k_data + name + ".gguf");
        write_importance(folder / "copy.gguf", data, ImportanceForm::gguf);
        CHECK(test::text_of(folder / "copy.gguf") == test::text_of(k_data + name + ".gguf"));
        data.datasets.resize(1);
        write_importance(folder / "copy.dat", data, ImportanceForm::dat);
        const ImportanceData copy = read_importance(folder / "copy.dat");
        const ImportanceData stored = read_importance(k_data + name + ".dat");
        CHECK(copy.form == ImportanceForm::dat);
        CHECK(copy.datasets == stored.datasets);
        CHECK(copy.chunks == stored.chunks);
        REQUIRE(copy.entries.size() == stored.entries.size());
        for (size_t i = 0; i < copy.entries.size(); ++i) {
            CHECK(copy.entries[i].name == stored.entries[i].name);
            CHECK(copy.entries[i].calls == stored.entries[i].calls);
            // The reference divides sums of doubles, the writer those that the GGUF file stores.
            check_close(copy.entries[i].sums, stored.entries[i].sums);
        }
    }
}

TEST_CASE("an older file without chunks and dataset is read, and written again with them") {
    const TemporaryFolder folder;
    auto bytes = test::text_of(k_data + "small.dat");
    const ImportanceData whole = read_importance(k_data + "small.dat");
    REQUIRE(whole.datasets.size() == 1);
    bytes.resize(bytes.size() - 8 - whole.datasets[0].size());
    test::write_bytes(folder / "old.dat", std::as_bytes(std::span(bytes)));
    const ImportanceData old = read_importance(folder / "old.dat");
    CHECK(old.datasets.empty());
    CHECK(old.chunks == 0);
    REQUIRE(old.entries.size() == 3);
    CHECK(old.entries[1].sums == whole.entries[1].sums);
    CHECK(importance_bytes(whole, ImportanceForm::dat).size() == bytes.size() + 8 + whole.datasets[0].size());
}

TEST_CASE("an older file gets counts from the chunk size") {
    ImportanceData data = read_importance(k_data + "small.dat");
    CHECK(message_of([&] { importance_bytes(data, ImportanceForm::gguf); }).find("blk.0.attn_q.weight") !=
          std::string::npos);
    const ImportanceData before = data;
    give_counts(data, 4);
    CHECK(data.chunk_size == 4);
    for (size_t i = 0; i < data.entries.size(); ++i) {
        const ImportanceEntry& entry = data.entries[i];
        CHECK(entry.counts == std::vector<float>{4 * static_cast<float>(before.entries[i].calls)});
        CHECK(entry.sums[0] == 4 * before.entries[i].sums[0]);
    }
    CHECK(importance_bytes(data, ImportanceForm::gguf).size() > 0);
}

TEST_CASE("merged data has the sums of both files") {
    ImportanceData a = read_importance(k_data + "small.gguf");
    ImportanceData b = a;
    b.datasets = {"second.txt", "third.txt"};
    b.entries[0].name = "blk.9.attn_q.weight";
    std::ranges::sort(b.entries, {}, &ImportanceEntry::name);
    for (ImportanceEntry& entry : b.entries)
        for (float& value : entry.in_max) value *= 2;
    const ImportanceData before = a;
    merge_importance(a, b);
    CHECK(a.chunks == 4);
    REQUIRE(a.datasets.size() == 3);
    CHECK(a.datasets[1] == "second.txt");
    CHECK(a.datasets[2] == "third.txt");
    REQUIRE(a.entries.size() == 4);
    const ImportanceEntry* down = a.find("blk.0.ffn_down_exps.weight");
    REQUIRE(down != nullptr);
    CHECK(down->counts == std::vector<float>{4, 0, 2, 10});
    CHECK(down->sums[1] == 29.5F);
    CHECK(down->in_max == std::vector<float>{3, 0, 0.5, 16});
    CHECK(down->out_norm == std::vector<float>{2, 0, 1, 12.5});
    CHECK(a.find("blk.0.attn_q.weight")->sums == before.entries[0].sums);
    CHECK(a.find("blk.9.attn_q.weight")->sums == before.entries[0].sums);
}

TEST_CASE("an older file counts for every matrix of a stack") {
    ImportanceData stack;
    stack.chunk_size = 10;
    stack.entries = {entry_of("w", 2, {1, 2, 3, 4}, {1, 3})};
    ImportanceData older;
    ImportanceEntry flat = entry_of("w", 4, {1, 1, 2, 2}, {});
    flat.matrices = 1;
    flat.calls = 2;
    older.entries = {flat};
    CHECK(message_of([&] { merge_importance(stack, older); }).find("\"w\" has no counts") !=
          std::string::npos);
    give_counts(older, 10);
    merge_importance(stack, older);
    CHECK(stack.entries[0].matrices == 2);
    CHECK(stack.entries[0].counts == std::vector<float>{21, 23});
    CHECK(stack.entries[0].sums == std::vector<float>{11, 12, 23, 24});
    older.entries[0] = entry_of("w", 3, {1, 1, 2}, {1});
    CHECK(message_of([&] { merge_importance(stack, older); }).find("\"w\" has 2 x 2 values") !=
          std::string::npos);
    CHECK(stack.entries[0].counts == std::vector<float>{21, 23});
}

TEST_CASE("an entry must have the size of its weight") {
    const ImportanceEntry entry = entry_of("w", 2, {1, 2, 3, 4}, {1, 3});
    check_importance_size(entry, 2, 2);
    check_importance_size(entry, 4, 8);  // one profile for all matrices
    CHECK(message_of([&] { check_importance_size(entry, 3, 2); }) ==
          "importance entry \"w\" has 4 values, the weight needs 3 or 2 x 3");
}

// Returns the message that parsing a GGUF file with these tensors gives.
std::string refusal(const std::vector<uint64_t>& dims, const std::vector<float>& sums,
                    const std::vector<float>& counts) {
    test::GgufWriter writer;
    writer.add("general.type", "imatrix");
    writer.add_f32("w.in_sum2", dims, sums);
    if (!counts.empty()) writer.add_f32("w.counts", {1, counts.size()}, counts);
    const auto bytes = writer.bytes();
    return message_of([&] { parse_importance(ByteSource("x.gguf", bytes)); });
}

TEST_CASE("values that cannot be importance data are refused by name") {
    constexpr float k_infinity = std::numeric_limits<float>::infinity();
    CHECK(refusal({2, 2}, {1, 2, 3, 4}, {1, 2}).empty());
    CHECK(refusal({2, 2}, {1, 2, -3, 4}, {1, 2}).find("entry \"w\": sums 2 is -3") != std::string::npos);
    CHECK(refusal({2, 2}, {1, NAN, 3, 4}, {1, 2}).find("entry \"w\": sums 1 is nan") != std::string::npos);
    CHECK(refusal({2, 2}, {1, 2, 3, 4}, {1, k_infinity}).find("counts 1 is inf") != std::string::npos);
    CHECK(refusal({2, 2}, {1, 2, 3, 4}, {1, 2, 3}).find("[2, 2] sums do not fit to 3 counts") !=
          std::string::npos);
    CHECK(refusal({2, 2}, {1, 2, 3, 4}, {}).find("entry \"w\" has no tensor \"w.counts\"") !=
          std::string::npos);
    const std::string model = std::string(MINIM_TEST_DATA) + "/../fuzz/corpus/fuzz_gguf/tensors.gguf";
    CHECK(message_of([&] { read_importance(model); }).find("no importance data") != std::string::npos);
    CHECK(reason_of([&] { read_importance(k_data + "calibration.txt"); }) == "format");
    CHECK(error_of([&] { read_importance(k_data + "none.gguf"); })->status() == Status::not_found);
}

TEST_CASE("an older file that is cut off or altered is refused") {
    const auto bytes = test::text_of(k_data + "small.dat");
    const auto parse = [](const std::string& altered) {
        return error_of([&] { parse_importance(ByteSource("x.dat", std::as_bytes(std::span(altered)))); });
    };
    const std::string whole(bytes.begin(), bytes.end());
    CHECK_FALSE(parse(whole));
    const ImportanceData data = read_importance(k_data + "small.dat");
    const size_t end_of_entries = whole.size() - 8 - data.datasets[0].size();
    for (size_t size = 0; size < whole.size(); ++size)
        CHECK(parse(whole.substr(0, size)).has_value() == (size != end_of_entries));
    std::string negative = whole;
    const size_t value = 4 + 4 + data.entries[0].name.size() + 8;
    negative[value + 3] = static_cast<char>(0xBF);  // the sign and the exponent of the first value
    CHECK(std::string(parse(negative)->what()).find(data.entries[0].name) != std::string::npos);
    std::string twice = whole;
    twice.replace(twice.find("blk.1.attn_output"), 5, "blk.0");
    CHECK_FALSE(parse(twice));
}

}  // namespace
}  // namespace minim::checkpoint::testing
