// SPDX-License-Identifier: Apache-2.0
// The routes that generate nothing.
#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "routes.h"

namespace server {

namespace {

HttpResponse json_response(const Json& body) {
    HttpResponse response;
    response.body = to_text(body);
    return response;
}

// Replaces percent signs with two hexadecimal digits by the bytes that they stand for: clients encode the slash of a name.
std::string decoded(std::string_view text) {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
        unsigned value = 0;
        const char* digits = text.data() + i + 1;
        const bool is_code = text[i] == '%' && i + 2 < text.size() &&
                             std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
        bytes += is_code ? static_cast<char>(value) : text[i];
        if (is_code) i += 2;
    }
    return bytes;
}

Json model_entry(const ServedModel& serving, const std::string& name) {
    return {{"id", name},
            {"object", "model"},
            {"type", "model"},
            {"display_name", name},
            {"created", serving.started},
            {"owned_by", "minim"},
            {"max_model_len", serving.n_context},
            {"meta",
             {{"n_vocab", serving.info.n_vocab},
              {"n_ctx", serving.n_context},
              {"n_ctx_train", serving.info.n_context_train},
              {"n_embd", serving.info.hidden},
              {"n_params", serving.info.n_parameters},
              {"size", serving.info.weight_bytes}}}};
}

}  // namespace

Prepared tokenize(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    std::vector<int32_t> ids;
    check_model_name(request, serving);
    if (request.has("messages")) {  // as vLLM has it
        ids = prompt_ids(read_chat(request, serving), serving);
    } else {
        const char* field = request.has("content") ? "content" : "prompt";
        const bool parses_special = request.boolean("parse_special").value_or(true);
        const minim::Tokens tokens = serving.model.tokenize(
            request.required_text(field), parses_special ? MINIM_SPECIALS_EXACT : MINIM_SPECIALS_NONE);
        ids.assign(tokens.begin(), tokens.end());
    }
    return json_response({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", serving.n_context}});
}

Prepared detokenize(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    const std::vector<int32_t> ids =
        read_ids(request.required_array("tokens"), request, "tokens", k_ids_only, serving);
    const std::string text = serving.model.detokenize(ids).str();
    return json_response({{"content", text}, {"prompt", text}});
}

Prepared apply_template(const HttpRequest& http, ServedModel& serving) {
    const Json body = parse_body(http.body);
    const Fields request(body);
    check_model_name(request, serving);
    return json_response({{"prompt", render(read_chat(request, serving), serving)}});
}

Prepared models(const HttpRequest&, ServedModel& serving) {
    Json data = Json::array();
    for (const std::string& name : serving.names) data.push_back(model_entry(serving, name));
    const Json first = data.front()["id"];
    const Json last = data.back()["id"];
    return json_response({{"object", "list"},
                          {"data", std::move(data)},
                          {"has_more", false},
                          {"first_id", first},
                          {"last_id", last}});
}

Prepared model_of_name(const HttpRequest& http, ServedModel& serving) {
    const std::string name = decoded(http.path.substr(std::string("/v1/models/").size()));
    const std::vector<std::string>& names = serving.names;
    if (std::find(names.begin(), names.end(), name) == names.end())
        throw ApiError{404, fmt::format("the model '{}' does not exist", name.substr(0, 200)), "model",
                       "model_not_found"};
    return json_response(model_entry(serving, name));
}

Prepared props(const HttpRequest&, ServedModel& serving) {
    const Json sampling = {{"temperature", *serving.sampling.temperature},
                           {"top_p", *serving.sampling.top_p},
                           {"top_k", *serving.sampling.top_k},
                           {"min_p", *serving.sampling.min_p},
                           {"repeat_penalty", *serving.sampling.repetition_penalty},
                           {"repeat_last_n", serving.sampling.penalty_last_n}};
    return json_response(
        {{"total_slots", serving.n_slots},
         {"chat_template", serving.chat_template},
         {"default_generation_settings",
          {{"n_ctx", serving.n_context},
           {"params", sampling},
           {"recommended_by",
            *serving.recommended.source == '\0' ? Json() : Json(serving.recommended.source)}}},
         {"model_alias", serving.name},
         {"modalities", {{"vision", false}, {"audio", false}}},
         {"build_info", minim_build_info()}});
}

}  // namespace server
