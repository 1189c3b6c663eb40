// A session in a file: its tokens, the logits after the last one, its keys and values. Drawn in README.md.
// State files are hostile input: every size is checked against the file's own before it is used, every byte
// against a hash.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/kv_view.h"
#include "base/cancel.h"
#include "base/file.h"
#include "kv/sequence.h"

namespace minim::kv {

struct State {
    uint64_t model = 0;  // its fingerprint
    int64_t n_context = 0;
    int64_t n_evaluated = 0;  // positions with keys and values
    std::span<const int32_t> tokens;
    std::span<const float> logits;  // after the last token, or empty
};

// Writes the file under its name when it is whole. `kv` holds at least n_evaluated positions. Throws io
// (also for a full disk), not_found or cancelled; a file of that name is then as it was.
void write_state(const std::string& path, const State& state, const Sequence& kv, const CancelToken* cancel);

// A state file opened: all but the keys and values is read and checked.
class StateFile {
  public:
    // Throws not_found, io, or format with a reason: truncated, format (no state file, or of another
    // version), value (a size makes no sense, bytes were altered).
    explicit StateFile(const std::string& path);

    const backend::KvLayout& layout() const noexcept { return layout_; }
    State state() const noexcept;  // lives as long as this object
    const std::string& path() const noexcept { return file_.path(); }

    // Reads the keys and values into a sequence of the same layout, with room for them. Throws as the
    // constructor, out_of_memory or cancelled.
    void read_pages(Sequence& kv, const CancelToken* cancel) const;

  private:
    File file_;
    backend::KvLayout layout_;
    State state_;
    uint64_t pages_at_ = 0;
    std::vector<int32_t> tokens_;
    std::vector<float> logits_;
    std::vector<uint64_t> page_hashes_;
};

}  // namespace minim::kv
