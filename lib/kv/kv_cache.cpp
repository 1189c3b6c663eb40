#include "kv/kv_cache.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;

int64_t page_count(int64_t n_context) {
    return (n_context - 1) / k_kv_page_tokens + 1;
}

void check_formats(const backend::KvLayout& layout) {
    for (const Format format : {layout.k_format, layout.v_format}) {
        if (!backend::is_kv_format(format)) {
            fail(Status::unsupported, "KV format {} is not supported; F32, F16, BF16 and Q8_0 are",
                 traits(format).name);
        }
        if (layout.head_dim % traits(format).block_elems != 0) {
            fail(Status::unsupported, "KV format {} has blocks of {}, which heads of {} do not fill",
                 traits(format).name, traits(format).block_elems, layout.head_dim);
        }
    }
}

Buffer reserve(const backend::KvLayout& layout, int64_t n_context) {
    check_formats(layout);
    const uint64_t bytes = KvCache::bytes_for(layout, n_context);
    const uint64_t available = available_memory_bytes();
    if (bytes > available) {
        const int64_t fitting = static_cast<int64_t>(available) / layout.page_bytes() * k_kv_page_tokens;
        ErrorFacts facts;
        facts.requested = static_cast<int64_t>(bytes);
        facts.available = static_cast<int64_t>(available);
        throw Error(
            Status::out_of_memory, Reason::none,
            format_text(
                "KV cache of {} tokens: {} bytes needed, {} bytes available; a context of {} would fit",
                n_context, bytes, available, fitting),
            facts);
    }
    return Buffer(bytes, "KV cache");
}

}  // namespace

uint64_t KvCache::bytes_for(const backend::KvLayout& layout, int64_t n_context) {
    uint64_t bytes = 0;
    constexpr uint64_t k_limit = uint64_t{1} << 62;
    if (n_context < 1 ||
        !checked_mul(static_cast<uint64_t>(page_count(n_context)), static_cast<uint64_t>(layout.page_bytes()),
                     bytes) ||
        bytes > k_limit) {
        fail(Status::invalid, "a context of {} tokens is not possible", n_context);
    }
    return bytes;
}

KvCache::KvCache(const backend::KvLayout& layout, int64_t n_context)
    : layout_(layout), memory_(reserve(layout, n_context)) {
    pages_.reserve(static_cast<size_t>(page_count(n_context)));
    for (int64_t page = 0; page < page_count(n_context); ++page) {
        pages_.push_back(memory_.data() + page * layout_.page_bytes());
    }
    sequence_ = {&layout_, pages_};
}

}  // namespace minim::kv
