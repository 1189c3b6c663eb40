// SPDX-License-Identifier: Apache-2.0
// Compares ids with those of the reference tokenizer for 200 texts, with all added tokens recognised and with none.
#include <utility>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "tiny_files.h"
#include "vocabularies.h"

using namespace minim;
using namespace minim::tokenizer;
using minim::tokenizer::testing::read_data;

namespace {

Vocabulary tiny_vocabulary(const Logger& logger) {
    return vocabulary_from_json(read_data("minim-tiny/tokenizer.json"),
                                read_data("minim-tiny/tokenizer_config.json"),
                                read_data("minim-tiny/generation_config.json"), logger);
}

}  // namespace

TEST_CASE("the golden texts have the golden ids and come back from them") {
    testing::LogLines log;
    const Tokenizer tokenizer(tiny_vocabulary(log.logger), PieceRules::model, log.logger);
    const auto cases = nlohmann::json::parse(read_data("golden.json"));
    REQUIRE(cases.size() == 200);
    for (const auto& golden : cases) {
        const auto text = golden.at("text").get<std::string>();
        CAPTURE(text);
        const auto ids = tokenizer.encode(text, Specials::exact);
        CHECK(ids == golden.at("ids").get<std::vector<int32_t>>());
        CHECK(tokenizer.decode(ids, false) == text);
        const auto plain = tokenizer.encode(text, Specials::none);
        CHECK(plain == golden.at("ids_no_added_tokens").get<std::vector<int32_t>>());
        CHECK(tokenizer.decode(plain, true) == text);
    }
}

TEST_CASE("the bundled tokenizer's files say what they say") {
    testing::LogLines log(LogLevel::info);
    Vocabulary vocabulary = tiny_vocabulary(log.logger);
    CHECK(vocabulary.tokens[2003] == "]~b]");
    CHECK(vocabulary.eos == 2004);
    CHECK(vocabulary.unk == 2005);
    CHECK(vocabulary.pad == k_no_token);
    const Tokenizer tokenizer(std::move(vocabulary), PieceRules::model, log.logger);
    CHECK(log.lines.empty());
    CHECK(tokenizer.n_tokens() == 2038);
    CHECK(tokenizer.bos() == 2018);
    CHECK(tokenizer.eog_ids().size() == 1);
    CHECK(tokenizer.is_eog(2004));
    CHECK(tokenizer.find("<think>") == 2034);
    CHECK(tokenizer.token_type(2034) == TokenType::user_defined);
    CHECK(tokenizer.token_type(2003) == TokenType::control);
}

TEST_CASE("every token decodes to bytes that a stream assembles to the same text") {
    testing::LogLines log;
    const Tokenizer tokenizer(tiny_vocabulary(log.logger), PieceRules::model, log.logger);
    for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
        const std::vector<int32_t> one = {id};
        REQUIRE_FALSE(tokenizer.token_bytes(id).empty());
        REQUIRE(tokenizer.decode_bytes(one, false) == tokenizer.token_bytes(id));
    }
}
