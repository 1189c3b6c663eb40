// SPDX-License-Identifier: Apache-2.0
// Options of both programs about answers. Of the server they are for requests that do not say.
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "minim/minim.h"
#include "set.h"

namespace program {
namespace {

constexpr uint32_t k_both = k_answers | k_server;
constexpr uint32_t k_generate_too = k_both | k_eval_answers;
constexpr int64_t k_usual_draft = 8;

constexpr Word k_off[] = {{"-1", 0}};
constexpr Word k_drafts[] = {{"none", 0},         {"ngram", 1},       {"ngram-cache", 1},
                             {"ngram-simple", 1}, {"ngram-map-k", 1}, {"ngram-map-k4v", 1},
                             {"ngram-mod", 1}};
constexpr Word k_thinking[] = {{"auto", 0}, {"on", 1}, {"off", 2}};

void choose_drafts(Options& options, bool drafts) {
    int64_t& n = options.sampling.draft_tokens;
    if (!drafts) n = 0;
    if (drafts && n == 0) n = k_usual_draft;
}

// vLLM's '{"method": "ngram", "num_speculative_tokens": 5}'.
void set_speculative_config(Options& options, const Value& value) {
    const auto config = nlohmann::json::parse(value.text, nullptr, false);
    if (!config.is_object())
        throw UsageError(fmt::format("{}: '{}' is not a JSON object", value.option, value.text));
    const auto method = config.value("method", nlohmann::json());
    if (method != "ngram" && method != "[ngram]")
        throw UsageError(
            fmt::format("{}: the method is {}; minim drafts by lookup alone, {{\"method\": \"ngram\"}}",
                        value.option, method.is_null() ? "not given" : method.dump()));
    choose_drafts(options, true);
    const auto n = config.value("num_speculative_tokens", nlohmann::json(k_usual_draft));
    if (!n.is_number_integer() || n.get<int64_t>() < 0 || n.get<int64_t>() > 64)
        throw UsageError(
            fmt::format("{}: num_speculative_tokens is {}; it goes from 0 to 64", value.option, n.dump()));
    options.sampling.draft_tokens = n.get<int64_t>();
}

void set_kwargs(Options& options, const Value& value) {
    const auto kwargs = nlohmann::json::parse(value.text, nullptr, false);
    if (!kwargs.is_object())
        throw UsageError(fmt::format("{}: '{}' is not a JSON object such as '{{\"enable_thinking\": false}}'",
                                     value.option, value.text));
    options.chat_kwargs = value.text;
}

void set_thinking(Options& options, const Value& value) {
    if (value.integer == 2) options.reasoning_budget = 0;
    if (value.integer == 1 && options.reasoning_budget == 0) options.reasoning_budget = -1;
}

bool is_template(std::string_view text) {
    return text.find("{{") != std::string_view::npos || text.find("{%") != std::string_view::npos;
}

std::string template_of_file(const Value& value) {
    std::string text = file_text(value);
    const bool has_zero = text.find('\0') != std::string::npos;
    if (has_zero || !is_template(text))
        throw UsageError(fmt::format("{}: the file '{}' holds no Jinja template: {}", value.option,
                                     value.text,
                                     has_zero ? "it has a zero byte" : "it has neither {{ nor {%"));
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    return text;
}

// Takes a text, a file, or, for the checkpoint's own template, nothing or a name of the family: "minimax-m2".
void set_template(Options& options, const Value& value) {
    constexpr size_t k_longest_path = 4096;
    std::error_code error;
    options.chat_template.clear();
    if (is_template(value.text)) {
        options.chat_template = value.text;
    } else if (value.text.size() < k_longest_path && std::filesystem::is_regular_file(value.text, error)) {
        options.chat_template = template_of_file(value);
    } else if (!value.text.empty() && !value.text.starts_with("minimax")) {
        throw UsageError(fmt::format(
            "{}: '{}' is neither a file nor a template, and minim has no templates by name: write the text "
            "of a Jinja template, or the name of a file with one",
            value.option, value.text.substr(0, 200)));
    }
}

constexpr Row k_answer_rows[] = {
    {"--temp --temperature", "", real("X", 0, 100), k_both, "the checkpoint's",
     "temperature; 0: always the likeliest token", set_sampling<&SamplingDefaults::temperature>},
    {"--top-p", "", real("X", 0, 1), k_both, "the checkpoint's",
     "the likeliest tokens that together have this probability; 1: all",
     set_sampling<&SamplingDefaults::top_p>},
    {"--top-k", "", integer("N", 0, k_largest_int32, k_off), k_both, "the checkpoint's",
     "the k likeliest tokens; 0 or -1: all", set_sampling<&SamplingDefaults::top_k>},
    {"--min-p", "", real("X", 0, 1), k_both, "the checkpoint's",
     "tokens at least this likely relative to the likeliest; 0: all", set_sampling<&SamplingDefaults::min_p>},
    {"--repeat-penalty --repetition-penalty", "", real("X", 0.001, 1000), k_both, "the checkpoint's",
     "for tokens among the last 64; 1: off", set_sampling<&SamplingDefaults::repetition_penalty>},
    {"--repeat-last-n", "", integer("N", -1, k_largest_int32), k_both, "64",
     "tokens that --repeat-penalty looks back on; -1: all, 0: none",
     set_sampling<&SamplingDefaults::repeat_last_n>},
    {"--presence-penalty", "", real("X", -1000, 1000), k_both, "0",
     "subtracted from the logit of every token generated before",
     set_sampling<&SamplingDefaults::presence_penalty>},
    {"--frequency-penalty", "", real("X", -1000, 1000), k_both, "0",
     "subtracted for each time that the token was generated before",
     set_sampling<&SamplingDefaults::frequency_penalty>},
    {"--dry-multiplier", "", real("X", 0, 1000), k_both, "0",
     "DRY: lowers what would go on with a repetition; 0: off",
     set_sampling<&SamplingDefaults::dry_multiplier>},
    {"--dry-base", "", real("X", 1, 1000), k_both, "1.75",
     "to the power of the repetition's length beyond the allowed one",
     set_sampling<&SamplingDefaults::dry_base>},
    {"--dry-allowed-length", "", integer("N", 0, k_largest_int32), k_both, "2",
     "repetitions shorter than this are free", set_sampling<&SamplingDefaults::dry_allowed_length>},
    {"--dry-penalty-last-n", "", integer("N", -1, k_largest_int32), k_both, "-1",
     "tokens in which repetitions are looked for; -1: all, 0: none",
     set_sampling<&SamplingDefaults::dry_penalty_last_n>},
    {"--dry-sequence-breaker", "", any_text("TEXT"), k_both, "newline, ':', '\"' and '*'",
     "a text that ends repetitions, in place of the usual ones; may be repeated; none: no text does",
     set_sampling<&SamplingDefaults::dry_breakers>},
    {"-s --seed --random-seed", "", Type{.kind = Kind::seed, .value = "N"}, k_both, "-1",
     "the same seed gives the same text, up to 18446744073709551615; -1: chance",
     [](Options& o, const Value& v) {
         o.sampling.seed.reset();
         if (v.integer != -1) o.sampling.seed = v.bytes;
     }},
    {"--ignore-eos", "", flag(), k_both, "", "go on when the model ends its turn, up to -n",
     set_sampling<&SamplingDefaults::ignores_end>},
    {"-n --predict --n-predict --max-tokens", "", count("N", -1, k_largest_int64), k_both, "-1",
     "tokens to generate; -1 or 0: until the model ends its turn", set<&Options::n_predict>},
    {"--reasoning-budget", "", count("N", -1, k_largest_int64), k_generate_too, "-1",
     "the maximum number of tokens of thought; -1: no limit, 0: no thought", set<&Options::reasoning_budget>},
    {"-rea --reasoning", "", choice("WHETHER", k_thinking), k_generate_too, "auto",
     "off: as --reasoning-budget 0; on, auto: the model thinks", set_thinking},
    {"--draft-tokens --draft --draft-n --draft-max --spec-draft-n-max --num-speculative-tokens "
     "--speculative-num-draft-tokens",
     "", integer("N", 0, 64), k_both, "0",
     "most draft tokens a step, proposed from the text so far; changes speed, never the text",
     set_sampling<&SamplingDefaults::draft_tokens>},
    {"--spec-type --speculative-algorithm", "", choice("TYPE", k_drafts), k_both, "none",
     "ngram, ngram-simple and the like: draft tokens from the text so far, 8 if --draft-tokens is not given",
     [](Options& o, const Value& v) { choose_drafts(o, v.integer != 0); }},
    {"--spec-default", "", flag(), k_both, "", "as --spec-type ngram",
     [](Options& o, const Value& v) { choose_drafts(o, v.on); }},
    {"-sc --speculative-config", "", text("JSON"), k_both, "",
     "vLLM's form: '{\"method\": \"ngram\", \"num_speculative_tokens\": 5}'", set_speculative_config},
    {"--chat-template", "", any_text("TEXT"), k_generate_too, "the checkpoint's",
     "a chat template in place of the checkpoint's: the text of a Jinja template, or a file with one",
     set_template},
    {"--chat-template-file", "", text("FILE"), k_generate_too, "", "the same, from a file",
     [](Options& o, const Value& v) { o.chat_template = template_of_file(v); }},
    {"--chat-template-kwargs --default-chat-template-kwargs", "", text("JSON"), k_generate_too, "",
     "variables of the chat template, as a JSON object, for all conversations", set_kwargs},
};

}  // namespace

std::span<const Row> answer_rows() {
    return k_answer_rows;
}

}  // namespace program
