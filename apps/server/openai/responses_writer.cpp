// SPDX-License-Identifier: Apache-2.0
#include "openai/responses_writer.h"

#include <algorithm>
#include <utility>

#include "openai/token_json.h"
#include "random_id.h"

namespace server {

namespace {

Json usage_of(const Usage& usage) {
    return {{"input_tokens", usage.n_prompt},
            {"input_tokens_details", {{"cached_tokens", usage.n_cached}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.n_generated},
            {"output_tokens_details", {{"reasoning_tokens", usage.n_reasoning}}},
            {"total_tokens", usage.n_total()}};
}

std::string& text_of(Json& item) {
    return item["content"].back()["text"].get_ref<std::string&>();
}

}  // namespace

ResponsesWriter::ResponsesWriter(const minim::Model& model, ReplyForm form, Json echo)
    : model_(&model), form_(std::move(form)), echo_(std::move(echo)) {}

std::string ResponsesWriter::event(const char* type, Json data) {
    Json whole = {{"type", type}, {"sequence_number", n_events_++}};
    whole.update(data);
    return event_text(type, whole);
}

Json ResponsesWriter::response(const char* status) const {
    Json response = {{"id", form_.id},       {"object", "response"},    {"created_at", form_.created},
                     {"status", status},     {"error", nullptr},        {"incomplete_details", nullptr},
                     {"model", form_.model}, {"output", Json::array()}, {"previous_response_id", nullptr},
                     {"store", false},       {"usage", nullptr}};
    response.update(echo_);
    return response;
}

std::string ResponsesWriter::start() {
    std::string out = event("response.created", {{"response", response("in_progress")}});
    out += event("response.in_progress", {{"response", response("in_progress")}});
    return out;
}

std::string ResponsesWriter::open_item(Json item) {
    std::string out = close_item("completed");
    items_.push_back(std::move(item));
    pending_.clear();
    is_open_ = true;
    return out + event("response.output_item.added",
                       {{"output_index", items_.size() - 1}, {"item", items_.back()}});
}

std::string ResponsesWriter::open_part(const char* type) {
    Json part = {{"type", type}, {"text", ""}};
    if (part["type"] == "output_text") {
        part["annotations"] = Json::array();
        part["logprobs"] = Json::array();
    }
    Json& item = items_.back();
    item["content"].push_back(part);
    return event("response.content_part.added", {{"item_id", item["id"]},
                                                 {"output_index", items_.size() - 1},
                                                 {"content_index", 0},
                                                 {"part", std::move(part)}});
}

std::string ResponsesWriter::close_part() {
    Json& item = items_.back();
    Json place = {{"item_id", item["id"]}, {"output_index", items_.size() - 1}, {"content_index", 0}};
    Json done = place;
    done["text"] = text_of(item);
    const bool is_text = item["type"] == "message";
    if (is_text) done["logprobs"] = item["content"].back()["logprobs"];
    place["part"] = item["content"].back();
    std::string out =
        event(is_text ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
    out += event("response.content_part.done", std::move(place));
    return out;
}

std::string ResponsesWriter::close_item(const char* status) {
    if (!is_open_) return {};
    is_open_ = false;
    Json& item = items_.back();
    std::string out;
    if (item["type"] == "function_call") {
        out = event("response.function_call_arguments.done", {{"item_id", item["id"]},
                                                              {"output_index", items_.size() - 1},
                                                              {"name", item["name"]},
                                                              {"arguments", item["arguments"]}});
    } else {
        out = close_part();
    }
    item["status"] = status;
    return out + event("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item}});
}

std::string ResponsesWriter::text_delta(const char* event_type, const Delta& delta, const News& news) {
    Json& item = items_.back();
    text_of(item) += delta.text;
    Json data = {{"item_id", item["id"]},
                 {"output_index", items_.size() - 1},
                 {"content_index", 0},
                 {"delta", delta.text}};
    if (item["type"] == "message") {
        data["logprobs"] = Json::array();
        if (form_.has_logprobs && &delta == &news.deltas.back()) {
            pending_.insert(pending_.end(), news.tokens.begin(), news.tokens.end());
            data["logprobs"] = chat_logprobs(*model_, std::exchange(pending_, {}))["content"];
            Json& all = item["content"].back()["logprobs"];
            all.insert(all.end(), data["logprobs"].begin(), data["logprobs"].end());
        }
    }
    return event(event_type, std::move(data));
}

std::string ResponsesWriter::news(const News& news) {
    std::string out;
    if (news.deltas.empty() && is_open_ && items_.back()["type"] == "message")
        pending_.insert(pending_.end(), news.tokens.begin(), news.tokens.end());
    for (const Delta& delta : news.deltas) {
        const std::string open = is_open_ ? items_.back()["type"].get<std::string>() : "";
        switch (delta.kind) {
            case Delta::Kind::reasoning:
                if (open != "reasoning") {
                    out += open_item({{"id", "rs_" + random_hex(24)},
                                      {"type", "reasoning"},
                                      {"summary", Json::array()},
                                      {"content", Json::array()},
                                      {"encrypted_content", nullptr},
                                      {"status", "in_progress"}});
                    out += open_part("reasoning_text");
                }
                out += text_delta("response.reasoning_text.delta", delta, news);
                break;
            case Delta::Kind::content:
                if (open != "message") {
                    out += open_item({{"id", "msg_" + random_hex(24)},
                                      {"type", "message"},
                                      {"role", "assistant"},
                                      {"status", "in_progress"},
                                      {"content", Json::array()}});
                    out += open_part("output_text");
                }
                out += text_delta("response.output_text.delta", delta, news);
                break;
            case Delta::Kind::call:
                if (!delta.name.empty()) {
                    out += open_item({{"id", "fc_" + random_hex(24)},
                                      {"type", "function_call"},
                                      {"status", "in_progress"},
                                      {"call_id", delta.call_id},
                                      {"name", delta.name},
                                      {"arguments", ""}});
                }
                if (delta.text.empty()) break;
                items_.back()["arguments"].get_ref<std::string&>() += delta.text;
                out += event("response.function_call_arguments.delta", {{"item_id", items_.back()["id"]},
                                                                        {"output_index", items_.size() - 1},
                                                                        {"delta", delta.text}});
                break;
        }
    }
    return out;
}

std::string ResponsesWriter::end_choice(size_t, const ReplyText& answer) {
    return close_item(answer.finish_reason == "length" ? "incomplete" : "completed");
}

Json ResponsesWriter::finished(const ReplyText& answer, const Usage& usage) const {
    const bool is_cut = answer.finish_reason == "length";
    Json whole = response(is_cut ? "incomplete" : "completed");
    if (is_cut) whole["incomplete_details"] = {{"reason", "max_output_tokens"}};
    whole["output"] = items_;
    whole["usage"] = usage_of(usage);
    return whole;
}

std::string ResponsesWriter::end(std::span<const ReplyText> answers, const Usage& usage) {
    const bool is_cut = answers.front().finish_reason == "length";
    return event(is_cut ? "response.incomplete" : "response.completed",
                 {{"response", finished(answers.front(), usage)}});
}

std::string ResponsesWriter::error(const std::string& message) {
    Json failed = response("failed");
    failed["error"] = {{"code", "server_error"}, {"message", message}};
    return event("response.failed", {{"response", std::move(failed)}});
}

std::string ResponsesWriter::body(std::span<const ReplyText> answers, const Usage& usage) {
    const auto is_call = [](const Json& item) { return item["type"] == "function_call"; };
    const auto last = std::find_if(items_.rbegin(), items_.rend(), is_call);
    if (answers.front().last_call_is_cut && last != items_.rend()) items_.erase(std::next(last).base());
    return to_text(finished(answers.front(), usage));
}

}  // namespace server
