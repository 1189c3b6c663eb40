// SPDX-License-Identifier: Apache-2.0
// Answers that must have a form.
#include <string>
#include <vector>

#include "base/json.h"
#include "constraint/json_schema.h"
#include "constraint/schema_values.h"
#include "constraint/tool_calls.h"
#include "engine/engine.h"
#include "support.h"
#include "support/requests.h"

using namespace minim;
using namespace minim::test;
using engine::Engine;
using engine::EngineParams;
using engine::Finish;
using engine::GenerateParams;
using engine::Generation;
using engine::Request;
using engine::RequestParams;
using engine::Session;

namespace {

constexpr const char* k_schema = R"({"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 20}, "size": {"type": "integer", "minimum": 1, "maximum": 999},
    "kind": {"enum": ["capital", "town"]}}, "required": ["city", "size", "kind"]})";

std::shared_ptr<const constraint::Constraint> made_of(
    constraint::Grammar grammar, std::optional<int32_t> starts_after = {},
    const std::shared_ptr<const model::Model>& model = bundled_model()) {
    const std::shared_ptr<const tokenizer::Tokenizer> tokenizer(model, &model->text().tokenizer());
    return std::make_shared<const constraint::Constraint>(
        std::move(grammar), tokenizer, model->text().token_trie(),
        constraint::ConstraintStart{.starts_after = starts_after});
}

std::shared_ptr<const constraint::Constraint> schema_constraint(const char* schema,
                                                                std::optional<int32_t> starts_after = {}) {
    return made_of(constraint::grammar_of_schema(json::parse(schema, "schema", json::Source::argument)),
                   starts_after);
}

GenerateParams sampled(uint64_t seed) {
    GenerateParams params;
    params.sampling.temperature = 1.5F;  // so high that the model's likely tokens hardly matter
    params.sampling.seed = seed;
    params.has_seed = true;
    return params;
}

void check_fits(const std::string& text) {
    INFO(text);
    const json::Value value = json::parse(text, "answer", json::Source::argument);
    REQUIRE(json::find(&value, "city") != nullptr);
    const json::Value* size = json::find(&value, "size");
    REQUIRE(size != nullptr);
    CHECK(size->number >= 1);
    CHECK(size->number <= 999);
    const json::Value* kind = json::find(&value, "kind");
    REQUIRE(kind != nullptr);
    CHECK((kind->text == "capital" || kind->text == "town"));
}

int32_t token_of(const char* text) {
    return bundled_model()->text().tokenizer().find(text).value();
}

}  // namespace

TEST_CASE("an answer has its form, whatever is drawn, and ends where the form does") {
    const auto constraint = schema_constraint(k_schema);
    for (uint64_t seed = 0; seed < 10; ++seed) {
        GenerateParams params = sampled(seed);
        params.constraint = constraint;
        const Answer constrained = answer(prompt(), params);
        check_fits(constrained.text);
        CHECK(constrained.state.finish == Finish::end);
        CHECK(constrained.state.stop_token == -1);
    }
}

TEST_CASE("drafts change no constrained token") {
    GenerateParams params = sampled(3);
    params.constraint = schema_constraint(
        R"({"type": "array", "items": {"enum": ["again", "and"]}, "minItems": 30, "maxItems": 30})");
    const Answer plain = answer(prompt(), params);
    params.n_draft = 16;
    CHECK(answer(prompt(), params).ids == plain.ids);
    CHECK(plain.state.finish == Finish::end);
}

TEST_CASE("the model may end where the form is complete, and not before") {
    GenerateParams params;
    params.constraint = schema_constraint(R"({"type": "integer"})");
    const Answer constrained = answer(prompt(), params);
    CHECK(constrained.state.finish == Finish::end);
    CHECK(constrained.text.find_first_not_of("-0123456789") == std::string::npos);
    CHECK_FALSE(constrained.text.empty());
    params.min_tokens = 5;  // the schema ends the answer before
    params.constraint = schema_constraint(R"({"enum": [1, 2]})");
    CHECK(answer(prompt(), params).text.size() == 1);
}

TEST_CASE("reasoning is free") {
    const int32_t end_of_reasoning = token_of("</think>");
    GenerateParams params;
    params.constraint = schema_constraint(k_schema, end_of_reasoning);
    // The greedy answer is unchanged up to the end of its reasoning; then the schema applies.
    const auto end = std::ranges::find(greedy().ids, end_of_reasoning);
    REQUIRE(end != greedy().ids.end());
    const Answer constrained = answer(prompt(), params);
    const auto n_free = static_cast<size_t>(end - greedy().ids.begin()) + 1;
    REQUIRE(constrained.ids.size() > n_free);
    CHECK(std::equal(greedy().ids.begin(), end + 1, constrained.ids.begin()));
    const size_t begin = constrained.text.find('{');
    REQUIRE(begin != std::string::npos);
    check_fits(constrained.text.substr(begin));
}

TEST_CASE("a tool is called where one must be") {
    constexpr const char* k_tools =
        R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
        "properties": {"city": {"enum": ["Lima", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"]}}}])";
    const auto tools = json::parse(k_tools, "tools", json::Source::argument);
    GenerateParams params = sampled(5);
    params.constraint = made_of(constraint::grammar_of_tool_calls(tools, {.name = "", .is_single = true},
                                                                  bundled_model()->text().tokenizer()));
    const Answer call = answer(prompt(), params);
    INFO(call.text);
    const size_t open = call.text.find("<invoke name=\"weather\">\n<parameter name=\"city\">");
    CHECK(open != std::string::npos);
    CHECK(call.text.ends_with("</parameter>\n</invoke>\n</minimax:tool_call>"));
    CHECK(std::ranges::count(call.ids, token_of("<minimax:tool_call>")) == 1);
    CHECK(call.ids.back() == token_of("</minimax:tool_call>"));
}

TEST_CASE("constrained requests in a batch answer as alone") {
    const auto constraint = schema_constraint(k_schema);
    EngineParams engine_settings;
    engine_settings.n_kv_tokens = 4096;
    engine_settings.n_requests = 8;
    const Logger silent;
    Engine engine(bundled_model(), engine_settings, silent);
    std::vector<RequestParams> params(12);
    std::vector<std::shared_ptr<Request>> requests;
    for (size_t i = 0; i < params.size(); ++i) {
        params[i].generate = sampled(i);
        if (i % 3 != 0) params[i].generate.constraint = constraint;
        params[i].generate.max_tokens = 60;
        requests.push_back(engine.submit(prompt(), params[i]));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        const Result result = result_of(*requests[i]);
        const Answer expected = answer(prompt(), params[i].generate);
        INFO("request " << i);
        CHECK(result.text == expected.text);
        CHECK(result.state.finish == expected.state.finish);
    }
}

TEST_CASE("a constraint of another model is refused") {
    GenerateParams params;
    params.constraint = made_of(constraint::grammar_of_schema(constraint::boolean_schema(true)), {},
                                bundled_model("reference"));
    Session session = make_session();
    expect_error(Status::invalid, "made for another model", [&] { answer(session, prompt(), params); });
    CHECK(session.n_tokens() == 0);
}
