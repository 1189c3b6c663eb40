// SPDX-License-Identifier: Apache-2.0
// Opens the damaged files of tests/data/malformed and compares the errors with the list that says how each must be refused.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "support.h"
#include "support/allocation_count.h"
#include "support/files.h"

namespace minim::checkpoint::testing {
namespace {

const std::string k_folder = std::string(MINIM_TEST_DATA) + "/malformed/";

nlohmann::json index() {
    std::ifstream file(k_folder + "malformed.json");
    return nlohmann::json::parse(file);
}

// Checks that a file is refused with an acceptable reason. Returns 1 if that is not the preferred one.
size_t check_refused(const std::string& name, const nlohmann::json& entry) {
    Logger log;
    const std::optional<Error> error = error_of([&] { Checkpoint::open(k_folder + name, log); });
    INFO(name << ": " << entry["why"].get<std::string>());
    REQUIRE(error);
    INFO(error->what());
    const std::string reason(name_of(error->reason()));
    CHECK(error->status() == (error->reason() == Reason::io ? Status::io : Status::format));
    CHECK(std::string(error->what()).find(name.substr(0, name.find('/'))) != std::string::npos);
    if (reason == entry["error"]) return 0;
    std::vector<std::string> also = entry["also"];
    CHECK(std::find(also.begin(), also.end(), reason) != also.end());
    return 1;
}

TEST_CASE("every malformed file is refused with the reason preferred for it") {
    const nlohmann::json list = index();
    size_t others = 0;
    for (const auto& [name, entry] : list["files"].items()) others += check_refused(name, entry);
    CHECK(list["files"].size() == 59);
    CHECK(others == 0);
}

TEST_CASE("every malformed sharded checkpoint is refused with the reason preferred for it") {
    const nlohmann::json list = index();
    size_t others = 0;
    for (const auto& [name, entry] : list["directories"].items()) others += check_refused(name, entry);
    CHECK(list["directories"].size() == 3);
    CHECK(others == 0);
}

TEST_CASE("every valid control file opens and loads") {
    const nlohmann::json list = index();
    CHECK(list["controls"].size() == 9);
    for (const auto& [name, entry] : list["controls"].items()) {
        INFO(name);
        Logger log;
        Checkpoint checkpoint = Checkpoint::open(k_folder + name, log);
        CHECK(checkpoint.file_bytes() == entry["bytes"]);
        checkpoint.map();
        for (const Tensor& tensor : checkpoint.tensors()) {
            std::vector<std::byte> bytes(tensor.bytes);
            checkpoint.read(tensor, 0, bytes);
            CHECK(std::equal(bytes.begin(), bytes.end(), checkpoint.data(tensor)));
        }
    }
}

TEST_CASE("a malformed file does not make the reader allocate more than a few times its size") {
    constexpr uint64_t k_floor = uint64_t{1} << 20;
    const nlohmann::json list = index();
    for (const auto& [name, entry] : list["files"].items()) {
        INFO(name);
        Logger log;
        const std::string path = k_folder + name;
        const test::AllocationCount count;
        const bool refused = error_of([&] { Checkpoint::open(path, log); }).has_value();
        const uint64_t total = count.total_bytes();
        CHECK(refused);
        CHECK(total <= k_floor + 8 * std::filesystem::file_size(path));
    }
}

TEST_CASE("every cut of a valid file is refused or opens, and takes little memory") {
    for (const char* name : {"ok_g1_minimal_v3.gguf", "ok_g3_align64.gguf", "ok_s2_zero_size.safetensors"}) {
        const std::string whole = test::text_of(k_folder + name);
        const TemporaryFolder folder;
        const std::string path = folder / name;
        for (size_t size = 0; size < whole.size(); ++size) {
            test::write_bytes(path, bytes_of(std::string_view(whole).substr(0, size)));
            Logger log;
            const test::AllocationCount count;
            const std::optional<Error> error = error_of([&] { Checkpoint::open(path, log); });
            const uint64_t total = count.total_bytes();
            INFO(name << " cut to " << size << " bytes");
            CHECK(total < (uint64_t{1} << 20));
            if (!error) continue;
            // A count or an offset can be found impossible before the end of the file is reached.
            const Reason reason = error->reason();
            CHECK((reason == Reason::truncated || reason == Reason::limit || reason == Reason::offset));
        }
    }
}

}  // namespace
}  // namespace minim::checkpoint::testing
