// SPDX-License-Identifier: Apache-2.0
#include "peer_fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "request_log.h"

namespace server {

namespace {

enum class Effect {
    none,         // without effect here: a note in the log
    of_no_value,  // the same, and it needs no note: the field says nothing about the answer
    answer        // it would change the answer: refused
};

enum class Type { any, boolean, integer, number, text, object };

struct PeerField {
    std::string_view name;  // a name that ends in a point stands for all that begin with it
    Type type;
    Effect effect;
    const char* harmless;  // values, as a JSON list, for which a field of effect `answer` changes nothing
    const char* why;       // for messages; "" if there is no more to say
};

constexpr const char* k_false = "[false]";
constexpr const char* k_empty = R"([false, "", [], {}])";
constexpr const char* k_model = "the model has no such way of sampling";

constexpr const char* k_stored = "nothing is stored: send the whole conversation";

// Fields of llama.cpp, vLLM, SGLang, OpenRouter, Ollama and of the two APIs. A field that the route reads is not looked up here.
constexpr PeerField k_fields[] = {
    // How tokens are chosen.
    {"typical_p", Type::number, Effect::answer, "[1]", k_model},
    {"typ_p", Type::number, Effect::answer, "[1]", k_model},
    {"typical", Type::number, Effect::answer, "[1]", k_model},
    {"tfs_z", Type::number, Effect::answer, "[1]", k_model},
    {"tfs", Type::number, Effect::answer, "[1]", k_model},
    {"top_a", Type::number, Effect::answer, "[0]", k_model},
    {"top_n_sigma", Type::number, Effect::answer, "[-1, 0]", k_model},
    {"nsigma", Type::number, Effect::answer, "[-1, 0]", k_model},
    {"xtc_probability", Type::number, Effect::answer, "[0]", k_model},
    {"xtc_threshold", Type::number, Effect::of_no_value, "", ""},  // xtc_probability turns it on
    {"mirostat", Type::integer, Effect::answer, "[0]", k_model},
    {"mirostat_mode", Type::integer, Effect::answer, "[0]", k_model},
    {"mirostat_tau", Type::number, Effect::of_no_value, "", ""},  // mirostat turns these on
    {"mirostat_eta", Type::number, Effect::of_no_value, "", ""},
    {"dynatemp_range", Type::number, Effect::answer, "[0]", k_model},
    {"dynatemp_exponent", Type::number, Effect::of_no_value, "", ""},
    {"dynamic_temperature", Type::any, Effect::answer, k_false, k_model},
    {"smoothing_factor", Type::number, Effect::answer, "[0]", k_model},
    {"smoothing_curve", Type::number, Effect::of_no_value, "", ""},
    {"adaptive_target", Type::number, Effect::answer, "[-1]", k_model},
    {"adaptive_decay", Type::number, Effect::of_no_value, "", ""},
    {"epsilon_cutoff", Type::number, Effect::answer, "[0]", k_model},
    {"eta_cutoff", Type::number, Effect::answer, "[0]", k_model},
    {"encoder_repetition_penalty", Type::number, Effect::answer, "[1]", k_model},
    {"no_repeat_ngram_size", Type::integer, Effect::answer, "[0]", k_model},
    {"penalty_alpha", Type::number, Effect::answer, "[0]", k_model},
    {"guidance_scale", Type::number, Effect::answer, "[1]", k_model},
    {"negative_prompt", Type::text, Effect::answer, k_empty, k_model},
    {"temperature_last", Type::boolean, Effect::answer, k_false, "temperature comes before the filters"},
    {"samplers", Type::any, Effect::answer, "",
     "the order of the samplers cannot be set, nor can one be left out"},
    {"sampler_order", Type::any, Effect::answer, "[[]]", "the order of the samplers cannot be set"},
    {"sampler_priority", Type::any, Effect::answer, "[[]]", "the order of the samplers cannot be set"},
    {"use_beam_search", Type::boolean, Effect::answer, k_false, "answers are sampled token by token"},
    {"early_stopping", Type::any, Effect::answer, k_false, "answers are sampled token by token"},
    {"length_penalty", Type::number, Effect::answer, "[1]", "answers are sampled token by token"},
    {"ban_eos_token", Type::boolean, Effect::answer, k_false, "here it is ignore_eos"},
    {"logits_processors", Type::any, Effect::answer, k_empty, "requests bring no code"},
    {"custom_logit_processor", Type::any, Effect::answer, k_empty, "requests bring no code"},
    {"custom_params", Type::any, Effect::none, "", "it is for a custom_logit_processor"},
    {"lora", Type::any, Effect::answer, k_empty, "adapters are not possible"},
    {"lora_path", Type::any, Effect::answer, k_empty, "adapters are not possible"},
    {"lora_request", Type::any, Effect::answer, k_empty, "adapters are not possible"},
    // What the answer may be.
    {"grammar_string", Type::text, Effect::answer, k_empty, "here it is grammar"},
    {"structural_tag", Type::any, Effect::answer, k_empty, "use response_format, or tools"},
    {"guided_whitespace_pattern", Type::text, Effect::answer, k_empty,
     "the white space of JSON cannot be set"},
    {"guided_decoding_backend", Type::text, Effect::none, "", "there is one engine of constraints"},
    {"grammar_triggers", Type::any, Effect::answer, k_empty,
     "a grammar applies from the start of the answer"},
    {"preserved_tokens", Type::any, Effect::of_no_value, "", ""},
    {"response_mime_type", Type::text, Effect::answer, R"(["text/plain", ""])", "here it is response_format"},
    {"choice", Type::any, Effect::answer, k_empty, "here it is guided_choice"},
    {"sampling_params", Type::any, Effect::answer, k_empty, "give its members in the request itself"},
    {"parameters", Type::any, Effect::answer, k_empty, "give its members in the request itself"},
    {"generation_config", Type::any, Effect::answer, k_empty, "give its members in the request itself"},
    {"response_schema", Type::any, Effect::answer, k_empty, "here it is response_format"},
    {"format", Type::any, Effect::answer, k_empty, "here it is response_format"},
    {"nvext", Type::object, Effect::answer, k_empty, "give its members in the request itself"},
    {"extra_body", Type::object, Effect::answer, k_empty, "give its members in the request itself"},
    {"options", Type::object, Effect::answer, k_empty, "give its members in the request itself"},
    {"modalities", Type::any, Effect::answer, R"([["text"], []])", "answers are texts"},
    {"audio", Type::any, Effect::answer, k_empty, "answers are texts"},
    {"parse_tool_calls", Type::boolean, Effect::answer, "[true]",
     "calls are always parsed if there are tools"},
    {"tools", Type::any, Effect::answer, k_empty, "use /v1/chat/completions"},
    {"functions", Type::any, Effect::answer, k_empty, "use /v1/chat/completions"},
    {"tool_choice", Type::any, Effect::answer, R"(["none", "auto"])", "use /v1/chat/completions"},
    {"function_call", Type::any, Effect::answer, R"(["none", "auto"])", "use /v1/chat/completions"},
    {"parallel_tool_calls", Type::boolean, Effect::none, "", "this route has no tools"},
    // The prompt.
    {"chat_template", Type::text, Effect::answer, k_empty, "the template is the model's"},
    {"documents", Type::any, Effect::answer, k_empty, "give them in a message"},
    {"system", Type::any, Effect::answer, k_empty, "give it as the first message, of the role system"},
    {"instructions", Type::any, Effect::answer, k_empty, "give it as the first message, of the role system"},
    {"suffix", Type::text, Effect::answer, k_empty, "the model was not trained to fill in text"},
    {"echo", Type::boolean, Effect::answer, k_false, "only /v1/completions can repeat its prompt"},
    {"messages", Type::any, Effect::answer, k_empty, "it is for /v1/chat/completions and /v1/messages"},
    {"prompt", Type::any, Effect::answer, k_empty, "it is for /v1/completions"},
    {"input", Type::any, Effect::answer, k_empty, "it is for /v1/responses"},
    // A conversation that the server should hold: the messages of the request would be only the end of it.
    {"thread", Type::any, Effect::answer, R"([false, "", {}, {"type": "create"}])", k_stored},
    {"thread_id", Type::any, Effect::answer, k_empty, k_stored},
    {"previous_response_id", Type::any, Effect::answer, k_empty, k_stored},
    {"conversation", Type::any, Effect::answer, k_empty, k_stored},
    {"conversation_id", Type::any, Effect::none, "", "nothing is stored"},
    {"background", Type::boolean, Effect::answer, k_false, "nothing is stored"},
    {"n_keep", Type::integer, Effect::none, "", "a context is never shifted"},
    {"n_discard", Type::integer, Effect::none, "", "a context is never shifted"},
    {"truncation", Type::text, Effect::none, "", "nothing of a conversation is left out"},
    {"add_special_tokens", Type::boolean, Effect::none, "", "the prompt is taken as it is"},
    {"mm_processor_kwargs", Type::any, Effect::none, "", "this model reads text only"},
    // Lengths and ends, by the names of other routes.
    {"max_tokens", Type::integer, Effect::answer, "[]", "here it is max_output_tokens"},
    {"max_completion_tokens", Type::integer, Effect::answer, "[]", "it is for /v1/chat/completions"},
    {"max_output_tokens", Type::integer, Effect::answer, "[]", "here it is max_tokens"},
    {"max_new_tokens", Type::integer, Effect::answer, "[]", "here it is max_tokens"},
    {"max_length", Type::integer, Effect::answer, "[]", "here it is max_tokens"},
    {"num_predict", Type::integer, Effect::answer, "[]", "here it is max_tokens"},
    {"n_predict", Type::integer, Effect::answer, "[-1, -2]", "here it is max_output_tokens"},
    {"stop", Type::any, Effect::answer, k_empty, "here it is stop_sequences"},
    {"stop_sequences", Type::any, Effect::answer, k_empty, "here it is stop"},
    {"stopping_strings", Type::any, Effect::none, "", "here it is stop"},
    {"stop_regex", Type::any, Effect::answer, k_empty, "use stop"},
    {"t_max_predict_ms", Type::integer, Effect::none, "", "use --timeout"},
    {"t_max_prompt_ms", Type::integer, Effect::none, "", "use --timeout"},
    // What else the answer has.
    {"prompt_logprobs", Type::any, Effect::answer, k_false, "use /v1/completions"},
    {"logprobs", Type::any, Effect::answer, k_false, "use /v1/chat/completions"},
    {"top_logprobs", Type::any, Effect::answer, "[0]", "use logprobs"},
    {"n_probs", Type::integer, Effect::answer, "[0]", "here it is logprobs and top_logprobs"},
    {"post_sampling_probs", Type::boolean, Effect::answer, k_false,
     "log-probabilities are those before sampling"},
    {"return_hidden_states", Type::boolean, Effect::answer, k_false, "they are not kept"},
    {"return_tokens_as_token_ids", Type::boolean, Effect::answer, k_false, "here it is return_token_ids"},
    {"return_tokens", Type::boolean, Effect::none, "", "here it is return_token_ids"},
    {"return_progress", Type::boolean, Effect::none, "", ""},
    {"timings_per_token", Type::boolean, Effect::none, "", "timings come with the usage"},
    {"response_fields", Type::any, Effect::none, "", ""},
    {"stream_reasoning", Type::boolean, Effect::none, "", ""},
    {"spaces_between_special_tokens", Type::boolean, Effect::none, "", ""},
    {"include", Type::any, Effect::none, "", ""},
    {"stream_options", Type::any, Effect::none, "", ""},
    {"usage", Type::any, Effect::none, "", "a whole answer always has it"},
    {"verbosity", Type::text, Effect::none, "", "the model has no levels of length"},
    {"include_reasoning", Type::boolean, Effect::none, "", "this route returns the raw text"},
    {"reasoning_split", Type::boolean, Effect::none, "", "this route returns the raw text"},
    {"separate_reasoning", Type::boolean, Effect::none, "", "this route returns the raw text"},
    {"reasoning_format", Type::text, Effect::none, "", "this route returns the raw text"},
    {"reasoning", Type::any, Effect::none, "", "the prompt says whether the model thinks"},
    {"reasoning_effort", Type::any, Effect::none, "", "the prompt says whether the model thinks"},
    {"thinking", Type::any, Effect::none, "", "the prompt says whether the model thinks"},
    {"enable_thinking", Type::any, Effect::none, "", "the prompt says whether the model thinks"},
    {"chat_template_kwargs", Type::any, Effect::none, "", "this route renders no template"},
    {"thinking_forced_open", Type::boolean, Effect::none, "", ""},
    // Who asks, where it is kept, how it is scheduled.
    {"user", Type::text, Effect::none, "", ""},
    {"safety_identifier", Type::text, Effect::none, "", ""},
    {"metadata", Type::object, Effect::none, "", ""},
    {"client_metadata", Type::any, Effect::none, "", ""},
    {"store", Type::boolean, Effect::none, "", "nothing is stored"},
    {"service_tier", Type::text, Effect::none, "", ""},
    {"speed", Type::text, Effect::none, "", ""},
    {"inference_geo", Type::text, Effect::none, "", ""},
    {"betas", Type::any, Effect::none, "", ""},
    {"container", Type::any, Effect::none, "", ""},
    {"context_management", Type::any, Effect::none, "", "the client's messages are used as they are"},
    {"mcp_servers", Type::any, Effect::none, "", "tools that run on the server are not possible"},
    {"plugins", Type::any, Effect::none, "", "tools that run on the server are not possible"},
    {"web_search_options", Type::any, Effect::none, "", "tools that run on the server are not possible"},
    {"search_parameters", Type::any, Effect::none, "", "tools that run on the server are not possible"},
    {"max_tool_calls", Type::any, Effect::none, "", "it is for tools that run on the server"},
    {"cache_prompt", Type::boolean, Effect::none, "", "prefixes are always cached"},
    {"cache_control", Type::any, Effect::none, "", "prefixes are always cached"},
    {"cache_salt", Type::text, Effect::none, "", "prefixes are cached for all clients"},
    {"prompt_cache_key", Type::text, Effect::none, "", "prefixes are always cached"},
    {"prompt_cache_retention", Type::any, Effect::none, "", "prefixes are always cached"},
    {"prompt_cache_options", Type::any, Effect::none, "", "prefixes are always cached"},
    {"n_cache_reuse", Type::integer, Effect::none, "", "prefixes are always cached"},
    {"id_slot", Type::integer, Effect::none, "", "requests take any free slot"},
    {"request_id", Type::text, Effect::none, "", "the server gives requests their ids"},
    {"rid", Type::any, Effect::none, "", "the server gives requests their ids"},
    {"keep_alive", Type::any, Effect::none, "", "the model stays loaded"},
    {"kv_transfer_params", Type::any, Effect::none, "", ""},
    {"vllm_xargs", Type::any, Effect::none, "", ""},
    {"data_parallel_rank", Type::any, Effect::none, "", ""},
    {"provider", Type::any, Effect::none, "", ""},
    {"models", Type::any, Effect::none, "", "there is one model"},
    {"route", Type::any, Effect::none, "", "there is one model"},
    {"transforms", Type::any, Effect::none, "", "nothing of a conversation is left out"},
    {"prediction", Type::any, Effect::none, "", "it would only make the answer faster"},
    {"extra_headers", Type::any, Effect::none, "", ""},
    {"extra_query", Type::any, Effect::none, "", ""},
    {"speculative.", Type::any, Effect::none, "", "it would only make the answer faster"},
};

const PeerField* find_peer(std::string_view name) {
    const auto fits = [&](const PeerField& field) {
        return field.name.ends_with('.') ? name.starts_with(field.name) : name == field.name;
    };
    const auto* it = std::find_if(std::begin(k_fields), std::end(k_fields), fits);
    return it == std::end(k_fields) ? nullptr : it;
}

void check_type(const Fields& request, const char* name, Type type) {
    switch (type) {
        case Type::boolean:
            request.boolean(name);
            break;
        case Type::integer:
            request.integer(name);
            break;
        case Type::number:
            request.number(name, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max());
            break;
        case Type::text:
            request.text(name);
            break;
        case Type::object:
            request.object(name);
            break;
        case Type::any:
            break;
    }
}

// Returns whether a list of llama.cpp's samplers (names, or a text of letters) has all that this server has. Its clients send such
// lists with every request.
bool has_all_samplers(const Json& value) {
    constexpr std::array<std::pair<const char*, char>, 4> k_ours = {
        {{"top_k", 'k'}, {"top_p", 'p'}, {"min_p", 'm'}, {"temperature", 't'}}};
    if (value.is_string()) {
        const std::string& letters = value.get_ref<const std::string&>();
        return std::ranges::all_of(
            k_ours, [&](const auto& own) { return letters.find(own.second) != std::string::npos; });
    }
    return value.is_array() && std::ranges::all_of(k_ours, [&](const auto& own) {
               return std::find(value.begin(), value.end(), own.first) != value.end();
           });
}

bool is_harmless(const Json& value, const PeerField& field) {
    if (field.name == "samplers") return value == "" || value.empty() || has_all_samplers(value);
    const Json values = Json::parse(field.harmless);
    return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns whether the name of a field that is not known is like those of constraints on the answer, and its value asks for one. An
// answer without it would look as if it had been kept.
bool sounds_like_constraint(const std::string& name, const Json& value) {
    if (value == false || value == 0 || value == "" || (value.is_structured() && value.empty())) return false;
    constexpr std::array<std::string_view, 9> k_words = {"guided",     "grammar",    "schema",
                                                         "structured", "regex",      "constraint",
                                                         "json_mode",  "force_json", "ebnf"};
    return std::ranges::any_of(k_words,
                               [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// Returns a name for messages: cut, and without bytes that would spoil a line.
std::string shown(std::string_view name) {
    std::string text(name.substr(0, 60));
    std::ranges::replace_if(
        text,
        [](char c) { return static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) > 0x7E; },
        '?');
    return text;
}

}  // namespace

void check_other_fields(const Fields& request, const char* route) {
    for (const auto& [name, value] : request.object_itself().items()) {
        if (value.is_null() || request.was_read(name)) continue;
        const PeerField* field = find_peer(name);
        if (field == nullptr) {
            if (sounds_like_constraint(name, value))
                request.refuse(shown(name).c_str(),
                               "is not known, and may be a constraint of the answer: use response_format, "
                               "structured_outputs or grammar");
            note_once("unknown " + name,
                      fmt::format("{}: the field '{}' is not known and has no effect", route, shown(name)));
            continue;
        }
        check_type(request, name.c_str(), field->type);
        const std::string why = *field->why == '\0' ? "" : fmt::format(": {}", field->why);
        if (field->effect == Effect::answer && !is_harmless(value, *field))
            request.refuse(name.c_str(), "is not possible here" + why);
        if (field->effect == Effect::none)
            note_once("field " + name,
                      fmt::format("{}: the field '{}' has no effect{}", route, shown(name), why));
    }
}

}  // namespace server
