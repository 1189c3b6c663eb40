// One session's keys and values: all pages its context can need, taken when the session asks for the context,
// so that running out of memory is an error at creation and never in the middle of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/kv_view.h"
#include "base/buffer.h"

namespace minim::kv {

class KvCache {
  public:
    // Throws unsupported for a format that is_kv_format does not know, or whose blocks a head does not fill, and
    // out_of_memory naming the bytes asked, the bytes available and the largest context that would
    // fit.
    KvCache(const backend::KvLayout& layout, int64_t n_context);
    KvCache(const KvCache&) = delete;
    KvCache& operator=(const KvCache&) = delete;

    const backend::KvSequence& sequence() const noexcept { return sequence_; }
    const backend::KvLayout& layout() const noexcept { return layout_; }
    uint64_t size_bytes() const noexcept { return memory_.size(); }

    // Bytes of the pages for n_context positions; throws invalid when that is no sensible size.
    static uint64_t bytes_for(const backend::KvLayout& layout, int64_t n_context);

  private:
    backend::KvLayout layout_;
    Buffer memory_;
    std::vector<std::byte*> pages_;
    backend::KvSequence sequence_;
};

}  // namespace minim::kv
