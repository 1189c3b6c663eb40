// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary_tables.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "vocabularies.h"

using namespace minim;
using namespace minim::tokenizer;
using minim::tokenizer::testing::LogLines;
using minim::tokenizer::testing::sample_vocabulary;

namespace {

// Builds a tokenizer from the sample after `change`, and returns the error's text.
std::string error_after(const std::function<void(Vocabulary&)>& change, Reason reason) {
    Vocabulary vocabulary = sample_vocabulary().vocabulary;
    change(vocabulary);
    try {
        const Tokenizer tokenizer(std::move(vocabulary), PieceRules::model, Logger());
        return "no error";
    } catch (const Error& error) {
        CHECK(error.status() == Status::format);
        CHECK(error.reason() == reason);
        return error.what();
    }
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::vector<std::string> warnings(const Vocabulary& vocabulary) {
    LogLines log;
    const Tokenizer tokenizer(vocabulary, PieceRules::model, log.logger);
    return log.lines;
}

std::vector<int32_t> eog(const Vocabulary& vocabulary) {
    return find_eog_ids(vocabulary, Logger());
}

}  // namespace

TEST_CASE("a byte without a token is an error that names the byte") {
    const auto text = error_after([](Vocabulary& v) { v.types[0x20] = TokenType::unused; }, Reason::value);
    CHECK(contains(text, "0x20"));
    CHECK(contains(error_after([](Vocabulary& v) { v = {}; }, Reason::value), "0x00"));
}

TEST_CASE("two ordinary tokens with one text are an error") {
    const auto text = error_after([](Vocabulary& v) { v.tokens['b'] = v.tokens['a']; }, Reason::duplicate);
    CHECK(contains(text, "97 and 98"));
}

TEST_CASE("two added tokens with one text are an error") {
    const auto change = [](Vocabulary& v) { testing::add_token(v, "<think>", TokenType::control); };
    CHECK(contains(error_after(change, Reason::duplicate), "<think>"));
}

TEST_CASE("empty tokens are errors unless they are unused") {
    error_after([](Vocabulary& v) { testing::add_token(v, "", TokenType::normal); }, Reason::value);
    error_after([](Vocabulary& v) { testing::add_token(v, "", TokenType::control); }, Reason::value);
    error_after([](Vocabulary& v) { testing::add_token(v, "", TokenType::user_defined); }, Reason::value);
    const auto unused = [](Vocabulary& v) { testing::add_token(v, "", TokenType::unused); };
    CHECK(error_after(unused, Reason::none) == "no error");
}

TEST_CASE("an endless added token is an error") {
    const auto change = [](Vocabulary& v) {
        testing::add_token(v, std::string(5000, 'x'), TokenType::control);
    };
    CHECK(contains(error_after(change, Reason::limit), "5000"));
}

TEST_CASE("a merge of what is no token is an error that names it") {
    const auto merge = [](const char* line, Reason reason) {
        return error_after([line](Vocabulary& v) { v.merges.emplace_back(line); }, reason);
    };
    CHECK(contains(merge("zz a", Reason::value), "needs the token zz"));
    CHECK(contains(merge("a zz", Reason::value), "needs the token zz"));
    CHECK(contains(merge("h e", Reason::duplicate), "twice"));
    merge("ab", Reason::format);
    merge("", Reason::format);
    merge("a b c", Reason::format);
    merge(" a", Reason::value);
    merge("a ", Reason::value);
    merge("<think> a", Reason::value);
}

TEST_CASE("a merge into what is no token is left out with a warning") {
    Vocabulary vocabulary = sample_vocabulary().vocabulary;
    const size_t n_before = vocabulary.merges.size();
    vocabulary.merges.insert(vocabulary.merges.begin(), {"a b", "b c"});
    const auto lines = warnings(vocabulary);
    const std::string expected = "2 of " + std::to_string(n_before + 2) + " merges";
    CHECK(std::ranges::any_of(lines, [&](const std::string& line) { return contains(line, expected); }));
    CHECK(std::ranges::any_of(lines, [](const std::string& line) { return contains(line, "0 (a b)"); }));
    // The other merges work as before, and the parts of the ignored merges are not joined.
    const Tokenizer cut(vocabulary, PieceRules::model, Logger());
    const Tokenizer whole(sample_vocabulary().vocabulary, PieceRules::model, Logger());
    CHECK(cut.encode("hello abc", Specials::none) == whole.encode("hello abc", Specials::none));
    CHECK(cut.encode("ab", Specials::none) == std::vector<int32_t>{'a', 'b'});
}

TEST_CASE("types must match the tokens") {
    error_after([](Vocabulary& v) { v.types.pop_back(); }, Reason::shape);
    error_after([](Vocabulary& v) { v.types.clear(); }, Reason::shape);
    error_after([](Vocabulary& v) { v.types[3] = TokenType{0}; }, Reason::value);
    error_after([](Vocabulary& v) { v.types[3] = TokenType{7}; }, Reason::value);
}

TEST_CASE("special ids out of range are errors that name them") {
    CHECK(contains(error_after([](Vocabulary& v) { v.bos = 100000; }, Reason::value), "bos 100000"));
    CHECK(contains(error_after([](Vocabulary& v) { v.eos = -2; }, Reason::value), "eos -2"));
    error_after([](Vocabulary& v) { v.eot = static_cast<int32_t>(v.tokens.size()); }, Reason::value);
    error_after([](Vocabulary& v) { v.eom = INT32_MAX; }, Reason::value);
    error_after([](Vocabulary& v) { v.unk = INT32_MIN; }, Reason::value);
    error_after([](Vocabulary& v) { v.pad = 5000; }, Reason::value);
    error_after([](Vocabulary& v) { v.extra_eog = {1, 5000}; }, Reason::value);
}

TEST_CASE("generation ends with eos, eot, eom and the listed ids, and with nothing found by name") {
    auto s = sample_vocabulary();
    testing::add_token(s.vocabulary, "<fim_pad>", TokenType::control);
    testing::add_token(s.vocabulary, "<|im_end|>", TokenType::control);
    CHECK(eog(s.vocabulary) == std::vector<int32_t>{s.end});
    s.vocabulary.eot = s.role;
    s.vocabulary.eom = s.bos;
    s.vocabulary.extra_eog = {s.end, 7, 7};
    CHECK(eog(s.vocabulary) == std::vector<int32_t>{7, s.bos, s.end, s.role});
    const Tokenizer tokenizer(s.vocabulary, PieceRules::model, Logger());
    CHECK(tokenizer.is_eog(7));
    CHECK_FALSE(tokenizer.is_eog(8));
}

TEST_CASE("consistent end-of-generation ids warn of nothing") {
    auto s = sample_vocabulary();
    CHECK(warnings(s.vocabulary).empty());
    s.vocabulary.extra_eog = {s.role, s.end};
    s.vocabulary.eot = s.end;
    CHECK(warnings(s.vocabulary).empty());
}

TEST_CASE("contradictions about the end of generation are warned of once each") {
    auto s = sample_vocabulary();
    s.vocabulary.extra_eog = {s.role};
    CHECK(warnings(s.vocabulary).size() == 1);
    s.vocabulary.extra_eog.clear();
    s.vocabulary.eos = s.role;
    REQUIRE(warnings(s.vocabulary).size() == 1);
    CHECK(contains(warnings(s.vocabulary)[0], "]~b]"));
    s.vocabulary.eos = k_no_token;
    CHECK(warnings(s.vocabulary).size() == 1);
}

TEST_CASE("an ordinary token outside the byte alphabet stands for itself") {
    auto s = sample_vocabulary();
    const int32_t odd = testing::add_token(s.vocabulary, "not stand-ins \u4F60", TokenType::normal);
    const Tokenizer tokenizer(s.vocabulary, PieceRules::model, Logger());
    CHECK(tokenizer.token_bytes(odd) == "not stand-ins \u4F60");
    CHECK(tokenizer.decode(testing::ids({odd}), true) == "not stand-ins \u4F60");
}
