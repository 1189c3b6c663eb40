// SPDX-License-Identifier: Apache-2.0
#include "kv/state_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/hash.h"
#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::kv;
using namespace minim::test;
using backend::k_kv_page_tokens;
using backend::KvLayout;

namespace {

constexpr KvLayout k_layout = {2, 3, 32, Format::f16, Format::q8_0};
constexpr int64_t k_evaluated = k_kv_page_tokens + 11;
constexpr uint64_t k_model = 0x1234'5678'9ABC'DEF0;
constexpr size_t k_header_bytes = 96;
// A layout whose last two layers have index keys, which have headers of version 2.
constexpr KvLayout k_index_layout = {.n_layer = 3,
                                     .n_head_kv = 2,
                                     .head_dim = 32,
                                     .k_format = Format::q8_0,
                                     .v_format = Format::q8_0,
                                     .index_dim = 16,
                                     .index_format = Format::f16,
                                     .first_index_layer = 1};
constexpr size_t k_index_header_bytes = 104;

using Bytes = std::string;

// Writes different bytes to every slot of every page.
void fill(const Sequence& kv) {
    uint32_t number = 1;
    for (std::byte* page : kv.view().pages) {
        for (int64_t at = 0; at < kv.layout().page_bytes(); ++at) {
            number = number * 1664525 + 1013904223;
            page[at] = static_cast<std::byte>(number >> 24);
        }
    }
}

// Returns the bytes of one head's K and V at a position.
Bytes slot(const Sequence& kv, int64_t layer, int64_t head, int64_t position) {
    const auto* page =
        reinterpret_cast<const char*>(kv.view().pages[static_cast<size_t>(position / k_kv_page_tokens)]);
    const int64_t at = position % k_kv_page_tokens;
    const KvLayout& layout = kv.layout();
    const char* k = page + layout.k_offset(layer, head) + at * layout.k_token_bytes();
    const char* v = page + layout.v_offset(layer, head) + at * layout.v_token_bytes();
    Bytes bytes(k, k + layout.k_token_bytes());
    bytes.insert(bytes.end(), v, v + layout.v_token_bytes());
    return bytes;
}

// Returns the bytes of a layer's index key at a position.
Bytes index_slot(const Sequence& kv, int64_t layer, int64_t position) {
    const KvLayout& layout = kv.layout();
    const auto* key =
        reinterpret_cast<const char*>(kv.view().pages[static_cast<size_t>(position / k_kv_page_tokens)]) +
        layout.index_offset(layer) + position % k_kv_page_tokens * layout.index_token_bytes();
    return {key, key + layout.index_token_bytes()};
}

struct Saved {
    TemporaryFolder folder;
    std::string path = folder / "state";
    std::vector<int32_t> tokens;
    std::vector<float> logits = {1.5F, -2.0F, 0.25F};
    Sequence kv;

    explicit Saved(const KvLayout& layout = k_layout) : kv(Sequence::alone(layout, 200)) {
        for (int32_t i = 0; i <= k_evaluated; ++i) tokens.push_back(7 * i);
        fill(kv);
        save();
    }
    void save(const CancelToken* cancel = nullptr) const {
        State state;
        state.model = k_model;
        state.n_context = 200;
        state.n_evaluated = k_evaluated;
        state.tokens = tokens;
        state.logits = logits;
        write_state(path, state, kv, cancel);
    }
    // Reads all of a file with these bytes.
    void load(const Bytes& bytes) const {
        const std::string other = folder / "other";
        write_text(other, bytes);
        const StateFile file(other);
        Sequence read(std::make_shared<PagePool>(file.layout()), 200);
        file.read_pages(read, nullptr);
    }
};

template <typename T>
void put(Bytes& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// Corrects the header's hash after a change of the header.
void sign(Bytes& bytes, size_t header_bytes = k_header_bytes) {
    put(bytes, header_bytes - 8, hash_bytes(std::as_bytes(std::span(bytes).first(header_bytes - 8))));
}

void expect_cut_files_refused(const Saved& saved, const Bytes& whole) {
    for (size_t size = 0; size < whole.size(); size += size < 200 ? 7 : 997) {
        INFO("the first " << size << " bytes");
        const std::string reason = reason_of([&] {
            saved.load({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
        });
        CHECK((reason == "truncated" || (size < 8 && reason == "format")));
    }
}

void expect_altered_files_refused(const Saved& saved, const Bytes& whole) {
    for (size_t at = 0; at < whole.size(); at += at < 900 ? 1 : 331) {
        Bytes altered = whole;
        altered[at] = static_cast<char>(altered[at] ^ 0x10);
        INFO("byte " << at);
        const std::string reason = reason_of([&] { saved.load(altered); });
        CHECK((reason == "value" || (at < 16 && reason == "format")));
    }
}

}  // namespace

TEST_CASE("a state is read as it was written") {
    const Saved saved;
    const StateFile file(saved.path);
    const State state = file.state();
    CHECK(state.model == k_model);
    CHECK(state.n_context == 200);
    CHECK(state.n_evaluated == k_evaluated);
    CHECK(std::ranges::equal(state.tokens, saved.tokens));
    CHECK(std::ranges::equal(state.logits, saved.logits));
    CHECK(file.layout().n_layer == k_layout.n_layer);
    CHECK(file.layout().n_head_kv == k_layout.n_head_kv);
    CHECK(file.layout().head_dim == k_layout.head_dim);
    CHECK(file.layout().k_format == k_layout.k_format);
    CHECK(file.layout().v_format == k_layout.v_format);

    Sequence kv(std::make_shared<PagePool>(k_layout), 200);
    file.read_pages(kv, nullptr);
    CHECK(kv.n_pages() == 2);
    for (int64_t position = 0; position < k_evaluated; ++position) {
        for (int64_t layer = 0; layer < k_layout.n_layer; ++layer) {
            for (int64_t head = 0; head < k_layout.n_head_kv; ++head)
                REQUIRE(slot(kv, layer, head, position) == slot(saved.kv, layer, head, position));
        }
    }
}

TEST_CASE("a state file has the size of its KV cache, and little more") {
    const Saved saved;
    const auto token_bytes = static_cast<uint64_t>(k_layout.page_bytes() / k_kv_page_tokens);
    const uint64_t rest = k_header_bytes + saved.tokens.size() * 4 + saved.logits.size() * 4 + 3 * 8;
    CHECK(std::filesystem::file_size(saved.path) == k_evaluated * token_bytes + rest);
}

TEST_CASE("a state with index keys is read as it was written") {
    const Saved saved(k_index_layout);
    const StateFile file(saved.path);
    CHECK(file.layout() == k_index_layout);
    Sequence kv(std::make_shared<PagePool>(k_index_layout), 200);
    file.read_pages(kv, nullptr);
    for (int64_t position = 0; position < k_evaluated; ++position) {
        for (int64_t layer = 0; layer < 3; ++layer) {
            for (int64_t head = 0; head < 2; ++head)
                REQUIRE(slot(kv, layer, head, position) == slot(saved.kv, layer, head, position));
            if (layer > 0) REQUIRE(index_slot(kv, layer, position) == index_slot(saved.kv, layer, position));
        }
    }
    const auto token_bytes = static_cast<uint64_t>(3 * 2 * 2 * 34 + 2 * 16 * 2);
    const uint64_t rest = k_index_header_bytes + saved.tokens.size() * 4 + saved.logits.size() * 4 + 3 * 8;
    CHECK(std::filesystem::file_size(saved.path) == k_evaluated * token_bytes + rest);
}

TEST_CASE("the header of a state has version 2 if there are index keys, else version 1") {
    const auto number = [](const Bytes& bytes, size_t at) {
        uint32_t value = 0;
        std::memcpy(&value, bytes.data() + at, sizeof(value));
        return value;
    };
    const Bytes plain = text_of(Saved().path);
    CHECK(number(plain, 8) == 1);
    CHECK(number(plain, 44) == 0);
    const Bytes bytes = text_of(Saved(k_index_layout).path);
    CHECK(number(bytes, 8) == 2);
    CHECK(number(bytes, 44) == 16);  // index dimension
    CHECK(number(bytes, 88) == 1);   // F16
    CHECK(number(bytes, 92) == 1);   // first layer with index keys
}

TEST_CASE("a state with index keys that was cut or altered is refused") {
    const Saved saved(k_index_layout);
    const Bytes whole = text_of(saved.path);
    expect_cut_files_refused(saved, whole);
    expect_altered_files_refused(saved, whole);
    struct Change {
        const char* what;
        size_t at;
        uint32_t value;
        const char* reason;
    };
    const Change changes[] = {
        {"version 1", 8, 1, "value"},
        {"no index keys", 44, 0, "value"},
        {"other index keys", 44, 32, "value"},
        {"index keys beyond all bounds", 44, 0xFFFF'FFFF, "value"},
        {"index keys in F32 beside keys that are not", 88, 0, "type"},
        {"index keys in 8 bits", 88, 8, "type"},
        {"index keys in no format", 88, 9999, "type"},
        {"index keys of all layers", 92, 0, "value"},
        {"index keys of no layer", 92, 3, "value"},
        {"index keys from a layer beyond all bounds", 92, 0xFFFF'FFFF, "value"},
    };
    for (const Change& change : changes) {
        Bytes altered = whole;
        put(altered, change.at, change.value);
        sign(altered, k_index_header_bytes);
        INFO(change.what);
        CHECK(reason_of([&] { saved.load(altered); }) == change.reason);
    }
}

TEST_CASE("a state without tokens is a state") {
    const TemporaryFolder folder;
    const Sequence kv(std::make_shared<PagePool>(k_layout), 10);
    State state;
    state.n_context = 10;
    write_state(folder / "empty", state, kv, nullptr);
    const StateFile file(folder / "empty");
    CHECK(file.state().tokens.empty());
    Sequence read(std::make_shared<PagePool>(k_layout), 10);
    file.read_pages(read, nullptr);
    CHECK(read.n_pages() == 0);
}

TEST_CASE("a state is the same in memory and behind other bytes of a file") {
    const Saved saved;
    const Bytes whole = text_of(saved.path);
    std::vector<std::byte> written;
    const auto append = [&](std::span<const std::byte> bytes) {
        written.insert(written.end(), bytes.begin(), bytes.end());
    };
    const StateFile file(saved.path);
    Sequence kv(std::make_shared<PagePool>(k_layout), 200);
    file.read_pages(kv, nullptr);
    write_state(append, file.state(), kv, nullptr);
    CHECK(std::ranges::equal(written, std::as_bytes(std::span(whole))));
    CHECK(state_bytes(file.state(), k_layout) == whole.size());
    CHECK(file.bytes() == whole.size());

    const StateFile in_memory(KvBytes("memory", written), Behind::nothing);
    Sequence again(std::make_shared<PagePool>(k_layout), 200);
    in_memory.read_pages(again, nullptr);
    CHECK(slot(again, 1, 2, k_evaluated - 1) == slot(saved.kv, 1, 2, k_evaluated - 1));
    CHECK(std::ranges::equal(in_memory.state().tokens, saved.tokens));
    written.pop_back();
    CHECK(reason_of([&] { StateFile(KvBytes("memory", written), Behind::nothing); }) == "truncated");

    const std::string longer = saved.folder / "longer";
    Bytes bytes(13, 'x');
    bytes.insert(bytes.end(), whole.begin(), whole.end());
    bytes.resize(bytes.size() + 50, 'y');
    write_text(longer, bytes);
    CHECK(reason_of([&] { StateFile(KvBytes(File(longer), 13), Behind::nothing); }) == "value");
    const StateFile within(KvBytes(File(longer), 13), Behind::anything);
    CHECK(within.bytes() == whole.size());
    within.read_pages(again, nullptr);
    CHECK(slot(again, 0, 0, 0) == slot(saved.kv, 0, 0, 0));
    CHECK(reason_of([&] { StateFile(KvBytes(File(longer), bytes.size() + 9), Behind::anything); }) ==
          "format");
}

TEST_CASE("a state file cut anywhere is refused") {
    const Saved saved;
    const Bytes whole = text_of(saved.path);
    expect_cut_files_refused(saved, whole);
    Bytes longer = whole;
    longer.push_back(0);
    CHECK(reason_of([&] { saved.load(longer); }) == "value");
}

TEST_CASE("a state file with any byte altered is refused") {
    const Saved saved;
    const Bytes whole = text_of(saved.path);
    expect_altered_files_refused(saved, whole);
    for (size_t at = whole.size() - 40; at < whole.size(); ++at) {
        Bytes altered = whole;
        altered[at] = static_cast<char>(altered[at] ^ 0x01);
        INFO("byte " << at);
        CHECK(reason_of([&] { saved.load(altered); }) == "value");
    }
}

TEST_CASE("hostile sizes are refused before anything is taken for them") {
    const Saved saved;
    const Bytes whole = text_of(saved.path);
    struct Change {
        const char* what;
        size_t at;
        uint64_t value;
        bool is_wide;
        const char* reason;
    };
    constexpr uint64_t k_huge = ~uint64_t{0};
    const Change changes[] = {
        {"another version", 8, 3, false, "format"},
        {"index keys in a file of version 1", 44, 16, false, "value"},
        {"pages of another size", 12, 32, false, "format"},
        {"no layers", 24, 0, false, "value"},
        {"too many layers", 24, 1U << 31, false, "value"},
        {"one layer more", 24, 3, false, "value"},
        {"no heads", 28, 0, false, "value"},
        {"too many heads", 28, 0xFFFF'FFFF, false, "value"},
        {"no columns", 32, 0, false, "value"},
        {"heads that blocks do not fill", 32, 33, false, "type"},
        {"keys in a format of weights", 36, 12, false, "type"},
        {"keys in no format", 36, 9999, false, "type"},
        {"values in a format of weights", 40, 14, false, "type"},
        {"one logit more", 72, 4, true, "value"},
        {"many logits", 72, 0xFFFF'FFFF, true, "value"},
        {"a context smaller than the tokens", 48, 5, true, "value"},
        {"a context beyond all bounds", 48, k_huge, true, "value"},
        {"no tokens", 56, 0, true, "value"},
        {"one token more", 56, k_evaluated + 2, true, "value"},
        {"more tokens than the context", 56, 201, true, "value"},
        {"tokens whose bytes overflow", 56, k_huge / 4, true, "value"},
        {"more evaluated than there are", 64, k_evaluated + 2, true, "value"},
        {"fewer evaluated", 64, k_evaluated - 1, true, "value"},
        {"evaluated beyond all bounds", 64, k_huge, true, "value"},
        {"a smaller file", 80, 100, true, "value"},
        {"a larger file", 80, whole.size() + 1, true, "value"},
        {"a huge file", 80, k_huge, true, "value"},
    };
    for (const Change& change : changes) {
        Bytes altered = whole;
        if (change.is_wide) {
            put(altered, change.at, change.value);
        } else {
            put(altered, change.at, static_cast<uint32_t>(change.value));
        }
        sign(altered);
        INFO(change.what);
        CHECK(reason_of([&] { saved.load(altered); }) == change.reason);
    }
}

TEST_CASE("a file that is none of ours is refused") {
    const Saved saved;
    CHECK(reason_of([&] { saved.load({}); }) == "format");
    CHECK(reason_of([&] { saved.load(Bytes(500, 'x')); }) == "format");
    const auto error = error_of([&] { StateFile(saved.folder / "missing"); });
    REQUIRE(error);
    CHECK(error->status() == Status::not_found);
}

TEST_CASE("a save that fails leaves the old file, and nothing beside it") {
    Saved saved;
    const Bytes before = text_of(saved.path);
    saved.tokens[0] = 99;
    CancelToken cancel;
    cancel.trigger();
    expect_error(Status::cancelled, "saving", [&] { saved.save(&cancel); });
    CHECK(text_of(saved.path) == before);
    const auto n_files = std::distance(std::filesystem::directory_iterator(saved.folder.path()), {});
    CHECK(n_files == 1);

    saved.save();
    CHECK(StateFile(saved.path).state().tokens[0] == 99);
}

TEST_CASE("a restore can be cancelled") {
    const Saved saved;
    const StateFile file(saved.path);
    Sequence kv(std::make_shared<PagePool>(k_layout), 200);
    CancelToken cancel;
    cancel.trigger();
    expect_error(Status::cancelled, "restoring", [&] { file.read_pages(kv, &cancel); });
}
