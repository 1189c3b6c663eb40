// SPDX-License-Identifier: Apache-2.0
// Compares rendered conversations with those of Jinja2, which used the template beside them.
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/render.h"
#include "support/catch.h"
#include "support/files.h"

namespace minim::chat {
namespace {

std::string read_data(const std::string& name) {
    return test::text_of(MINIM_TEST_DATA "/chat/" + name);
}

std::string rendered_or_error(const Template& chat_template, const nlohmann::ordered_json& golden) {
    try {
        return join(render(chat_template, golden["messages"].dump(), golden["tools"].dump(),
                           golden["kwargs"].dump(), {}));
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
        CHECK(rendered_or_error(chat_template, cases[i]) == expected);
    }
}

}  // namespace
}  // namespace minim::chat
