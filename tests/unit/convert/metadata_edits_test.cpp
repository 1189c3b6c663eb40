// SPDX-License-Identifier: Apache-2.0
#include "convert/metadata_edits.h"

#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::convert {
namespace {

using checkpoint::meta_text;
using checkpoint::meta_texts;
using checkpoint::meta_value;
using checkpoint::MetaEntries;
using checkpoint::MetaType;
using checkpoint::MetaValue;
using Kind = MetadataEdit::Kind;

MetaEntries some_entries() {
    const std::string tags[] = {"a", "b"};
    return {{"general.name", meta_text("model")},
            {"minimax-m2.context_length", meta_value(uint32_t{4096})},
            {"minimax-m2.rope.freq_base", meta_value(5e6F)},
            {"tokenizer.ggml.add_bos_token", meta_value(false)},
            {"general.tags", meta_texts(tags)}};
}

MetaValue edited(const MetadataEdit& edit) {
    MetaEntries entries = some_entries();
    edit_metadata({edit}, entries);
    for (const auto& [key, value] : entries)
        if (key == edit.key) return value;
    throw std::runtime_error("there is no " + edit.key);
}

std::string refusal(const MetadataEdit& edit) {
    MetaEntries entries = some_entries();
    const auto error = test::error_of([&] { edit_metadata({edit}, entries); });
    REQUIRE(error);
    CHECK(error->status() == Status::invalid);
    CHECK(std::string(error->what()).find(edit.key) != std::string::npos);
    return error->what();
}

}  // namespace

TEST_CASE("a key that is there keeps its place and its type") {
    MetaEntries entries = some_entries();
    edit_metadata({{Kind::set, "minimax-m2.context_length", "8192"}, {Kind::set, "general.name", "u32:5"}},
                  entries);
    REQUIRE(entries.size() == 5);
    CHECK(entries[1].second.type == MetaType::u32);
    CHECK(entries[1].second.unsigned_at(0) == 8192);
    CHECK(entries[0].second.string_at(0) == "u32:5");
    CHECK(edited({Kind::set, "minimax-m2.rope.freq_base", "10000"}).number_at(0) == 10000.0);
    CHECK(edited({Kind::set, "minimax-m2.rope.freq_base", "f32:10000"}).type == MetaType::f32);
    CHECK(edited({Kind::set, "tokenizer.ggml.add_bos_token", "true"}).unsigned_at(0) == 1);
}

TEST_CASE("the type of a new key is deduced or said") {
    const auto type_of = [](const char* text) { return edited({Kind::set, "new.key", text}).type; };
    CHECK(type_of("true") == MetaType::boolean);
    CHECK(type_of("5") == MetaType::u32);
    CHECK(type_of("-5") == MetaType::i64);
    CHECK(type_of("5000000000") == MetaType::i64);
    CHECK(type_of("0.5") == MetaType::f32);
    CHECK(type_of("five") == MetaType::string);
    CHECK(type_of("") == MetaType::string);
    CHECK(type_of("u16:5") == MetaType::u16);
    CHECK(type_of("f64:5") == MetaType::f64);
    CHECK(edited({Kind::set, "new.key", "string:5"}).string_at(0) == "5");
    CHECK(edited({Kind::set, "new.key", "http://x"}).string_at(0) == "http://x");
    CHECK(edited({Kind::text, "new.key", "u32:5"}).string_at(0) == "u32:5");
}

TEST_CASE("a key is removed") {
    MetaEntries entries = some_entries();
    edit_metadata({{Kind::unset, "general.tags"}}, entries);
    CHECK(entries.size() == 4);
    refusal({Kind::unset, "general.nothing"});
}

TEST_CASE("values of another type are refused") {
    CHECK(refusal({Kind::set, "minimax-m2.context_length", "many"}).find("u32") != std::string::npos);
    refusal({Kind::set, "minimax-m2.context_length", "-1"});
    refusal({Kind::set, "minimax-m2.context_length", "i32:5"});
    refusal({Kind::set, "tokenizer.ggml.add_bos_token", "1"});
    refusal({Kind::set, "general.tags", "a"});
    refusal({Kind::text, "minimax-m2.context_length", "5"});
    refusal({Kind::set, "new.key", "u8:256"});
}

TEST_CASE("keys that the tensors or the vocabulary decide are refused") {
    for (const char* key :
         {"minimax-m2.block_count", "llama.block_count", "minimax-m2.expert_count", "tokenizer.ggml.tokens",
          "tokenizer.ggml.merges", "tokenizer.ggml.pre", "split.count", "general.architecture",
          "general.alignment", "minim.tensor_xxh3"}) {
        refusal({Kind::set, key, "1"});
        refusal({Kind::unset, key});
    }
}

}  // namespace minim::convert
