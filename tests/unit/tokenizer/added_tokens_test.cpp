// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <string>

#include "support/catch.h"

using namespace minim::tokenizer;

namespace {

AddedTokenMatcher matcher() {
    return AddedTokenMatcher(
        {{"]~b]", 1}, {"<a", 2}, {"<ab>", 3}, {"<abc", 4}, {"\xF0\x9F\x90\xB6", 5}, {"<abcd>>", 6}});
}

}  // namespace

TEST_CASE("the leftmost added token is found") {
    const auto found = matcher().find("xx]~b]<a", 0);
    REQUIRE(found.has_value());
    CHECK(found->begin == 2);
    CHECK(found->end == 6);
    CHECK(found->id == 1);
}

TEST_CASE("of added tokens that start together the longest is found") {
    CHECK(matcher().find("<ab", 0)->id == 2);
    CHECK(matcher().find("<ab>", 0)->id == 3);
    CHECK(matcher().find("<abc>", 0)->id == 4);
    CHECK(matcher().find("<abcd>", 0)->id == 4);
    CHECK(matcher().find("<abcd>>", 0)->id == 6);
}

TEST_CASE("the search starts where it is told to") {
    const auto found = matcher().find("]~b]]~b]", 1);
    REQUIRE(found.has_value());
    CHECK(found->begin == 4);
    CHECK_FALSE(matcher().find("]~b]", 1).has_value());
    CHECK_FALSE(matcher().find("]~b]", 4).has_value());
}

TEST_CASE("bytes above 127 are compared as unsigned") {
    const auto found = matcher().find("\xC3\xA9\xF0\x9F\x90\xB6", 0);
    REQUIRE(found.has_value());
    CHECK(found->begin == 2);
    CHECK(found->id == 5);
}

TEST_CASE("no added tokens find nothing") {
    const AddedTokenMatcher none({});
    CHECK_FALSE(none.find("]~b]", 0).has_value());
    CHECK_FALSE(none.id_of("").has_value());
}

TEST_CASE("an added token is known by its whole text") {
    CHECK(matcher().id_of("<abc") == 4);
    CHECK_FALSE(matcher().id_of("<abcd").has_value());
    CHECK_FALSE(matcher().id_of("").has_value());
}

TEST_CASE("the matcher agrees with trying every token at every position") {
    const std::vector<AddedToken> tokens = {{"aa", 0}, {"ab", 1},  {"aab", 2},
                                            {"b", 3},  {"bab", 4}, {"cabab", 5}};
    const AddedTokenMatcher fast(tokens);
    for (int number = 0; number < 6561; ++number) {
        std::string text;
        for (int rest = number, i = 0; i < 8; ++i, rest /= 3)
            text.push_back(static_cast<char>('a' + rest % 3));
        size_t at = text.size();
        const AddedToken* best = nullptr;
        for (size_t i = 0; i < text.size() && best == nullptr; ++i) {
            for (const AddedToken& token : tokens) {
                if (text.compare(i, token.text.size(), token.text) != 0) continue;
                if (best == nullptr || token.text.size() > best->text.size()) best = &token;
                at = i;
            }
        }
        const auto found = fast.find(text, 0);
        REQUIRE(found.has_value() == (best != nullptr));
        if (best == nullptr) continue;
        REQUIRE(found->id == best->id);
        REQUIRE(found->begin == at);
    }
}
