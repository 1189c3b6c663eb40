// SPDX-License-Identifier: Apache-2.0
// A model on disk: GGUF, single or split, or safetensors, single or sharded. Opening reads the headers alone
// and checks all of them, so that every tensor is known to lie inside its file; its bytes are then mapped or read. The
// meaning of names and keys is left to lib/model: an adapter or an importance matrix opens as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/contents.h"
#include "checkpoint/metadata.h"
#include "checkpoint/tensor.h"

namespace minim::checkpoint {

enum class HostStorage {
    mapped,  // in the files, mapped read-only: pages come in on first use and can be dropped by the system
    owned,  // read with Checkpoint::read() or view() into memory of the process or a device; nothing is mapped
};

// Bytes of a tensor: `kept` owns them unless they are mapped.
struct View {
    const std::byte* data = nullptr;
    std::shared_ptr<const std::vector<std::byte>> kept = nullptr;
};

// The ranges that were read last, the latest one first.
struct ViewCache {
    struct Range {
        int32_t tensor = 0;
        uint64_t from = 0;
        uint64_t count = 0;
        std::shared_ptr<const std::vector<std::byte>> bytes;
    };
    std::mutex mutex;
    std::vector<Range> ranges;
};

// Const members may be called from any thread; map() from one thread, before others call data(). Returned pointers,
// spans and views are valid as long as the Checkpoint, even after it is moved.
class Checkpoint {
  public:
    // `path`: a .gguf file (any part of a split one), a .safetensors file, a *.index.json, a folder with one model, or an open
    // descriptor of a .gguf file or a folder, "/proc/self/fd/N", of which a copy is kept. Throws Error: the reason says what is
    // wrong with the file.
    static Checkpoint open(const std::string& path, const Logger& log);

    Checkpoint(Checkpoint&&) noexcept = default;
    Checkpoint& operator=(Checkpoint&&) noexcept = default;
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

    Container container() const noexcept { return contents_.container; }
    const Metadata& metadata() const noexcept { return contents_.metadata; }
    std::span<const Tensor> tensors() const noexcept { return contents_.tensors; }
    const Tensor* find(std::string_view name) const;  // nullptr if there is none

    // Returns the file or files, in the order of Tensor::part.
    std::span<const File> files() const noexcept { return contents_.files; }
    const std::string& folder() const noexcept {
        return folder_;
    }                                                             // of its files; "." for the working folder
    uint64_t file_bytes() const noexcept { return file_bytes_; }  // of all files
    uint64_t tensor_bytes() const noexcept { return tensor_bytes_; }  // of all tensors

    // Maps all files, so that data() is valid. A file that shrinks while it is mapped raises SIGBUS on access; a file that
    // has shrunk before is `truncated`. A failed call changes nothing and may be tried again.
    void map();
    // Throws truncated if a file has shrunk since it was opened.
    void check_sizes() const;
    // Returns the mapped bytes of a tensor, aligned as in the file (safetensors files do not align tensors); null if the files
    // are not mapped.
    const std::byte* data(const Tensor& tensor) const noexcept;
    // Reads bytes of a tensor from the file, mapped or not.
    void read(const Tensor& tensor, uint64_t from, std::span<std::byte> out) const;
    // Returns bytes of a tensor, in the mapping if there is one. Else they are read, and kept for the next calls: several
    // threads use ranges of some megabytes in turns.
    View view(const Tensor& tensor, uint64_t from, uint64_t count) const;
    // Advises the system to read bytes of a tensor before their use. A refusal changes only speed.
    void read_ahead(const Tensor& tensor, uint64_t from, uint64_t count) const noexcept;
    // Advises the system that bytes of a tensor are not read again.
    void forget(const Tensor& tensor, uint64_t from, uint64_t count) const noexcept;

  private:
    Checkpoint(Contents contents, std::string folder, Descriptor kept);

    Descriptor kept_;  // keeps the path of an open descriptor valid
    Contents contents_;
    std::string folder_;
    std::vector<uint32_t> order_;  // tensors by name
    uint64_t file_bytes_ = 0;
    uint64_t tensor_bytes_ = 0;
    std::vector<MappedFile> maps_;  // of all files, or none
    std::unique_ptr<ViewCache> views_;
};

}  // namespace minim::checkpoint
