// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors_header.h"
#include "support.h"

namespace minim::checkpoint::testing {

TEST_CASE("a safetensors header that is written has the tensors in their order") {
    const std::vector<NewSafetensor> tensors = {{"b.\"weight\"", "BF16", {3, 2}, 12},
                                                {"a", "F32", {}, 4},
                                                {"c", "F8_E4M3", {0, 5}, 0},
                                                {"d", "U8", {7}, 7}};
    NewHeader header = make_safetensors_header(tensors);
    CHECK(header.bytes.size() % 8 == 0);
    CHECK(header.file_bytes == header.bytes.size() + 23);
    std::vector<std::byte> file = header.bytes;
    file.resize(header.file_bytes);
    const SafetensorsHeader read = read_safetensors_header(ByteSource("m.safetensors", file));
    CHECK(read.metadata.string("format") == "pt");
    REQUIRE(read.tensors.size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
        CHECK(read.tensors[i].name == tensors[i].name);
        CHECK(read.tensors[i].type_name == tensors[i].type);
        CHECK(read.tensors[i].shape == tensors[i].shape);
        CHECK(read.tensors[i].bytes == tensors[i].bytes);
        CHECK(read.tensors[i].offset == header.offsets[i]);
    }
}

TEST_CASE("an index names the shard of each tensor, and the bytes of all") {
    const std::vector<NewSafetensor> shards[] = {{{"a", "F32", {2}, 8}, {"b", "U8", {3}, 3}},
                                                 {{"c", "BF16", {1}, 2}}};
    const auto index = nlohmann::json::parse(safetensors_index(shards));
    CHECK(index["metadata"]["total_size"] == 13);
    CHECK(index["weight_map"] == nlohmann::json{{"a", "model-00001-of-00002.safetensors"},
                                                {"b", "model-00001-of-00002.safetensors"},
                                                {"c", "model-00002-of-00002.safetensors"}});
}

}  // namespace minim::checkpoint::testing
