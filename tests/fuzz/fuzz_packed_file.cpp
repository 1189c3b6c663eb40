// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of packed weights, first unchanged, then with every hash corrected. The file is refused, so that it would
// be written again, or its runs are those that were written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "require.h"
#include "support/temporary_folder.h"
#include "weights/packed_file.h"

namespace {

using namespace minim;
using minim::fuzz::require;
using weights::PackedFile;
using weights::PackedHeader;
using weights::PackedRun;

using Bytes = std::vector<std::byte>;

constexpr uint64_t k_model = 0x1234'5678'9ABC'DEF0;
constexpr uint64_t k_origin = 0x0FED'CBA9'8765'4321;

void open(const std::string& path, const Bytes& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    require(static_cast<bool>(file.flush()), "the temporary file can be written");
    fuzz::require_refusal({Status::format}, "a file is read or refused", [&] {
        auto packed = PackedFile::open(path, {k_model, k_origin}, Logger());
        if (!packed) return;
        PackedHeader header;
        std::memcpy(&header, bytes.data(), sizeof(header));
        require(!packed->read_runs(header.n_runs + 1), "a file has as many runs as it says");
        if (!packed->read_runs(header.n_runs)) return;
        const std::span<const PackedRun> runs = packed->runs();
        require(packed->bytes().size() == bytes.size(), "a file is mapped whole");
        require(weights::first_packed_byte(runs.size()) <= bytes.size(), "the table lies in the file");
        const auto written = std::span(bytes).subspan(sizeof(PackedHeader), runs.size_bytes());
        require(std::ranges::equal(std::as_bytes(runs), written), "runs are read as they were written");
        const weights::UnpackedFormats unpacked = packed->unpacked();
        require(weights::UnpackedFormats::of_bits(unpacked.bits()).bits() == unpacked.bits(),
                "expanded formats are a set that can be written");
    });
}

// Corrects the header and its hashes, as in a file altered on purpose.
void sign(Bytes& bytes) {
    if (bytes.size() < sizeof(PackedHeader)) bytes.resize(sizeof(PackedHeader));
    PackedHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    std::memcpy(header.magic, "minim-pk", sizeof(header.magic));
    header.version = weights::k_packed_version;
    header.model = k_model;
    header.origin = k_origin;
    header.file_bytes = bytes.size();
    const std::span<const std::byte> rest = std::span(bytes).subspan(sizeof(header));
    if (header.n_runs <= rest.size() / sizeof(PackedRun))
        header.runs_hash = hash_bytes(rest.first(header.n_runs * sizeof(PackedRun)));
    header.hash = hash_bytes(std::as_bytes(std::span(&header, 1)).first(offsetof(PackedHeader, hash)));
    std::memcpy(bytes.data(), &header, sizeof(header));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const test::TemporaryFolder folder;
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    Bytes bytes(begin, begin + size);
    open(folder / "packed", bytes);
    sign(bytes);
    open(folder / "packed", bytes);
    return 0;
}
