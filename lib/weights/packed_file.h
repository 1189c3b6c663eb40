// SPDX-License-Identifier: Apache-2.0
// A file with the packed weights of the host. When the model is opened again, the file is mapped, and nothing is read
// or packed. Processes with the same model share its pages.
//
//   PackedHeader
//   PackedRun for every run of rows, in the order of the layout
//   the runs, each at a multiple of 64 bytes
//
// Such a file is hostile input: the header and the positions of the runs are used only after their hashes and ranges
// are checked. The hashes of the weights are checked only if all weights are read anyway (`prefault`, `lock`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/host_device.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_file.h"
#include "weights/expand.h"

namespace minim::weights {

// The version covers the layout of the file, the order of bytes in panels (panel/), and the block formats that no
// checkpoint has (unpacked codebooks and assembled tensors, format/). Increase it if any of them changes.
inline constexpr uint32_t k_packed_version = 2;

// The first four fields have the same position in every version.
struct PackedHeader {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t model;     // its fingerprint
    uint64_t origin;    // hash of the sizes and modification times of the checkpoint's files
    uint64_t contents;  // hash of the weights of the runs: which ones, in which format and order
    uint64_t unpacked;  // UnpackedFormats::bits()
    uint64_t n_runs;
    uint64_t file_bytes;
    uint64_t runs_hash;
    uint64_t hash;  // of everything above
};

struct PackedRun {
    uint64_t at;    // from the start of the file
    uint64_t hash;  // sum of the hashes of its pieces
};

// Returns the position of the first of n runs.
uint64_t first_packed_byte(uint64_t n_runs);

// Writes a packed file in sequence, in blocks of one huge page: the page cache then uses huge pages, which makes a core
// read it up to a fifth faster.
class PackedWriter {
  public:
    // All members throw io and out_of_memory.
    PackedWriter(const std::string& path, uint64_t file_bytes, const backend::HostDevice& backend);

    // Makes room in memory for the bytes of the file from the last write() up to `end`. The memory is zeroed. Any
    // thread may fill it, at place(), until the next call.
    void make_room(uint64_t end);
    std::byte* place(uint64_t at) const { return window_.data() + (at - begin_); }
    // Writes the whole blocks before `end` to the file. All bytes before `end` must be filled.
    void write(uint64_t end);
    // Writes the header and gives the file its name. Fills in magic, version and hashes of the header.
    void finish(PackedHeader header, std::span<const PackedRun> runs);

  private:
    NewFile file_;
    const backend::HostDevice& backend_;
    const uint64_t file_bytes_;
    uint64_t begin_ = 0;  // of the window in the file: whole blocks precede it
    Buffer window_;
};

// Identifies the checkpoint that a packed file was made from.
struct PackedOrigin {
    uint64_t model = 0;
    uint64_t origin = 0;
};
// Returns the origin of a packed file of the model with this fingerprint in these files.
PackedOrigin origin_of(uint64_t fingerprint, std::span<const File> files);

class PackedFile {
  public:
    // Opens a file. Returns nothing if there is no file, or, with a line in the log, if the file was made by another
    // version or from files that have changed since, or is truncated or altered. Throws format if the file is of
    // another kind or of another model, and io.
    static std::optional<PackedFile> open(const std::string& path, const PackedOrigin& origin,
                                          const Logger& log);

    const std::string& path() const noexcept { return path_; }
    uint64_t contents() const noexcept { return header_.contents; }
    UnpackedFormats unpacked() const noexcept { return UnpackedFormats::of_bits(header_.unpacked); }
    std::span<const std::byte> bytes() const noexcept { return bytes_; }  // of the whole file

    // Reads the runs. Returns false if their number differs, or if they were altered.
    bool read_runs(uint64_t n_runs);
    std::span<const PackedRun> runs() const noexcept { return runs_; }  // as read

  private:
    // Reads the file into memory if it cannot be mapped.
    PackedFile(const File& file, const Logger& log);

    std::string path_;
    std::optional<MappedFile> map_;
    Buffer copy_;
    std::span<const std::byte> bytes_;  // of either
    PackedHeader header_ = {};
    std::vector<PackedRun> runs_;
};

}  // namespace minim::weights
