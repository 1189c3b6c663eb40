#include "kv/state_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/new_file.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

static_assert(std::endian::native == std::endian::little, "state files are written as they lie in memory");

constexpr char k_magic[8] = {'m', 'i', 'n', 'i', 'm', '-', 'k', 'v'};
constexpr uint32_t k_version = 1;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t page_tokens;
    uint64_t model;
    uint32_t n_layer;
    uint32_t n_head_kv;
    uint32_t head_dim;
    uint32_t k_format;  // numbers of GGUF types
    uint32_t v_format;
    uint32_t n_logits;
    uint64_t n_context;
    uint64_t n_tokens;
    uint64_t n_evaluated;
    uint64_t file_bytes;
    uint64_t hash;  // of everything above
};
static_assert(sizeof(Header) == 88 && std::has_unique_object_representations_v<Header>);

constexpr uint64_t k_most_tokens = uint64_t{1} << 31;

// Where the parts begin.
struct Places {
    uint64_t tokens = sizeof(Header);  // int32 each
    uint64_t logits = 0;               // float each
    uint64_t pages = 0;                // the last one shortened to the slots in use
    uint64_t page_hashes = 0;          // uint64 each, then one of tokens, logits and page hashes
    uint64_t end = 0;
};

// Bytes of a page of which only the first n_slots slots are written.
uint64_t page_bytes(const KvLayout& layout, int64_t n_slots) {
    return static_cast<uint64_t>(layout.page_bytes() / k_kv_page_tokens * n_slots);
}

int64_t slots_of_page(int64_t page, int64_t n_positions) {
    return std::min(n_positions - page * k_kv_page_tokens, k_kv_page_tokens);
}

// False where the sizes do not fit into 64 bits.
bool find_places(const KvLayout& layout, uint64_t n_tokens, uint64_t n_logits, uint64_t n_evaluated,
                 Places& places) {
    const auto n_pages = static_cast<uint64_t>(page_count(static_cast<int64_t>(n_evaluated)));
    uint64_t kv_bytes = 0;
    places.logits = places.tokens + n_tokens * sizeof(int32_t);
    places.pages = places.logits + n_logits * sizeof(float);
    if (!checked_mul(n_evaluated, page_bytes(layout, 1), kv_bytes)) return false;
    if (!checked_add(places.pages, kv_bytes, places.page_hashes)) return false;
    return checked_add(places.page_hashes, (n_pages + 1) * sizeof(uint64_t), places.end);
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

uint64_t hash_of(const Header& header) {
    return hash_bytes(bytes_of(header).first(offsetof(Header, hash)));
}

uint64_t hash_of(std::span<const int32_t> tokens, std::span<const float> logits,
                 std::span<const uint64_t> page_hashes) {
    const uint64_t of_tokens = hash_bytes(std::as_bytes(tokens));
    return hash_bytes(std::as_bytes(page_hashes), hash_bytes(std::as_bytes(logits), of_tokens));
}

// Calls visit(place in the page, place in the file's page, bytes) for the runs of slots that are in use.
template <typename Visit>
void for_each_run(const KvLayout& layout, int64_t n_slots, const Visit& visit) {
    uint64_t packed = 0;
    for (int64_t layer = 0; layer < layout.n_layer; ++layer) {
        for (int64_t head = 0; head < layout.n_head_kv; ++head) {
            const auto bytes = static_cast<size_t>(n_slots * layout.k_token_bytes());
            visit(layout.k_offset(layer, head), packed, bytes);
            packed += bytes;
        }
        for (int64_t head = 0; head < layout.n_head_kv; ++head) {
            const auto bytes = static_cast<size_t>(n_slots * layout.v_token_bytes());
            visit(layout.v_offset(layer, head), packed, bytes);
            packed += bytes;
        }
    }
}

[[noreturn]] void fail_altered(const std::string& path, std::string_view part) {
    fail_file(Reason::value, "{}: the {} of this state file are not what was written", path, part);
}

Header read_header(const File& file) {
    Header header = {};
    if (file.size() >= sizeof(k_magic)) file.read_at(0, std::as_writable_bytes(std::span(header.magic)));
    if (std::memcmp(header.magic, k_magic, sizeof(k_magic)) != 0)
        fail_file(Reason::format, "{}: not a state file", file.path());
    file.read_at(0, std::as_writable_bytes(std::span(&header, 1)));
    if (header.version != k_version) {
        fail_file(Reason::format, "{}: a state file of version {}; version {} is read", file.path(),
                  header.version, k_version);
    }
    if (header.hash != hash_of(header)) fail_altered(file.path(), "sizes");
    return header;
}

Format kv_format(const Header& header, uint32_t type, const std::string& path) {
    const std::optional<Format> format = format_from_gguf_type(type);
    const bool fits = format && backend::is_kv_format(*format) &&
                      header.head_dim % static_cast<uint32_t>(traits(*format).block_elems) == 0;
    if (!fits) fail_file(Reason::type, "{}: keys or values of type {}", path, type);
    return *format;
}

KvLayout layout_of(const Header& header, const std::string& path) {
    constexpr uint32_t k_most = 1U << 16;
    if (header.page_tokens != k_kv_page_tokens) {
        fail_file(Reason::format, "{}: pages of {} tokens; pages of {} are read", path, header.page_tokens,
                  k_kv_page_tokens);
    }
    for (const uint32_t size : {header.n_layer, header.n_head_kv, header.head_dim})
        if (size == 0 || size > k_most)
            fail_file(Reason::value, "{}: {} layers, heads or columns", path, size);
    return {header.n_layer, header.n_head_kv, header.head_dim, kv_format(header, header.k_format, path),
            kv_format(header, header.v_format, path)};
}

Places places_of(const Header& header, const KvLayout& layout, const File& file) {
    const bool sensible = header.n_context <= k_most_tokens && header.n_tokens <= header.n_context &&
                          header.n_evaluated <= header.n_tokens;
    Places places;
    if (!sensible || !find_places(layout, header.n_tokens, header.n_logits, header.n_evaluated, places) ||
        header.file_bytes != places.end) {
        fail_file(Reason::value, "{}: {} tokens, {} of them evaluated, in a context of {}", file.path(),
                  header.n_tokens, header.n_evaluated, header.n_context);
    }
    if (file.size() < places.end) {
        fail_file(Reason::truncated, "{}: a state file of {} bytes, of which {} are there", file.path(),
                  places.end, file.size());
    }
    if (file.size() > places.end) {
        fail_file(Reason::value, "{}: a state file of {} bytes has {}", file.path(), places.end, file.size());
    }
    return places;
}

}  // namespace

void write_state(const std::string& path, const State& state, const Sequence& kv, const CancelToken* cancel) {
    const KvLayout& layout = kv.layout();
    Places places;
    if (!find_places(layout, state.tokens.size(), state.logits.size(),
                     static_cast<uint64_t>(state.n_evaluated), places))
        fail_internal("a state of {} tokens", state.tokens.size());
    Header header = {};
    std::memcpy(header.magic, k_magic, sizeof(k_magic));
    header.version = k_version;
    header.page_tokens = static_cast<uint32_t>(k_kv_page_tokens);
    header.model = state.model;
    header.n_layer = static_cast<uint32_t>(layout.n_layer);
    header.n_head_kv = static_cast<uint32_t>(layout.n_head_kv);
    header.head_dim = static_cast<uint32_t>(layout.head_dim);
    header.k_format = traits(layout.k_format).gguf_type;
    header.v_format = traits(layout.v_format).gguf_type;
    header.n_logits = static_cast<uint32_t>(state.logits.size());
    header.n_context = static_cast<uint64_t>(state.n_context);
    header.n_tokens = state.tokens.size();
    header.n_evaluated = static_cast<uint64_t>(state.n_evaluated);
    header.file_bytes = places.end;
    header.hash = hash_of(header);

    const int64_t n_pages = page_count(state.n_evaluated);
    std::vector<uint64_t> page_hashes;
    page_hashes.reserve(static_cast<size_t>(n_pages));
    std::vector<std::byte> last_page;
    NewFile file(path, places.end);
    file.write(bytes_of(header));
    file.write(std::as_bytes(state.tokens));
    file.write(std::as_bytes(state.logits));
    for (int64_t i = 0; i < n_pages; ++i) {
        throw_if_cancelled(cancel, "saving");
        const std::byte* page = kv.view().pages[static_cast<size_t>(i)];
        const int64_t n_slots = slots_of_page(i, state.n_evaluated);
        std::span<const std::byte> data(page, page_bytes(layout, n_slots));
        if (n_slots < k_kv_page_tokens) {
            last_page.resize(data.size());
            for_each_run(layout, n_slots, [&](int64_t place, uint64_t packed, size_t bytes) {
                std::memcpy(last_page.data() + packed, page + place, bytes);
            });
            data = last_page;
        }
        page_hashes.push_back(hash_bytes(data));
        file.write(data);
    }
    file.write(std::as_bytes(std::span(page_hashes)));
    file.write(bytes_of(hash_of(state.tokens, state.logits, page_hashes)));
    throw_if_cancelled(cancel, "saving");
    file.commit();
}

StateFile::StateFile(const std::string& path) : file_(path) {
    const Header header = read_header(file_);
    layout_ = layout_of(header, path);
    const Places places = places_of(header, layout_, file_);
    state_.model = header.model;
    state_.n_context = static_cast<int64_t>(header.n_context);
    state_.n_evaluated = static_cast<int64_t>(header.n_evaluated);

    // No more than the file has: places_of() saw to it.
    tokens_.resize(header.n_tokens);
    file_.read_at(places.tokens, std::as_writable_bytes(std::span(tokens_)));
    logits_.resize(header.n_logits);
    file_.read_at(places.logits, std::as_writable_bytes(std::span(logits_)));
    page_hashes_.resize(static_cast<size_t>(page_count(state_.n_evaluated)));
    file_.read_at(places.page_hashes, std::as_writable_bytes(std::span(page_hashes_)));
    uint64_t hash = 0;
    file_.read_at(places.end - sizeof(hash), std::as_writable_bytes(std::span(&hash, 1)));
    if (hash != hash_of(tokens_, logits_, page_hashes_)) fail_altered(path, "tokens");
}

State StateFile::state() const noexcept {
    State state = state_;
    state.tokens = tokens_;
    state.logits = logits_;
    return state;
}

void StateFile::read_pages(Sequence& kv, const CancelToken* cancel) const {
    kv.hold(0, state_.n_evaluated);
    Places places;
    if (!find_places(layout_, tokens_.size(), logits_.size(), static_cast<uint64_t>(state_.n_evaluated),
                     places))
        fail_internal("a state of {} tokens", tokens_.size());
    std::vector<std::byte> last_page;
    for (size_t i = 0; i < page_hashes_.size(); ++i) {
        throw_if_cancelled(cancel, "restoring");
        std::byte* page = kv.view().pages[i];
        const int64_t n_slots = slots_of_page(static_cast<int64_t>(i), state_.n_evaluated);
        std::span<std::byte> data(page, page_bytes(layout_, n_slots));
        if (n_slots < k_kv_page_tokens) {
            last_page.resize(data.size());
            data = last_page;
        }
        file_.read_at(places.pages + i * static_cast<uint64_t>(layout_.page_bytes()), data);
        if (hash_bytes(data) != page_hashes_[i]) fail_altered(file_.path(), "keys and values");
        if (n_slots < k_kv_page_tokens) {
            for_each_run(layout_, n_slots, [&](int64_t place, uint64_t packed, size_t bytes) {
                std::memcpy(page + place, last_page.data() + packed, bytes);
            });
        }
    }
}

}  // namespace minim::kv
