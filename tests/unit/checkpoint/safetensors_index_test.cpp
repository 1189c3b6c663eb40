// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_index.h"

#include "checkpoint/checkpoint.h"
#include "support.h"

namespace minim::checkpoint::testing {
namespace {

std::string reason(std::string_view json) {
    return reason_of([&] { read_safetensors_index("index.json", json); });
}

std::string reason_of_shard(std::string_view name) {
    return reason(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
}

// Two shards with tensors a and b in the first, c in the second; four bytes each.
void write_shards(const TemporaryFolder& folder) {
    test::write_bytes(folder / "one.safetensors",
                      safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                  8));
    test::write_bytes(
        folder / "two.safetensors",
        safetensors(R"({"__metadata__":{"k":"v"},"c":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
}

std::string write_index(const TemporaryFolder& folder, std::string_view json) {
    const std::string path = folder / "model.safetensors.index.json";
    test::write_bytes(path, bytes_of(json));
    return path;
}

TEST_CASE("an index lists tensors and, once each, the shards") {
    const SafetensorsIndex index =
        read_safetensors_index("i",
                               "{\"metadata\": {\"total_size\": 12, \"note\": [1, {}]},\n \"weight_map\": "
                               "{\"a\": \"one\", \"b\": \"two\", \"c\": \"one\"}, \"more\": null}\n");
    CHECK(index.shards == std::vector<std::string>{"one", "two"});
    REQUIRE(index.entries.size() == 3);
    CHECK(index.entries[2].tensor == "c");
    CHECK(index.entries[2].shard == 0);
    CHECK(index.total_size == 12U);
}

TEST_CASE("a shard is a plain name in the folder of the index") {
    for (const char* name : {"model-00001-of-00130.safetensors", "x", "..x", "a..b"}) {
        INFO(name);
        CHECK(reason_of_shard(name) == "no error");
    }
    for (const char* name :
         {"", ".", "..", "../x", "a/b", "/etc/passwd", "a\\\\b", "C:x", "x\\u0000y", "x\\/y"}) {
        INFO(name);
        CHECK(reason_of_shard(name) == "value");
    }
    CHECK(reason_of_shard(std::string(255, 'n')) == "no error");
    CHECK(reason_of_shard(std::string(256, 'n')) == "value");
}

TEST_CASE("an index of another structure is a format error, a repeated name a duplicate") {
    CHECK(reason("{}") == "format");
    CHECK(reason("") == "format");
    CHECK(reason("[]") == "format");
    CHECK(reason(R"({"weight_map":[]})") == "format");
    CHECK(reason(R"({"weight_map":{"a":1}})") == "format");
    CHECK(reason(R"({"weight_map":{"a":null}})") == "format");
    CHECK(reason(R"({"weight_map":{}} x)") == "format");
    CHECK(reason(R"({"weight_map":{"a":"x","a":"x"}})") == "duplicate");
    CHECK(reason(R"({"weight_map":{},"weight_map":{}})") == "duplicate");
    CHECK(reason(R"({"metadata":{},"metadata":{},"weight_map":{}})") == "duplicate");
    CHECK(reason(R"({"weight_map":{},"metadata":{"total_size":1.5e10}})") == "no error");
}

TEST_CASE("a sharded checkpoint is the tensors of its index") {
    const TemporaryFolder folder;
    write_shards(folder);
    const std::string path =
        write_index(folder, R"({"metadata":{"total_size":12},"weight_map":)"
                            R"({"c":"two.safetensors","a":"one.safetensors","b":"one.safetensors"}})");
    const Lines lines;
    Checkpoint checkpoint = Checkpoint::open(path, lines.log);
    CHECK(checkpoint.container() == Container::safetensors);
    CHECK(checkpoint.files().size() == 2);
    CHECK(checkpoint.tensors().size() == 3);
    CHECK(checkpoint.tensor_bytes() == 12);
    checkpoint.map();
    CHECK(checkpoint.data(*checkpoint.find("b"))[1] == std::byte{5});
    CHECK(checkpoint.data(*checkpoint.find("c"))[3] == std::byte{3});
    CHECK(lines.holding("total_size") == 0);
    CHECK(lines.holding("ignored") == 0);
}

TEST_CASE("a tensor that the index does not list is ignored with a line in the log") {
    const TemporaryFolder folder;
    write_shards(folder);
    const std::string path = write_index(folder, R"({"weight_map":{"a":"one.safetensors"}})");
    const Lines lines;
    const Checkpoint checkpoint = Checkpoint::open(path, lines.log);
    CHECK(checkpoint.tensors().size() == 1);
    CHECK(checkpoint.find("b") == nullptr);
    CHECK(lines.holding("tensor \"b\" is not listed") == 1);
}

TEST_CASE("a total size that is wrong is a warning") {
    const TemporaryFolder folder;
    write_shards(folder);
    const std::string path =
        write_index(folder, R"({"metadata":{"total_size":13},"weight_map":{"c":"two.safetensors"}})");
    const Lines lines;
    CHECK(Checkpoint::open(path, lines.log).tensors().size() == 1);
    CHECK(lines.holding("total_size is 13, the tensors have 4 bytes") == 1);
}

TEST_CASE("a missing shard is an i/o error, a tensor missing from its shard a wrong value") {
    const TemporaryFolder folder;
    write_shards(folder);
    Logger log;
    std::string path = write_index(folder, R"({"weight_map":{"a":"three.safetensors"}})");
    const auto missing = error_of([&] { Checkpoint::open(path, log); });
    REQUIRE(missing);
    CHECK(missing->status() == Status::io);
    CHECK(missing->reason() == Reason::io);
    path = write_index(folder, R"({"weight_map":{"a":"two.safetensors"}})");
    CHECK(reason_of([&] { Checkpoint::open(path, log); }) == "value");
}

}  // namespace
}  // namespace minim::checkpoint::testing
