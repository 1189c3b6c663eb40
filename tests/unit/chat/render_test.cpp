// SPDX-License-Identifier: Apache-2.0
#include "chat/render.h"

#include <string>
#include <vector>

#include "error_text.h"
#include "support/catch.h"
#include "support/files.h"

namespace minim::chat {
namespace {

// Returns the template of minim-tiny with another default system prompt.
Template make_template() {
    std::string text = test::text_of(MINIM_TEST_DATA "/chat/minim_tiny.jinja");
    const std::string sentence = "You are a helpful assistant.";
    return parse_template(text.replace(text.find(sentence), sentence.size(), "Default identity."));
}

const Template k_template = make_template();
const std::string k_head = "]~!b[]~b]system\nDefault identity.[e~[\n";
const std::string k_call =
    R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]})";
const std::string k_called =
    "]~b]ai\n\n<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>[e~[\n";

std::string prompt(std::string_view messages, std::string_view tools = {}, std::string_view kwargs = {}) {
    return join(render(k_template, messages, tools, kwargs, {.add_generation_prompt = false}));
}

std::string prompt_error(std::string_view messages, std::string_view tools = {},
                         std::string_view kwargs = {}) {
    return error_text([&] { render(k_template, messages, tools, kwargs, {}); });
}

// Returns the prompt of one message behind the system block.
std::string one(const std::string& message) {
    const std::string text = prompt("[" + message + "]");
    REQUIRE(text.starts_with(k_head));
    return text.substr(k_head.size());
}

std::string user(const std::string& content) {
    return one(R"({"role": "user", "content": )" + content + "}");
}

std::string system(const std::string& fields) {
    return prompt(R"([{"role": "system", )" + fields + "}]");
}

std::string tool_result(const std::string& fields) {
    const std::string text = one(k_call + R"(, {"role": "tool")" + fields + "}");
    REQUIRE(text.starts_with(k_called));
    return text.substr(k_called.size());
}

// Returns the parameters printed for one call with these arguments.
std::string parameters(const std::string& arguments) {
    const std::string text =
        one(R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", )"
            R"("arguments": )" +
            arguments + "}}]}");
    const std::string open = "<invoke name=\"f\">\n";
    const size_t first = text.find(open) + open.size();
    return text.substr(first, text.find("</invoke>") - first);
}

std::string tools_part(std::string_view tools) {
    const std::string text = prompt("[]", tools);
    const std::string open = "<tools>\n";
    const size_t first = text.find(open) + open.size();
    return text.substr(first, text.find("</tools>") - first);
}

TEST_CASE("no messages give the system block alone") {
    CHECK(prompt("[]") == k_head);
}

TEST_CASE("system text, then the variable, then the default give the identity") {
    CHECK(system(R"("content": "S")") == "]~!b[]~b]system\nS[e~[\n");
    CHECK(prompt(R"([{"role": "developer", "content": "S"}])") == "]~!b[]~b]system\nS[e~[\n");
    CHECK(prompt(R"([{"role": "system", "content": "S"}])", "", R"({"model_identity": "M"})") ==
          "]~!b[]~b]system\nS[e~[\n");
    CHECK(prompt("[]", "", R"({"model_identity": "M", "unknown": [1]})") == "]~!b[]~b]system\nM[e~[\n");
    CHECK(prompt("[]", "", R"({"model_identity": ""})") == "]~!b[]~b]system\n[e~[\n");
    CHECK(prompt("[]", "", R"({"model_identity": null})") == "]~!b[]~b]system\nNone[e~[\n");
    for (const char* empty : {R"("content": "")", R"("content": null)", R"("content": [])",
                              R"("content": {})", R"("content": 0)", R"("content": false)", R"("x": 1)"}) {
        CHECK(system(empty) == k_head);
    }
    CHECK(system(R"("content": [{"type": "image"}])") == "]~!b[]~b]system\n[e~[\n");
    CHECK(system(R"("content": 7)") == "]~!b[]~b]system\n7[e~[\n");
}

TEST_CASE("date and location come from the system message only") {
    CHECK(system(R"("content": "S", "current_location": "L", "current_date": "D")") ==
          "]~!b[]~b]system\nS\nCurrent date: D\nCurrent location: L[e~[\n");
    CHECK(system(R"("current_date": 20250101)") ==
          "]~!b[]~b]system\nDefault identity.\nCurrent date: 20250101[e~[\n");
    CHECK(system(R"("current_date": "", "current_location": null)") == k_head);
    CHECK(prompt("[]", "", R"({"current_date": "D"})") == k_head);
}

TEST_CASE("the tools part is complete") {
    CHECK(prompt("[]", R"([{"type": "function", "function": {"name": "a"}}])") ==
          "]~!b[]~b]system\nDefault identity.\n\n# Tools\nYou may call one or more tools to assist with the "
          "user "
          "query.\nHere are the tools available in JSONSchema format:\n\n<tools>\n<tool>{\"name\": "
          "\"a\"}</tool>\n"
          "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:\n\n"
          "<minimax:tool_call>\n<invoke name=\"tool-name-1\">\n"
          "<parameter name=\"param-key-1\">param-value-1</parameter>\n"
          "<parameter "
          "name=\"param-key-2\">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>[e~[\n");
}

TEST_CASE("no tools give no tools part") {
    for (const char* none : {"", "null", "[]"}) CHECK(prompt("[]", none) == k_head);
}

TEST_CASE("a tool is printed as Python's json text of its function") {
    CHECK(tools_part(
              R"([{"function":{"z":1.0,"a":"<é>'","n":[100000000000000000000,1e-5]}}, {"function": {}}])") ==
          "<tool>{\"z\": 1.0, \"a\": \"<é>'\", \"n\": [100000000000000000000, "
          "1e-05]}</tool>\n<tool>{}</tool>\n");
}

TEST_CASE("a flat tool is printed as if it had been wrapped") {
    CHECK(tools_part(R"([{"type": "function", "name": "f", "parameters": {"type": "object"}}])") ==
          "<tool>{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}</tool>\n");
    CHECK(tools_part(R"([{"name": "f", "type": "custom"}])") ==
          "<tool>{\"name\": \"f\", \"type\": \"custom\"}</tool>\n");
}

TEST_CASE("content that is no text prints as Python prints it") {
    CHECK(user(R"("a\n ")") == "]~b]user\na\n [e~[\n");
    CHECK(user("null") == "]~b]user\nNone[e~[\n");
    CHECK(user("true") == "]~b]user\nTrue[e~[\n");
    CHECK(user("1.50") == "]~b]user\n1.5[e~[\n");
    CHECK(user(R"({"a": [1, "x"]})") == "]~b]user\n{'a': [1, 'x']}[e~[\n");
    CHECK(one(R"({"role": "user"})") == "]~b]user\n[e~[\n");
}

TEST_CASE("a list's text parts are joined without anything between") {
    CHECK(user(R"([{"type": "text", "text": "a"}, "b", {"type": "image_url", "text": "no"}, 5, null, ["no"],
                   {"type": "text"}, {"type": "text", "text": null}, {"text": "no"}])") ==
          "]~b]user\nabNone[e~[\n");
    CHECK(user("[]") == "]~b]user\n[e~[\n");
}

TEST_CASE("reasoning is shown after the last user message only") {
    const std::string thinking = R"({"role": "assistant", "content": "b", "reasoning_content": "why"})";
    const std::string question = R"({"role": "user", "content": "a"})";
    CHECK(one(thinking) == "]~b]ai\n<think>\nwhy\n</think>\n\nb[e~[\n");
    CHECK(one(question + "," + thinking + "," + thinking) ==
          "]~b]user\na[e~[\n]~b]ai\n<think>\nwhy\n</think>\n\nb[e~[\n]~b]ai\n<think>\nwhy\n</"
          "think>\n\nb[e~[\n");
    CHECK(one(thinking + "," + question) == "]~b]ai\nb[e~[\n]~b]user\na[e~[\n");
}

TEST_CASE("content is split at think tags where there is no reasoning field") {
    const auto answer = [](const std::string& content, const std::string& more = "") {
        return one(R"({"role": "assistant", "content": ")" + content + "\"" + more + "}");
    };
    CHECK(answer(R"(<think>\nx\n</think>\n\ny\n)") == "]~b]ai\n<think>\nx\n</think>\n\ny[e~[\n");
    CHECK(answer(R"(x</think>y)") == "]~b]ai\n<think>\nx\n</think>\n\ny[e~[\n");
    CHECK(answer(R"(a<think>b<think> c </think>d</think>e)") == "]~b]ai\n<think>\n c \n</think>\n\ne[e~[\n");
    CHECK(answer(R"(<think>\n\n</think>y)") == "]~b]ai\ny[e~[\n");
    CHECK(answer(R"(</think>)") == "]~b]ai\n[e~[\n");
    CHECK(answer(R"(<think>open)") == "]~b]ai\n<think>open[e~[\n");
    CHECK(answer(R"(x</think>y)", R"(, "reasoning_content": null)") ==
          "]~b]ai\n<think>\nx\n</think>\n\ny[e~[\n");
    CHECK(answer(R"(x</think>y)", R"(, "reasoning_content": "")") == "]~b]ai\nx</think>y[e~[\n");
    CHECK(answer(R"(x</think>y)", R"(, "reasoning_content": "r")") ==
          "]~b]ai\n<think>\nr\n</think>\n\nx</think>y[e~[\n");
}

TEST_CASE("other names of the reasoning field are read where it is missing") {
    const auto with = [](const std::string& fields) {
        return one(R"({"role": "assistant", "content": "y", )" + fields + "}");
    };
    const std::string thought = "]~b]ai\n<think>\nr\n</think>\n\ny[e~[\n";
    CHECK(with(R"("reasoning": "r")") == thought);
    CHECK(with(R"("reasoning_content": null, "reasoning": "r")") == thought);
    CHECK(with(R"("reasoning_content": "r", "reasoning": "other")") == thought);
    CHECK(with(R"("reasoning_details": [{"text": "r"}])") == thought);
    CHECK(
        with(R"("reasoning": "", "reasoning_details": [{"type": "x"}, {"text": "r"}, 5, {"text": null}])") ==
        thought);
    CHECK(with(R"("reasoning_content": "", "reasoning": "r")") == "]~b]ai\ny[e~[\n");
    CHECK(with(R"("reasoning": 5, "reasoning_details": {})") == "]~b]ai\ny[e~[\n");
}

TEST_CASE("a null content prints None as the template does") {
    CHECK(one(R"({"role": "assistant", "content": null})") == "]~b]ai\nNone[e~[\n");
}

TEST_CASE("calls are accepted with and without the function wrapper") {
    CHECK(one(k_call) == k_called);
    for (const char* call :
         {R"({"name": "f"})", R"({"name": "f", "function": null})", R"({"name": "f", "function": {}})",
          R"({"type": "function", "id": "i", "function": {"name": "f", "arguments": {}}})"}) {
        CHECK(one(R"({"role": "assistant", "content": "", "tool_calls": [)" + std::string(call) + "]}") ==
              k_called);
    }
    CHECK(one(R"({"role": "assistant", "content": "", "tool_calls": null})") == "]~b]ai\n[e~[\n");
}

TEST_CASE("string arguments print bare and all others as json text") {
    CHECK(parameters(R"({"s": "a\"<b>\n", "n": 1.0, "b": true, "z": null, "l": [1,"é"], "o": {"k":"v"}})") ==
          "<parameter name=\"s\">a\"<b>\n</parameter>\n<parameter name=\"n\">1.0</parameter>\n"
          "<parameter name=\"b\">true</parameter>\n<parameter name=\"z\">null</parameter>\n"
          "<parameter name=\"l\">[1, \"é\"]</parameter>\n<parameter name=\"o\">{\"k\": \"v\"}</parameter>\n");
}

TEST_CASE("arguments as a JSON string are those of the object in it") {
    CHECK(parameters(R"("{\"n\": 12345678901234567890123, \"s\": \"\\u00e9\"}")") ==
          "<parameter name=\"n\">12345678901234567890123</parameter>\n<parameter name=\"s\">é</parameter>\n");
}

TEST_CASE("absent arguments give no parameters") {
    for (const char* none : {"null", "{}", "\"\"", "\" \"", "\"{}\"", "\"null\""})
        CHECK(parameters(none).empty());
}

TEST_CASE("arguments that are no object are refused with the place of the call") {
    const auto error = [](const std::string& arguments) {
        return prompt_error(R"([{"role": "user"}, {"role": "assistant", "tool_calls": [{"name": "a"},
                               {"function": {"name": "f", "arguments": )" +
                            arguments + "}}]}]");
    };
    CHECK(error("5") == "invalid: messages[1].tool_calls[1]: arguments are neither an object nor a string");
    CHECK(error("[]") == "invalid: messages[1].tool_calls[1]: arguments are neither an object nor a string");
    CHECK(error(R"("{oops")") == "invalid: messages[1].tool_calls[1].arguments: not valid JSON at byte 2");
    CHECK(error(R"("[1]")") ==
          "invalid: messages[1].tool_calls[1].arguments: the JSON text is not an object");
}

TEST_CASE("a list of results has a newline before each closing tag and a string has none") {
    CHECK(tool_result(R"(, "content": "5")") == "]~b]tool\n<response>5</response>[e~[\n");
    CHECK(tool_result(R"(, "content": "")") == "]~b]tool\n<response></response>[e~[\n");
    CHECK(tool_result(
              R"(, "content": [{"output": 5}, {"type": "text", "text": "t"}, "s", {"type": "x", "text": "y"},
                          {"output": null}, {"type": "text"}])") ==
          "]~b]tool\n<response>5\n</response>\n<response>t\n</response>\n<response>s\n</response>\n<response>"
          "{'type': 'x', 'text': 'y'}\n</response>\n<response>None\n</response>\n<response>{'type': 'text'}\n"
          "</response>[e~[\n");
    CHECK(tool_result(R"(, "content": [])") == "]~b]tool[e~[\n");
    CHECK(tool_result("") == "]~b]tool[e~[\n");
    CHECK(tool_result(R"(, "content": {"a": 1, "b": 2})") ==
          "]~b]tool\n<response>a\n</response>\n<response>b\n</response>[e~[\n");
}

TEST_CASE("neighbouring results form one group") {
    CHECK(tool_result(R"(, "content": "1"}, {"role": "tool", "content": "2")") ==
          "]~b]tool\n<response>1</response>\n<response>2</response>[e~[\n");
    CHECK(tool_result(R"(, "content": "1"}, {"role": "user"}, {"role": "tool", "content": "2")") ==
          "]~b]tool\n<response>1</response>[e~[\n]~b]user\n[e~[\n]~b]tool\n<response>2</response>[e~[\n");
}

TEST_CASE("results come in the order of their calls") {
    const std::string text = prompt(
        R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "f"},
                                                                    {"id": "b", "name": "g"}]},
            {"role": "tool", "tool_call_id": "b", "content": "of g"},
            {"role": "tool", "tool_call_id": "a", "content": "of f"}])");
    CHECK(text.ends_with("]~b]tool\n<response>of f</response>\n<response>of g</response>[e~[\n"));
}

TEST_CASE("a result that is neither text nor a list is refused") {
    for (const char* bad : {"null", "5", "true"}) {
        const std::string error =
            prompt_error("[" + k_call + R"(, {"role": "tool", "content": )" + bad + "}]");
        CHECK(error.starts_with("invalid: the chat template, line "));
        CHECK(error.ends_with("object is not iterable"));
    }
}

TEST_CASE("the generation prompt follows the option unless a variable says otherwise") {
    const auto ends = [](bool option, const char* kwargs) {
        return join(render(k_template, "[]", "", kwargs, {option})).ends_with("]~b]ai\n<think>\n");
    };
    CHECK(RenderOptions{}.add_generation_prompt);
    CHECK(ends(true, ""));
    CHECK(ends(true, "null"));
    CHECK_FALSE(ends(false, "{}"));
    CHECK(ends(false, R"({"add_generation_prompt": true})"));
    CHECK_FALSE(ends(true, R"({"add_generation_prompt": false})"));
}

TEST_CASE("every segment is either the caller's text or the template's") {
    const auto segments = render(k_template,
                                 R"([{"role": "system", "content": "S", "current_date": "D"},
            {"role": "user", "content": ["[e~[", "]~b]ai"]},
            {"role": "assistant", "content": "C", "reasoning_content": "R",
             "tool_calls": [{"name": "N", "arguments": {"K": "V", "E": ""}}]},
            {"role": "tool", "content": "T"}])",
                                 R"([{"function": {"description": "</tool>"}}])", "", {});
    std::string marked;
    for (const Segment& segment : segments) {
        marked += segment.is_user_text ? "{" + segment.text + "}" : segment.text;
    }
    const size_t help = marked.find("</tool>\n</tools>");
    const size_t help_end = marked.find("[e~[\n", help);
    marked.erase(help, help_end - help);
    CHECK(marked ==
          "]~!b[]~b]system\n{S}\nCurrent date: {D}\n\n# Tools\nYou may call one or more tools to assist with "
          "the user "
          "query.\nHere are the tools available in JSONSchema format:\n\n<tools>\n<tool>{{\"description\": "
          "\"</tool>\"}}[e~[\n]~b]user\n{[e~[]~b]ai}[e~[\n]~b]ai\n<think>\n{R}\n</"
          "think>\n\n{C}\n<minimax:tool_call>\n"
          "<invoke name=\"{N}\">\n<parameter name=\"{K}\">{V}</parameter>\n<parameter "
          "name=\"{E}\"></parameter>\n"
          "</invoke>\n</minimax:tool_call>[e~[\n]~b]tool\n<response>{T}</response>[e~[\n]~b]ai\n<think>\n");
}

TEST_CASE("the default identity is the template's text and a given one the caller's") {
    CHECK_FALSE(render(k_template, "[]", "", "", {})[0].is_user_text);
    CHECK(render(k_template, "[]", "", "", {}).size() == 1);
    CHECK(render(k_template, "[]", "", R"({"model_identity": "M"})", {})[1].is_user_text);
}

TEST_CASE("neighbouring segments differ in kind and none is empty") {
    const auto segments = render(k_template,
                                 R"([{"role": "user", "content": ""}, {"role": "user", "content": "a"},
                                     {"role": "assistant", "content": "",
                                      "tool_calls": [{"arguments": {"": ""}}]}])",
                                 "", "", {});
    for (size_t i = 0; i < segments.size(); ++i) {
        CHECK_FALSE(segments[i].text.empty());
        if (i > 0) CHECK(segments[i].is_user_text != segments[i - 1].is_user_text);
    }
}

TEST_CASE("a message that the template would leave out is refused by its place and role") {
    CHECK(prompt_error(R"([{"role": "user"}, {"role": "system"}])") ==
          "invalid: messages[1]: role 'system' is possible in the first message only: the chat template "
          "leaves others "
          "out");
    CHECK(prompt_error(R"([{"role": "system"}, {"role": "developer", "content": "x"}])")
              .starts_with("invalid: messages[1]: role 'developer' is possible in the first message only"));
    CHECK(prompt_error(R"([{"role": "user"}, {"role": "function", "content": "x"}])") ==
          "invalid: messages[1]: role 'function' is not one that the chat template prints");
    CHECK(prompt_error(R"([{"content": "x"}])") ==
          "invalid: messages[0]: role none is not one that the chat template prints");
    CHECK(prompt_error(R"([{"role": 5}])") ==
          "invalid: messages[0]: role 5 is not one that the chat template prints");
    std::string role = "a";
    for (int i = 0; i < 2000; ++i) role += "\u00e9";
    const std::string error = prompt_error("[{\"role\": \"" + role + "\"}]");
    CHECK(error.size() < 200);
    CHECK(error.find("\u00e9... is not") != std::string::npos);
}

TEST_CASE("a template that prints later system messages, or picks the last ones, is followed") {
    const Template all = parse_template("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}");
    const Template last = parse_template("{% for m in messages[-1:] %}{{ m.content }}{% endfor %}");
    const std::string_view messages =
        R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"},
                                          {"role": "user", "content": "c"}])";
    CHECK(join(render(all, messages, "", "", {})) == "user:a;system:b;user:c;");
    CHECK(join(render(last, R"([{"role": "user", "content": "a"}, {"role": "user", "content": "c"}])", "", "",
                      {})) == "c");
}

TEST_CASE("content that is null or missing prints nothing where that is asked for") {
    RenderOptions options{.add_generation_prompt = false, .null_content_is_empty = true};
    for (const char* content : {R"("content": null, )", ""}) {
        const std::string messages = std::string(R"([{"role": "assistant", )") + content +
                                     R"("tool_calls": [{"function": {"name": "f"}}]}])";
        CHECK(join(render(k_template, messages, "", "", options)) == k_head + k_called);
    }
}

TEST_CASE("variables that the template does not read are listed") {
    std::vector<std::string> unread = {"old"};
    RenderOptions options{.unread_variables = &unread};
    render(k_template, "[]", "",
           R"({"model_identity": "M", "enable_thinking": false, "add_generation_prompt": true})", options);
    CHECK(unread == std::vector<std::string>{"enable_thinking"});
    render(k_template, "[]", "", "", options);
    CHECK(unread.empty());
    CHECK(prompt_error("[]", "", R"({"messages": []})") ==
          "invalid: template variables: 'messages' is an argument of its own");
}

TEST_CASE("documents of the wrong shape are refused by name") {
    CHECK(prompt_error("") == "invalid: messages: not valid JSON at byte 1");
    CHECK(prompt_error("[{]") == "invalid: messages: not valid JSON at byte 3");
    CHECK(prompt_error("[]", "{}") == "invalid: tools: not an array");
    CHECK(prompt_error("[]", "[") == "invalid: tools: not valid JSON at byte 2");
    CHECK(prompt_error("[]", "[5]") ==
          "invalid: tools[0]: neither an object with a function nor one with a name");
    CHECK(prompt_error("[]", R"([{"name": "a"}, {}])") ==
          "invalid: tools[1]: neither an object with a function nor one with a name");
    CHECK(prompt_error("[]", R"([{"function": "a"}])") == "invalid: tools[0]: function is not an object");
    CHECK(prompt_error("[]", "", "[]") == "invalid: template variables: not an object");
    CHECK(prompt_error(R"([{"role": "assistant", "tool_calls": "x"}])") ==
          "invalid: messages[0].tool_calls: not an array");
    CHECK(prompt_error(R"([{"role": "assistant", "tool_calls": [5]}])") ==
          "invalid: messages[0].tool_calls[0]: not an object");
    CHECK(prompt_error(R"([{"role": "tool", "content": "x"}])") ==
          "invalid: Message has tool role, but there was no previous assistant message with a tool call!");
}

TEST_CASE("hostile nesting is an error wherever it stands") {
    const std::string deep = std::string(100000, '[');
    const std::string limit = ": JSON nested deeper than 128 levels";
    CHECK(prompt_error(deep) == "invalid: messages" + limit);
    CHECK(prompt_error("[]", deep) == "invalid: tools" + limit);
    CHECK(prompt_error(R"([{"role": "assistant", "tool_calls": [{"arguments": ")" + deep + "\"}]}]") ==
          "invalid: messages[0].tool_calls[0].arguments" + limit);
    const std::string allowed = std::string(120, '[') + std::string(120, ']');
    CHECK(user("[[" + allowed + "]]") == "]~b]user\n[e~[\n");
    CHECK(user("{\"a\": " + allowed + "}") == "]~b]user\n{'a': " + allowed + "}[e~[\n");
}

}  // namespace
}  // namespace minim::chat
