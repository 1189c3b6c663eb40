// SPDX-License-Identifier: Apache-2.0
#include "sampling/stop_matcher.h"

#include <algorithm>

#include "expect_error.h"
#include "sampling/random.h"

namespace minim::sampling {
namespace {

struct Result {
    std::string text;
    bool stopped = false;
    std::string matched;
};

bool operator==(const Result& a, const Result& b) {
    return a.text == b.text && a.stopped == b.stopped && a.matched == b.matched;
}

// Computes the result by the definition: the shortest prefix of the text that ends with a stop string, without the
// longest such string.
Result reference(const std::vector<std::string>& stops, const std::string& text) {
    for (size_t end = 1; end <= text.size(); ++end) {
        std::string longest;
        for (const std::string& stop : stops) {
            const bool ends_here =
                stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0;
            if (ends_here && stop.size() > longest.size()) longest = stop;
        }
        if (!longest.empty()) return {text.substr(0, end - longest.size()), true, longest};
    }
    return {text, false, ""};
}

// Returns the length of the end of the text that may still become a stop string, if the text contains none.
size_t reference_stored(const std::vector<std::string>& stops, const std::string& text) {
    size_t stored = 0;
    for (const std::string& stop : stops) {
        for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
            if (text.compare(text.size() - n, n, stop, 0, n) == 0) stored = std::max(stored, n);
        }
    }
    return stored;
}

// Returns the stop string that was found; empty before the stop.
std::string matched(const StopMatcher& matcher, const std::vector<std::string>& stops) {
    return matcher.stopped() ? stops[matcher.matched_index()] : std::string();
}

Result matched_in_pieces(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    StopMatcher matcher(stops);
    Result result;
    for (const std::string& piece : pieces) result.text += matcher.push(piece);
    result.text += matcher.finish();
    result.stopped = matcher.stopped();
    result.matched = matched(matcher, stops);
    return result;
}

std::string random_text(Random& random, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += static_cast<char>('a' + random.next() % 2);
    return text;
}

}  // namespace

TEST_CASE("text without stop strings passes at once") {
    StopMatcher matcher({});
    CHECK(matcher.push("abc") == "abc");
    CHECK(matcher.push("").empty());
    CHECK(matcher.finish().empty());
    CHECK_FALSE(matcher.stopped());
    CHECK(matcher.matched_index() == -1);
}

TEST_CASE("a stop string is cut off and nothing follows it") {
    StopMatcher matcher({"END"});
    CHECK(matcher.push("one EN") == "one ");
    CHECK_FALSE(matcher.stopped());
    CHECK(matcher.push("D two").empty());
    CHECK(matcher.stopped());
    CHECK(matcher.matched_index() == 0);
    CHECK(matcher.push("three").empty());
    CHECK(matcher.finish().empty());
}

TEST_CASE("text held back is released when it turns out not to stop, and at the end") {
    StopMatcher matcher({"END"});
    CHECK(matcher.push("xE") == "x");
    CHECK(matcher.push("N").empty());
    CHECK(matcher.push("E") == "EN");
    CHECK(matcher.push("N").empty());
    CHECK(matcher.finish() == "EN");
    CHECK_FALSE(matcher.stopped());
}

TEST_CASE("stop strings that overlap themselves are found") {
    CHECK(matched_in_pieces({"aab"}, {"aaab"}) == Result{"a", true, "aab"});
    CHECK(matched_in_pieces({"aab"}, {"a", "a", "a", "a", "b"}) == Result{"aa", true, "aab"});
    CHECK(matched_in_pieces({"abab"}, {"abaabab"}) == Result{"aba", true, "abab"});
    CHECK(matched_in_pieces({"ababac"}, {"abab", "abac"}) == Result{"ab", true, "ababac"});
}

TEST_CASE("the stop string completed first wins, and of those that end together the longest") {
    CHECK(matched_in_pieces({"abcd", "bc"}, {"xabcd"}) == Result{"xa", true, "bc"});
    CHECK(matched_in_pieces({"User:", "\nUser:"}, {"hi\nUser:"}) == Result{"hi", true, "\nUser:"});
    CHECK(matched_in_pieces({"\n", "\n\n"}, {"a\n\nb"}) == Result{"a", true, "\n"});
}

TEST_CASE("whole UTF-8 sequences come out where whole ones go in") {
    StopMatcher matcher({"é!"});
    CHECK(matcher.push("caf") == "caf");
    CHECK(matcher.push("é").empty());
    CHECK(matcher.push("è") == "éè");
    CHECK(matcher.push("é!").empty());
    CHECK(matcher.matched_index() == 0);
}

TEST_CASE("bytes of zero and text longer than any buffer pass") {
    const std::string zeros(3, '\0');
    CHECK(matched_in_pieces({std::string("\0b", 2)}, {zeros, "b"}) ==
          Result{std::string(2, '\0'), true, std::string("\0b", 2)});
    const std::string text(100000, 'a');
    CHECK(matched_in_pieces({std::string(50000, 'a') + "b"}, {text}) == Result{text, false, ""});
}

TEST_CASE("stop strings that could never end a text well are refused") {
    const auto make = [](std::vector<std::string> stops) { return StopMatcher(std::move(stops)); };
    CHECK_NOTHROW(make(std::vector<std::string>(16, "x")));
    expect_error(Status::invalid, "17 stop strings", [&] { make(std::vector<std::string>(17, "x")); });
    expect_error(Status::invalid, "stop string 1 is empty", [&] { make({"x", ""}); });
    expect_error(Status::invalid, "stop string 0 begins inside", [&] { make({"\xa9!"}); });
}

TEST_CASE("the result is the same for a cut at every boundary") {
    const std::vector<std::string> stops{"<|end|>", "\n\nUser:", "nUs"};
    for (const std::string text :
         {"Hello <|end|> x", "a<|en<|end|>", "line\n\n\nUser: no", "nU nnUs", "nothing"}) {
        const Result expected = reference(stops, text);
        for (size_t first = 0; first <= text.size(); ++first) {
            for (size_t second = first; second <= text.size(); ++second) {
                const std::vector<std::string> pieces{
                    text.substr(0, first), text.substr(first, second - first), text.substr(second)};
                REQUIRE(matched_in_pieces(stops, pieces) == expected);
            }
        }
    }
}

TEST_CASE("random texts and stop strings agree with the plain definition, piece by piece") {
    Random random(4);
    int n_stopped = 0;
    for (int i = 0; i < 3000; ++i) {
        std::vector<std::string> stops;
        const size_t n_stops = random.next() % 4;
        for (size_t k = 0; k < n_stops; ++k) stops.push_back(random_text(random, 1 + random.next() % 7));
        const std::string text = random_text(random, random.next() % 25);
        const Result expected = reference(stops, text);

        StopMatcher matcher(stops);
        std::string emitted;
        size_t at = 0;
        while (at < text.size()) {
            const size_t n = random.next() % 4;
            emitted += matcher.push(std::string_view(text).substr(at, n));
            at = std::min(at + n, text.size());
            if (matcher.stopped()) break;
            const std::string so_far = text.substr(0, at);
            REQUIRE(emitted == so_far.substr(0, at - reference_stored(stops, so_far)));
        }
        emitted += matcher.finish();
        REQUIRE(Result{emitted, matcher.stopped(), matched(matcher, stops)} == expected);
        n_stopped += expected.stopped ? 1 : 0;
    }
    CHECK(n_stopped > 500);
    CHECK(n_stopped < 2900);
}

}  // namespace minim::sampling
