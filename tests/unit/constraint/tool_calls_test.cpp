#include "constraint/tool_calls.h"

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "constraint/matcher.h"
#include "support.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/tiny_tokenizer.h"

using namespace minim;
using namespace minim::constraint;
using namespace minim::constraint::testing;
using minim::test::expect_error;
using minim::test::tiny_tokenizer;

namespace {

const auto k_tokenizer = tiny_tokenizer();

constexpr std::string_view k_tools = R"([
    {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {
        "query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "kind": {"enum": ["web", "news", 3]}, "tags": {"type": "array", "items": {"type": "string"}},
        "since": {"type": ["string", "null"], "format": "date"}}, "required": ["query"]}}},
    {"name": "now"}
])";

Grammar grammar_of(std::string_view tools, const ToolChoice& choice = {}) {
    return grammar_of_tool_calls(json::parse(tools, "tools", json::Source::argument), choice, *k_tokenizer);
}

// Whether the text, tokenised with its markup, is a whole answer.
bool fits(std::string_view text, const ToolChoice& choice = {}) {
    const auto trie = std::make_shared<const TokenTrie>(*k_tokenizer);
    const auto constraint =
        std::make_shared<const Constraint>(grammar_of(k_tools, choice), k_tokenizer, trie, std::nullopt);
    Matcher matcher(constraint, k_tokenizer->n_tokens(), {});
    try {
        for (const int32_t id : k_tokenizer->encode(text, tokenizer::Specials::exact)) matcher.accept(id);
    } catch (const Error&) {
        return false;
    }
    return matcher.may_end();
}

std::string call(const std::string& inside) {
    return "<minimax:tool_call>\n" + inside + "</minimax:tool_call>";
}

std::string search(const std::string& parameters) {
    return "<invoke name=\"search\">\n" + parameters + "</invoke>\n";
}

std::string parameter(const std::string& name, const std::string& value) {
    return "<parameter name=\"" + name + "\">" + value + "</parameter>\n";
}

const std::string k_now = "<invoke name=\"now\">\n</invoke>\n";

}  // namespace

TEST_CASE("calls with the parameters of their tool fit") {
    CHECK(fits(call(k_now)));
    CHECK(fits(call(k_now).insert(0, 1, '\n')));
    CHECK(fits(call(search(parameter("query", "a <b> \"c\" </param> \xC3\xA9\n")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("limit", "50") + parameter("kind", "news")))));
    CHECK(fits(
        call(search(parameter("query", "") + parameter("kind", "3") + parameter("tags", "[\"a\", \"b\"]")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("since", "2024-01-31")))));
    CHECK(fits(call(search(parameter("query", "x") + parameter("since", "null")))));
    CHECK(fits(call(search(parameter("query", "x")) + k_now + k_now)));
}

TEST_CASE("anything else does not fit") {
    CHECK_FALSE(fits(""));
    CHECK_FALSE(fits("I cannot call"));
    CHECK_FALSE(fits(call("")));
    CHECK_FALSE(fits(call("<invoke name=\"other\">\n</invoke>\n")));
    CHECK_FALSE(fits(call(search(""))));
    CHECK_FALSE(fits(call(search(parameter("limit", "5")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("limit", "51")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("other", "y")))));
    CHECK_FALSE(fits(call(search(parameter("query", "x") + parameter("since", "soon")))));
    CHECK_FALSE(fits(call(k_now) + " and more"));
}

TEST_CASE("the choice names the tool and the number of calls") {
    const ToolChoice only_now{.name = "now", .is_single = false};
    CHECK(fits(call(k_now + k_now), only_now));
    CHECK_FALSE(fits(call(search(parameter("query", "x"))), only_now));
    const ToolChoice single{.name = "", .is_single = true};
    CHECK(fits(call(search(parameter("query", "x"))), single));
    CHECK_FALSE(fits(call(k_now + k_now), single));
}

TEST_CASE("tools that cannot be called are refused, by name") {
    expect_error(Status::invalid, "a list is expected", [] { grammar_of("{}"); });
    expect_error(Status::invalid, "the list is empty", [] { grammar_of("[]"); });
    expect_error(Status::invalid, "has no name", [] { grammar_of(R"([{"type": "function"}])"); });
    expect_error(Status::invalid, "the name 'a\"b'", [] { grammar_of(R"([{"name": "a\"b"}])"); });
    expect_error(Status::invalid, "there is no tool 'x'", [] { grammar_of(k_tools, {.name = "x"}); });
    expect_error(Status::invalid, "tool f/p: 'type' cannot be", [] {
        grammar_of(R"([{"name": "f", "parameters": {"properties": {"p": {"type": "text"}}}}])");
    });
}
