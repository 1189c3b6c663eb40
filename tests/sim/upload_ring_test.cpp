// SPDX-License-Identifier: Apache-2.0
// Tests the transfer of weights from the files to devices: what waits for what, and that all weights arrive.
#include "weights/upload_ring.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "sim/devices.h"
#include "support/catch.h"
#include "support/gguf_writer.h"
#include "support/helpers.h"
#include "weights/target.h"

namespace minim::test {
namespace {

using weights::UploadRing;

constexpr uint64_t k_piece = UploadRing::k_piece_bytes;

// Records what the ring asks of a device. The device makes its uploads only when it is waited for.
class WatchedDevice : public sim::SimBackend {
  public:
    using SimBackend::SimBackend;

    std::unique_ptr<backend::Memory> allocate_staging(uint64_t bytes, std::string_view what) const override {
        staged_bytes += bytes;
        return SimBackend::allocate_staging(bytes, what);
    }
    void upload(backend::Scratch& scratch, std::byte* to, const std::byte* from,
                uint64_t bytes) const override {
        CHECK(waiting.count(&scratch) == 0);
        waiting[&scratch] = {to, from, bytes};
        most_waiting = std::max(most_waiting, waiting.size());
        pieces.insert(from);
        log << "send ";
    }
    void synchronize(backend::Scratch& scratch) const override {
        const auto found = waiting.find(&scratch);
        if (found != waiting.end()) {
            log << "wait ";
            const Upload& one = found->second;
            SimBackend::upload(scratch, one.to, one.from, one.bytes);
            waiting.erase(found);
        }
        SimBackend::synchronize(scratch);
    }

    struct Upload {
        std::byte* to;
        const std::byte* from;
        uint64_t bytes;
    };
    mutable std::map<const backend::Scratch*, Upload> waiting;
    mutable size_t most_waiting = 0;
    mutable uint64_t staged_bytes = 0;
    mutable std::set<const std::byte*> pieces;
    mutable std::ostringstream log;
};

std::vector<std::byte> some_bytes(uint64_t count) {
    std::vector<std::byte> bytes(count);
    uint32_t state = 1;
    for (std::byte& byte : bytes) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<std::byte>(state >> 24);
    }
    return bytes;
}

std::vector<std::byte> contents(const sim::SimBackend& device, const backend::Memory& memory) {
    std::vector<std::byte> bytes(memory.size());
    device.read(bytes.data(), memory.data(), bytes.size());
    return bytes;
}

}  // namespace

TEST_CASE("a piece is filled while those before it travel, and never before its last contents have arrived") {
    const WatchedDevice device(0, {});
    const std::vector<std::byte> source = some_bytes(6 * k_piece + 1000);
    const auto memory = device.allocate(source.size(), "weights", backend::MemoryUse::weights);
    {
        UploadRing ring(device);
        for (uint64_t at = 0; at < source.size(); at += k_piece) {
            std::byte* room = ring.room();
            device.log << "fill ";
            const uint64_t count = std::min(k_piece, source.size() - at);
            std::memcpy(room, source.data() + at, count);
            ring.send(memory->data() + at, count);
        }
        ring.finish();
    }
    CHECK(device.log.str() ==
          "fill send fill send fill send fill send "
          "wait fill send wait fill send wait fill send "
          "wait wait wait wait ");
    CHECK(device.most_waiting == UploadRing::k_pieces);
    CHECK(device.pieces.size() == UploadRing::k_pieces);
    CHECK(device.staged_bytes == UploadRing::k_pieces * k_piece);
    CHECK(contents(device, *memory) == source);
}

TEST_CASE(
    "weights of any size arrive at their places, some megabytes together and in the order of the file") {
    const TemporaryFolder folder;
    const std::vector<int64_t> sizes = {1, 255, 256, 257, 4096, k_piece - 1, 3, k_piece, 2 * k_piece + 77, 5};
    int64_t bytes = 0;
    for (const int64_t size : sizes) bytes += size;
    const std::vector<std::byte> source = some_bytes(static_cast<uint64_t>(bytes));
    GgufWriter gguf;
    int64_t at = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const auto* begin = source.data() + at;
        at += sizes[i];
        gguf.add_tensor({.name = "t" + std::to_string(i),
                         .type = traits(Format::i8).gguf_type,
                         .dims = {static_cast<uint64_t>(sizes[i])},
                         .data = {begin, begin + sizes[i]}});
    }
    gguf.write(folder / "m.gguf");
    const Logger silent;
    checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::open(folder / "m.gguf", silent);
    // The list has the last weight first: the layout decides where weights lie, not the order of the list.
    std::vector<weights::WeightSpec> specs;
    std::vector<const weights::WeightSpec*> listed;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors())
        specs.push_back({.rows = tensor.shape[0], .cols = 1, .row_bytes = 1, .source = {.tensor = &tensor}});
    for (const weights::WeightSpec& spec : specs) listed.insert(listed.begin(), &spec);

    const WatchedDevice device(0, {});
    const std::shared_ptr<const backend::Backend> host = cpu_backend();
    const weights::Reader reader(checkpoint);
    const weights::DeviceWeights part = {.backend = &device, .weights = listed};
    const weights::PlaceOptions options = {.host = host->host()};
    const std::unique_ptr<weights::Target> target = weights::device_target(part, reader, options);
    uint64_t last = 0;
    const checkpoint::Progress progress = [&](uint64_t done, uint64_t) {
        CHECK(done - last <= 2 * k_piece);
        last = done;
        return true;
    };
    checkpoint::LoadCounter counter(target->bytes_to_read(), progress, nullptr);
    target->read(counter);
    CHECK(last == static_cast<uint64_t>(bytes));
    CHECK(device.counts().transfers <= bytes / static_cast<int64_t>(k_piece) + 2);
    const weights::PlacedWeights arrived_part = target->finish();
    const weights::PlacedMatrices& placed = arrived_part.weights;
    const auto& memory = arrived_part.device;
    const std::vector<std::byte> arrived = contents(device, *memory);
    at = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const auto* data = placed.matrices[sizes.size() - 1 - i].data;
        CHECK((data - memory->data()) % 256 == 0);
        CHECK(std::memcmp(arrived.data() + (data - memory->data()), source.data() + at,
                          static_cast<size_t>(sizes[i])) == 0);
        at += sizes[i];
    }
}

TEST_CASE("a transfer that fails ends the ring with nothing left on the device") {
    const std::vector<std::byte> source = some_bytes(5 * k_piece);
    for (const int64_t failing : {1, 3, 5}) {
        const sim::SimBackend device(0, {.failing_transfer = failing});
        {
            const auto memory = device.allocate(source.size(), "weights", backend::MemoryUse::weights);
            expect_error(Status::device_lost, "sim:0: a transfer failed", [&] {
                UploadRing ring(device);
                for (uint64_t at = 0; at < source.size(); at += k_piece) {
                    std::memcpy(ring.room(), source.data() + at, k_piece);
                    ring.send(memory->data() + at, k_piece);
                }
                ring.finish();
            });
        }
        CHECK(device.used_bytes() == 0);
    }
}

TEST_CASE("a model that comes over a slow link is the same, and its files are read and not mapped in") {
    const TemporaryFolder folder;
    const std::string path = folder / "model.gguf";
    std::filesystem::copy_file(bundled_model_path(), path);
    const Devices devices = make_devices(2, {.bytes_per_second = 1e8});
    const auto model = model_on(devices, {}, path);
    // A few pages were looked at for the fingerprint; the system brings in some around each.
    std::ifstream maps("/proc/self/smaps");
    bool is_file = false;
    int64_t resident_kib = 0;
    int n_mappings = 0;
    for (std::string line; std::getline(maps, line);) {
        if (line.find(" kB") == std::string::npos) {
            is_file = line.ends_with(path);
            n_mappings += is_file ? 1 : 0;
        }
        if (is_file && line.starts_with("Rss:")) resident_kib += std::atoll(line.c_str() + 4);
    }
    CHECK(n_mappings > 0);
    CAPTURE(resident_kib, model->checkpoint().tensor_bytes());
    engine::Session session = make_session(model, 100);
    engine::Session expected = make_session(model_on_cpu(), 100);
    CHECK(all_logits(session, some_ids(40), 40) == all_logits(expected, some_ids(40), 40));
    CHECK(resident_kib * 1024 < static_cast<int64_t>(model->checkpoint().tensor_bytes()) / 2);
}

}  // namespace minim::test
