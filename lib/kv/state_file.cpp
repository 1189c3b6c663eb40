// SPDX-License-Identifier: Apache-2.0
#include "kv/state_file.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/new_file.h"

namespace minim::kv {
namespace {

using backend::k_kv_page_tokens;
using backend::KvLayout;

constexpr std::string_view k_state_magic = "minim-kv";

constexpr uint64_t k_max_tokens = uint64_t{1} << 31;

// The order of the header's counts.
enum : size_t { k_context, k_tokens, k_evaluated, k_logits };

// Offsets of the parts of a state.
struct Places {
    uint64_t tokens = 0;       // int32 each
    uint64_t logits = 0;       // float each
    uint64_t pages = 0;        // the last page is shortened to the slots in use
    uint64_t page_hashes = 0;  // uint64 each, then a hash of tokens, logits and page hashes
    uint64_t end = 0;
};

int64_t slots_of_page(int64_t page, int64_t n_positions) {
    return std::min(n_positions - page * k_kv_page_tokens, k_kv_page_tokens);
}

// Returns false if the sizes do not fit into 64 bits.
bool find_places(const KvLayout& layout, uint64_t n_tokens, uint64_t n_logits, uint64_t n_evaluated,
                 Places& places) {
    const auto n_pages = static_cast<uint64_t>(page_count(static_cast<int64_t>(n_evaluated)));
    uint64_t kv_bytes = 0;
    places.tokens = header_bytes(layout);
    places.logits = places.tokens + n_tokens * sizeof(int32_t);
    places.pages = places.logits + n_logits * sizeof(float);
    if (!checked_mul(n_evaluated, packed_bytes(layout, 1), kv_bytes)) return false;
    if (!checked_add(places.pages, kv_bytes, places.page_hashes)) return false;
    return checked_add(places.page_hashes, (n_pages + 1) * sizeof(uint64_t), places.end);
}

uint64_t hash_of(std::span<const int32_t> tokens, std::span<const float> logits,
                 std::span<const uint64_t> page_hashes) {
    const uint64_t of_tokens = hash_bytes(std::as_bytes(tokens));
    return hash_bytes(std::as_bytes(page_hashes), hash_bytes(std::as_bytes(logits), of_tokens));
}

Places places_of(const KvFileHeader& header, const KvLayout& layout, const KvBytes& source, Behind behind) {
    const auto& counts = header.counts;
    const bool sensible = counts[k_context] <= k_max_tokens && counts[k_tokens] <= counts[k_context] &&
                          counts[k_evaluated] <= counts[k_tokens] && counts[k_logits] <= k_max_tokens;
    Places places;
    if (!sensible || !find_places(layout, counts[k_tokens], counts[k_logits], counts[k_evaluated], places)) {
        fail_file(Reason::value, "{}: {} tokens, {} of them evaluated, in a context of {}", source.name(),
                  counts[k_tokens], counts[k_evaluated], counts[k_context]);
    }
    check_size(source, header, places.end, behind);
    return places;
}

}  // namespace

uint64_t state_bytes(const State& state, const KvLayout& layout) {
    Places places;
    if (!find_places(layout, state.tokens.size(), state.logits.size(),
                     static_cast<uint64_t>(state.n_evaluated), places))
        fail_internal("a state of {} tokens", state.tokens.size());
    return places.end;
}

void write_state(const Write& write, const State& state, const Sequence& kv, const CancelToken* cancel) {
    const KvLayout& layout = kv.layout();
    KvFileHeader header = new_header(k_state_magic, state.model, layout);
    header.counts[k_context] = static_cast<uint64_t>(state.n_context);
    header.counts[k_tokens] = state.tokens.size();
    header.counts[k_evaluated] = static_cast<uint64_t>(state.n_evaluated);
    header.counts[k_logits] = state.logits.size();
    seal_header(header, state_bytes(state, layout));

    const int64_t n_pages = page_count(state.n_evaluated);
    std::vector<uint64_t> page_hashes;
    page_hashes.reserve(n_pages);
    std::vector<std::byte> last_page;
    const HostPage host_page(kv.pool());
    write(encoded(header));
    write(std::as_bytes(state.tokens));
    write(std::as_bytes(state.logits));
    for (int64_t i = 0; i < n_pages; ++i) {
        throw_if_cancelled(cancel, "saving");
        const std::byte* page = host_page.read(kv.page(i));
        const int64_t n_slots = slots_of_page(i, state.n_evaluated);
        std::span<const std::byte> data(page, packed_bytes(layout, n_slots));
        if (n_slots < k_kv_page_tokens) {
            last_page.resize(data.size());
            pack_page(layout, page, n_slots, last_page.data());
            data = last_page;
        }
        page_hashes.push_back(hash_bytes(data));
        write(data);
    }
    write(std::as_bytes(std::span(page_hashes)));
    write(bytes_of(hash_of(state.tokens, state.logits, page_hashes)));
    throw_if_cancelled(cancel, "saving");
}

void write_state(const std::string& path, const State& state, const Sequence& kv, const CancelToken* cancel) {
    NewFile file(path, state_bytes(state, kv.layout()), Readers::owner);
    write_state([&](std::span<const std::byte> bytes) { file.write(bytes); }, state, kv, cancel);
    file.commit();
}

StateFile::StateFile(KvBytes source, Behind behind) : source_(std::move(source)) {
    const KvFileHeader header = read_header(source_, k_state_magic);
    layout_ = layout_of(header, name());
    const Places places = places_of(header, layout_, source_, behind);
    bytes_ = places.end;
    pages_at_ = places.pages;
    state_.model = header.model;
    state_.n_context = static_cast<int64_t>(header.counts[k_context]);
    state_.n_evaluated = static_cast<int64_t>(header.counts[k_evaluated]);

    // places_of() has checked that the file holds as many.
    tokens_.resize(header.counts[k_tokens]);
    source_.read_at(places.tokens, std::as_writable_bytes(std::span(tokens_)));
    logits_.resize(header.counts[k_logits]);
    source_.read_at(places.logits, std::as_writable_bytes(std::span(logits_)));
    page_hashes_.resize(page_count(state_.n_evaluated));
    source_.read_at(places.page_hashes, std::as_writable_bytes(std::span(page_hashes_)));
    uint64_t hash = 0;
    source_.read_at(places.end - sizeof(hash), std::as_writable_bytes(std::span(&hash, 1)));
    if (hash != hash_of(tokens_, logits_, page_hashes_)) fail_altered(name(), "tokens");
}

State StateFile::state() const noexcept {
    State state = state_;
    state.tokens = tokens_;
    state.logits = logits_;
    return state;
}

void StateFile::read_pages(Sequence& kv, const CancelToken* cancel) const {
    kv.hold(0, state_.n_evaluated);
    std::vector<std::byte> last_page;
    const HostPage host_page(kv.pool());
    for (size_t i = 0; i < page_hashes_.size(); ++i) {
        throw_if_cancelled(cancel, "restoring");
        const Page& to = kv.page(static_cast<int64_t>(i));
        std::byte* page = host_page.place(to);
        const int64_t n_slots = slots_of_page(static_cast<int64_t>(i), state_.n_evaluated);
        std::span<std::byte> data(page, packed_bytes(layout_, n_slots));
        if (n_slots < k_kv_page_tokens) {
            last_page.resize(data.size());
            data = last_page;
        }
        source_.read_at(pages_at_ + i * static_cast<uint64_t>(layout_.page_bytes()), data);
        if (hash_bytes(data) != page_hashes_[i]) fail_altered(name(), "KV cache pages");
        if (n_slots < k_kv_page_tokens) unpack_page(layout_, last_page.data(), n_slots, page);
        host_page.write_back(to);
    }
}

}  // namespace minim::kv
