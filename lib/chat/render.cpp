// SPDX-License-Identifier: Apache-2.0
#include "chat/render.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "chat/conversation.h"
#include "chat/jinja_interpreter.h"
#include "chat/markup.h"
#include "chat/python_text.h"

namespace minim::chat {

using json::find;
using json::Value;

namespace {

// The steps that suffice for any sane template, and the steps added for each byte of the request.
constexpr uint64_t k_steps = 20'000'000;
constexpr uint64_t k_steps_a_byte = 8;

Value parse_optional(std::string_view text, std::string_view what, Value::Kind kind) {
    Value value = text.empty() ? Value{} : json::parse(text, what, json::Source::argument);
    if (!value.is_null() && value.kind != kind) {
        fail(Status::invalid, "{}: not an {}", what, kind == Value::Kind::array ? "array" : "object");
    }
    return value;
}

// Returns a role as the caller wrote it, short enough for an error message.
std::string describe(const Value* role) {
    constexpr size_t k_max_bytes = 60;
    if (role == nullptr) return "none";
    std::string text = role->is_string() ? python_repr(role->text)
                                         : std::string(jinja::to_text(jinja::from_json(*role)).bytes());
    if (text.size() <= k_max_bytes) return text;
    size_t end = k_max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return text.substr(0, end) + "...";
}

std::string_view role_of(const Value& message) {
    const Value* role = find(&message, "role");
    return role != nullptr && role->is_string() ? std::string_view(role->text) : std::string_view();
}

// Refuses messages that the template left out because it does not know their role, or because it accepts system
// messages in the first place only. Messages of known roles may be left out, such as all but the last few.
void check_all_read(const Value& messages, const jinja::Value& given) {
    const auto& items = given.list().items;
    std::set<std::string_view> known;  // roles
    for (size_t i = 0; i < items.size(); ++i)
        if (items[i].dict().was_read) known.insert(role_of(messages.items[i]));
    for (size_t i = 0; i < items.size(); ++i) {
        if (items[i].dict().was_read) continue;
        const std::string_view role = role_of(messages.items[i]);
        const std::string name = describe(find(&messages.items[i], "role"));
        if (i > 0 && (role == "system" || role == "developer")) {
            fail(Status::invalid, "messages[{}]: role {} is possible in the first message only: {}", i, name,
                 "the chat template leaves others out");
        }
        if (role.empty() || known.count(role) == 0)
            fail(Status::invalid, "messages[{}]: role {} is not one that the chat template prints", i, name);
    }
}

void check_can_continue(const Value& messages, const Value& kwargs) {
    if (messages.items.empty() || role_of(messages.items.back()) != "assistant")
        fail(Status::invalid, "continue_final_message: the last message is not the assistant's");
    const Value* adds_prompt = find(&kwargs, "add_generation_prompt");
    if (adds_prompt != nullptr && adds_prompt->boolean)
        fail(Status::invalid, "continue_final_message and add_generation_prompt exclude each other");
}

// Removes the end of the last message: the token that ends a turn, and what follows it.
void remove_end_of_turn(const Template& chat_template, std::vector<Segment>& segments) {
    const auto& specials = chat_template.special_tokens;
    const auto end = std::ranges::find(specials, "eos_token", &std::pair<std::string, std::string>::first);
    if (end == specials.end() || end->second.empty()) return;
    for (size_t i = segments.size(); i > 0; --i) {
        Segment& segment = segments[i - 1];
        const size_t at = segment.is_user_text ? std::string::npos : segment.text.rfind(end->second);
        if (at == std::string::npos) continue;
        segment.text.resize(at);
        segments.resize(at > 0 ? i : i - 1);
        return;
    }
}

// Refuses parts of messages that are pictures or films. The template would print a placeholder for them, or leave them out.
void check_no_pictures(const Value& messages) {
    constexpr std::string_view k_kinds[] = {"image", "image_url", "input_image", "video", "video_url"};
    for (size_t i = 0; i < messages.items.size(); ++i) {
        const Value* content = find(&messages.items[i], "content");
        if (content == nullptr || !content->is_array()) continue;
        for (size_t j = 0; j < content->items.size(); ++j) {
            const Value* kind = find(&content->items[j], "type");
            if (kind == nullptr || !kind->is_string() || !std::ranges::count(k_kinds, kind->text)) continue;
            fail(Status::unsupported, "messages[{}].content[{}]: parts of type '{}' are not supported", i, j,
                 kind->text);
        }
    }
}

// Closes the think block that the template opens at the end of the prompt, so that it is empty.
void close_thinking(std::vector<Segment>& segments, const Markup& markup) {
    if (segments.empty() || segments.back().is_user_text) return;
    std::string& text = segments.back().text;
    if (!markup::opens_thinking(text, markup)) return;
    text.append(markup.closing);
}

constexpr std::string_view k_thinking_mode = "thinking_mode";  // the variable of M3's templates

jinja::Variables variables_of(const Template& chat_template, const Value& kwargs, const Value& tools,
                              const jinja::Value& messages, const RenderOptions& options) {
    jinja::Variables variables;
    for (size_t i = 0; i < kwargs.items.size(); ++i) {
        const std::string& name = kwargs.keys[i];
        if (name == "messages" || name == "tools")
            fail(Status::invalid, "template variables: '{}' is an argument of its own", name);
        variables.emplace_back(name, jinja::from_json(kwargs.items[i]));
    }
    const auto add = [&](std::string_view name, jinja::Value value) {
        if (find(&kwargs, name) == nullptr) variables.emplace_back(name, std::move(value));
    };
    add("messages", messages);
    add("tools", jinja::from_json(tools));
    add("documents", jinja::none());
    add("add_generation_prompt",
        jinja::boolean(options.add_generation_prompt && !options.continue_final_message));
    if (options.family == Family::m3 && options.thinking_off && chat_template.reads(k_thinking_mode))
        add(k_thinking_mode, jinja::text("disabled"));
    for (const auto& [name, token] : chat_template.special_tokens) add(name, jinja::text(token));
    return variables;
}

void list_unread(const Template& chat_template, const Value& kwargs, std::vector<std::string>& unread) {
    unread.clear();
    for (const std::string& name : kwargs.keys)
        if (name != "add_generation_prompt" && !chat_template.reads(name)) unread.push_back(name);
}

}  // namespace

std::vector<Segment> render(const Template& chat_template, std::string_view messages_json,
                            std::string_view tools_json, std::string_view kwargs_json,
                            const RenderOptions& options) {
    Value messages = json::parse(messages_json, "messages", json::Source::argument);
    Value tools = parse_optional(tools_json, "tools", Value::Kind::array);
    const Value kwargs = parse_optional(kwargs_json, "template variables", Value::Kind::object);
    normalise_messages(messages, options.null_content_is_empty);
    normalise_tools(tools);
    if (options.family == Family::m3) check_no_pictures(messages);
    if (options.continue_final_message) check_can_continue(messages, kwargs);
    if (options.unread_variables != nullptr) list_unread(chat_template, kwargs, *options.unread_variables);

    const jinja::Value given = jinja::from_json(messages);
    const size_t request_bytes = messages_json.size() + tools_json.size() + kwargs_json.size();
    const MarkedText prompt =
        jinja::run(*chat_template.parsed, variables_of(chat_template, kwargs, tools, given, options),
                   k_steps + k_steps_a_byte * request_bytes);
    check_all_read(messages, given);

    std::vector<Segment> segments;
    prompt.for_each_run([&](std::string_view text, bool is_user) {
        segments.push_back({std::string(text), is_user});
    });
    if (options.continue_final_message) remove_end_of_turn(chat_template, segments);
    if (options.thinking_off) close_thinking(segments, markup_of(options.family));
    return segments;
}

std::string join(std::span<const Segment> segments) {
    std::string text;
    for (const Segment& segment : segments) text += segment.text;
    return text;
}

}  // namespace minim::chat
