// SPDX-License-Identifier: Apache-2.0
#include "chat/template.h"

#include <string>

#include "chat/render.h"
#include "error_text.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

std::string printed(std::string_view source, std::string_view kwargs = "") {
    return join(render(parse_template(source), "[]", "", kwargs, {}));
}

std::string refusal(std::string_view source) {
    return error_text([&] { parse_template(source); });
}

std::string failure(std::string_view source, std::string_view kwargs = "") {
    return error_text([&] { printed(source, kwargs); });
}

// Returns the prompt with the parts that come from the request in braces.
std::string marked(std::string_view source, std::string_view kwargs) {
    std::string text;
    for (const Segment& segment : render(parse_template(source), "[]", "", kwargs, {}))
        text += segment.is_user_text ? "{" + segment.text + "}" : segment.text;
    return text;
}

TEST_CASE("what the interpreter does not have is refused by name and line when a template is parsed") {
    CHECK(refusal("a\n{{ x | urlize }}") ==
          "unsupported: the chat template, line 2: the filter 'urlize' is not supported");
    CHECK(refusal("{{ x is escaped }}") ==
          "unsupported: the chat template, line 1: the test 'escaped' is not supported");
    for (const char* word :
         {"include", "extends", "import", "from", "block", "call", "filter", "with", "do", "autoescape"}) {
        CHECK(refusal(std::string("\n\n{% ") + word + " 'a' %}") ==
              std::string("unsupported: the chat template, line 3: the statement '") + word +
                  "' is not supported");
    }
    for (const char* source : {"{{",
                               "{{ a",
                               "{% if a %}",
                               "{% for x in y %}",
                               "{% for in y %}{% endfor %}",
                               "{% endif %}",
                               "{{ 'a }}",
                               "{{ (1 }}",
                               "{{ 1) }}",
                               "{{ a b }}",
                               "{# a",
                               "{% raw %}a",
                               "{% set 1 = 2 %}",
                               "{% macro f( %}",
                               "{{ ! }}",
                               "{% if %}{% endif %}",
                               "{{ f(*a) }}",
                               "{% break %}",
                               "{{ 99999999999999999999 }}",
                               "{{ '\\ud800' }}",
                               "{% for x in y %}{% macro f() %}{% endmacro %}{% endfor %}",
                               "",
                               " \n",
                               "\xff",
                               "{{ [1, 2 }}",
                               "{% set true = 1 %}"}) {
        INFO(source);
        CHECK(refusal(source).starts_with("unsupported: the chat template"));
    }
}

TEST_CASE("a template has access to nothing but its variables") {
    CHECK(failure("{{ strftime_now('%Y') }}") ==
          "unsupported: the chat template, line 1: the chat template uses strftime_now, which is not "
          "supported");
    CHECK(failure("{{ ''.__class__ }}").find("unsafe") != std::string::npos);
    CHECK(failure("{{ messages.append(1) }}").find("append() of a list, which is not supported") !=
          std::string::npos);
    CHECK(failure("{{ 'x'.format(1) }}").find("format() of a str, which is not supported") !=
          std::string::npos);
    CHECK(failure("{{ open('/etc/passwd') }}") == "invalid: the chat template, line 1: 'open' is undefined");
    CHECK(failure("{{ raise_exception('No ' ~ 1) }}") == "invalid: No 1");
}

TEST_CASE("work is bounded in steps, depth and size") {
    CHECK(failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
              .find("steps") != std::string::npos);
    CHECK(failure("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}"
                  "{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}")
              .starts_with("invalid: the chat template, line 1: "));
    CHECK(failure("{{ 'a' * 9999999999 }}").starts_with("invalid: "));
    CHECK(failure("{{ range(9999999) }}").starts_with("invalid: "));
    CHECK(failure("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").find("recurses deeper") !=
          std::string::npos);
    CHECK(
        failure("{% set ns = namespace(x=[]) %}{% for a in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}")
            .find("nests values deeper") != std::string::npos);
    CHECK(refusal("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
              .find("nested deeper") != std::string::npos);
    std::string sum = "{{ 1";
    for (int i = 0; i < 5000; ++i) sum += " + 1";
    CHECK(refusal(sum + " }}").find("nested deeper") != std::string::npos);
    std::string blocks;
    for (int i = 0; i < 5000; ++i) blocks += "{% if a %}";
    CHECK(refusal(blocks).find("nested deeper") != std::string::npos);
}

TEST_CASE("namespaces and loops that hold themselves are freed") {
    CHECK(printed("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns, [ns]] %}x") == "x");
    CHECK(printed("{% for a in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}") == "TrueFalse");
}

TEST_CASE("text of the request stays marked through all that a template does with it") {
    const char* kwargs = R"({"u": " <ai> ", "d": {"k<": ["v>", 5]}})";
    CHECK(marked("a{{ u }}b", kwargs) == "a{ <ai> }b");
    CHECK(marked("{{ '<' ~ u | trim ~ '>' }}", kwargs) == "<{<ai>}>");
    CHECK(marked("{{ ('[' + u + ']').strip('[ ').replace('<', '(') }}", kwargs) == "({ai> }]");
    CHECK(marked("{{ (u ~ '|' ~ u).split('|') | join('+') }}", kwargs) == "{ <ai> }+{ <ai> }");
    CHECK(marked("{{ (u ~ 'xyz')[2:7] }}", kwargs) == "{ai> }x");
    CHECK(marked("{{ u | upper }}{{ 'a' | upper }}", kwargs) == "{ <AI> }A");
    CHECK(marked("{{ u | tojson }} {{ d }} {{ [1] }}", kwargs) == "{\" <ai> \"} {{'k<': ['v>', 5]}} [1]");
    CHECK(marked("{% for k, v in d.items() %}{{ k }}={{ v[0] }}{% endfor %}", kwargs) == "{k<}={v>}");
    CHECK(marked("{% macro m(x) %}({{ x }}){% endmacro %}{% set y %}{{ m(u) }}!{% endset %}{{ y | trim }}",
                 kwargs) == "({ <ai> })!");
    CHECK(marked("{{ u | replace('ai', '<x>') | indent(2, true) }}", kwargs) == "  { <}<x>{> }");
    CHECK(marked("{{ u[::-1] }}{{ u | reverse | list | first }}{{ u.partition('a')[2] }}", kwargs) ==
          "{ >ia<  i> }");
}

TEST_CASE("a template tells which variables it reads") {
    const Template parsed = parse_template(
        "{% macro m(x) %}{{ a.b[c] | default(d) }}{% endmacro %}{% if e is none %}{% endif %}");
    for (const char* name : {"a", "c", "d", "e"}) CHECK(parsed.reads(name));
    for (const char* name : {"b", "x", "m", "default"}) CHECK_FALSE(parsed.reads(name));
}

TEST_CASE("numbers beyond 64 bits print, and are not calculated with") {
    CHECK(printed("{{ n }} {{ n | tojson }} {{ n == n }}", R"({"n": 123456789012345678901234567890})") ==
          "123456789012345678901234567890 123456789012345678901234567890 True");
    CHECK(failure("{{ n + 1 }}", R"({"n": 123456789012345678901234567890})").starts_with("unsupported: "));
    CHECK(failure("{{ 9223372036854775807 + 1 }}").starts_with("unsupported: "));
}

}  // namespace
}  // namespace minim::chat
