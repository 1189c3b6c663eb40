// SPDX-License-Identifier: Apache-2.0
// Names, ids and sizes of the trait table.
#include <limits>
#include <set>
#include <string>

#include "format/format.h"
#include "support/catch.h"

namespace minim {

TEST_CASE("every format is found by its name, and by its GGUF type id where it has one") {
    std::set<std::string_view> names;
    std::set<uint32_t> ids;
    for (const FormatTraits& entry : all_formats()) {
        CAPTURE(entry.name);
        CHECK(&traits(entry.format) == &entry);
        CHECK(format_from_name(entry.name) == entry.format);
        CHECK(entry.block_elems > 0);
        CHECK(entry.block_bytes > 0);
        names.insert(entry.name);
        if (entry.gguf_type == k_no_gguf_type) continue;
        CHECK(format_from_gguf_type(entry.gguf_type) == entry.format);
        CHECK(why_gguf_type_is_refused(entry.gguf_type).empty());
        ids.insert(entry.gguf_type);
    }
    CHECK(all_formats().size() == k_file_format_count);
    CHECK(names.size() == k_file_format_count);
    CHECK(ids.size() == k_file_format_count - 16);
    CHECK_FALSE(format_from_gguf_type(k_no_gguf_type));
}

TEST_CASE("names are matched exactly") {
    CHECK_FALSE(format_from_name("q4_k"));
    CHECK_FALSE(format_from_name("Q4_K_M"));
    CHECK_FALSE(format_from_name("Q4_K "));
    CHECK_FALSE(format_from_name(""));
    CHECK_FALSE(format_from_name("Q8_K"));
}

TEST_CASE("integer types and F64 have a size and no decoder") {
    for (const char* name : {"I8", "I16", "I32", "I64", "F64"}) {
        CAPTURE(name);
        const FormatTraits& entry = traits(format_from_name(name).value());
        CHECK(entry.decode_row == nullptr);
        CHECK(entry.block_elems == 1);
    }
    CHECK(traits(Format::i64).block_bytes == 8);
    CHECK(traits(Format::i8).block_bytes == 1);
}

TEST_CASE("removed, activation, repacked and unknown type ids are refused with a reason") {
    for (const uint32_t id : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U}) {
        CAPTURE(id);
        CHECK_FALSE(format_from_gguf_type(id));
        CHECK(why_gguf_type_is_refused(id).substr(0, 12) == "removed type");
    }
    for (const uint32_t id : {9U, 15U}) {
        CHECK_FALSE(format_from_gguf_type(id));
        CHECK(why_gguf_type_is_refused(id).substr(0, 15) == "activation type");
    }
    for (const uint32_t id : {200U, 212U, 352U, 399U, 0xFFFFFFFFU}) {
        CHECK_FALSE(format_from_gguf_type(id));
        CHECK(why_gguf_type_is_refused(id).substr(0, 13) == "repacked file");
    }
    CHECK(why_gguf_type_is_refused(4) == "removed type Q4_2");
    CHECK(why_gguf_type_is_refused(212) == "repacked file (Q4_K_R4)");
    for (const uint32_t id : {43U, 97U, 132U, 134U, 199U}) {
        CAPTURE(id);
        CHECK_FALSE(format_from_gguf_type(id));
        CHECK(why_gguf_type_is_refused(id) == "unknown");
    }
}

TEST_CASE("the bytes of a row are its header and its blocks") {
    uint64_t bytes = 0;
    REQUIRE(row_bytes(Format::q4_k, 3072, bytes));
    CHECK(bytes == 12U * 144U);
    REQUIRE(row_bytes(Format::iq4_ks, 512, bytes));
    CHECK(bytes == 4U + 2U * 136U);
    REQUIRE(row_bytes(Format::iq2_kl, 256, bytes));
    CHECK(bytes == 2U + 86U);
    REQUIRE(row_bytes(Format::f32, 65, bytes));
    CHECK(bytes == 260U);
    REQUIRE(row_bytes(Format::q8_0, 0, bytes));
    CHECK(bytes == 0U);
}

TEST_CASE("a row that is not a whole number of blocks has no size") {
    uint64_t bytes = 0;
    CHECK_FALSE(row_bytes(Format::q4_k, 255, bytes));
    CHECK_FALSE(row_bytes(Format::q8_0, 33, bytes));
    CHECK_FALSE(row_bytes(Format::nvfp4, 32, bytes));
}

TEST_CASE("a row whose size does not fit is refused") {
    constexpr uint64_t k_largest = std::numeric_limits<uint64_t>::max();
    uint64_t bytes = 0;
    CHECK_FALSE(row_bytes(Format::f32, k_largest, bytes));
    CHECK_FALSE(row_bytes(Format::i64, k_largest / 8 + 1, bytes));
    CHECK_FALSE(row_bytes(Format::q8_0, k_largest - 31, bytes));
    CHECK(row_bytes(Format::i8, k_largest, bytes));
    CHECK(bytes == k_largest);
}

}  // namespace minim
