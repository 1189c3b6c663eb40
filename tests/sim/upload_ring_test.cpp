// Weights on their way from the files to devices: what waits for what, and that all of it arrives.
#include "model/upload_ring.h"

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
#include "support/helpers.h"

namespace minim::test {
namespace {

using checkpoint::LoadCounter;
using model::UploadRing;

constexpr uint64_t k_piece = UploadRing::k_piece_bytes;

// Writes down what the ring asks of a device, which does its uploads when it is waited for and not before.
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

TEST_CASE("a piece is read while those before it travel, and is never read into before it has arrived") {
    const WatchedDevice device(0, {});
    const std::vector<std::byte> source = some_bytes(6 * k_piece + 1000);
    const auto memory = device.allocate(source.size(), "weights", backend::MemoryUse::weights);
    const model::ReadWeights read = [&](const std::byte* from, std::span<std::byte> out) {
        device.log << "read ";
        std::memcpy(out.data(), from, out.size());
    };
    const checkpoint::Progress progress;
    LoadCounter counter(source.size(), progress, nullptr);
    {
        UploadRing ring(device, memory->data(), read, counter);
        ring.append(source.data(), source.size());
        ring.finish();
    }
    CHECK(device.log.str() ==
          "read send read send read send read send "
          "wait read send wait read send wait read send "
          "wait wait wait wait ");
    CHECK(device.most_waiting == UploadRing::k_pieces);
    CHECK(device.pieces.size() == UploadRing::k_pieces);
    CHECK(device.staged_bytes == UploadRing::k_pieces * k_piece);
    CHECK(contents(device, *memory) == source);
}

TEST_CASE("parts of any size, with gaps between them, arrive at their places and share pieces") {
    const WatchedDevice device(0, {});
    const std::vector<uint64_t> sizes = {1, 255, 256, 257, 4096, k_piece - 1, 3, k_piece, 2 * k_piece + 77,
                                         0, 5};
    uint64_t bytes = 0;
    for (const uint64_t size : sizes) bytes += size + 100;
    const std::vector<std::byte> source = some_bytes(bytes);
    const auto memory = device.allocate(bytes, "weights", backend::MemoryUse::weights);
    const model::ReadWeights read = [&](const std::byte* from, std::span<std::byte> out) {
        REQUIRE(out.size() <= k_piece);
        std::memcpy(out.data(), from, out.size());
    };
    uint64_t last = 0;
    const checkpoint::Progress progress = [&](uint64_t done, uint64_t) {
        CHECK(done - last <= 2 * k_piece);
        last = done;
        return true;
    };
    LoadCounter counter(bytes - 100 * sizes.size(), progress, nullptr);
    UploadRing ring(device, memory->data(), read, counter);
    uint64_t at = 0;
    for (const uint64_t size : sizes) {
        ring.append(source.data() + at, size);
        ring.skip(100);
        at += size + 100;
    }
    ring.finish();
    CHECK(last == bytes - 100 * sizes.size());
    CHECK(device.counts().transfers == static_cast<int64_t>((bytes + k_piece - 1) / k_piece));
    const std::vector<std::byte> arrived = contents(device, *memory);
    at = 0;
    for (const uint64_t size : sizes) {
        CHECK(std::memcmp(arrived.data() + at, source.data() + at, size) == 0);
        at += size + 100;
    }
}

TEST_CASE("what fails on the way, or is cancelled, ends the ring with nothing left on the device") {
    const std::vector<std::byte> source = some_bytes(5 * k_piece);
    for (const int64_t failing : {1, 3, 5}) {
        const sim::SimBackend device(0, {.failing_transfer = failing});
        {
            const auto memory = device.allocate(source.size(), "weights", backend::MemoryUse::weights);
            const model::ReadWeights read = [](const std::byte* from, std::span<std::byte> out) {
                std::memcpy(out.data(), from, out.size());
            };
            const checkpoint::Progress progress;
            LoadCounter counter(source.size(), progress, nullptr);
            expect_error(Status::device_lost, "sim:0: a transfer failed", [&] {
                UploadRing ring(device, memory->data(), read, counter);
                ring.append(source.data(), source.size());
                ring.finish();
            });
        }
        CHECK(device.used_bytes() == 0);
    }
    const sim::SimBackend device(0, {});
    {
        const auto memory = device.allocate(source.size(), "weights", backend::MemoryUse::weights);
        int n_reads = 0;
        const model::ReadWeights read = [&](const std::byte*, std::span<std::byte>) {
            if (++n_reads == 3) fail_file(Reason::truncated, "the file has shrunk");
        };
        const checkpoint::Progress progress;
        LoadCounter counter(source.size(), progress, nullptr);
        expect_error(Status::format, "the file has shrunk", [&] {
            UploadRing ring(device, memory->data(), read, counter);
            ring.append(source.data(), source.size());
        });
        CHECK(device.counts().transfers <= 2);
    }
    CHECK(device.used_bytes() == 0);
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
