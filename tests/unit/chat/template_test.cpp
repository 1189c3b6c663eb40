#include "chat/template.h"

#include <fstream>
#include <iterator>
#include <string>

#include "error_text.h"
#include "support/catch.h"

namespace minim::chat {
namespace {

std::string recognise_error(std::string_view jinja) {
    return error_text([&] { recognise_template(jinja); });
}

// The least text that has every piece of the family's layout; `identity` is the statement that gives the
// sentence.
std::string family_template(std::string_view identity) {
    return "{{ ']~!b[' ~ ']~b]system' ~ ']~b]user' ~ ']~b]ai' ~ ']~b]tool' ~ '[e~[' }}\n"
           "{{ '<minimax:tool_call><invoke name=\"' ~ '<parameter name=\"' ~ '<response>' }}\n"
           "{{ '<think>' ~ '</think>' ~ message.reasoning_content }}\n" +
           std::string(identity) + "\n{%- if add_generation_prompt %}{% endif %}";
}

std::string without(std::string text, const std::string& piece) {
    for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece))
        text.erase(at, piece.size());
    return text;
}

const std::string k_statement = "{%- set model_identity = \"You are a helpful assistant.\" -%}";

TEST_CASE("the template of minim-tiny is recognised") {
    std::ifstream file(MINIM_TEST_DATA "/chat/minim_tiny.jinja", std::ios::binary);
    REQUIRE(file);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK(recognise_template(text).default_identity == "You are a helpful assistant.");
}

TEST_CASE("the identity is read from a set statement or a default filter") {
    const auto identity = [](std::string_view statement) {
        return recognise_template(family_template(statement)).default_identity;
    };
    CHECK(
        identity(
            "{%- if model_identity is not defined -%}{%- set model_identity = \"Your name is MiniMax-M2.5.\" "
            "-%}{%- endif -%}{{- model_identity }}") == "Your name is MiniMax-M2.5.");
    CHECK(identity("{% set model_identity='a' %}") == "a");
    CHECK(identity("{{ model_identity|default('b') }}") == "b");
    CHECK(identity("{{ model_identity | default( \"c\" ) }}") == "c");
    CHECK(identity("{{ model_identity | default('it\\'s \"x\"\\n\\\\') }}") == "it's \"x\"\n\\");
    CHECK(identity("{% if model_identity == 'no' %}{% endif %}{{ model_identity | default('d') }}") == "d");
    CHECK(identity("{# set model_identity = 'old' #}{% set model_identity = 'new' %}") == "new");
}

TEST_CASE("a template without a plain identity sentence is refused") {
    for (const char* statement :
         {"{{ model_identity }}", "{{ model_identity | default(x) }}",
          "{{ model_identity | default('a' ~ x) }}", "{{ model_identity | default('a', true) }}",
          "{% set model_identity = 'a' + x %}", "{{ model_identity | default('open",
          "{{ model_identity | default('\\q') }}", "{# model_identity = 'a' #}"}) {
        INFO(statement);
        CHECK(recognise_error(family_template(statement))
                  .starts_with("unsupported: the checkpoint's chat template is not the MiniMax-M2 one: it"));
    }
    CHECK(recognise_error(family_template("{{ model_identity }}")) ==
          "unsupported: the checkpoint's chat template is not the MiniMax-M2 one: it gives no default for "
          "model_identity");
}

TEST_CASE("every piece of the layout is needed") {
    const std::string whole = family_template(k_statement);
    REQUIRE(recognise_error(whole) == "no error");
    for (const char* piece :
         {"]~!b[", "]~b]system", "]~b]user", "]~b]ai", "]~b]tool", "[e~[", "minimax:tool_call",
          "<invoke name=", "<parameter name=", "<response>", "<think>", "</think>", "reasoning_content"}) {
        CHECK(
            recognise_error(without(whole, piece)) ==
            std::string("unsupported: the checkpoint's chat template is not the MiniMax-M2 one: it lacks ") +
                piece);
    }
}

TEST_CASE("pieces in a comment do not count") {
    const std::string text = "{# " + family_template("") + " #}" + k_statement;
    CHECK(recognise_error(text).find("it lacks ]~!b[") != std::string::npos);
}

TEST_CASE("other formats are refused by name") {
    const auto looks_like = [](std::string_view jinja) {
        const std::string error = recognise_error(jinja);
        const std::string_view marker = " and looks like ";
        const size_t at = error.find(marker);
        return at == std::string::npos ? error : error.substr(at + marker.size());
    };
    CHECK(looks_like("{{ '<|im_start|>' + message.role + '<|im_end|>' }}<tool_call>") ==
          "ChatML, as used by Qwen");
    CHECK(looks_like("{{ '<|start_header_id|>' + message.role + '<|end_header_id|>' }}") == "Llama 3");
    CHECK(looks_like("{{ '[INST] ' + message.content + ' [/INST]' }}") == "Llama 2 or Mistral");
    CHECK(looks_like("{{ '<beginning_of_sentence>user name=user' }}") == "MiniMax-M1 or MiniMax-Text-01");
    CHECK(looks_like("{{ ']~!b[' ~ '<tool_calls>' }}") == "MiniMax-M1");
    CHECK(looks_like("{% set ns = ']<]minimax[>[' %}{{ ns ~ '<tool_call>' }}") == "MiniMax-M3");
    CHECK(looks_like(family_template(k_statement) + "{{ ']<]minimax[>[<tool_call>' }}") == "MiniMax-M3");
    CHECK(looks_like("{{ messages }}") ==
          "unsupported: the checkpoint's chat template is not the MiniMax-M2 one: it lacks ]~!b[");
}

TEST_CASE("an M1 template is refused because it lacks the tool call tag of M2") {
    const std::string text =
        without(family_template(k_statement), "minimax:tool_call") + "{{ '<tool_calls>' }}";
    CHECK(recognise_error(text) ==
          "unsupported: the checkpoint's chat template is not the MiniMax-M2 one: it lacks "
          "minimax:tool_call; it has "
          "<tool_calls> and looks like MiniMax-M1");
}

TEST_CASE("an empty template is refused") {
    CHECK(recognise_error("") == "unsupported: the checkpoint's chat template is empty");
    CHECK(recognise_error(" \n") == "unsupported: the checkpoint's chat template is empty");
    CHECK(recognise_error("{#").starts_with("unsupported: "));
}

}  // namespace
}  // namespace minim::chat
