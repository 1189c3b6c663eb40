// SPDX-License-Identifier: Apache-2.0
// Compares the tables with the figures that they are generated from.
#include "format/grids.h"

#include <cmath>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "format/e2m1.h"
#include "format/e4m3.h"
#include "support/catch.h"

namespace minim {
namespace {

const nlohmann::json& tables() {
    static const nlohmann::json file = [] {
        std::ifstream stream(MINIM_CODEBOOKS);
        return nlohmann::json::parse(stream);
    }();
    return file.at("tables");
}

template <typename T>
std::vector<T> table(const char* name) {
    return tables().at(name).at("data").get<std::vector<T>>();
}

// Returns whether the signed bytes of the entries, lowest first, are the table.
template <typename Point>
bool entries_are(const Point* entries, const char* name) {
    const std::vector<int> expect = table<int>(name);
    for (size_t i = 0; i < expect.size(); ++i) {
        const Point point = entries[i / sizeof(Point)];
        if (static_cast<int8_t>(point >> (8 * (i % sizeof(Point)))) != expect[i]) return false;
    }
    return !expect.empty();
}

bool values_are(const int8_t* values, const char* name) {
    const std::vector<int> expect = table<int>(name);
    return !expect.empty() && std::equal(expect.begin(), expect.end(), values);
}

}  // namespace

TEST_CASE("the grids are those of codebooks.json") {
    CHECK(entries_are(iq2xxs_grid(), "iq2xxs"));
    CHECK(entries_are(iq2xs_grid(), "iq2xs"));
    CHECK(entries_are(iq2s_grid(), "iq2s"));
    CHECK(entries_are(iq3xxs_grid(), "iq3xxs"));
    CHECK(entries_are(iq3s_grid(), "iq3s"));
    CHECK(entries_are(iq1s_grid(), "iq1s"));
}

TEST_CASE("the value tables are those of codebooks.json") {
    CHECK(values_are(iq4nl_values(), "iq4nl"));
    CHECK(values_are(iq2k_values(), "iq2k"));
    CHECK(values_are(iq3k_values(), "iq3k"));
    CHECK(values_are(iq4k_values(), "iq4k"));
    CHECK(values_are(iq5k_values(), "iq5k"));
    CHECK(values_are(iq6k_values(), "iq6k"));
    CHECK(values_are(iq2kl_values(), "iq2kl"));
}

TEST_CASE("the eighth sign bit makes the number of set bits even") {
    const std::vector<int> expect = table<int>("ksigns");
    REQUIRE(expect.size() == 128);
    for (int index = 0; index < 128; ++index) {
        CAPTURE(index);
        CHECK(ksigns()[index] == expect[static_cast<size_t>(index)]);
        CHECK((ksigns()[index] & 127) == index);
        CHECK(__builtin_popcount(ksigns()[index]) % 2 == 0);
    }
}

TEST_CASE("a set sign bit negates a magnitude") {
    CHECK(signed_magnitude(iq2xxs_grid()[1], 0, 0x00U, 0) == 43);
    CHECK(signed_magnitude(iq2xxs_grid()[1], 0, 0x01U, 0) == -43);
    CHECK(signed_magnitude(iq2xxs_grid()[1], 1, 0x01U, 1) == 8);
    CHECK(signed_magnitude(iq3s_grid()[0], 3, 0x80U, 7) == -signed_magnitude(iq3s_grid()[0], 3, 0U, 7));
}

TEST_CASE("the computed FP4 and FP8 values are those of codebooks.json") {
    const std::vector<float> e2m1 = table<float>("e2m1");
    REQUIRE(e2m1.size() == 16);
    for (int code = 0; code < 16; ++code) CHECK(e2m1_to_float(code) == e2m1[static_cast<size_t>(code)]);

    const nlohmann::json& e4m3 = tables().at("e4m3").at("data");
    const std::vector<float> ue4m3 = table<float>("ue4m3_ggml");
    REQUIRE(e4m3.size() == 256);
    REQUIRE(ue4m3.size() == 128);
    for (size_t code = 0; code < 256; ++code) {
        CAPTURE(code);
        const float value = e4m3_to_float(static_cast<uint8_t>(code));
        if (e4m3[code].is_null()) {
            CHECK(std::isnan(value));
        } else {
            CHECK(value == e4m3[code].get<float>());
        }
        CHECK(ue4m3_to_float(static_cast<uint8_t>(code)) == ue4m3[code % 128]);
    }
}

}  // namespace minim
