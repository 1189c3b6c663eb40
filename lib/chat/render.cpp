#include "chat/render.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "chat/conversation.h"
#include "chat/python_text.h"

namespace minim::chat {

using json::find;
using json::Value;

namespace {

class Prompt {
  public:
    void skeleton(std::string_view text) { append(text, false); }
    void user_text(std::string_view text) { append(text, true); }
    std::vector<Segment> take() { return std::move(segments_); }

  private:
    void append(std::string_view text, bool is_user_text) {
        if (text.empty()) return;
        if (segments_.empty() || segments_.back().is_user_text != is_user_text) {
            segments_.push_back({std::string(), is_user_text});
        }
        segments_.back().text += text;
    }

    std::vector<Segment> segments_;
};

// What Jinja prints for an expression: nothing where it is undefined.
std::string printed(const Value* value) {
    return value == nullptr ? std::string() : python_str(*value);
}

bool is_text_part(const Value& part) {
    const Value* type = find(&part, "type");
    return type != nullptr && type->is_string() && type->text == "text";
}

// The visible text of a message's content: a list's text parts without anything between, its other parts left
// out.
std::string plain_text(const Value* content) {
    if (content == nullptr || !content->is_array()) return printed(content);
    std::string text;
    for (const Value& part : content->items) {
        if (part.is_string()) {
            text += part.text;
        } else if (is_text_part(part)) {
            text += printed(find(&part, "text"));
        }
    }
    return text;
}

std::string_view strip_newlines(std::string_view text) {
    const size_t first = text.find_first_not_of('\n');
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of('\n') - first + 1);
}

// The function object of a tool. A flat tool is one itself, less the wrapper's field `type`.
Value tool_function(const Value& tool, size_t index) {
    const Value* function = find(&tool, "function");
    if (function != nullptr) {
        if (!function->is_object()) fail(Status::invalid, "tools[{}]: function is not an object", index);
        return *function;
    }
    if (find(&tool, "name") == nullptr) {
        fail(Status::invalid, "tools[{}]: neither an object with a function nor one with a name", index);
    }
    Value flat;
    flat.kind = Value::Kind::object;
    for (size_t i = 0; i < tool.keys.size(); ++i) {
        const bool wrapper_type = tool.keys[i] == "type" && tool.items[i].text == "function";
        if (wrapper_type) continue;
        flat.keys.push_back(tool.keys[i]);
        flat.items.push_back(tool.items[i]);
    }
    return flat;
}

void write_tools(Prompt& prompt, const Value& tools) {
    prompt.skeleton(
        "\n\n# Tools\n"
        "You may call one or more tools to assist with the user query.\n"
        "Here are the tools available in JSONSchema format:\n"
        "\n"
        "<tools>\n");
    for (size_t i = 0; i < tools.items.size(); ++i) {
        prompt.skeleton("<tool>");
        prompt.user_text(python_json(tool_function(tools.items[i], i)));
        prompt.skeleton("</tool>\n");
    }
    prompt.skeleton(
        "</tools>\n"
        "\n"
        "When making tool calls, use XML format to invoke tools and pass parameters:\n"
        "\n"
        "<minimax:tool_call>\n"
        "<invoke name=\"tool-name-1\">\n"
        "<parameter name=\"param-key-1\">param-value-1</parameter>\n"
        "<parameter name=\"param-key-2\">param-value-2</parameter>\n"
        "...\n"
        "</invoke>\n"
        "</minimax:tool_call>");
}

void write_system(Prompt& prompt, const Template& chat_template, const Value* system, const Value& tools,
                  const Value* identity) {
    prompt.skeleton("]~!b[]~b]system\n");
    const Value* content = find(system, "content");
    if (is_true(content)) {
        prompt.user_text(plain_text(content));
    } else if (identity != nullptr) {
        prompt.user_text(python_str(*identity));
    } else {
        prompt.skeleton(chat_template.default_identity);
    }
    if (const Value* date = find(system, "current_date"); is_true(date)) {
        prompt.skeleton("\nCurrent date: ");
        prompt.user_text(python_str(*date));
    }
    if (const Value* location = find(system, "current_location"); is_true(location)) {
        prompt.skeleton("\nCurrent location: ");
        prompt.user_text(python_str(*location));
    }
    if (is_true(&tools)) write_tools(prompt, tools);
    prompt.skeleton("[e~[\n");
}

// Reasoning that came in a field of its own. An empty alias is as good as none; an empty reasoning_content is
// not: it says that the content holds no reasoning either.
std::optional<std::string> reasoning_field(const Value& message) {
    const Value* own = find(&message, "reasoning_content");
    if (own != nullptr && own->is_string()) return own->text;
    if (own != nullptr && !own->is_null()) return std::nullopt;

    const Value* reasoning = find(&message, "reasoning");
    if (reasoning != nullptr && reasoning->is_string() && is_true(reasoning)) return reasoning->text;

    const Value* details = find(&message, "reasoning_details");
    std::string text;
    if (details != nullptr && details->is_array()) {
        for (const Value& detail : details->items) {
            const Value* part = find(&detail, "text");
            if (part != nullptr && part->is_string()) text += part->text;
        }
    }
    if (text.empty()) return std::nullopt;
    return text;
}

struct Answer {
    std::string thought;
    std::string text;
};

Answer split_answer(const Value& message) {
    constexpr std::string_view k_open = "<think>";
    constexpr std::string_view k_close = "</think>";
    Answer answer{{}, plain_text(find(&message, "content"))};
    if (auto reasoning = reasoning_field(message)) {
        answer.thought = std::move(*reasoning);
        return answer;
    }
    const std::string_view content = answer.text;
    const size_t first_close = content.find(k_close);
    if (first_close == std::string_view::npos) return answer;

    std::string_view thought = strip_newlines(content.substr(0, first_close));
    const size_t last_open = thought.rfind(k_open);
    if (last_open != std::string_view::npos) thought.remove_prefix(last_open + k_open.size());
    answer.thought = strip_newlines(thought);
    answer.text = std::string(strip_newlines(content.substr(content.rfind(k_close) + k_close.size())));
    return answer;
}

// The arguments of a call as an object. Clients of the OpenAI API send them as a JSON text; an empty text and
// null stand for none.
Value call_arguments(const Value& function, const std::string& where) {
    Value none;
    none.kind = Value::Kind::object;
    const Value* given = find(&function, "arguments");
    if (given == nullptr || given->is_null()) return none;
    if (given->is_object()) return *given;
    if (!given->is_string()) fail(Status::invalid, "{}: arguments are neither an object nor a string", where);
    if (given->text.find_first_not_of(" \t\r\n") == std::string::npos) return none;

    Value parsed = json::parse(given->text, where + ".arguments", json::Source::argument);
    if (parsed.is_null()) return none;
    if (!parsed.is_object()) fail(Status::invalid, "{}.arguments: the JSON text is not an object", where);
    return parsed;
}

void write_call(Prompt& prompt, const Value& call, const std::string& where) {
    const Value* wrapped = find(&call, "function");
    const Value& function = is_true(wrapped) ? *wrapped : call;
    if (!function.is_object()) fail(Status::invalid, "{}: not an object", where);

    prompt.skeleton("<invoke name=\"");
    prompt.user_text(printed(find(&function, "name")));
    prompt.skeleton("\">\n");
    const Value arguments = call_arguments(function, where);
    for (size_t i = 0; i < arguments.items.size(); ++i) {
        const Value& value = arguments.items[i];
        prompt.skeleton("<parameter name=\"");
        prompt.user_text(arguments.keys[i]);
        prompt.skeleton("\">");
        prompt.user_text(value.is_string() ? value.text : python_json(value));
        prompt.skeleton("</parameter>\n");
    }
    prompt.skeleton("</invoke>\n");
}

void write_assistant(Prompt& prompt, const Turn& turn, bool shows_thought) {
    const Answer answer = split_answer(*turn.message);
    prompt.skeleton("]~b]ai\n");
    if (shows_thought && !answer.thought.empty()) {
        prompt.skeleton("<think>\n");
        prompt.user_text(answer.thought);
        prompt.skeleton("\n</think>\n\n");
    }
    prompt.user_text(answer.text);

    if (const Value* calls = find(turn.message, "tool_calls"); is_true(calls)) {
        if (!calls->is_array()) fail(Status::invalid, "messages[{}].tool_calls: not an array", turn.index);
        prompt.skeleton("\n<minimax:tool_call>\n");
        for (size_t i = 0; i < calls->items.size(); ++i) {
            write_call(prompt, calls->items[i], format_text("messages[{}].tool_calls[{}]", turn.index, i));
        }
        prompt.skeleton("</minimax:tool_call>");
    }
    prompt.skeleton("[e~[\n");
}

std::string result_text(const Value& item) {
    if (const Value* output = find(&item, "output")) return python_str(*output);
    const Value* text = find(&item, "text");
    if (is_text_part(item) && text != nullptr) return python_str(*text);
    return python_str(item);
}

// A newline stands before the closing tag of an item of a list, and none before that of a string.
void write_response(Prompt& prompt, std::string_view text, std::string_view close) {
    prompt.skeleton("\n<response>");
    prompt.user_text(text);
    prompt.skeleton(close);
}

void write_tool_result(Prompt& prompt, const Turn& turn) {
    const Value* content = find(turn.message, "content");
    if (content == nullptr) return;
    switch (content->kind) {
        case Value::Kind::string:
            write_response(prompt, content->text, "</response>");
            return;
        case Value::Kind::array:
            for (const Value& item : content->items) {
                write_response(prompt, result_text(item), "\n</response>");
            }
            return;
        case Value::Kind::object:  // Python iterates over the keys of a dict
            for (const std::string& key : content->keys) write_response(prompt, key, "\n</response>");
            return;
        case Value::Kind::null:
        case Value::Kind::boolean:
        case Value::Kind::number:
            fail(Status::invalid, "messages[{}].content: a tool result is text or a list, not {}", turn.index,
                 python_json(*content));
    }
}

void write_turns(Prompt& prompt, std::span<const Turn> turns) {
    size_t after_last_user = 0;
    for (size_t i = 0; i < turns.size(); ++i) {
        if (turns[i].role == Role::user) after_last_user = i + 1;
    }
    for (size_t i = 0; i < turns.size(); ++i) {
        switch (turns[i].role) {
            case Role::user:
                prompt.skeleton("]~b]user\n");
                prompt.user_text(plain_text(find(turns[i].message, "content")));
                prompt.skeleton("[e~[\n");
                break;
            case Role::assistant:
                write_assistant(prompt, turns[i], i >= after_last_user);
                break;
            case Role::tool:
                if (i == 0 || turns[i - 1].role != Role::tool) prompt.skeleton("]~b]tool");
                write_tool_result(prompt, turns[i]);
                if (i + 1 == turns.size() || turns[i + 1].role != Role::tool) prompt.skeleton("[e~[\n");
                break;
        }
    }
}

Value parse_optional(std::string_view text, std::string_view what, Value::Kind kind) {
    Value value = text.empty() ? Value{} : json::parse(text, what, json::Source::argument);
    if (!value.is_null() && value.kind != kind) {
        fail(Status::invalid, "{}: not an {}", what, kind == Value::Kind::array ? "array" : "object");
    }
    return value;
}

void fill_content(Value& messages) {
    for (Value& message : messages.items) {
        if (!message.is_object()) continue;
        const auto at = std::find(message.keys.begin(), message.keys.end(), "content");
        const auto index = static_cast<size_t>(at - message.keys.begin());
        if (index == message.keys.size()) {
            message.keys.emplace_back("content");
            message.items.emplace_back();
        }
        if (Value& content = message.items[index]; content.is_null()) content.kind = Value::Kind::string;
    }
}

}  // namespace

std::vector<Segment> render(const Template& chat_template, std::string_view messages_json,
                            std::string_view tools_json, std::string_view kwargs_json,
                            const RenderOptions& options) {
    Value messages = json::parse(messages_json, "messages", json::Source::argument);
    if (options.null_content_is_empty) fill_content(messages);
    const Value tools = parse_optional(tools_json, "tools", Value::Kind::array);
    const Value kwargs = parse_optional(kwargs_json, "template variables", Value::Kind::object);
    const Conversation conversation = read_conversation(messages);

    Prompt prompt;
    write_system(prompt, chat_template, conversation.system, tools, find(&kwargs, "model_identity"));
    write_turns(prompt, conversation.turns);
    const Value* generation = find(&kwargs, "add_generation_prompt");
    if (generation != nullptr ? is_true(generation) : options.add_generation_prompt) {
        prompt.skeleton("]~b]ai\n<think>\n");
    }
    return prompt.take();
}

std::string join(std::span<const Segment> segments) {
    std::string text;
    for (const Segment& segment : segments) text += segment.text;
    return text;
}

}  // namespace minim::chat
