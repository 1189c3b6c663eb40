// SPDX-License-Identifier: Apache-2.0
// Conversations rendered by jinja2 with shipped, altered and other models' templates (tests/data/chat/
// make_template_cases.py): the library's text is equal, or the template is refused with the name of what is missing.
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/render.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

using Json = nlohmann::ordered_json;

struct Outcome {
    std::string text;
    std::string error;  // the message, if the template is refused
};

Outcome rendered(const std::string& source, const Json& conversation) {
    const auto part = [&](const char* key) {
        return conversation.contains(key) ? conversation[key].dump() : "";
    };
    try {
        return {join(render(parse_template(source), part("messages"), part("tools"), part("kwargs"), {})),
                {}};
    } catch (const Error& error) {
        CHECK((error.status() == Status::invalid || error.status() == Status::unsupported));
        return {{}, error.what()};
    }
}

bool names_what_is_missing(const std::string& error) {
    for (const char* words : {"possible in the first message only",
                              "is not one that the chat template prints", "is not supported"})
        if (error.find(words) != std::string::npos) return true;
    return false;
}

TEST_CASE("every template renders every conversation as jinja2 does, or refuses it by name") {
    std::ifstream file(MINIM_TEST_DATA "/chat/template_cases.json");
    const Json document = Json::parse(file);
    REQUIRE(document["conversations"].size() == 12);
    REQUIRE(document["templates"].size() >= 40);
    size_t n_equal = 0;
    size_t n_refused = 0;
    for (const Json& test : document["templates"]) {
        for (size_t i = 0; i < document["conversations"].size(); ++i) {
            INFO("template " << test["name"] << ", conversation " << i);
            const Json& expected = test["results"][i];
            const Outcome outcome =
                rendered(test["template"].get<std::string>(), document["conversations"][i]);
            if (expected.contains("error")) {
                CHECK(!outcome.error.empty());
            } else if (outcome.error.empty()) {
                CHECK(outcome.text == expected["text"].get<std::string>());
                ++n_equal;
            } else {
                INFO(outcome.error);
                CHECK(names_what_is_missing(outcome.error));
                ++n_refused;
            }
        }
    }
    CHECK(n_equal > 4 * n_refused);
}

}  // namespace
}  // namespace minim::chat
