// SPDX-License-Identifier: Apache-2.0
#include "thinking_fields.h"

#include <fmt/format.h>

#include "request_log.h"

namespace server {

namespace {

constexpr int64_t k_max_tokens = int64_t{1} << 40;

// What the fields of a request say together.
struct Wish {
    bool is_on = false;
    bool is_off = false;
    bool is_minimal = false;   // an effort is
    bool is_adaptive = false;  // the model decides whether it thinks

    void take(std::optional<bool> value) {
        is_on = is_on || value.value_or(false);
        is_off = is_off || !value.value_or(true);
    }
};

void take_effort(const std::optional<std::string>& effort, const std::string& field, Wish& wish) {
    if (!effort) return;
    if (*effort == "none") return wish.take(false);
    wish.is_minimal = wish.is_minimal || *effort == "minimal";
    note_once(
        "effort " + field,
        fmt::format("{} has no effect unless it is none (for MiniMax-M3 also minimal): the model has no "
                    "levels of effort",
                    field));
}

void read_thinking_object(const Fields& request, Turn& turn, Wish& wish) {
    const Json* given = request.find("thinking");
    if (given == nullptr) return;
    if (given->is_boolean()) return wish.take(given->get<bool>());
    const Json& object = *request.object("thinking");
    const Fields thinking(object, "thinking");
    if (!thinking.has("type")) thinking.refuse("type", "is required");
    const std::string type =
        *thinking.one_of("type", {"enabled", "disabled", "adaptive", "auto", "between_tools"});
    const auto budget = thinking.integer("budget_tokens", 1, k_max_tokens);
    wish.take(type != "disabled");
    wish.is_adaptive = type != "enabled" && type != "disabled";
    if (type == "enabled") set_reasoning_budget(budget, turn);
}

void read_reasoning_object(const Fields& request, Turn& turn, Wish& wish) {
    const Json* given = request.find("reasoning");
    if (given == nullptr) return;
    if (given->is_boolean()) return wish.take(given->get<bool>());
    const Fields reasoning(*request.object("reasoning"), "reasoning");
    wish.take(reasoning.boolean("enabled"));
    take_effort(reasoning.text("effort"), "reasoning.effort", wish);
    set_reasoning_budget(reasoning.integer("max_tokens", 0, k_max_tokens), turn);
    if (reasoning.boolean("exclude").value_or(false)) turn.shows_reasoning = false;
}

// Reads where the thoughts go: into a field of their own, or into the content.
void read_place(const Fields& request, Turn& turn) {
    if (!request.boolean("include_reasoning").value_or(true)) turn.shows_reasoning = false;
    if (const auto split = request.boolean("reasoning_split")) {
        turn.has_reasoning_details = *split;
        turn.reasoning = *split ? MINIM_REASONING_SPLIT : MINIM_REASONING_APPEND_THINK;
    }
    if (const auto separate = request.boolean("separate_reasoning"))
        turn.reasoning = *separate ? MINIM_REASONING_SPLIT : MINIM_REASONING_NONE;
    const auto format = request.one_of(
        "reasoning_format", {"auto", "none", "deepseek", "deepseek-legacy", "parsed", "raw", "hidden"});
    if (format == "none" || format == "raw") turn.reasoning = MINIM_REASONING_NONE;
    if (format == "deepseek" || format == "deepseek-legacy" || format == "parsed")
        turn.reasoning = MINIM_REASONING_SPLIT;
    if (format == "hidden") turn.shows_reasoning = false;
}

}  // namespace

void read_template_fields(const Fields& request, Turn& turn) {
    if (const Json* kwargs = request.object("chat_template_kwargs")) {
        const Fields fields(*kwargs, request.place("chat_template_kwargs"));
        turn.kwargs = *kwargs;
        if (const auto adds = fields.boolean("add_generation_prompt")) turn.adds_generation_prompt = *adds;
    }
    const auto adds = request.boolean("add_generation_prompt");
    turn.continues = request.boolean("continue_final_message").value_or(false);
    if (turn.continues && adds.value_or(false))
        request.refuse("continue_final_message", "and add_generation_prompt exclude each other");
    if (adds) turn.adds_generation_prompt = *adds;
}

void read_thinking(const Fields& request, Turn& turn) {
    Wish wish;
    if (const Json* kwargs = request.object("chat_template_kwargs")) {
        const Fields fields(*kwargs, request.place("chat_template_kwargs"));
        for (const char* name : {"enable_thinking", "thinking"}) wish.take(fields.boolean(name));
    }
    for (const char* name : {"enable_thinking", "think"}) wish.take(request.boolean(name));
    take_effort(request.text("reasoning_effort"), "reasoning_effort", wish);
    if (const Json* config = request.object("output_config"))
        take_effort(Fields(*config, "output_config").text("effort"), "output_config.effort", wish);
    read_thinking_object(request, turn, wish);
    read_reasoning_object(request, turn, wish);
    if (wish.is_on) {
        turn.thinks = true;
        turn.thinking_mode = wish.is_adaptive ? "adaptive" : "enabled";
    }
    turn.has_minimal_effort = wish.is_minimal && !wish.is_on;
    for (const char* name : {"thinking_budget_tokens", "thinking_token_budget", "max_reasoning_tokens"})
        set_reasoning_budget(request.integer(name, -1, k_max_tokens), turn);
    if (wish.is_off) turn.thinks = false;
    read_place(request, turn);
}

bool asks_for_thinking(const Fields& request) {
    const Json* given = request.find("thinking");
    if (given == nullptr) return false;
    if (given->is_boolean()) return given->get<bool>();
    const Fields thinking(*given, "thinking");
    return thinking.text("type") != "disabled" && thinking.text("display") != "omitted";
}

}  // namespace server
