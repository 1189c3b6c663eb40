// SPDX-License-Identifier: Apache-2.0
// Compares parsed model outputs with goldens, whole and cut at every byte.
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/output_parser.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
    std::string name;
    std::string bytes;
    std::string tools;
    ParserOptions options;
    Finish finish = Finish::stop;
    Json expect;
};

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

std::vector<Case> read_cases(const std::string& name, Family family = Family::m2) {
    std::ifstream file(MINIM_TEST_DATA "/chat/" + name);
    const Json document = Json::parse(file);
    std::vector<Case> cases;
    for (const Json& from : document["cases"]) {
        Case to;
        to.name = from["name"].get<std::string>();
        to.bytes = from.contains("text") ? from["text"].get<std::string>()
                                         : from_hex(from["bytes"].get<std::string>());
        to.tools =
            from["tools"].is_null() ? "null" : document["tools"][from["tools"].get<std::string>()].dump();
        const std::string mode = from.value("reasoning", "minimax_m3");
        to.options.reasoning = mode == "none"                   ? ReasoningMode::none
                               : mode.ends_with("append_think") ? ReasoningMode::append_think
                                                                : ReasoningMode::split;
        to.options.family = family;
        to.options.starts_in_reasoning = from["starts_in_reasoning"].get<bool>();
        to.finish = from["finish"] == "stop" ? Finish::stop : Finish::length;
        to.expect = from["expect"];
        cases.push_back(std::move(to));
    }
    return cases;
}

json::Value parsed(const std::string& text) {
    return json::parse(text, "tools", json::Source::argument);
}

const char* name_of(Finish finish) {
    return finish == Finish::stop ? "stop" : finish == Finish::length ? "length" : "tool_calls";
}

// Returns the output as JSON in the form of the golden's `expect`, without `partial`.
Json as_json(const ParsedOutput& output) {
    Json calls = Json::array();
    for (const ParsedOutput::Call& call : output.calls)
        calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    return {{"content", output.content ? Json(*output.content) : Json()},
            {"reasoning_content", output.reasoning ? Json(*output.reasoning) : Json()},
            {"tool_calls", calls},
            {"finish_reason", name_of(output.finish)}};
}

// The output that a client puts together from a stream.
struct Collected {
    ParsedOutput output;

    void add(const OutputParser& parser) {
        for (size_t i = 0; i < parser.n_deltas(); ++i) {
            const OutputDelta& delta = parser.delta(i);
            if (delta.kind == OutputDelta::Kind::tool_call) {
                if (delta.has_name) {
                    CHECK(delta.index == static_cast<int32_t>(output.calls.size()));
                    output.calls.push_back({delta.name, {}});
                }
                REQUIRE(delta.index + 1 == static_cast<int32_t>(output.calls.size()));
                output.calls.back().arguments += delta.text;
                continue;
            }
            CHECK(!delta.text.empty());
            CHECK(delta.index == -1);
            auto& text = delta.kind == OutputDelta::Kind::reasoning ? output.reasoning : output.content;
            text = text.value_or("") + delta.text;
        }
    }
};

// Checks the call that the stream has begun and that the end of the output cuts off, against `partial`.
void check_partial(const Case& test, Collected& collected) {
    const size_t n_complete = test.expect["tool_calls"].size();
    if (collected.output.calls.size() == n_complete) return;
    REQUIRE(collected.output.calls.size() == n_complete + 1);
    const ParsedOutput::Call& partial = collected.output.calls.back();
    if (test.expect.contains("partial")) {
        CHECK(partial.name == test.expect["partial"]["name"].get<std::string>());
        CHECK(test.expect["partial"]["arguments"].get<std::string>().starts_with(partial.arguments));
    }
    CHECK(!Json::accept(partial.arguments));
    collected.output.calls.pop_back();
}

void check_stream(const Case& test, const std::vector<std::string_view>& pieces) {
    OutputParser parser(parsed(test.tools), test.options);
    Collected collected;
    for (const std::string_view piece : pieces) {
        parser.feed(piece);
        collected.add(parser);
    }
    collected.output.finish = parser.finish(test.finish);
    collected.add(parser);
    check_partial(test, collected);
    Json expect = test.expect;
    expect.erase("partial");
    CHECK(as_json(collected.output) == expect);
}

void check_cases(const std::vector<Case>& cases) {
    for (const Case& test : cases) {
        INFO("case " << test.name);
        Json expect = test.expect;
        expect.erase("partial");
        CHECK(as_json(parse_output(test.bytes, parsed(test.tools), test.options, test.finish)) == expect);
        const std::string_view bytes = test.bytes;
        std::vector<std::string_view> single;
        for (size_t i = 0; i < bytes.size(); ++i) {
            single.push_back(bytes.substr(i, 1));
            if (bytes.size() > 4000 && i % 97 != 0) continue;
            check_stream(test, {bytes.substr(0, i), bytes.substr(i)});
        }
        check_stream(test, single);
    }
}

TEST_CASE("every golden output parses to what it must, whole and cut at every byte") {
    const std::vector<Case> cases = read_cases("outputs.json");
    REQUIRE(cases.size() == 135);
    check_cases(cases);
}

TEST_CASE("odd values, tags and ends of outputs parse to what they must, whole and cut at every byte") {
    const std::vector<Case> cases = read_cases("more_outputs.json");
    REQUIRE(cases.size() == 78);
    check_cases(cases);
}

TEST_CASE("every golden output of M3 parses to what it must, whole and cut at every byte") {
    const std::vector<Case> cases = read_cases("outputs_m3.json", Family::m3);
    REQUIRE(cases.size() == 60);
    check_cases(cases);
}

TEST_CASE("odd tags, values and ends of outputs of M3 parse to what they must, whole and cut at every byte") {
    const std::vector<Case> cases = read_cases("more_outputs_m3.json", Family::m3);
    REQUIRE(cases.size() == 91);
    check_cases(cases);
}

// Returns the text of all deltas after feeding `fed` of an M3 output that calls f, whose arguments s and v are text and anything.
std::string streamed_m3(std::string_view fed) {
    constexpr std::string_view tools =
        R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "v": {}}}}])";
    OutputParser parser(parsed(std::string(tools)), {.starts_in_reasoning = false, .family = Family::m3});
    parser.feed(fed);
    std::string text;
    for (size_t i = 0; i < parser.n_deltas(); ++i) text += parser.delta(i).text;
    return text;
}

TEST_CASE("an output of M3 is held back only while it may become a tag") {
    const std::string mark(k_m3.mark);
    // What is fed, and how much of its end is held back.
    const std::vector<std::pair<std::string, std::string>> content = {
        {"words", ""},
        {"words ", " "},
        {"a < b]", "]"},
        {"a <tool", " <tool"},
        {"a <toot", ""},
        {"a <invoke", ""},
        {"a ]<]mini", " ]<]mini"},
        {"a ]<]max", ""},
        {"a " + mark, " " + mark},
        {"a " + mark + "<x", ""},
        {"a " + mark + " <tool_call>\n", " " + mark + " <tool_call>\n"},
        {"a " + mark + "<tool_call>\nb", ""},
    };
    for (const auto& [fed, waiting] : content) {
        INFO(fed);
        CHECK(streamed_m3(fed) == fed.substr(0, fed.size() - waiting.size()));
    }
    const std::string begin = mark + "<tool_call>\n" + mark + "<invoke name=\"f\">" + mark;
    const std::vector<std::pair<std::string, std::string>> values = {
        {"text", ""},
        {"text ", " "},
        {"a ]<", " ]<"},
        {"a " + mark + "</", " " + mark + "</"},
        {"a " + mark + "<b", ""},
        {"a " + mark + "</t", " " + mark + "</t"},
        {"a " + mark + "</x", ""},
        {"a </inv", " </inv"},
        {"a </invoke>\n", " </invoke>\n"},
        {"a </invoke>\nb", ""},
        {"a </tab", ""},
    };
    for (const char* name : {"s", "v"}) {
        for (const auto& [fed, waiting] : values) {
            INFO(name << ": " << fed);
            std::string json = "{\"" + std::string(name) + "\": \"";
            json::append_escaped(json, fed.substr(0, fed.size() - waiting.size()));
            CHECK(streamed_m3(begin + "<" + name + ">" + fed) == json);
        }
    }
}

}  // namespace
}  // namespace minim::chat
