// SPDX-License-Identifier: Apache-2.0
#include "anthropic/messages_writer.h"

#include <algorithm>
#include <utility>

#include "random_id.h"

namespace server {

namespace {

Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.n_prompt - std::min(usage.n_cached, usage.n_prompt)},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.n_cached},
            {"output_tokens", usage.n_generated}};
}

const char* stop_reason(const ReplyText& answer) {
    if (answer.finish_reason == "tool_calls") return "tool_use";
    if (answer.finish_reason == "length") return "max_tokens";
    return answer.stop_text.empty() ? "end_turn" : "stop_sequence";
}

Json stop_sequence(const ReplyText& answer) {
    const bool ended_it = !answer.stop_text.empty() && answer.finish_reason == "stop";
    return ended_it ? Json(answer.stop_text) : Json();
}

Json message_json(const ReplyForm& form, Json content, Json usage) {
    return {{"id", form.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", form.model},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", std::move(usage)}};
}

}  // namespace

MessagesWriter::MessagesWriter(ReplyForm form, bool shows_thinking)
    : form_(std::move(form)), shows_thinking_(shows_thinking) {}

std::string MessagesWriter::start() {
    Usage usage;
    usage.n_prompt = form_.n_prompt;
    return event_text("message_start", {{"type", "message_start"},
                                        {"message", message_json(form_, Json::array(), usage_of(usage))}});
}

std::string MessagesWriter::open_block(const Json& block) {
    std::string out = close_block();
    blocks_.push_back(block);
    is_open_ = true;
    return out + event_text("content_block_start", {{"type", "content_block_start"},
                                                    {"index", blocks_.size() - 1},
                                                    {"content_block", block}});
}

std::string MessagesWriter::close_block() {
    if (!is_open_) return {};
    is_open_ = false;
    Json& block = blocks_.back();
    std::string out;
    if (block["type"] == "thinking") {
        block["signature"] = random_hex(32);
        out = delta("signature_delta", "signature", block["signature"]);
    } else if (block["type"] == "tool_use") {
        block["input"] = Json::parse(arguments_, nullptr, false);
        arguments_.clear();
    }
    return out +
           event_text("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
}

std::string MessagesWriter::delta(const char* type, const char* field, const std::string& text) {
    return event_text("content_block_delta", {{"type", "content_block_delta"},
                                              {"index", blocks_.size() - 1},
                                              {"delta", {{"type", type}, {field, text}}}});
}

std::string MessagesWriter::news(const News& news) {
    std::string out;
    for (const Delta& d : news.deltas) {
        const std::string open = is_open_ ? blocks_.back()["type"].get<std::string>() : "";
        switch (d.kind) {
            case Delta::Kind::reasoning:
                if (!shows_thinking_) break;
                if (open != "thinking")
                    out += open_block({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
                blocks_.back()["thinking"].get_ref<std::string&>() += d.text;
                out += delta("thinking_delta", "thinking", d.text);
                break;
            case Delta::Kind::content:
                if (open != "text") out += open_block({{"type", "text"}, {"text", ""}});
                blocks_.back()["text"].get_ref<std::string&>() += d.text;
                out += delta("text_delta", "text", d.text);
                break;
            case Delta::Kind::call:
                if (!d.name.empty()) {
                    std::string id = "toolu_" + d.call_id.substr(d.call_id.find('_') + 1);
                    out += open_block({{"type", "tool_use"},
                                       {"id", std::move(id)},
                                       {"name", d.name},
                                       {"input", Json::object()}});
                }
                if (d.text.empty()) break;
                arguments_ += d.text;
                out += delta("input_json_delta", "partial_json", d.text);
                break;
        }
    }
    return out;
}

std::string MessagesWriter::end_choice(size_t, const ReplyText& answer) {
    std::string out = close_block();
    if (answer.last_call_is_cut) {  // a stream has sent it already
        const auto is_call = [](const Json& block) { return block["type"] == "tool_use"; };
        const auto last = std::find_if(blocks_.rbegin(), blocks_.rend(), is_call);
        if (last != blocks_.rend()) blocks_.erase(std::next(last).base());
    }
    return out;
}

std::string MessagesWriter::end(std::span<const ReplyText> answers, const Usage& usage) {
    const ReplyText& answer = answers.front();
    std::string out = event_text(
        "message_delta",
        {{"type", "message_delta"},
         {"delta", {{"stop_reason", stop_reason(answer)}, {"stop_sequence", stop_sequence(answer)}}},
         {"usage", usage_of(usage)}});
    out += event_text("message_stop", {{"type", "message_stop"}});
    return out;
}

std::string MessagesWriter::error(const std::string& message) {
    return event_text("error",
                      {{"type", "error"}, {"error", {{"type", "overloaded_error"}, {"message", message}}}});
}

std::string MessagesWriter::body(std::span<const ReplyText> answers, const Usage& usage) {
    Json message = message_json(form_, std::move(blocks_), usage_of(usage));
    message["stop_reason"] = stop_reason(answers.front());
    message["stop_sequence"] = stop_sequence(answers.front());
    return to_text(message);
}

}  // namespace server
