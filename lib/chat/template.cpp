#include "chat/template.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"

namespace minim::chat {
namespace {

// Every piece of the layout that the renderer prints and that M2, M2.1, M2.5 and M2.7 spell out in one piece.
constexpr std::string_view k_required[] = {
    "]~!b[",
    "]~b]system",
    "]~b]user",
    "]~b]ai",
    "]~b]tool",
    "[e~[",
    "minimax:tool_call",
    "<invoke name=",
    "<parameter name=",
    "<response>",
    "<think>",
    "</think>",
    "model_identity",
    "reasoning_content",
};

struct Lookalike {
    std::string_view marker;
    std::string_view name;
};

// First match wins: M3 shares markers with M2, and many models build on ChatML.
constexpr Lookalike k_foreign[] = {
    {"]<]minimax[>[", "MiniMax-M3"},
    {"<mm:think>", "MiniMax-M3"},
    {"<beginning_of_sentence>", "MiniMax-M1 or MiniMax-Text-01"},
    {"<tool_calls>", "MiniMax-M1"},
    {"<|start_header_id|>", "Llama 3"},
    {"<|im_start|>", "ChatML, as used by Qwen"},
    {"<|channel|>", "gpt-oss"},
    {"<start_of_turn>", "Gemma"},
    {"[gMASK]", "GLM"},
    {"[INST]", "Llama 2 or Mistral"},
    {"\uFF5CUser\uFF5C", "DeepSeek"},
};

std::string without_comments(std::string_view jinja) {
    std::string out;
    for (;;) {
        const size_t open = jinja.find("{#");
        out += jinja.substr(0, open);
        if (open == std::string_view::npos) return out;
        const size_t close = jinja.find("#}", open + 2);
        if (close == std::string_view::npos) return out;
        jinja.remove_prefix(close + 2);
    }
}

void skip_space(std::string_view& text) {
    const size_t at = text.find_first_not_of(" \t\r\n");
    text.remove_prefix(at == std::string_view::npos ? text.size() : at);
}

// Takes `token` and the space before it off the front of `text`.
bool take(std::string_view& text, std::string_view token) {
    skip_space(text);
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
}

// Takes a Jinja string literal; nothing where there is none, or one with an escape other than those below.
std::optional<std::string> take_literal(std::string_view& text) {
    skip_space(text);
    if (text.empty() || (text[0] != '"' && text[0] != '\'')) return std::nullopt;
    const char quote = text[0];
    std::string value;
    for (size_t i = 1; i < text.size(); ++i) {
        if (text[i] == quote) {
            text.remove_prefix(i + 1);
            return value;
        }
        if (text[i] != '\\') {
            value += text[i];
            continue;
        }
        const char escaped = ++i < text.size() ? text[i] : '\0';
        switch (escaped) {
            case 'n':
                value += '\n';
                break;
            case 't':
                value += '\t';
                break;
            case '\\':
            case '\'':
            case '"':
                value += escaped;
                break;
            default:
                return std::nullopt;
        }
    }
    return std::nullopt;
}

// The two ways in which the family's templates give the sentence, with `text` just behind `model_identity`:
//   {%- set model_identity = "sentence" -%}      {{ model_identity | default('sentence') }}
std::optional<std::string> identity_default(std::string_view text) {
    const bool filter = take(text, "|");
    if (filter ? !(take(text, "default") && take(text, "(")) : !take(text, "=")) return std::nullopt;
    std::optional<std::string> sentence = take_literal(text);
    const bool whole = filter ? take(text, ")") : take(text, "-%}") || take(text, "%}");
    if (!whole) return std::nullopt;  // the literal is only a part of an expression
    return sentence;
}

std::optional<std::string> find_identity(std::string_view jinja) {
    constexpr std::string_view k_name = "model_identity";
    for (size_t at = jinja.find(k_name); at != std::string_view::npos; at = jinja.find(k_name, at + 1)) {
        if (auto sentence = identity_default(jinja.substr(at + k_name.size()))) return sentence;
    }
    return std::nullopt;
}

[[noreturn]] void refuse(std::string_view why, std::string_view jinja) {
    for (const Lookalike& format : k_foreign) {
        if (jinja.find(format.marker) == std::string_view::npos) continue;
        fail(Status::unsupported,
             "the checkpoint's chat template is not the MiniMax-M2 one: {}; it has {} and looks like {}", why,
             format.marker, format.name);
    }
    fail(Status::unsupported, "the checkpoint's chat template is not the MiniMax-M2 one: {}", why);
}

}  // namespace

Template recognise_template(std::string_view jinja_text) {
    if (jinja_text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
        fail(Status::unsupported, "the checkpoint's chat template is empty");
    }
    const std::string text = without_comments(jinja_text);
    for (const std::string_view marker : k_required) {
        if (text.find(marker) == std::string::npos) refuse(format_text("it lacks {}", marker), text);
    }
    for (const Lookalike& format : k_foreign) {
        if (text.find(format.marker) != std::string::npos) refuse("it mixes two formats", text);
    }
    std::optional<std::string> identity = find_identity(text);
    if (!identity) refuse("it gives no default for model_identity", text);
    return {std::move(*identity)};
}

}  // namespace minim::chat
