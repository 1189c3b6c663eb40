// SPDX-License-Identifier: Apache-2.0
#include "weights/packed_file.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "weights/tasks_that_throw.h"

namespace minim::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "these files are written as they lie in memory");
static_assert(sizeof(PackedHeader) == 80 && std::has_unique_object_representations_v<PackedHeader>);
static_assert(sizeof(PackedRun) == 16 && std::has_unique_object_representations_v<PackedRun>);

constexpr std::string_view k_magic = "minim-pk";
constexpr uint64_t k_page_bytes = 4096;
constexpr uint64_t k_block_bytes = uint64_t{2} << 20;  // a huge page
constexpr uint64_t k_flush_behind_bytes = uint64_t{64} << 20;

uint64_t hash_of(const PackedHeader& header) {
    return hash_bytes(std::as_bytes(std::span(&header, 1)).first(offsetof(PackedHeader, hash)));
}

// Returns why a file of this model cannot be used; empty if it can.
std::string_view fault_of(const PackedHeader& header, uint64_t origin, uint64_t file_bytes) {
    if (header.version != k_packed_version) return "was made by another version";
    if (header.origin != origin) return "was made of files that have changed since";
    if (header.file_bytes != file_bytes) return "has not the size it was written with";
    if (header.n_runs > file_bytes / sizeof(PackedRun) || first_packed_byte(header.n_runs) > file_bytes)
        return "has no room for its weights";
    return {};
}

}  // namespace

uint64_t first_packed_byte(uint64_t n_runs) {
    return align_up(sizeof(PackedHeader) + n_runs * sizeof(PackedRun), k_page_bytes);
}

PackedWriter::PackedWriter(const std::string& path, uint64_t file_bytes, const backend::HostDevice& backend)
    : file_(path, file_bytes), backend_(backend), file_bytes_(file_bytes) {}

void PackedWriter::make_room(uint64_t end) {
    const uint64_t bytes = align_up(end - begin_, k_block_bytes);
    if (bytes <= window_.size()) return;
    Buffer larger(bytes, "packing weights to a file");
    if (window_.size() > 0) std::memcpy(larger.data(), window_.data(), window_.size());
    window_ = std::move(larger);
}

void PackedWriter::write(uint64_t end) {
    const uint64_t n_blocks = (end - begin_) / k_block_bytes;
    const uint64_t bytes = n_blocks * k_block_bytes;
    run_tasks_that_throw(&backend_, static_cast<int64_t>(n_blocks), [&](int64_t i, int32_t) {
        const uint64_t at = static_cast<uint64_t>(i) * k_block_bytes;
        file_.write_at(begin_ + at, {window_.data() + at, k_block_bytes});
    });
    const uint64_t left = end - begin_ - bytes;
    std::memmove(window_.data(), window_.data() + bytes, left);
    std::memset(window_.data() + left, 0, bytes);
    // The disk writes in the background. Each call waits for an earlier write only, so that the load can be cancelled
    // between two waits.
    file_.start_flush(begin_, bytes);
    if (begin_ >= k_flush_behind_bytes) file_.wait_for_flush(begin_ - k_flush_behind_bytes, bytes);
    begin_ += bytes;
}

void PackedWriter::finish(PackedHeader header, std::span<const PackedRun> runs) {
    make_room(file_bytes_);
    write(file_bytes_);
    file_.write_at(begin_, {window_.data(), file_bytes_ - begin_});
    window_ = Buffer();
    std::memcpy(header.magic, k_magic.data(), sizeof(header.magic));
    header.version = k_packed_version;
    header.n_runs = runs.size();
    header.file_bytes = file_bytes_;
    header.runs_hash = hash_bytes(std::as_bytes(runs));
    header.hash = hash_of(header);
    file_.write_at(0, std::as_bytes(std::span(&header, 1)));
    file_.write_at(sizeof(header), std::as_bytes(runs));
    file_.commit();
}

PackedOrigin origin_of(uint64_t fingerprint, std::span<const File> files) {
    uint64_t hash = 0;
    for (const File& file : files) {
        const uint64_t numbers[] = {file.size(), static_cast<uint64_t>(file.changed_ns())};
        hash = hash_bytes(std::as_bytes(std::span(numbers)), hash);
    }
    return {fingerprint, hash};
}

std::optional<PackedFile> PackedFile::open(const std::string& path, const PackedOrigin& origin,
                                           const Logger& log) {
    std::optional<File> file;
    try {
        file.emplace(path);
    } catch (const Error& error) {
        if (error.status() == Status::not_found) return std::nullopt;
        throw;
    }
    PackedHeader header = {};
    const bool has_header = file->size() >= sizeof(header);
    if (has_header) file->read_at(0, std::as_writable_bytes(std::span(&header, 1)));
    if (!has_header || std::memcmp(header.magic, k_magic.data(), sizeof(header.magic)) != 0)
        fail_file(Reason::format, "{}: not a file of packed weights; it is not overwritten", path);
    const bool is_altered = header.version == k_packed_version && header.hash != hash_of(header);
    if (!is_altered && header.model != origin.model)
        fail_file(Reason::value, "{}: these packed weights are of another model; the file is left as it is",
                  path);
    const std::string_view fault = is_altered ? "was altered" : fault_of(header, origin.origin, file->size());
    if (!fault.empty()) {
        log.warning("{}: this file of packed weights {}; it is written again", path, fault);
        return std::nullopt;
    }
    PackedFile packed(*file, log);
    packed.header_ = header;
    return packed;
}

PackedFile::PackedFile(const File& file, const Logger& log) : path_(file.path()) {
    try {
        map_.emplace(file);
        bytes_ = map_->bytes();
    } catch (const Error& error) {
        if (error.reason() != Reason::io) throw;
        log.warning("{}; it is read into memory", error.what());
        copy_ = Buffer(file.size(), "packed weights");
        file.read_at(0, {copy_.data(), copy_.size()});
        bytes_ = {copy_.data(), copy_.size()};
    }
}

bool PackedFile::read_runs(uint64_t n_runs) {
    if (n_runs != header_.n_runs) return false;
    const auto table = bytes().subspan(sizeof(PackedHeader), n_runs * sizeof(PackedRun));
    runs_.resize(n_runs);
    if (n_runs > 0) std::memcpy(runs_.data(), table.data(), table.size());
    return header_.runs_hash == hash_bytes(std::as_bytes(std::span(runs_)));
}

}  // namespace minim::weights
