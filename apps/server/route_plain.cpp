// SPDX-License-Identifier: Apache-2.0
// The routes that generate nothing.
#include <algorithm>
#include <charconv>
#include <optional>
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

const char* state_name(ModelEntry::State state) {
    switch (state) {
        case ModelEntry::State::loading:
            return "loading";
        case ModelEntry::State::loaded:
            return "loaded";
        case ModelEntry::State::failed:
            return "failed";
        case ModelEntry::State::unloaded:
        case ModelEntry::State::unloading:
            break;
    }
    return "unloaded";
}

Json status_json(const ModelEntry& entry) {
    Json status = {{"value", state_name(entry.state)}};
    if (entry.state == ModelEntry::State::loading) status["progress"] = entry.progress.load();
    if (entry.state == ModelEntry::State::failed) status.update({{"failed", true}, {"error", entry.error}});
    return status;
}

Json model_json(const Models& models, const ModelEntry& entry, const std::string& name) {
    Json body = {{"id", name},
                 {"object", "model"},
                 {"type", "model"},
                 {"display_name", name},
                 {"created", models.started()},
                 {"owned_by", "minim"},
                 {"status", status_json(entry)}};
    if (entry.state != ModelEntry::State::loaded) return body;
    const ServedModel& served = *entry.served;
    body["max_model_len"] = served.n_context;
    body["meta"] = {{"n_vocab", served.info.n_vocab},
                    {"n_ctx", served.n_context},
                    {"n_ctx_train", served.info.n_context_train},
                    {"n_embd", served.info.hidden},
                    {"n_params", served.info.n_parameters},
                    {"size", served.info.weight_bytes}};
    return body;
}

// Returns the model that the body's field `model` names; without one, the first model.
ModelEntry& named_model(const HttpRequest& http, Models& models) {
    constexpr size_t k_longest = 65536;  // it is parsed on the loop's thread
    if (http.body.size() > k_longest) throw ApiError{400, "the body is too long: it names a model", "", ""};
    const Json body = parse_body(http.body);
    return models.find_or_throw(Fields(body).text("model").value_or(""));
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

std::optional<HttpResponse> list_of_models(const HttpRequest&, Models& models) {
    Json data = Json::array();
    for (const auto& entry : models.entries())
        for (const std::string& name : entry->names) data.push_back(model_json(models, *entry, name));
    const Json first = data.front()["id"];
    const Json last = data.back()["id"];
    return json_response({{"object", "list"},
                          {"data", std::move(data)},
                          {"has_more", false},
                          {"first_id", first},
                          {"last_id", last}});
}

std::optional<HttpResponse> model_of_name(const HttpRequest& http, Models& models) {
    const std::string name = decoded(http.path.substr(std::string("/v1/models/").size()));
    for (const auto& entry : models.entries())
        if (std::ranges::find(entry->names, name) != entry->names.end())
            return json_response(model_json(models, *entry, name));
    throw no_model(name);
}

std::optional<HttpResponse> load_model(const HttpRequest& http, Models& models) {
    models.load(named_model(http, models));
    return json_response({{"success", true}});
}

std::optional<HttpResponse> unload_model(const HttpRequest& http, Models& models) {
    models.unload(named_model(http, models));
    return json_response({{"success", true}});
}

// As llama.cpp's router answers if the request names no model.
std::optional<HttpResponse> router_props(const HttpRequest& http, Models& models) {
    if (!models.are_several() || !query_value(http.query, "model").empty()) return std::nullopt;
    return json_response({{"role", "router"},
                          {"max_instances", models.options().models_max},
                          {"models_autoload", models.options().models_autoload},
                          {"model_alias", models.entries().front()->names.front()},
                          {"default_generation_settings", {{"n_ctx", 0}, {"params", Json::object()}}},
                          {"build_info", minim_build_info()}});
}

std::string query_value(const std::string& query, std::string_view name) {
    for (size_t begin = 0; begin < query.size();) {
        const size_t end = std::min(query.find('&', begin), query.size());
        const std::string_view part = std::string_view(query).substr(begin, end - begin);
        const size_t mark = std::min(part.find('='), part.size());
        if (part.substr(0, mark) == name) return decoded(part.substr(std::min(mark + 1, part.size())));
        begin = end + 1;
    }
    return {};
}

Prepared props(const HttpRequest&, ServedModel& serving) {
    const Json nothing = Json::object();
    const SamplingFields defaults = read_sampling(Fields(nothing), serving, "stop");
    return json_response(
        {{"total_slots", serving.n_slots},
         {"model_path", serving.path},
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
