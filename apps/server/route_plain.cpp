// SPDX-License-Identifier: Apache-2.0
// The routes that generate nothing.
#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "llama/settings.h"
#include "prompt_fields.h"
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

// Returns {"id", "piece"} of each token. A piece that is not whole UTF-8 is a list of bytes.
Json pieces_of(const std::vector<int32_t>& ids, const ServedModel& serving) {
    Json pieces = Json::array();
    for (const int32_t id : ids) {
        const std::string bytes = serving.model.token_text(id).str();
        const bool is_text = Json::parse(to_text(Json(bytes))) == bytes;
        Json numbers = Json::array();
        for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
        pieces.push_back({{"id", id}, {"piece", is_text ? Json(bytes) : std::move(numbers)}});
    }
    return pieces;
}

// Returns the text of the first token with one of these attributes (MINIM_TOKEN_*), or null.
Json special_text(int32_t attributes, const ServedModel& serving) {
    for (int32_t id = 0; id < serving.info.n_vocab; ++id)
        if ((serving.model.token_attributes(id) & attributes) != 0) return serving.model.token_text(id).str();
    return nullptr;
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
        const int32_t specials =
            request.boolean("parse_special").value_or(true) ? MINIM_SPECIALS_EXACT : MINIM_SPECIALS_NONE;
        if (const Json* parts = request.find(field); parts != nullptr && parts->is_array()) {
            ids = tokens_of_mixed(*parts, request, field, serving, specials);
        } else {
            const minim::Tokens tokens = serving.model.tokenize(request.required_text(field), specials);
            ids.assign(tokens.begin(), tokens.end());
        }
    }
    const bool has_pieces = request.boolean("with_pieces").value_or(false);
    return json_response({{"tokens", has_pieces ? pieces_of(ids, serving) : Json(ids)},
                          {"count", ids.size()},
                          {"max_model_len", serving.n_context}});
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
    const Json nothing = Json::object();
    const SamplingFields defaults = read_sampling(Fields(nothing), serving, "stop");
    return json_response(
        {{"total_slots", serving.n_slots},
         {"model_path", serving.options.model},
         {"chat_template", serving.chat_template},
         {"bos_token", special_text(MINIM_TOKEN_BOS, serving)},
         {"eos_token", special_text(MINIM_TOKEN_END, serving)},
         {"default_generation_settings",
          {{"n_ctx", serving.n_context},
           {"params", settings_json(defaults)},
           {"recommended_by",
            *serving.recommended.source == '\0' ? Json() : Json(serving.recommended.source)}}},
         {"model_alias", serving.name},
         {"modalities", {{"vision", false}, {"audio", false}}},
         {"endpoint_slots", true},
         {"endpoint_props", false},
         {"endpoint_metrics", true},
         {"build_info", minim_build_info()}});
}

// As vLLM has it, for clients that tokenise by /tokenize.
Prepared tokenizer_info(const HttpRequest&, ServedModel& serving) {
    return json_response({{"bos_token", special_text(MINIM_TOKEN_BOS, serving)},
                          {"eos_token", special_text(MINIM_TOKEN_END, serving)},
                          {"pad_token", nullptr},
                          {"chat_template", serving.chat_template},
                          {"vocab_size", serving.info.n_vocab},
                          {"model_max_length", serving.n_context}});
}

Prepared no_embeddings(const HttpRequest&, ServedModel&) {
    throw ApiError{
        501,
        "embeddings and ranks of documents are not possible: the model was trained to generate text, "
        "and has no head for them",
        "", "not_supported"};
}

}  // namespace server
