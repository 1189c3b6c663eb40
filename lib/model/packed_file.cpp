#include "model/packed_file.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "model/tasks_that_throw.h"

namespace minim::model {
namespace {

static_assert(std::endian::native == std::endian::little, "these files are written as they lie in memory");
static_assert(sizeof(PackedHeader) == 72 && std::has_unique_object_representations_v<PackedHeader>);
static_assert(sizeof(PackedRun) == 16 && std::has_unique_object_representations_v<PackedRun>);

constexpr std::string_view k_magic = "minim-pk";
constexpr uint64_t k_page_bytes = 4096;
constexpr uint64_t k_block_bytes = uint64_t{2} << 20;  // a huge page

uint64_t hash_of(const PackedHeader& header) {
    return hash_bytes(std::as_bytes(std::span(&header, 1)).first(offsetof(PackedHeader, hash)));
}

// What speaks against using a file of this kind; nothing if nothing does.
std::string_view fault_of(const PackedHeader& header, uint64_t file_bytes) {
    if (header.version != k_packed_version) return "was made by another version";
    if (header.hash != hash_of(header)) return "was altered";
    if (header.file_bytes != file_bytes) return "has not the size it was written with";
    if (header.n_runs > file_bytes / sizeof(PackedRun) || first_packed_byte(header.n_runs) > file_bytes)
        return "has no room for its weights";
    return {};
}

}  // namespace

uint64_t first_packed_byte(uint64_t n_runs) {
    return align_up(sizeof(PackedHeader) + n_runs * sizeof(PackedRun), k_page_bytes);
}

PackedWriter::PackedWriter(const std::string& path, uint64_t file_bytes, const backend::Backend& backend)
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
    run_tasks_that_throw(backend_, static_cast<int64_t>(n_blocks), [&](int64_t i, int32_t) {
        const uint64_t at = static_cast<uint64_t>(i) * k_block_bytes;
        file_.write_at(begin_ + at, {window_.data() + at, k_block_bytes});
    });
    const uint64_t left = end - begin_ - bytes;
    std::memmove(window_.data(), window_.data() + bytes, left);
    std::memset(window_.data() + left, 0, bytes);
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

std::optional<PackedFile> PackedFile::open(const std::string& path, uint64_t model, const Logger& log) {
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
        fail_file(Reason::format, "{}: not a file of packed weights; it is left as it is", path);
    const auto unusable = [&](std::string_view why) {
        log.warning("{}: this file of packed weights {}, and is made anew", path, why);
        return std::nullopt;
    };
    const std::string_view fault = fault_of(header, file->size());
    if (!fault.empty()) return unusable(fault);
    if (header.model != model)
        fail_file(Reason::value, "{}: these packed weights are of another model; the file is left as it is",
                  path);
    PackedFile packed(*file);
    packed.header_ = header;
    packed.runs_.resize(header.n_runs);
    file->read_at(sizeof(header), std::as_writable_bytes(std::span(packed.runs_)));
    if (header.runs_hash != hash_bytes(std::as_bytes(std::span(packed.runs_))))
        return unusable("was altered");
    return packed;
}

}  // namespace minim::model
