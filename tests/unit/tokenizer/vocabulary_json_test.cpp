// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/catch.h"
#include "tiny_files.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "vocabularies.h"

using namespace minim;
using namespace minim::tokenizer;
using minim::tokenizer::testing::LogLines;

namespace {

using Json = nlohmann::json;

// Returns a tokenizer.json of the sample vocabulary.
Json sample_json() {
    const auto s = testing::sample_vocabulary();
    Json json;
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"},
                                {"pattern", {{"Regex", k_piece_pattern}}},
                                {"behavior", "Isolated"},
                                {"invert", false}},
                               {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}}}}};
    json["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
    json["decoder"] = {{"type", "ByteLevel"}};
    json["model"] = {{"type", "BPE"}, {"merges", s.vocabulary.merges}};
    json["added_tokens"] = Json::array();
    for (size_t id = 0; id < s.vocabulary.tokens.size(); ++id) {
        const TokenType type = s.vocabulary.types[id];
        if (type == TokenType::normal) json["model"]["vocab"][s.vocabulary.tokens[id]] = id;
        if (type != TokenType::control && type != TokenType::user_defined) continue;
        json["added_tokens"].push_back({{"id", id},
                                        {"content", s.vocabulary.tokens[id]},
                                        {"special", type == TokenType::control},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"single_word", false},
                                        {"normalized", false}});
    }
    return json;
}

Vocabulary read(const Json& json, std::string_view config = {}, std::string_view generation = {}) {
    return vocabulary_from_json(json.dump(), config, generation, Logger());
}

std::string error_after(const std::function<void(Json&)>& change, Status status) {
    Json json = sample_json();
    change(json);
    try {
        read(json);
        return "no error";
    } catch (const Error& error) {
        CHECK(error.status() == status);
        return error.what();
    }
}

std::string file_error(std::string_view tokenizer, std::string_view config = {},
                       std::string_view generation = {}) {
    try {
        vocabulary_from_json(tokenizer, config, generation, Logger());
        return "no error";
    } catch (const Error& error) {
        CHECK(error.status() == Status::format);
        return error.what();
    }
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

Json& split(Json& json) {
    return json["pre_tokenizer"]["pretokenizers"][0];
}
Json& byte_level(Json& json) {
    return json["pre_tokenizer"]["pretokenizers"][1];
}

const Json& split_of_sample() {
    static const Json step = sample_json()["pre_tokenizer"]["pretokenizers"][0];
    return step;
}
const Json& byte_level_of_sample() {
    static const Json step = sample_json()["pre_tokenizer"]["pretokenizers"][1];
    return step;
}

Json sequence(const char* list, const Json& steps) {
    return {{"type", "Sequence"}, {list, steps}};
}

// Returns a TemplateProcessing for texts, with a special token before them if `special` is not empty.
Json template_of(const std::vector<std::string>& texts, const std::string& special) {
    Json single = Json::array();
    if (!special.empty()) single.push_back({{"SpecialToken", {{"id", special}, {"type_id", 0}}}});
    for (const std::string& text : texts) single.push_back({{"Sequence", {{"id", text}, {"type_id", 0}}}});
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", Json::array()},
            {"special_tokens", Json::object()}};
}

}  // namespace

TEST_CASE("a tokenizer.json becomes a vocabulary") {
    const auto s = testing::sample_vocabulary();
    const Vocabulary v = read(sample_json());
    REQUIRE(v.tokens.size() == static_cast<size_t>(s.end_think) + 1);
    CHECK(v.tokens[static_cast<size_t>(s.hello)] == "hello");
    CHECK(v.tokens[static_cast<size_t>(s.space_hello)] == "\u0120hello");
    CHECK(v.types[static_cast<size_t>(s.end)] == TokenType::control);
    CHECK(v.types[static_cast<size_t>(s.think)] == TokenType::user_defined);
    CHECK(v.merges == s.vocabulary.merges);
    CHECK_FALSE(v.ignore_merges);
    CHECK(v.bos == k_no_token);
    CHECK(v.eos == k_no_token);
}

TEST_CASE("merges may be pairs") {
    Json json = sample_json();
    for (Json& merge : json["model"]["merges"]) {
        const auto line = merge.get<std::string>();
        merge = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
    }
    CHECK(read(json).merges == testing::sample_vocabulary().vocabulary.merges);
}

TEST_CASE("a merge that is neither a line nor a pair is a format error") {
    for (const Json& merge :
         {Json(3), Json::array({"a"}), Json::array({"a", "b", "c"}), Json::array({1, 2}), Json()}) {
        error_after([&](Json& json) { json["model"]["merges"].push_back(merge); }, Status::format);
    }
}

TEST_CASE("ignore_merges is taken from the model") {
    Json json = sample_json();
    json["model"]["ignore_merges"] = true;
    CHECK(read(json).ignore_merges);
}

TEST_CASE("holes between ids are unused rows") {
    const auto s = testing::sample_vocabulary();
    Json json = sample_json();
    json["added_tokens"][0]["id"] = s.end_think + 3;
    const Vocabulary v = read(json);
    CHECK(v.tokens.size() == static_cast<size_t>(s.end_think) + 4);
    CHECK(v.types[static_cast<size_t>(s.bos)] == TokenType::unused);
    CHECK(v.tokens[static_cast<size_t>(s.bos)].empty());
    CHECK(v.types.back() == TokenType::control);
}

TEST_CASE("an added token may be listed in the model's vocabulary too") {
    const auto s = testing::sample_vocabulary();
    Json json = sample_json();
    json["model"]["vocab"]["<think>"] = s.think;
    CHECK(read(json).types[static_cast<size_t>(s.think)] == TokenType::user_defined);
}

TEST_CASE("one id for two tokens is a format error that names it") {
    const auto s = testing::sample_vocabulary();
    const auto added = [&](Json& json) { json["added_tokens"][0]["id"] = s.end; };
    CHECK(contains(error_after(added, Status::format), "same id"));
    const auto ordinary = [&](Json& json) { json["model"]["vocab"]["a"] = 98; };
    CHECK(contains(error_after(ordinary, Status::format), "same id 98"));
    const auto both = [&](Json& json) { json["added_tokens"][0]["id"] = 98; };
    CHECK(contains(error_after(both, Status::format), "same id 98"));
}

TEST_CASE("ids that are no ids are format errors") {
    for (const Json& id :
         {Json(-1), Json(2147483648u), Json(2000000000), Json(1.5), Json("7"), Json(), Json(~0ull)}) {
        CAPTURE(id.dump());
        error_after([&](Json& json) { json["model"]["vocab"]["a"] = id; }, Status::format);
        error_after([&](Json& json) { json["added_tokens"][0]["id"] = id; }, Status::format);
    }
}

TEST_CASE("missing parts are format errors") {
    error_after([](Json& json) { json.erase("model"); }, Status::format);
    error_after([](Json& json) { json["model"].erase("vocab"); }, Status::format);
    error_after([](Json& json) { json["model"]["vocab"] = Json::object(); }, Status::format);
    error_after([](Json& json) { json["model"]["vocab"] = Json::array({"a"}); }, Status::format);
    error_after([](Json& json) { json["model"].erase("merges"); }, Status::format);
    error_after([](Json& json) { json["added_tokens"] = 3; }, Status::format);
    error_after([](Json& json) { json["added_tokens"][0].erase("content"); }, Status::format);
    error_after([](Json& json) { json["added_tokens"][0] = "]~b]"; }, Status::format);
}

TEST_CASE("another pipeline is unsupported and the error says what differs") {
    const auto expect = [](const std::function<void(Json&)>& change, std::string_view part) {
        const auto text = error_after(change, Status::unsupported);
        CAPTURE(text);
        CHECK(contains(text, part));
    };
    expect([](Json& json) { json["normalizer"] = {{"type", "NFC"}}; }, "normalizer");
    expect([](Json& json) { json.erase("pre_tokenizer"); }, "Sequence");
    expect([](Json& json) { json["pre_tokenizer"]["pretokenizers"].erase(1); }, "Split, then ByteLevel");
    expect([](Json& json) { split(json)["pattern"]["Regex"] = "\\s+"; }, "\\s+");
    expect([](Json& json) { split(json)["pattern"] = {{"String", " "}}; }, "regular expression");
    expect([](Json& json) { split(json)["behavior"] = "Removed"; }, "Isolated");
    expect([](Json& json) { split(json)["invert"] = true; }, "inverted");
    expect([](Json& json) { split(json)["type"] = "Digits"; }, "Split");
    expect([](Json& json) { byte_level(json)["add_prefix_space"] = true; }, "leading space");
    expect([](Json& json) { byte_level(json)["use_regex"] = true; }, "pattern of its own");
    expect([](Json& json) { json["post_processor"] = {{"type", "TemplateProcessing"}}; }, "post_processor");
    expect([](Json& json) { json["decoder"] = {{"type", "WordPiece"}}; }, "decoder");
    expect([](Json& json) { json["model"]["type"] = "Unigram"; }, "BPE");
    expect([](Json& json) { json["model"]["dropout"] = 0.1; }, "dropout");
    expect([](Json& json) { json["model"]["byte_fallback"] = true; }, "byte_fallback");
    expect([](Json& json) { json["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
    expect([](Json& json) { json["added_tokens"][0]["lstrip"] = true; }, "lstrip");
    expect([](Json& json) { json["added_tokens"][0]["single_word"] = true; }, "single_word");
    expect(
        [](Json& json) {
            json["normalizer"] = sequence("normalizers", {{{"type", "NFKC"}}});
        },
        "normalizer NFKC");
    expect(
        [](Json& json) {
            json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
        },
        "normalizer Strip");
    expect(
        [](Json& json) {
            json["normalizer"] = {{"type", "Prepend"}, {"prepend", "_"}};
        },
        "normalizer Prepend");
    expect([](Json& json) { json["post_processor"] = template_of({"A"}, "]~!b["); },
           "post_processor TemplateProcessing");
    expect(
        [](Json& json) {
            json["decoder"] = sequence("decoders", {{{"type", "ByteLevel"}}, {{"type", "Strip"}}});
        },
        "decoder Strip");
    expect([](Json& json) { json["decoder"] = {{"type", "Fuse"}}; }, "decoder Fuse");
}

TEST_CASE("steps without effect are taken") {
    const Vocabulary plain = read(sample_json());
    const std::pair<const char*, Json> without_effect[] = {
        {"normalizer", sequence("normalizers", Json::array())},
        {"normalizer", sequence("normalizers", {sequence("normalizers", Json::array()), nullptr})},
        {"normalizer", {{"type", "Strip"}, {"strip_left", false}, {"strip_right", false}}},
        {"normalizer", {{"type", "Prepend"}, {"prepend", ""}}},
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "x"}}},
        {"post_processor", nullptr},
        {"post_processor", template_of({"A"}, "")},
        {"post_processor", sequence("processors", {{{"type", "ByteLevel"}}, template_of({"A"}, "")})},
        {"post_processor", sequence("processors", Json::array())},
        {"pre_tokenizer", sequence("pretokenizers", Json::array({sample_json()["pre_tokenizer"]}))},
        {"pre_tokenizer",
         sequence("pretokenizers", {sequence("pretokenizers", Json::array()), split_of_sample(),
                                    sequence("pretokenizers", Json::array({byte_level_of_sample()}))})},
        {"decoder", nullptr},
        {"decoder", sequence("decoders", {{{"type", "ByteLevel"}}})},
        {"decoder", sequence("decoders", {{{"type", "ByteLevel"}}, {{"type", "Fuse"}}})},
    };
    for (const auto& [component, value] : without_effect) {
        CAPTURE(component, value.dump());
        Json json = sample_json();
        json[component] = value;
        const Vocabulary vocabulary = read(json);
        CHECK(vocabulary.tokens == plain.tokens);
        CHECK(vocabulary.merges == plain.merges);
    }
}

TEST_CASE("added tokens that are normalized are noted; those that are not special are so by default") {
    const auto s = testing::sample_vocabulary();
    CHECK(read(sample_json()).normalized.empty());
    Json json = sample_json();
    for (Json& token : json["added_tokens"]) {
        if (token["content"] == "<think>") token["normalized"] = true;
        if (token["content"] == "</think>" || token["content"] == "[e~[") token.erase("normalized");
    }
    CHECK(read(json).normalized == std::vector<int32_t>{s.think, s.end_think});
}

TEST_CASE("special tokens that nobody uses are a warning where they are none") {
    const auto s = testing::sample_vocabulary();
    const std::pair<const char*, const char*> odd[] = {
        {R"({"pad_token": 0, "eos_token": "[e~["})", ""},
        {"", R"({"pad_token_id": -1})"},
        {"", R"({"pad_token_id": 4294967295, "eos_token_id": 5})"},
        {"", R"({"bos_token_id": [70000]})"},
    };
    for (const auto& [config, generation] : odd) {
        CAPTURE(config, generation);
        LogLines log;
        const auto v = vocabulary_from_json(sample_json().dump(), config, generation, log.logger);
        CHECK((v.bos == k_no_token && v.pad == k_no_token && v.unk == k_no_token));
        REQUIRE(log.lines.size() == 1);
        CHECK(contains(log.lines.front(), "the token is not used"));
        CHECK_NOTHROW(Tokenizer(v, PieceRules::model, Logger()));
    }
    // An ordinary token that merges or bytes need stays one.
    LogLines log;
    const auto v = vocabulary_from_json(sample_json().dump(), R"({"bos_token": "a"})", "", log.logger);
    CHECK(v.bos == k_no_token);
    REQUIRE(log.lines.size() == 2);
    CHECK(contains(log.lines[0], "the token a is an ordinary one of the vocabulary, and stays one"));
    CHECK(contains(log.lines[1], "the token is not used"));
    CHECK(contains(file_error(sample_json().dump(), R"({"eos_token": "a"})"), "eos_token a"));
    CHECK(read(sample_json(), R"({"pad_token": "[e~["})").pad == s.end);
}

TEST_CASE("broken JSON is a format error that names the file") {
    const std::string good = sample_json().dump();
    CHECK(contains(file_error(""), "tokenizer.json"));
    CHECK(contains(file_error("[]"), "is not a JSON object"));
    CHECK(contains(file_error(good.substr(0, good.size() / 2)), "tokenizer.json"));
    CHECK(contains(file_error("{\"a\": \"\xFF\"}"), "tokenizer.json"));
    CHECK(contains(file_error(std::string(100'000, '[')), "tokenizer.json"));
    CHECK(contains(file_error(good, "{"), "tokenizer_config.json"));
    CHECK(contains(file_error(good, "{}", "nonsense"), "generation_config.json"));
}

TEST_CASE("special tokens are named in the tokenizer's configuration") {
    const auto s = testing::sample_vocabulary();
    const auto v =
        read(sample_json(), R"({"bos_token": "]~!b[", "eos_token": {"content": "[e~[", "lstrip": false},
                                           "unk_token": null})");
    CHECK(v.bos == s.bos);
    CHECK(v.eos == s.end);
    CHECK(v.unk == k_no_token);
    CHECK(v.extra_eog.empty());
    CHECK(contains(file_error(sample_json().dump(), R"({"eos_token": 7})"), "eos_token"));
}

TEST_CASE("the tokenizer's configuration goes before the generation configuration") {
    const auto s = testing::sample_vocabulary();
    const std::string generation =
        Json{{"bos_token_id", s.role}, {"eos_token_id", {s.end, s.role}}, {"pad_token_id", 5}}.dump();
    LogLines log;
    const auto v =
        vocabulary_from_json(sample_json().dump(), R"({"bos_token": "]~!b["})", generation, log.logger);
    CHECK(v.bos == s.bos);
    CHECK(v.eos == s.end);
    CHECK(v.pad == 5);
    CHECK(v.extra_eog == std::vector<int32_t>{s.end, s.role});
    CHECK(log.lines.empty());
    CHECK(read(sample_json(), "", R"({"eos_token_id": 7})").extra_eog == std::vector<int32_t>{7});
    CHECK(contains(file_error(sample_json().dump(), "", R"({"eos_token_id": "x"})"), "eos_token_id"));
    CHECK(contains(file_error(sample_json().dump(), "", R"({"eos_token_id": [-1]})"), "-1"));
}

TEST_CASE("tokens that only tokenizer_config.json declares get the next ids, in the order of transformers") {
    const auto s = testing::sample_vocabulary();
    const auto next = static_cast<int32_t>(read(sample_json()).tokens.size());
    struct Case {
        const char* config;
        std::vector<std::string> added;
    };
    for (
        const Case& c : {
            Case{R"({"additional_special_tokens": ["<new>", "[e~[", {"content": "<b>", "special": true}]})",
                 {"<new>", "<b>"}},
            Case{R"({"extra_special_tokens": ["<new>"]})", {"<new>"}},
            Case{R"({"extra_special_tokens": {"image_token": "<image>", "x": {"content": "<x>"}}})",
                 {"<image>", "<x>"}},
            Case{
                R"({"eos_token": "</s>", "bos_token": {"content": "<s>", "lstrip": true}, "pad_token": "</s>"})",
                {"<s>", "</s>"}},
            Case{R"({"mask_token": "<m>", "additional_special_tokens": ["<a>"], "cls_token": "<c>"})",
                 {"<c>", "<m>", "<a>"}},
            Case{
                R"({"added_tokens_decoder": {}, "additional_special_tokens": null, "extra_special_tokens": []})",
                {}},
        }) {
        CAPTURE(c.config);
        LogLines log;
        const Vocabulary v = vocabulary_from_json(sample_json().dump(), c.config, "", log.logger);
        REQUIRE(v.tokens.size() == static_cast<size_t>(next) + c.added.size());
        for (size_t i = 0; i < c.added.size(); ++i) {
            CHECK(v.tokens[static_cast<size_t>(next) + i] == c.added[i]);
            CHECK(v.types[static_cast<size_t>(next) + i] == TokenType::control);
        }
        CHECK(log.lines.empty());
        const Tokenizer tokenizer(v, PieceRules::model, Logger());
        for (size_t i = 0; i < c.added.size(); ++i)
            CHECK(tokenizer.encode("a" + c.added[i] + "b", Specials::exact).at(1) ==
                  next + static_cast<int32_t>(i));
    }
    const Vocabulary v = read(sample_json(), R"({"eos_token": "</s>"})");
    CHECK(v.eos == next);
}

TEST_CASE("added_tokens_decoder has flags of its own, and ids that transformers does not take") {
    const auto s = testing::sample_vocabulary();
    const auto next = static_cast<int32_t>(read(sample_json()).tokens.size());
    Json config;
    config["added_tokens_decoder"][std::to_string(next + 7)] = {{"content", "<late>"}, {"special", true}};
    config["added_tokens_decoder"][std::to_string(next)] = {
        {"content", "<new>"}, {"special", false}, {"normalized", false}};
    config["added_tokens_decoder"][std::to_string(s.think)] = {{"content", "<think>"}, {"special", true}};
    LogLines log;
    const Vocabulary v = vocabulary_from_json(sample_json().dump(), config.dump(), "", log.logger);
    CHECK(v.tokens.at(static_cast<size_t>(next)) == "<new>");
    CHECK(v.types.at(static_cast<size_t>(next)) == TokenType::user_defined);
    CHECK(v.tokens.at(static_cast<size_t>(next) + 1) == "<late>");
    CHECK(v.types.at(static_cast<size_t>(s.think)) == TokenType::control);
    CHECK(v.normalized.empty());
    REQUIRE(log.lines.size() == 1);
    CHECK(contains(log.lines.front(), "<late> gets the next id"));
    // What is listed as special is so, whatever its flag says.
    config["additional_special_tokens"] = {"<new>"};
    CHECK(read(sample_json(), config.dump()).types.at(static_cast<size_t>(next)) == TokenType::control);

    const auto error = [&](const std::string& text) { return file_error(sample_json().dump(), text); };
    CHECK(contains(error(R"({"added_tokens_decoder": []})"), "added_tokens_decoder is not an object"));
    CHECK(contains(error(R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})"), "the id x"));
    CHECK(contains(error(R"({"added_tokens_decoder": {"3": {}}})"), "no text for the id 3"));
    CHECK(contains(error(R"({"additional_special_tokens": "<a>"})"), "neither a list nor an object"));
    CHECK(contains(error(R"({"additional_special_tokens": [7]})"), "a token without text"));
    CHECK_THROWS_WITH(
        read(sample_json(), R"({"added_tokens_decoder": {"3": {"content": "<a>", "lstrip": true}}})"),
        Catch::Contains("the added token <a> has lstrip"));
}

TEST_CASE(
    "declared tokens stop at the rows of the model, and those that stand in the vocabulary become added "
    "ones") {
    const auto plain = read(sample_json());
    const size_t n = plain.tokens.size();
    LogLines log;
    const auto read_with = [&](size_t rows) {
        return vocabulary_from_json(sample_json().dump(), R"({"additional_special_tokens": ["<a>", "<b>"]})",
                                    "", log.logger, Json{{"vocab_size", rows}}.dump());
    };
    CHECK(read_with(n + 2).tokens.size() == n + 2);
    CHECK(log.lines.empty());
    CHECK(read_with(n + 1).tokens.size() == n + 1);
    REQUIRE(log.lines.size() == 1);
    CHECK(contains(log.lines.front(), "the token <b> is not in the vocabulary, which has no room for it"));
    CHECK(read_with(n).tokens.size() == n);

    Json json = sample_json();
    json["model"]["vocab"]["<inside>"] = n;
    const Vocabulary v = read(json, R"({"additional_special_tokens": ["<inside>"]})");
    CHECK(v.tokens.size() == n + 1);
    CHECK(v.types[n] == TokenType::control);
    CHECK_NOTHROW(Tokenizer(v, PieceRules::model, Logger()));
}

TEST_CASE("config.json says what ends texts where generation_config.json does not") {
    const auto s = testing::sample_vocabulary();
    LogLines silent;
    const auto eog = [&](const char* generation, const Json& config, LogLines* log = nullptr) {
        return vocabulary_from_json(sample_json().dump(), "", generation,
                                    (log == nullptr ? silent : *log).logger, config.dump());
    };
    for (const char* generation : {"", "{}", R"({"eos_token_id": null})"}) {
        CHECK(eog(generation, {{"eos_token_id", s.end}}).eos == s.end);
        CHECK(eog(generation, {{"eos_token_id", {s.end, s.role}}}).extra_eog ==
              std::vector<int32_t>{s.end, s.role});
        CHECK(eog(generation, {{"text_config", {{"eos_token_id", {s.role}}}}}).eos == s.role);
        CHECK(eog(generation, {{"eos_token_id", nullptr}, {"text_config", {{"eos_token_id", s.end}}}}).eos ==
              s.end);
        CHECK(eog(generation, {{"eos_token_id", nullptr}}).eos == k_no_token);
        CHECK(eog(generation, {{"bos_token_id", s.bos}}).bos == s.bos);
    }
    CHECK(eog(R"({"eos_token_id": 5})", {{"eos_token_id", s.end}}).extra_eog == std::vector<int32_t>{5});
    for (const Json& bad : {Json(70000), Json("x"), Json({s.end, -1})}) {
        LogLines log;
        CHECK(eog("", {{"eos_token_id", bad}}, &log).eos == k_no_token);
        REQUIRE(log.lines.size() == 1);
        CHECK(contains(log.lines.front(), "config.json"));
    }
}
