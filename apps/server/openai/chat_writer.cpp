// SPDX-License-Identifier: Apache-2.0
#include "openai/chat_writer.h"

#include <utility>

#include "error.h"
#include "openai/token_json.h"

namespace server {

namespace {

constexpr const char* k_fingerprint = "minim";

std::string in_quotes(const std::string& text) {
    return to_text(Json(text));
}

// Returns the fields of thoughts, without braces: "reasoning_content":"...","reasoning":"...".
std::string reasoning_json(const std::string& text, const ReplyForm& form) {
    const std::string quoted = in_quotes(text);
    std::string out;
    for (const std::string& name : form.reasoning_fields)
        out += (out.empty() ? "\"" : ",\"") + name + "\":" + quoted;
    if (form.has_details)
        out += (out.empty() ? "" : ",") +
               (R"("reasoning_details":[{"type":"reasoning.text","index":0,"text":)" + quoted) + "}]";
    return out;
}

// Returns one delta of a chunk: {"content": "..."}.
std::string delta_json(const Delta& delta, const ReplyForm& form) {
    switch (delta.kind) {
        case Delta::Kind::reasoning:
            return "{" + reasoning_json(delta.text, form) + "}";
        case Delta::Kind::content:
            return R"({"content":)" + in_quotes(delta.text) + "}";
        case Delta::Kind::call:
            break;
    }
    if (form.has_function_call) {
        const std::string name = delta.name.empty() ? "" : R"("name":)" + in_quotes(delta.name) + ",";
        return R"({"function_call":{)" + name + R"("arguments":)" + in_quotes(delta.text) + "}}";
    }
    std::string out = R"({"tool_calls":[{"index":)" + std::to_string(delta.call);
    if (!delta.name.empty()) {
        out += R"(,"id":)" + in_quotes(delta.call_id) + R"(,"type":"function","function":{"name":)" +
               in_quotes(delta.name) + R"(,"arguments":)";
    } else {
        out += R"(,"function":{"arguments":)";
    }
    return out + in_quotes(delta.text) + "}}]}";
}

// Returns "function_call" in the place of "tool_calls" for a client of the API before tools.
const char* finish_reason(const ReplyText& answer, const ReplyForm& form) {
    return form.has_function_call && answer.finish_reason == "tool_calls" ? "function_call"
                                                                          : answer.finish_reason.c_str();
}

Json message_json(const ReplyText& answer, const ReplyForm& form) {
    Json message = {{"role", "assistant"}, {"content", nullptr}};
    if (!answer.content.empty()) message["content"] = answer.content;
    message["refusal"] = nullptr;
    if (!answer.reasoning.empty()) {
        for (const std::string& name : form.reasoning_fields) message[name] = answer.reasoning;
        if (form.has_details)
            message["reasoning_details"] = {
                {{"type", "reasoning.text"}, {"index", 0}, {"text", answer.reasoning}}};
    }
    Json calls = Json::array();
    const size_t n_whole = answer.calls.size() - (answer.last_call_is_cut ? 1 : 0);
    for (size_t i = 0; i < n_whole; ++i) {
        const Call& call = answer.calls[i];
        calls.push_back(call_json(call.id, call.name, call.arguments));
    }
    if (!calls.empty() && form.has_function_call) {
        message["function_call"] = calls.front()["function"];
    } else if (!calls.empty()) {
        message["tool_calls"] = std::move(calls);
    }
    return message;
}

}  // namespace

ChatWriter::ChatWriter(const minim::Model& model, ReplyForm form, size_t n_choices)
    : model_(&model), form_(std::move(form)), n_choices_(n_choices) {
    head_ = R"(data: {"id":)" + in_quotes(form_.id) + R"(,"object":"chat.completion.chunk","created":)" +
            std::to_string(form_.created) + R"(,"model":)" + in_quotes(form_.model) +
            R"(,"system_fingerprint":")" + k_fingerprint + R"(","choices":[)";
}

std::string ChatWriter::chunk(size_t choice, const std::string& delta, const Json* logprobs,
                              const Json* ids) const {
    std::string out = head_;
    out.append(R"({"index":)").append(std::to_string(choice)).append(R"(,"delta":)").append(delta);
    if (logprobs != nullptr) out.append(R"(,"logprobs":)").append(to_text(*logprobs));
    if (ids != nullptr) out.append(R"(,"token_ids":)").append(to_text(*ids));
    return out.append(",\"finish_reason\":null}]}\n\n");
}

std::string ChatWriter::start() {
    std::string out;
    for (size_t i = 0; i < n_choices_; ++i)
        out += chunk(i, R"({"role":"assistant","content":""})", nullptr, nullptr);
    if (form_.has_ids) {  // in the first chunk
        const std::string ids = R"(,"prompt_token_ids":)" + to_text(Json(form_.prompt_ids));
        out.insert(out.find("]}\n\n") + 1, ids);
    }
    return out;
}

std::string ChatWriter::news(const News& news) {
    std::string out;
    const bool has_tokens = !news.tokens.empty();
    const Json logprobs = has_tokens && form_.has_logprobs ? chat_logprobs(*model_, news.tokens) : Json();
    const Json ids = has_tokens && form_.has_ids ? ids_of(news.tokens) : Json();
    const Json* l = logprobs.is_null() ? nullptr : &logprobs;
    const Json* t = ids.is_null() ? nullptr : &ids;
    for (const Delta& delta : news.deltas) {
        out += chunk(news.choice, delta_json(delta, form_), std::exchange(l, nullptr),
                     std::exchange(t, nullptr));
    }
    if (l != nullptr || t != nullptr) out += chunk(news.choice, "{}", l, t);  // their text is held back
    return out;
}

std::string ChatWriter::end_choice(size_t choice, const ReplyText& answer) {
    return head_ + R"({"index":)" + std::to_string(choice) + R"(,"delta":{},"finish_reason":")" +
           finish_reason(answer, form_) + "\"}]}\n\n";
}

std::string ChatWriter::end(std::span<const ReplyText>, const Usage& usage) {
    std::string out;
    if (form_.has_usage) {
        out += head_ + R"(],"usage":)" + to_text(usage_json(usage)) + R"(,"timings":)" +
               to_text(timings_json(usage)) + "}\n\n";
    }
    return out + "data: [DONE]\n\n";
}

std::string ChatWriter::error(const std::string& message) {
    return "data: " + openai_error_body({503, message, "", ""}) + "\n\n";
}

std::string ChatWriter::body(std::span<const ReplyText> answers, const Usage& usage) const {
    Json choices = Json::array();
    for (const ReplyText& answer : answers) {
        Json choice = {{"index", choices.size()},
                       {"message", message_json(answer, form_)},
                       {"logprobs", nullptr},
                       {"finish_reason", finish_reason(answer, form_)}};
        if (form_.has_logprobs) choice["logprobs"] = chat_logprobs(*model_, answer.tokens);
        if (form_.has_ids) choice["token_ids"] = ids_of(answer.tokens);
        choices.push_back(std::move(choice));
    }
    Json body = {{"id", form_.id},
                 {"object", "chat.completion"},
                 {"created", form_.created},
                 {"model", form_.model},
                 {"system_fingerprint", k_fingerprint},
                 {"choices", std::move(choices)},
                 {"usage", usage_json(usage)},
                 {"timings", timings_json(usage)}};
    if (form_.has_ids) body["prompt_token_ids"] = form_.prompt_ids;
    return to_text(body);
}

}  // namespace server
