// SPDX-License-Identifier: Apache-2.0
#include "constraint/constraint.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/family.h"
#include "constraint/gbnf.h"
#include "constraint/json_schema.h"
#include "constraint/regex.h"
#include "constraint/tool_calls.h"
#include "handles.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;
using constraint::Grammar;

namespace {

std::optional<int32_t> first_token(const tokenizer::Tokenizer& tokenizer, const char* starts_after) {
    const std::string_view text = optional_text(starts_after);
    if (text.empty()) return std::nullopt;
    const auto token = tokenizer.find(text);
    if (!token) fail(Status::invalid, "starts_after is '{}', which is not an added token of the model", text);
    return token;
}

// Reads the parameters of a caller that may have been compiled before the last fields were added.
minim_constraint_params read_params(const minim_constraint_params* params) {
    return params_of(params, "minim_constraint_params",
                     offsetof(minim_constraint_params, calls_are_optional));
}

// Returns the tokens between which an answer may reason before it begins.
constraint::ConstraintStart reasoning_start(const tokenizer::Tokenizer& tokenizer,
                                            const minim_constraint_params& params) {
    if (!optional_text(params.starts_after).empty())
        fail(Status::invalid, "may_reason is 1 and starts_after is '{}': one of them decides",
             params.starts_after);
    if (params.calls_are_optional != 0)
        fail(Status::invalid, "may_reason has no use if calls are optional: any text may precede them");
    const chat::Markup& markup = chat::markup_of(tokenizer);
    const auto token = [&](std::string_view text) {
        const auto found = tokenizer.find(text);
        if (!found) fail(Status::unsupported, "may_reason is 1, but the model has no token {}", text);
        return found;
    };
    return {.starts_after = token(markup.think_close), .reasons_from = token(markup.think_open)};
}

// Returns the token that begins a call, if calls are optional.
std::optional<int32_t> opening_token(const tokenizer::Tokenizer& tokenizer, bool are_optional) {
    if (!are_optional) return std::nullopt;
    const std::string_view opening = chat::call_begin(chat::markup_of(tokenizer));
    const auto token = tokenizer.find(opening);
    if (!token) fail(Status::unsupported, "calls cannot be optional: the model has no token {}", opening);
    return token;
}

// Compiles a grammar. The constraint keeps the model alive, because it uses the model's tokens.
minim_constraint* compiled(const minim_model& model, Grammar grammar, const minim_constraint_params& params,
                           std::optional<int32_t> opens_with = std::nullopt) {
    const auto open = std::make_shared<const OpenModel>(model.open);
    const std::shared_ptr<const tokenizer::Tokenizer> tokenizer(open, &open->model->text().tokenizer());
    constraint::ConstraintStart start = {.starts_after = first_token(*tokenizer, params.starts_after),
                                         .opens_with = opens_with};
    if (flag(params.may_reason, "may_reason")) start = reasoning_start(*tokenizer, params);
    return new minim_constraint{std::make_shared<const constraint::Constraint>(
        std::move(grammar), tokenizer, open->model->text().token_trie(), start)};
}

// Compiles a grammar for output other than tool calls.
minim_constraint* compiled_form(const minim_model& model, Grammar grammar,
                                const minim_constraint_params* params) {
    const minim_constraint_params read = read_params(params);
    if (flag(read.calls_are_optional, "calls_are_optional"))
        fail(Status::invalid, "calls_are_optional is for constraints from tools alone");
    if (flag(read.relax, "relax")) fail(Status::invalid, "relax is for constraints from tools alone");
    return compiled(model, std::move(grammar), read);
}

// Returns the texts of the choices. `lengths` may be null: then each text ends with a zero.
std::vector<std::string_view> choices_argument(const char* const* choices, const size_t* lengths,
                                               size_t count) {
    if (count == 0) fail(Status::invalid, "there are no choices");
    required(choices, "choices");
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < count; ++i)
        texts.push_back(text_argument(choices[i], lengths != nullptr ? lengths[i] : SIZE_MAX, "choices"));
    return texts;
}

}  // namespace

minim_status minim_constraint_from_schema(minim_model* model, const char* schema,
                                          const minim_constraint_params* params, minim_constraint** out,
                                          minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const json::Value parsed = json::parse(&required(schema, "schema"), "schema", json::Source::argument);
        *out = compiled_form(required(model, "model"), constraint::grammar_of_schema(parsed), params);
    });
}

minim_status minim_constraint_from_regex(minim_model* model, const char* pattern,
                                         const minim_constraint_params* params, minim_constraint** out,
                                         minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = compiled_form(required(model, "model"),
                             constraint::grammar_of_regex(&required(pattern, "pattern")), params);
    });
}

minim_status minim_constraint_from_regex_n(minim_model* model, const char* pattern, size_t length,
                                           const minim_constraint_params* params, minim_constraint** out,
                                           minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = compiled_form(required(model, "model"),
                             constraint::grammar_of_regex(text_argument(pattern, length, "pattern")), params);
    });
}

minim_status minim_constraint_from_grammar(minim_model* model, const char* grammar,
                                           const minim_constraint_params* params, minim_constraint** out,
                                           minim_error* err) {
    return minim_constraint_from_grammar_n(model, grammar, SIZE_MAX, params, out, err);
}

minim_status minim_constraint_from_grammar_n(minim_model* model, const char* grammar, size_t length,
                                             const minim_constraint_params* params, minim_constraint** out,
                                             minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const minim_model& of = required(model, "model");
        const std::string_view text = text_argument(grammar, length, "grammar");
        *out = compiled_form(of, constraint::grammar_of_gbnf(text, &of.model().text().tokenizer()), params);
    });
}

minim_status minim_constraint_from_choices(minim_model* model, const char* const* choices, size_t count,
                                           const minim_constraint_params* params, minim_constraint** out,
                                           minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out =
            compiled_form(required(model, "model"),
                          constraint::grammar_of_choices(choices_argument(choices, nullptr, count)), params);
    });
}

minim_status minim_constraint_from_choices_n(minim_model* model, const char* const* choices,
                                             const size_t* lengths, size_t count,
                                             const minim_constraint_params* params, minim_constraint** out,
                                             minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        required(lengths, "lengths");
        *out =
            compiled_form(required(model, "model"),
                          constraint::grammar_of_choices(choices_argument(choices, lengths, count)), params);
    });
}

minim_status minim_constraint_from_tools(minim_model* model, const char* tools, const char* name,
                                         int32_t single, const minim_constraint_params* params,
                                         minim_constraint** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const minim_model& of = required(model, "model");
        const json::Value parsed = json::parse(&required(tools, "tools"), "tools", json::Source::argument);
        constraint::ToolChoice choice = {std::string(optional_text(name)), flag(single, "single")};
        const minim_constraint_params read = read_params(params);
        const bool are_optional = flag(read.calls_are_optional, "calls_are_optional");
        choice.relaxes = flag(read.relax, "relax");
        const auto opens_with = opening_token(of.model().text().tokenizer(), are_optional);
        std::vector<std::string> left_out;
        const auto compile = [&] {
            left_out.clear();
            Grammar grammar =
                constraint::grammar_of_tool_calls(parsed, choice, of.model().text().tokenizer(), &left_out);
            return compiled(of, std::move(grammar), read, opens_with);
        };
        try {
            *out = compile();
        } catch (const Error& error) {
            if (!choice.relaxes || error.status() != Status::unsupported) throw;
            choice.divides_limits = true;  // the tools are too large together
            *out = compile();
        }
        for (const std::string& note : left_out) of.open.runtime->log.warning("constraint: {}", note);
    });
}

minim_status minim_constraint_matches(const minim_constraint* constraint, const char* text, size_t length,
                                      int32_t* matches, minim_error* err) {
    return guard(err, [&] {
        required(matches, "matches") = 0;
        const auto& form = *required(constraint, "constraint").constraint;
        *matches = form.matches(text_argument(text, length, "text")) ? 1 : 0;
    });
}

void minim_constraint_free(minim_constraint* constraint) {
    delete constraint;
}

minim_status minim_sampling_set_constraint(minim_sampling* sampling, const minim_constraint* constraint,
                                           minim_error* err) {
    return guard(err, [&] {
        const SamplingWriter writer(required(sampling, "sampling"));
        writer.params().constraint = constraint != nullptr ? constraint->constraint : nullptr;
    });
}
