// SPDX-License-Identifier: Apache-2.0
// Compares rendered conversations with those of Jinja2, which used the template beside them.
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/render.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/helpers.h"

namespace minim::chat {
namespace {

std::string read_data(const std::string& name) {
    return test::text_of(MINIM_TEST_DATA "/chat/" + name);
}

std::string rendered_or_error(const Template& chat_template, const nlohmann::ordered_json& golden,
                              Family family) {
    try {
        return join(render(chat_template, golden["messages"].dump(), golden["tools"].dump(),
                           golden["kwargs"].dump(), {.family = family}));
    } catch (const Error& error) {
        CHECK(error.status() == Status::invalid);
        return std::string("error: ") + error.what();
    }
}

TEST_CASE("every golden conversation renders as Jinja2 renders it") {
    const Template chat_template = parse_template(read_data("minim_tiny.jinja"));
    const auto cases = nlohmann::ordered_json::parse(read_data("golden.json"));
    REQUIRE(cases.size() == 35);
    for (size_t i = 0; i < cases.size(); ++i) {
        INFO("case " << i << ": " << cases[i]["messages"].dump());
        const std::string expected = cases[i].contains("rendered")
                                         ? cases[i]["rendered"].get<std::string>()
                                         : "error: " + cases[i]["error"].get<std::string>();
        CHECK(rendered_or_error(chat_template, cases[i], Family::m2) == expected);
    }
}

TEST_CASE("every golden conversation of M3 renders as Jinja2 renders it, or is refused") {
    const Template chat_template = parse_template(read_data("minim_tiny_m3.jinja"));
    const auto cases = nlohmann::ordered_json::parse(read_data("golden_m3.json"))["conversations"];
    REQUIRE(cases.size() == 40);
    for (const auto& golden : cases) {
        INFO("case " << golden["name"]);
        const std::string text = rendered_or_error(chat_template, golden, Family::m3);
        if (golden["rendered"].is_null()) {
            CHECK(text.starts_with("error: "));
        } else {
            CHECK(text == golden["rendered"].get<std::string>());
        }
    }
}

TEST_CASE("pictures and films in messages of M3 are refused with their place and kind") {
    const Template chat_template = parse_template(read_data("minim_tiny_m3.jinja"));
    const auto cases = nlohmann::ordered_json::parse(read_data("golden_m3.json"))["refused"];
    REQUIRE(cases.size() == 3);
    const auto refused = [&](const nlohmann::json& messages, const std::string& words) {
        test::expect_error(Status::unsupported, words,
                           [&] { render(chat_template, messages.dump(), "", "", {.family = Family::m3}); });
    };
    for (const auto& golden : cases)
        refused(golden["messages"],
                "messages[0].content[1]: parts of type '" + golden["says"].get<std::string>());
    const nlohmann::json call = {{"name", "f"}, {"arguments", nlohmann::json::object()}};
    const nlohmann::json part = {{"type", "input_image"}, {"image_url", "x"}};
    refused({{{"role", "user"}, {"content", "x"}},
             {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}},
             {{"role", "tool"}, {"content", nlohmann::json::array({part})}}},
            "messages[2].content[0]: parts of type 'input_image'");
    // The template of M2 leaves such parts out, as before.
    render(chat_template, cases[0]["messages"].dump(), "", "", {.family = Family::m2});
}

TEST_CASE("without thinking the mode of a template of M3 is disabled, unless the request gives one") {
    const Template chat_template = parse_template(read_data("minim_tiny_m3.jinja"));
    const std::string hello = R"([{"role": "user", "content": "Hello!"}])";
    const auto prompt = [&](const std::string& kwargs, bool thinking_off) {
        return join(
            render(chat_template, hello, "", kwargs, {.thinking_off = thinking_off, .family = Family::m3}));
    };
    CHECK(prompt("", true) == prompt(R"({"thinking_mode": "disabled"})", false));
    CHECK(prompt("", true).ends_with("]~b]ai\n</mm:think>"));
    CHECK(prompt(R"({"thinking_mode": "enabled"})", true).ends_with("]~b]ai\n<mm:think></mm:think>"));
}

}  // namespace
}  // namespace minim::chat
