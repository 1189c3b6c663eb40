// SPDX-License-Identifier: Apache-2.0
// Weights packed into a file are mapped from it when the model is opened again, packed again if the file has other weights, and
// never mistaken for those of another model.
#include "weights/packed_file.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "format/expand.h"
#include "placement/backends.h"
#include "support.h"
#include "support/files.h"
#include "support/load_reports.h"
#include "support/refused_calls.h"

using namespace minim;
using namespace minim::test;
using checkpoint::HostStorage;

namespace {

const std::string k_data = std::string(MINIM_TEST_DATA) + "/models/";
const std::string k_made = std::string(MINIM_TEST_MODELS) + "/";
const std::string k_q8_0 = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
const std::string k_mix_ik = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-mix-ik.gguf";
const std::string k_mix_iq = k_data + "minim-tiny-mix-iq-00001-of-00003.gguf";

model::OpenOptions packed_in(const std::string& file) {
    model::OpenOptions options;
    options.packed_file = file;
    return options;
}

std::vector<float> some_logits(const model::Model& model) {
    return logits_of(model, some_ids(5));
}

void put(const std::string& path, std::string_view text) {
    std::filesystem::remove(path);  // a process that has the old file open keeps it
    write_text(path, text);
}

// A packed file of the model, its content and the model's logits, and checks of opening the model after a test has replaced the
// file.
struct Packed {
    TemporaryFolder folder;
    std::string path = folder / "packed";
    std::string text;
    std::vector<float> logits;

    explicit Packed(const std::string& model = k_q8_0) {
        logits = some_logits(*open_with(model, packed_in(path)));
        text = text_of(path);
    }
    void check_is_made_anew(std::string_view warning) {
        INFO(warning);
        Lines lines;
        CHECK(same_bits(some_logits(*open_with(k_q8_0, packed_in(path), lines.log)), logits));
        CHECK(lines.holding("it is written again") == 1);
        CHECK(lines.holding(warning) == 1);
        CHECK(text_of(path) == text);
        CHECK(n_files(folder) == 1);
    }
};

}  // namespace

TEST_CASE("a packed file is made once and mapped from then on, with the bits of weights in memory") {
    for (const std::string& path :
         {k_q8_0, k_mix_ik, k_mix_iq, k_data + "minim-tiny-mix-k.gguf", k_made + "minim-tiny-bf16.gguf",
          k_made + "minim-tiny-fp8", k_made + "minim-tiny-nvfp4", k_made + "minim-tiny-awq"}) {
        INFO(path);
        model::OpenOptions owned;
        owned.residence = HostStorage::owned;
        const auto copied = open_with(path, owned);
        const std::vector<float> expected = some_logits(*copied);

        const TemporaryFolder folder;
        model::OpenOptions options = packed_in(folder / "packed");
        LoadReports made;
        options.progress = made.progress();
        CHECK(same_bits(some_logits(*open_with(path, options)), expected));
        made.check_complete();
        CHECK(made.total > 1'000'000);
        const std::string text = text_of(options.packed_file);

        for (const bool prefault : {false, true}) {
            LoadReports mapped;
            options.progress = mapped.progress();
            options.prefault = prefault;
            const auto model = open_with(path, options);
            CHECK(same_bits(some_logits(*model), expected));
            mapped.check_complete();
            CHECK((mapped.total > 0) == prefault);
            CHECK(model->weights().layers[0].wq.packed == copied->weights().layers[0].wq.packed);
            const weights::WeightBytes bytes = model->weight_bytes()[0];
            CHECK(bytes.is_mapped);
            CHECK(bytes.total <= copied->weight_bytes()[0].total);
            const std::vector<model::WeightBlock> blocks = model->host_blocks();
            REQUIRE(blocks.size() == 1);
            for (const model::WeightBlock& block : blocks) {
                const auto* begin = model->weights().embedding.data;
                CHECK_FALSE(block.is_placed);
                CHECK(block.bytes.size() + 16384 >= bytes.total);  // one block, all but its norms
                CHECK(block.bytes.data() <= begin);
                CHECK(begin < block.bytes.data() + block.bytes.size());
            }
        }
        CHECK(text_of(options.packed_file) == text);
        CHECK(n_files(folder) == 1);
    }
}

TEST_CASE("the same weights make the same packed file on any number of threads") {
    const TemporaryFolder folder;
    for (const int32_t n_threads : {1, 3}) {
        const model::Model model(
            k_mix_ik,
            placement::make_backend("cpu", std::make_shared<ThreadPool>(n_threads), CpuLevel::scalar),
            packed_in(folder / std::to_string(n_threads)), Logger());
    }
    CHECK(text_of(folder / "1") == text_of(folder / "3"));
}

TEST_CASE("a packed file of another version, cut short, lengthened or altered at its head is made anew") {
    Packed packed;
    const auto with = [&](size_t at, char change) {
        std::string text = packed.text;
        text[at] = static_cast<char>(text[at] ^ change);
        put(packed.path, text);
    };
    with(offsetof(weights::PackedHeader, version), 2);
    packed.check_is_made_anew("was made by another version");
    expect_error(Status::format, "of another model", [&] {
        with(offsetof(weights::PackedHeader, version), 2);
        open_with(k_mix_ik, packed_in(packed.path));  // written again if it were of this model
    });
    for (const size_t at : {offsetof(weights::PackedHeader, model), offsetof(weights::PackedHeader, contents),
                            offsetof(weights::PackedHeader, n_runs), offsetof(weights::PackedHeader, hash)}) {
        with(at, 1);
        packed.check_is_made_anew("was altered");
    }
    with(sizeof(weights::PackedHeader) + 40, 64);  // the offset of a run
    packed.check_is_made_anew("in another format");
    put(packed.path, packed.text.substr(0, packed.text.size() - 1));
    packed.check_is_made_anew("has not the size");
    put(packed.path, packed.text + "x");
    packed.check_is_made_anew("has not the size");
}

TEST_CASE("runs that do not lie in the packed file are not read, whatever its hashes say") {
    Packed packed;
    weights::PackedHeader header;
    std::memcpy(&header, packed.text.data(), sizeof(header));
    std::vector<weights::PackedRun> runs(header.n_runs);
    const auto forge = [&](const auto& change) {
        std::string text = packed.text;
        std::memcpy(runs.data(), text.data() + sizeof(header), runs.size() * sizeof(runs[0]));
        weights::PackedHeader forged = header;
        change(forged, runs);
        forged.runs_hash = hash_bytes(std::as_bytes(std::span(runs)));
        forged.hash =
            hash_bytes(std::as_bytes(std::span(&forged, 1)).first(offsetof(weights::PackedHeader, hash)));
        std::memcpy(text.data(), &forged, sizeof(forged));
        std::memcpy(text.data() + sizeof(forged), runs.data(), runs.size() * sizeof(runs[0]));
        put(packed.path, text);
    };
    for (const uint64_t at : {uint64_t{0}, header.file_bytes, header.file_bytes - 64, UINT64_MAX - 63}) {
        forge([&](auto&, auto& all) { all[3].at = at; });
        packed.check_is_made_anew("in another format");
    }
    forge([](auto&, auto& all) { all[3].at += 4; });
    packed.check_is_made_anew("in another format");
    forge([](auto& head, auto&) { head.contents ^= 1; });
    packed.check_is_made_anew("in another format");
    forge([](auto& head, auto&) { head.n_runs -= 1; });
    packed.check_is_made_anew("in another format");
    forge([](auto& head, auto&) { head.n_runs = uint64_t{1} << 60; });
    packed.check_is_made_anew("has no room");
    forge([](auto& head, auto&) { head.unpacked = UINT64_MAX; });  // no format of this model among them
    CHECK(same_bits(some_logits(*open_with(k_q8_0, packed_in(packed.path))), packed.logits));
}

TEST_CASE("a packed file of a checkpoint that has changed since is made anew") {
    const TemporaryFolder folder;
    const std::string checkpoint = folder / "model.gguf";
    const std::string packed = folder / "packed";
    std::filesystem::copy_file(k_q8_0, checkpoint);
    const std::vector<float> before = some_logits(*open_with(checkpoint, packed_in(packed)));
    // Weights of experts that none of the samples of the file covers.
    const std::string name = "blk.1.ffn_down_exps.weight";
    const auto changed_at = [&] {
        const auto file = checkpoint::Checkpoint::open(checkpoint, Logger());
        const checkpoint::Tensor* tensor = file.find(name);
        REQUIRE(tensor != nullptr);
        return tensor->offset + 2;
    }();
    std::string text = text_of(checkpoint);
    for (size_t i = 0; i < 3000; ++i)
        text[changed_at + 34 * i] = static_cast<char>(text[changed_at + 34 * i] ^ 64);
    put(checkpoint, text);
    std::filesystem::last_write_time(
        checkpoint, std::filesystem::last_write_time(k_q8_0) + std::chrono::nanoseconds(1000));
    Lines lines;
    model::OpenOptions owned;
    owned.residence = HostStorage::owned;
    const std::vector<float> expected = some_logits(*open_with(checkpoint, owned));
    CHECK_FALSE(same_bits(expected, before));
    CHECK(same_bits(some_logits(*open_with(checkpoint, packed_in(packed), lines.log)), expected));
    CHECK(lines.holding("was made of files that have changed since") == 1);
}

TEST_CASE("a file of another kind or of another model is left as it is") {
    Packed packed;
    expect_error(Status::format, packed.path + ": these packed weights are of another model",
                 [&] { open_with(k_mix_ik, packed_in(packed.path)); });
    CHECK(text_of(packed.path) == packed.text);
    for (const std::string& text : {std::string(), std::string("short"), std::string(1000, 'x')}) {
        put(packed.path, text);
        expect_error(Status::format, packed.path + ": not a file of packed weights",
                     [&] { open_with(k_q8_0, packed_in(packed.path)); });
        CHECK(text_of(packed.path) == text);
    }
    const std::string checkpoint = packed.folder / "model.gguf";
    std::filesystem::copy_file(k_q8_0, checkpoint);
    expect_error(Status::format, "not a file of packed weights",
                 [&] { open_with(checkpoint, packed_in(checkpoint)); });
    CHECK(text_of(checkpoint) == text_of(k_q8_0));
    expect_error(Status::io, packed.folder.path(),
                 [&] { open_with(k_q8_0, packed_in(packed.folder.path())); });
    expect_error(Status::not_found, "no/such",
                 [&] { open_with(k_q8_0, packed_in(packed.folder / "no/such")); });
}

TEST_CASE("altered weights are found when all of the packed file is read") {
    Packed packed;
    const uint64_t first = weights::first_packed_byte(0);
    for (const size_t at : {packed.text.size() - 1, packed.text.size() / 2, packed.text.size() / 3}) {
        REQUIRE(at > first);
        std::string text = packed.text;
        text[at] = static_cast<char>(text[at] ^ 16);
        put(packed.path, text);
        model::OpenOptions options = packed_in(packed.path);
        CHECK_NOTHROW(open_with(k_q8_0, options));
        options.prefault = true;
        expect_error(Status::format, packed.path + ": the packed weights at byte",
                     [&] { open_with(k_q8_0, options); });
        CHECK(text_of(packed.path) == text);
    }
}

TEST_CASE("weights are expanded as in the packed file, unless it is said how") {
    const TemporaryFolder folder;
    const std::string path = folder / "packed";
    const auto opened = [&](weights::Expand expand) {
        model::OpenOptions options = packed_in(path);
        options.expand = expand;
        return open_with(k_mix_iq, options);
    };
    const auto points = opened(weights::Expand::off);
    const std::vector<float> expected = some_logits(*points);
    const uint64_t bytes = std::filesystem::file_size(path);
    const auto unpacked = opened(weights::Expand::on);
    CHECK(std::filesystem::file_size(path) > bytes);
    CHECK(same_bits(some_logits(*unpacked), expected));
    CHECK(same_bits(some_logits(*points), expected));  // read from the file that has been unlinked
    const auto again = opened(weights::Expand::automatic);
    CHECK(again->weight_bytes()[0].total == unpacked->weight_bytes()[0].total);
    CHECK(same_bits(some_logits(*again), expected));
    CHECK(opened(weights::Expand::off)->weight_bytes()[0].total == points->weight_bytes()[0].total);
    CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("how an unsuitable packed file is expanded says nothing about the one in its place") {
    const TemporaryFolder folder;
    model::OpenOptions options = packed_in(folder / "packed");
    options.expand = weights::Expand::on;
    open_with(k_mix_iq, options);
    const uint64_t unpacked = std::filesystem::file_size(options.packed_file);
    std::string text = text_of(options.packed_file);
    text[sizeof(weights::PackedHeader) + 8] ^= 1;
    put(options.packed_file, text);
    options.expand = weights::Expand::automatic;  // the weights are too small to be worth unpacking
    open_with(k_mix_iq, options);
    CHECK(std::filesystem::file_size(options.packed_file) < unpacked);
}

TEST_CASE("rows of a packed file are not split among NUMA nodes, and the log says where they lie") {
    PlacementCalls calls = system_placement_calls();
    calls.bind_thread = [](pthread_t, std::span<const int>) { return 0; };
    calls.bind_memory = [](void*, uint64_t, std::span<const int32_t>) { return 0; };
    Topology topology;
    topology.nodes = {{0, {0}}, {1, {1}}};
    const placement::ThreadOptions threads = {.n_threads = 2, .n_threads_decode = 2, .numa = Numa::split};
    const Packed packed;
    Lines lines;
    const model::Model model(
        k_q8_0,
        placement::make_backend("cpu", placement::make_threads(threads, topology, Logger(), calls),
                                active_cpu_level()),
        packed_in(packed.path), lines.log);
    CHECK(same_bits(some_logits(model), packed.logits));
    CHECK(model.weights().layers[0].wq.blocks == nullptr);
    CHECK(lines.holding("mapped weights lie where the system has put the pages") == 1);
    CHECK(lines.holding("anew") == 0);
}

TEST_CASE("a packed file that is not finished leaves nothing behind, and the old one where it is") {
    const TemporaryFolder folder;
    const auto load = [&](const checkpoint::Progress& progress) {
        model::OpenOptions options = packed_in(folder / "packed");
        options.progress = progress;
        return open_with(k_q8_0, options);
    };
    LoadReports reports;
    load(reports.progress());
    std::filesystem::remove(folder / "packed");
    cancel_at_each(reports.done.size(), load, [&] { CHECK(n_files(folder) == 0); });

    Packed packed;
    const auto check = [&](const checkpoint::Progress& progress) {
        model::OpenOptions options = packed_in(packed.path);
        options.prefault = true;
        options.progress = progress;
        return open_with(k_q8_0, options);
    };
    LoadReports checks;
    check(checks.progress());
    cancel_at_each(checks.done.size(), check, [&] { CHECK(text_of(packed.path) == packed.text); });
}

TEST_CASE("a packed file for which there is no room is an error that names it") {
    const TemporaryFolder folder;
    rlimit old = {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little = {1'000'000, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
    const std::optional<Error> error = error_of([&] { open_with(k_q8_0, packed_in(folder / "packed")); });
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
    REQUIRE(error);
    CHECK(error->status() == Status::io);
    CHECK(std::string_view(error->what()).starts_with(folder / "packed"));
    CHECK(n_files(folder) == 0);
}

TEST_CASE("a packed file is for weights that are mapped on the host") {
    const TemporaryFolder folder;
    model::OpenOptions options = packed_in(folder / "packed");
    options.residence = HostStorage::owned;
    expect_error(Status::invalid, folder / "packed", [&] { open_with(k_q8_0, options); });
    options.residence = HostStorage::mapped;
    CHECK_NOTHROW(open_with(k_q8_0, options));
}

// Packed rows in files must not change while k_packed_version stays the same. If this test fails, the order of packed rows has
// changed: raise k_packed_version, and put the new hash here.
TEST_CASE("packed rows lie as they do in the files of this version") {
    constexpr int64_t k_rows = 40;  // a panel, and part of one
    constexpr int64_t k_cols = 512;
    const auto backend = placement::make_backend("cpu", std::make_shared<ThreadPool>(1), active_cpu_level());
    uint64_t all = 0;
    for (const FormatTraits& entry : all_formats()) {
        if (!backend->packs(entry.format)) continue;
        backend::Matrix shape = {.format = entry.format, .rows = k_rows, .cols = k_cols};
        shape.row_bytes = row_bytes(entry.format, k_cols);
        std::vector<std::byte> rows(static_cast<size_t>(k_rows * shape.row_bytes));
        uint64_t state = 1;
        for (std::byte& byte : rows) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            byte = static_cast<std::byte>(state >> 56);
        }
        std::vector<std::byte> packed(rows.size());
        backend->host()->pack_rows(shape, rows.data(), packed.data());
        // The hashes are added up: a new format changes this number, but needs no new version.
        const uint64_t name = hash_bytes(std::as_bytes(std::span(entry.name)));
        all += hash_bytes(packed, name);
        const auto unpacked = unpacked_format(entry.format);
        if (!unpacked) continue;
        std::vector<std::byte> out(static_cast<size_t>(k_rows * row_bytes(*unpacked, k_cols)));
        expand_rows(entry.format, rows.data(), k_rows, shape.row_bytes, k_cols, out.data());
        all += hash_bytes(out, name);
    }
    CHECK(all == 0xD107BEFB7EB437C3);
    CHECK(weights::k_packed_version == 2);
}

TEST_CASE("a model opens where files cannot be mapped, and without mmap nothing is mapped") {
    const std::vector<RefusedCall> shared = {{SYS_mmap, ENODEV, {{2, PROT_READ}, {3, MAP_SHARED}}}};
    std::vector<RefusedCall> all = shared;
    all.push_back({SYS_mmap, EINVAL, {{2, PROT_READ}, {3, MAP_PRIVATE}}});
    const TemporaryFolder folder;
    model::OpenOptions owned;
    owned.residence = HostStorage::owned;
    model::OpenOptions mapped;
    mapped.residence = HostStorage::mapped;
    const auto opened = [](const std::string& path, const model::OpenOptions& options) {
        Lines lines;
        const std::vector<float> logits = some_logits(*open_with(path, options, lines.log));
        const uint64_t hash = hash_bytes(std::as_bytes(std::span(logits)));
        return std::to_string(hash) + (lines.holding("read into memory") > 0 ? " read" : "");
    };
    for (const std::string& path : {k_q8_0, k_made + "minim-tiny-awq", k_mix_iq}) {
        INFO(path);
        const std::string usual = opened(path, owned);
        const std::string as_mapped = path == k_q8_0 ? opened(path, mapped) : usual;
        const auto text = where_refused(shared, [&] { return opened(path, mapped); });
        if (!text) {
            WARN("skipped: no seccomp");
            return;
        }
        if (path == k_q8_0) CHECK(*text == as_mapped);
        CHECK(where_refused(all, [&] { return opened(path, owned); }) == usual);
        CHECK(where_refused(all, [&] { return opened(path, {}); }) == usual + " read");
        CHECK(where_refused(all, [&] { return opened(path, mapped); }) == usual + " read");
        std::filesystem::remove(folder / "packed");
        CHECK(where_refused(all, [&] { return opened(path, packed_in(folder / "packed")); }) ==
              usual + " read");
        CHECK(where_refused(all, [&] { return opened(path, packed_in(folder / "packed")); }) ==
              usual + " read");
    }
}
