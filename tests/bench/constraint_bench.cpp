// SPDX-License-Identifier: Apache-2.0
// Measures the cost of structured output with a vocabulary of 200 000 tokens: making the constraint, finding the
// allowed tokens and following the chosen one, and choosing among the allowed tokens. The vocabulary is simulated, with
// words, numbers, punctuation and scripts in about the proportions of the real one; the answers are taken from texts
// that fit the constraint.
//
//   constraint_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/format_text.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "constraint/json_schema.h"
#include "constraint/matcher.h"
#include "constraint/regex.h"
#include "sampling/sampler.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace minim;
using namespace minim::constraint;
using Clock = std::chrono::steady_clock;

constexpr size_t k_n_tokens = 200'000;

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Distinct texts: all bytes, then random words and runs of signs.
class Vocabulary {
  public:
    Vocabulary() {
        for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
        for (int n = 0; n < 1000; ++n) add(std::to_string(n));
        constexpr std::string_view k_signs = " \n\t!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
        for (const char a : k_signs)
            for (const char b : k_signs) add({a, b});
        while (texts_.size() < 14'000) add(signs(k_signs, 3 + random_() % 4));
        for (size_t n = 2; n <= 80; ++n) add(std::string(n, ' '));
        while (texts_.size() < 120'000) add(lead() + word());
        while (texts_.size() < k_n_tokens) add(lead() + foreign_word());
    }

    const std::vector<std::string>& texts() const { return texts_; }

    std::string word() {
        constexpr std::string_view k_consonants = "bcdfghklmnprstvwz";
        constexpr std::string_view k_vowels = "aeiou";
        std::string text;
        const size_t n_syllables = 1 + random_() % 3;
        for (size_t i = 0; i < n_syllables; ++i) {
            text += k_consonants[random_() % k_consonants.size()];
            text += k_vowels[random_() % k_vowels.size()];
            if (random_() % 2 == 0) text += k_consonants[random_() % k_consonants.size()];
        }
        return text;
    }

  private:
    void add(std::string text) {
        if (texts_.size() < k_n_tokens && seen_.insert(text).second) texts_.push_back(std::move(text));
    }

    std::string signs(std::string_view among, size_t count) {
        std::string text;
        for (size_t i = 0; i < count; ++i) text += among[random_() % among.size()];
        return text;
    }

    std::string lead() {
        constexpr std::string_view k_leads = "   \"._(/'-";
        return random_() % 3 == 0 ? std::string() : std::string(1, k_leads[random_() % k_leads.size()]);
    }

    std::string foreign_word() {
        const char32_t first = random_() % 2 == 0 ? 0x430 : 0x4E00;
        const char32_t count = first == 0x430 ? 32 : 3000;
        std::string text;
        const size_t n = 1 + random_() % 5;
        for (size_t i = 0; i < n; ++i) append_utf8(first + static_cast<char32_t>(random_() % count), text);
        return text;
    }

    std::mt19937 random_{17};
    std::set<std::string> seen_;
    std::vector<std::string> texts_;
};

std::shared_ptr<const tokenizer::Tokenizer> make_tokenizer(const Vocabulary& words) {
    tokenizer::Vocabulary vocabulary;
    for (const std::string& text : words.texts()) {
        vocabulary.tokens.push_back(tokenizer::to_stand_ins(text));
        vocabulary.types.push_back(tokenizer::TokenType::normal);
    }
    return std::make_shared<const tokenizer::Tokenizer>(std::move(vocabulary), tokenizer::PieceRules::model,
                                                        Logger());
}

// Returns the tokens of a text: from the left on, the longest one that fits.
std::vector<int32_t> tokens_of(std::string_view text, const std::unordered_map<std::string, int32_t>& ids) {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
        size_t length = std::min<size_t>(text.size(), 80);
        while (ids.count(std::string(text.substr(0, length))) == 0) --length;
        tokens.push_back(ids.at(std::string(text.substr(0, length))));
        text.remove_prefix(length);
    }
    return tokens;
}

struct Form {
    const char* name;
    Grammar grammar;
    std::string answer;
};

Grammar grammar_of(const char* schema) {
    return grammar_of_schema(json::parse(schema, "schema", json::Source::argument));
}

constexpr const char* k_records = R"({"type": "array", "items": {"type": "object", "properties": {
    "id": {"type": "integer", "minimum": 1}, "name": {"type": "string"}, "email": {"type": "string", "format": "email"},
    "kind": {"enum": ["person", "company", "none of them"]}, "score": {"type": "number", "minimum": 0, "maximum": 100},
    "notes": {"type": "array", "items": {"type": "string"}}, "active": {"type": "boolean"},
    "parent": {"anyOf": [{"type": "null"}, {"type": "integer"}]}},
    "required": ["id", "name", "email", "kind", "score", "notes", "active"]}})";

constexpr const char* k_short_texts = R"({"type": "array", "items": {"type": "string", "maxLength": 60}})";

constexpr const char* k_log_lines =
    R"((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d (INFO|WARNING|ERROR) [a-z]+: [^\n]*\n)*)";

std::vector<Form> forms(Vocabulary& words) {
    const auto sentence = [&](int n) {
        std::string text = words.word();
        for (int i = 1; i < n; ++i) text.append(" ").append(words.word());
        return text;
    };
    std::string records = "[";
    std::string texts = "[";
    std::string lines;
    for (int i = 1; i <= 10; ++i) {
        const char* comma = i > 1 ? "," : "";
        records += format_text(
            "{}\n  {{\n    \"id\": {},\n    \"name\": \"{}\",\n    \"email\": \"{}@{}.org\",\n    \"kind\": "
            "\"company\","
            "\n    \"score\": 9{}.25,\n    \"notes\": [\"{}\", \"{}\"],\n    \"active\": true,\n    "
            "\"parent\": null\n  }}",
            comma, i, sentence(2), words.word(), words.word(), i % 10, sentence(12), sentence(6));
        texts += format_text("{} \"{}\"", comma, sentence(9).substr(0, 60));
        lines += format_text("2024-11-0{}T10:11:12 WARNING {}: {}\n", i % 10, words.word(), sentence(15));
    }
    records += "\n]";
    std::vector<Form> list;
    list.push_back({"records of a schema", grammar_of(k_records), records});
    list.push_back({"any JSON", grammar_of("{}"), records});
    list.push_back({"texts of 60 characters", grammar_of(k_short_texts), texts + "]"});
    list.push_back({"lines of an expression", grammar_of_regex(k_log_lines), lines});
    return list;
}

// Microseconds a token.
struct Cost {
    double allowed = 0.0;
    double accept = 0.0;
    double longest = 0.0;  // of one token
};

Cost follow(const std::shared_ptr<const Constraint>& constraint, const std::vector<int32_t>& tokens) {
    Matcher matcher(constraint, static_cast<int64_t>(k_n_tokens), {});
    Cost cost;
    for (const int32_t token : tokens) {
        const auto start = Clock::now();
        const auto mask = matcher.allowed();
        const double allowed = microseconds_since(start);
        if ((mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) == 0) {
            std::fprintf(stderr, "token %d of the answer is not allowed\n", token);
            std::exit(1);
        }
        const auto middle = Clock::now();
        matcher.accept(token);
        const double accept = microseconds_since(middle);
        cost.allowed += allowed;
        cost.accept += accept;
        cost.longest = std::max(cost.longest, allowed + accept);
    }
    const auto n = static_cast<double>(tokens.size());
    return {cost.allowed / n, cost.accept / n, cost.longest};
}

// Prints the time that a mask adds to choosing a token: medians of measurements in turns.
void print_sampling(const std::shared_ptr<const Constraint>& constraint, const std::vector<int32_t>& tokens) {
    Matcher matcher(constraint, static_cast<int64_t>(k_n_tokens), {});
    std::vector<float> logits(k_n_tokens);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (float& logit : logits) logit = normal(random);
    sampling::Params params;
    params.temperature = 0.0F;
    sampling::Sampler sampler(params, static_cast<int32_t>(k_n_tokens));
    std::vector<double> with;
    std::vector<double> without;
    for (const int32_t token : tokens) {
        const auto mask = matcher.allowed();
        sampler.sample(logits);  // warm
        auto start = Clock::now();
        sampler.sample(logits, {}, mask);
        with.push_back(microseconds_since(start));
        start = Clock::now();
        sampler.sample(logits);
        without.push_back(microseconds_since(start));
        matcher.accept(token);
    }
    const auto median = [](std::vector<double>& values) {
        std::ranges::sort(values);
        return values[values.size() / 2];
    };
    std::printf("greedy choice: %.1f us with the mask, %.1f us without\n", median(with), median(without));
}

}  // namespace

int main() {
    Vocabulary words;
    const auto tokenizer = make_tokenizer(words);
    std::unordered_map<std::string, int32_t> ids;
    for (size_t i = 0; i < words.texts().size(); ++i) ids[words.texts()[i]] = static_cast<int32_t>(i);

    auto start = Clock::now();
    const auto trie = std::make_shared<const TokenTrie>(*tokenizer);
    std::printf("tree of %zu tokens: %zu nodes, %.1f ms\n\n", words.texts().size(), trie->nodes().size(),
                microseconds_since(start) * 1e-3);
    std::printf("%-24s %8s %7s %7s | first answer, us a token | later ones\n", "form", "make ms", "states",
                "tokens");
    std::printf("%-24s %8s %7s %7s | %7s %7s %8s | %7s %7s\n", "", "", "", "", "allowed", "accept", "longest",
                "allowed", "accept");
    for (Form& form : forms(words)) {
        const std::vector<int32_t> tokens = tokens_of(form.answer, ids);
        start = Clock::now();
        const auto constraint =
            std::make_shared<const Constraint>(std::move(form.grammar), tokenizer, trie, ConstraintStart{});
        const double make_ms = microseconds_since(start) * 1e-3;
        const Cost first = follow(constraint, tokens);
        std::vector<Cost> later;
        for (int i = 0; i < 5; ++i) later.push_back(follow(constraint, tokens));
        std::ranges::sort(later, {}, &Cost::allowed);
        std::printf("%-24s %8.1f %7d %7zu | %7.1f %7.1f %8.0f | %7.1f %7.1f\n", form.name, make_ms,
                    constraint->automaton().n_states(), tokens.size(), first.allowed, first.accept,
                    first.longest, later[2].allowed, later[2].accept);
        if (std::string_view(form.name) == "any JSON") print_sampling(constraint, tokens);
    }
    return 0;
}
