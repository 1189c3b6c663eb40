// SPDX-License-Identifier: Apache-2.0
#include "content.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace server {

namespace {

// Types of parts that hold a text, and the member that has it.
struct TextPart {
    std::string_view type;
    const char* member;
};
constexpr std::array k_text_parts = {
    TextPart{"text", "text"},         TextPart{"input_text", "text"},     TextPart{"output_text", "text"},
    TextPart{"summary_text", "text"}, TextPart{"reasoning_text", "text"},
};

// Types of parts that a model of texts cannot read, in any of the APIs, and what they are.
struct OtherPart {
    std::string_view type;
    std::string_view what;
};
constexpr std::array k_other_parts = {
    OtherPart{"image", "image"},
    OtherPart{"image_url", "image"},
    OtherPart{"image_file", "image"},
    OtherPart{"input_image", "image"},
    OtherPart{"output_image", "image"},
    OtherPart{"computer_screenshot", "screenshot"},
    OtherPart{"audio", "audio"},
    OtherPart{"audio_url", "audio"},
    OtherPart{"input_audio", "audio"},
    OtherPart{"output_audio", "audio"},
    OtherPart{"video", "video"},
    OtherPart{"video_url", "video"},
    OtherPart{"input_video", "video"},
    OtherPart{"file", "file"},
    OtherPart{"input_file", "file"},
    OtherPart{"document", "document"},
    OtherPart{"container_upload", "file"},
    OtherPart{"resource", "resource"},
    OtherPart{"resource_link", "resource"},
};

// Texts in one of these elements come from the client's program.
constexpr std::array<std::string_view, 6> k_reminders = {"system-reminder",     "system_reminder",
                                                         "environment_details", "environment_context",
                                                         "ide_selection",       "ide_opened_file"};

const OtherPart* find_other(const std::string& type) {
    const auto it = std::ranges::find(k_other_parts, std::string_view(type), &OtherPart::type);
    return it == k_other_parts.end() ? nullptr : it;
}

// Returns the text of Anthropic's document or search result, if it has one.
std::optional<std::string> document_text(const Fields& part, const std::string& type, Unreadable unreadable) {
    std::string text;
    for (const char* name : {"title", "context"})
        if (const auto value = part.text(name)) text += *value + "\n";
    if (type == "search_result") {
        if (const auto source = part.text("source")) text += *source + "\n";
        return text + content_text(part, "content", "\n", unreadable);
    }
    const Json* given = part.find("source");
    if (given == nullptr || !given->is_object()) return std::nullopt;
    const Fields source(*given, part.place("source"));
    const std::string kind = source.text("type").value_or("");
    if (kind == "text") return text + source.text("data").value_or("");
    if (kind == "content") return text + content_text(source, "content", "\n", unreadable);
    return std::nullopt;
}

}  // namespace

std::string note_of(const std::string& type) {
    const OtherPart* other = find_other(type);
    return fmt::format("[{} left out: this model reads text only]",
                       other != nullptr ? other->what : std::string_view(type).substr(0, 40));
}

std::string part_text(const Fields& part, Unreadable unreadable) {
    const std::string type = part.required_text("type");
    const auto known = std::ranges::find(k_text_parts, std::string_view(type), &TextPart::type);
    if (known != k_text_parts.end()) return part.required_text(known->member);
    if (type == "refusal") return {};
    if (type == "tool_reference") return fmt::format("[tool {}]", part.text("tool_name").value_or(""));
    if (type == "document" || type == "search_result") {
        if (const auto text = document_text(part, type, unreadable)) return *text;
    }
    const OtherPart* other = find_other(type);
    if (other == nullptr || unreadable == Unreadable::refuse)
        part.refuse("type", fmt::format("is '{}'; this model reads text only", type.substr(0, 40)));
    return note_of(type);
}

std::string content_text(const Fields& owner, const char* name, const char* join, Unreadable unreadable) {
    const Json* content = owner.find(name);
    if (content == nullptr) return {};
    if (content->is_string()) return *content;
    if (!content->is_array())
        owner.refuse(name, fmt::format("must be a string or a list of parts, not {}", kind_of(*content)));
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& item = (*content)[i];
        if (i > 0) text += join;
        if (item.is_string()) {
            text += item.get_ref<const std::string&>();
        } else {
            text += part_text(Fields(item, fmt::format("{}[{}]", owner.place(name), i)), unreadable);
        }
    }
    return text;
}

std::string text_member(const Json& entry, const char* name) {
    if (!entry.is_object()) return {};
    const auto it = entry.find(name);
    return it == entry.end() || !it->is_string() ? std::string() : it->get<std::string>();
}

Json call_arguments(const Json* given) {
    if (given == nullptr) return Json::object();
    if (given->is_object()) return *given;
    if (!given->is_string()) return {{"arguments", *given}};
    const std::string& text = given->get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
    if (Json::parse(text, nullptr, false).is_object()) return *given;  // its numbers keep their digits
    return {{"arguments", text}};
}

bool is_reminder(const std::string& text) {
    constexpr std::string_view k_space = " \t\r\n";
    std::string_view rest = text;
    bool has_one = false;
    for (;;) {
        const size_t begin = rest.find_first_not_of(k_space);
        if (begin == std::string_view::npos) return has_one;
        rest.remove_prefix(begin);
        const auto opens = [&](std::string_view name) {
            return rest.starts_with('<') && rest.substr(1).starts_with(name) &&
                   rest.substr(1 + name.size()).starts_with('>');
        };
        const auto name = std::ranges::find_if(k_reminders, opens);
        if (name == k_reminders.end()) return false;
        const std::string end = fmt::format("</{}>", *name);
        const size_t closed = rest.find(end);
        if (closed == std::string_view::npos) return false;
        rest.remove_prefix(closed + end.size());
        has_one = true;
    }
}

}  // namespace server
