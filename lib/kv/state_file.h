// SPDX-License-Identifier: Apache-2.0
// A session in a file or in memory: its tokens, the logits after the last token, its KV cache. README.md describes the layout.
// State files are hostile input: every size is checked against the size of the file before it is used, and every byte
// against a hash.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_view.h"
#include "base/cancel.h"
#include "base/file.h"
#include "kv/kv_file.h"
#include "kv/sequence.h"

namespace minim::kv {

struct State {
    uint64_t model = 0;  // its fingerprint
    int64_t n_context = 0;
    int64_t n_evaluated = 0;  // positions in the KV cache
    std::span<const int32_t> tokens;
    std::span<const float> logits;  // after the last token, or empty
};

// Returns the bytes that write_state() writes for a KV cache of this layout.
uint64_t state_bytes(const State& state, const backend::KvLayout& layout);

// Receives the next bytes of a state.
using Write = std::function<void(std::span<const std::byte> bytes)>;

// Writes the state from its first byte to its last. `kv` has at least n_evaluated positions. Throws cancelled, and what `write`
// throws.
void write_state(const Write& write, const State& state, const Sequence& kv, const CancelToken* cancel);

// Writes a file, which gets its name once it is complete. Throws io (also for a full disk), not_found or cancelled; an existing
// file of that name is then unchanged.
void write_state(const std::string& path, const State& state, const Sequence& kv, const CancelToken* cancel);

// An open state file: everything but the KV cache is read and checked.
class StateFile {
  public:
    // Throws not_found, io, or format with a reason: truncated, format (no state file, or of another version), value (an
    // impossible size, altered bytes).
    explicit StateFile(const std::string& path) : StateFile(KvBytes(File(path)), Behind::nothing) {}
    StateFile(KvBytes source, Behind behind);

    const backend::KvLayout& layout() const noexcept { return layout_; }
    State state() const noexcept;  // lives as long as this object
    const std::string& name() const noexcept { return source_.name(); }
    uint64_t bytes() const noexcept { return bytes_; }  // of the state

    // Reads the KV cache into a sequence of the same layout, with room for it. Throws as the
    // constructor, out_of_memory or cancelled.
    void read_pages(Sequence& kv, const CancelToken* cancel) const;

  private:
    KvBytes source_;
    uint64_t bytes_ = 0;
    backend::KvLayout layout_;
    State state_;
    uint64_t pages_at_ = 0;
    std::vector<int32_t> tokens_;
    std::vector<float> logits_;
    std::vector<uint64_t> page_hashes_;
};

}  // namespace minim::kv
