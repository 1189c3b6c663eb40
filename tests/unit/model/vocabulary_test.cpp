// SPDX-License-Identifier: Apache-2.0
#include "model/vocabulary.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/gguf_header.h"
#include "support.h"

using namespace minim;
using namespace minim::test;

namespace {

using Change = std::function<void(GgufWriter&)>;

// A vocabulary of three tokens, each part added by a function that a test may replace.
struct Parts {
    Change model = [](GgufWriter& g) { g.add("tokenizer.ggml.model", "gpt2"); };
    Change pre = [](GgufWriter& g) { g.add("tokenizer.ggml.pre", "minimax-m2"); };
    Change tokens = [](GgufWriter& g) {
        g.add_array<std::string>("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"});
    };
    Change merges = [](GgufWriter& g) { g.add_array<std::string>("tokenizer.ggml.merges", {"a b"}); };
    Change types = [](GgufWriter& g) { g.add_array<int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 3}); };
    Change more = [](GgufWriter&) {};
};

tokenizer::Vocabulary vocabulary_of(const Parts& parts, const Logger& log) {
    GgufWriter gguf;
    for (const Change& part : {parts.model, parts.pre, parts.tokens, parts.merges, parts.types, parts.more})
        part(gguf);
    const auto bytes = gguf.bytes();
    const auto header = checkpoint::read_gguf_header(checkpoint::ByteSource("test", bytes));
    return model::vocabulary_from_gguf(header.metadata, log);
}

void expect_refusal(const Parts& parts, Status status, std::string_view part) {
    const Logger silent;
    expect_error(status, part, [&] { vocabulary_of(parts, silent); });
}

void nothing(GgufWriter&) {}

}  // namespace

TEST_CASE("GGUF metadata gives tokens, merges, types and special ids") {
    Parts parts;
    parts.more = [](GgufWriter& g) {
        g.add("tokenizer.ggml.bos_token_id", uint32_t{0});
        g.add("tokenizer.ggml.eos_token_id", uint32_t{3});
    };
    const Logger silent;
    const tokenizer::Vocabulary vocabulary = vocabulary_of(parts, silent);
    CHECK(vocabulary.tokens == std::vector<std::string>{"a", "b", "ab", "<end>"});
    CHECK(vocabulary.merges == std::vector<std::string>{"a b"});
    CHECK(vocabulary.types[2] == tokenizer::TokenType::normal);
    CHECK(vocabulary.types[3] == tokenizer::TokenType::control);
    CHECK(vocabulary.bos == 0);
    CHECK(vocabulary.eos == 3);
    CHECK(vocabulary.eot == tokenizer::k_no_token);
}

TEST_CASE("a missing part of the GGUF vocabulary is a format error that names its key") {
    Parts parts;
    parts.model = nothing;
    expect_refusal(parts, Status::format, "tokenizer.ggml.model");
    parts = {};
    parts.tokens = nothing;
    expect_refusal(parts, Status::format, "tokenizer.ggml.tokens");
    parts = {};
    parts.merges = nothing;
    expect_refusal(parts, Status::format, "tokenizer.ggml.merges");
}

TEST_CASE("without token types all tokens are ordinary") {
    Parts parts;
    parts.types = nothing;
    const Logger silent;
    CHECK(vocabulary_of(parts, silent).types ==
          std::vector<tokenizer::TokenType>(4, tokenizer::TokenType::normal));
}

TEST_CASE("another kind of tokenizer is unsupported, by name") {
    Parts parts;
    parts.model = [](GgufWriter& g) { g.add("tokenizer.ggml.model", "llama"); };
    expect_refusal(parts, Status::unsupported, "\"llama\"");
}

TEST_CASE("another or no pre-tokenizer is a warning") {
    for (const Change& pre :
         {Change(nothing), Change([](GgufWriter& g) { g.add("tokenizer.ggml.pre", "gpt-4o"); })}) {
        Parts parts;
        parts.pre = pre;
        Lines lines;
        CHECK(vocabulary_of(parts, lines.log).tokens.size() == 4);
        CHECK(lines.holding("pre-tokenizer") == 1);
    }
    Lines lines;
    vocabulary_of({}, lines.log);
    CHECK(lines.all.empty());
}

TEST_CASE("types that do not match the tokens are format errors") {
    for (const std::vector<int32_t>& types : {std::vector<int32_t>{1, 1, 1}, {1, 1, 1, 3, 3}}) {
        Parts parts;
        parts.types = [&](GgufWriter& g) { g.add_array("tokenizer.ggml.token_type", types); };
        expect_refusal(parts, Status::format, "tokenizer.ggml.token_type");
    }
}

TEST_CASE("tokens of an undefined or unknown type are ordinary, the latter with a warning") {
    for (const int32_t type : {0, 7, -1}) {
        Parts parts;
        parts.types = [&](GgufWriter& g) {
            g.add_array<int32_t>("tokenizer.ggml.token_type", {1, type, type, 3});
        };
        Lines lines;
        const tokenizer::Vocabulary vocabulary = vocabulary_of(parts, lines.log);
        CHECK(vocabulary.types[1] == tokenizer::TokenType::normal);
        CHECK(vocabulary.types[2] == tokenizer::TokenType::normal);
        CHECK(vocabulary.types[3] == tokenizer::TokenType::control);
        CHECK(lines.holding("token 1 has type") == (type == 0 ? 0 : 1));
        CHECK(lines.all.size() == (type == 0 ? 0 : 1));
    }
}

TEST_CASE("ids and flags are read from any type that holds them exactly") {
    Parts parts;
    parts.more = [](GgufWriter& g) {
        g.add("tokenizer.ggml.eos_token_id", 3.0F);
        g.add("tokenizer.ggml.eot_token_id", uint8_t{2});
        g.add("tokenizer.ggml.add_bos_token", uint32_t{1});
        g.add("tokenizer.ggml.bos_token_id", int64_t{1});
        g.add("tokenizer.ggml.add_eos_token", int8_t{0});
    };
    const Logger silent;
    const tokenizer::Vocabulary vocabulary = vocabulary_of(parts, silent);
    CHECK(vocabulary.eos == 3);
    CHECK(vocabulary.eot == 2);
    CHECK(vocabulary.bos == 1);
    parts.more = [](GgufWriter& g) { g.add("tokenizer.ggml.eos_token_id", 2.5F); };
    expect_refusal(parts, Status::format, "tokenizer.ggml.eos_token_id");
    parts.more = [](GgufWriter& g) { g.add("tokenizer.ggml.add_bos_token", uint32_t{2}); };
    expect_refusal(parts, Status::format, "tokenizer.ggml.add_bos_token");
}

TEST_CASE("an id beyond the tokens that ends answers is a format error that names its key") {
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id", "tokenizer.ggml.bos_token_id"}) {
        for (const int64_t id : {int64_t{4}, int64_t{-2}, int64_t{1} << 40, int64_t{UINT32_MAX}}) {
            Parts parts;
            parts.more = [&](GgufWriter& g) {
                g.add(key, id);
                g.add("tokenizer.ggml.add_bos_token", true);  // so that it is used
            };
            expect_refusal(parts, Status::format, key);
        }
    }
}

TEST_CASE("an id that nobody uses is a warning where it is none") {
    const Change odd[] = {
        [](GgufWriter& g) { g.add("tokenizer.ggml.padding_token_id", uint32_t{4}); },
        [](GgufWriter& g) { g.add("tokenizer.ggml.unknown_token_id", int64_t{1} << 40); },
        [](GgufWriter& g) { g.add("tokenizer.ggml.bos_token_id", int32_t{-7}); },
        [](GgufWriter& g) { g.add("tokenizer.ggml.padding_token_id", "<sep>"); },
    };
    for (const Change& change : odd) {
        Parts parts;
        parts.more = change;
        Lines lines;
        const tokenizer::Vocabulary vocabulary = vocabulary_of(parts, lines.log);
        CHECK((vocabulary.pad == tokenizer::k_no_token && vocabulary.unk == tokenizer::k_no_token));
        CHECK(vocabulary.bos == tokenizer::k_no_token);
        CHECK(lines.holding("the token is not used") == 1);
    }
}

TEST_CASE("an id with all bits set is none") {
    for (const char* key : {"tokenizer.ggml.padding_token_id", "tokenizer.ggml.unknown_token_id",
                            "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
        for (const bool is_signed : {false, true}) {
            Parts parts;
            parts.more = [&](GgufWriter& g) {
                if (is_signed) {
                    g.add(key, int32_t{-1});
                } else {
                    g.add(key, UINT32_MAX);
                }
            };
            Lines lines;
            const tokenizer::Vocabulary vocabulary = vocabulary_of(parts, lines.log);
            CHECK((vocabulary.pad == tokenizer::k_no_token && vocabulary.unk == tokenizer::k_no_token));
            CHECK((vocabulary.eos == tokenizer::k_no_token && vocabulary.eot == tokenizer::k_no_token));
            CHECK(lines.all.empty());
        }
    }
}
