// SPDX-License-Identifier: Apache-2.0
// A sentence in a long text: texts of several lengths with the sentence at several depths, and a question at the end. The text is
// made of built-in sentences in an order that the seed gives.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "eval_answers.h"
#include "failure.h"
#include "open_model.h"
#include "output.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view k_filler[] = {
    "The ferry leaves the harbour at noon and returns before dark. ",
    "In autumn the orchards along the river are full of pickers. ",
    "A new bridge was opened after seven years of work. ",
    "The library keeps maps of every village in the province. ",
    "Most of the bakers in the old town begin at three in the morning. ",
    "Rain is rare in the valley, but the snow stays until May. ",
    "The museum shows clocks that were made two centuries ago. ",
    "Fishermen mend their nets on the quay while the boats are out. ",
    "The train to the coast stops at every station on Sundays. ",
    "Her uncle repairs violins in a workshop behind the theatre. ",
    "The market moved to the square when the hall burned down. ",
    "From the tower one can see the lighthouse on clear evenings. ",
};
constexpr std::string_view k_cities[] = {"Lisbon", "Oslo",  "Cairo", "Lima",   "Quito",
                                         "Hanoi",  "Accra", "Delhi", "Athens", "Dublin"};

struct Needle {
    int64_t length;  // tokens of the text
    double depth;    // percent
    std::string city;
    std::string number;
    std::string text;
};

int64_t n_tokens(const minim::Model& model, std::string_view text) {
    return static_cast<int64_t>(model.tokenize(text).size());
}

// Returns a text of about `length` tokens with the needle's sentence behind `depth` percent of its sentences.
std::string hidden(const minim::Model& model, const Needle& needle, std::mt19937_64& random) {
    const std::string sentence = fmt::format("The access code of {} is {}. ", needle.city, needle.number);
    std::vector<std::string_view> sentences;
    int64_t n = n_tokens(model, sentence);
    std::vector<int64_t> sizes;
    for (const std::string_view one : k_filler) sizes.push_back(n_tokens(model, one));
    for (;;) {
        const size_t one = random() % std::size(k_filler);
        if (n + sizes[one] > needle.length) break;
        n += sizes[one];
        sentences.push_back(k_filler[one]);
    }
    const auto before =
        static_cast<size_t>(std::lround(needle.depth / 100.0 * static_cast<double>(sentences.size())));
    std::string text;
    for (size_t i = 0; i < sentences.size(); ++i) {
        if (i == before) text += sentence;
        text += sentences[i];
    }
    return before == sentences.size() ? text + sentence : text;
}

std::vector<Needle> needles_of(const minim::Model& model, const Options& options) {
    // The standard fixes the generator's numbers, so that a seed gives the same texts everywhere.
    std::mt19937_64 random(options.sampling.seed.value_or(1));
    std::vector<Needle> needles;
    for (const double length : options.lengths) {
        for (const double depth : options.depths) {
            Needle needle = {static_cast<int64_t>(length), depth,
                             std::string(k_cities[random() % std::size(k_cities)]),
                             std::to_string(10000 + random() % 90000), ""};
            needle.text = hidden(model, needle, random);
            needles.push_back(std::move(needle));
        }
    }
    return needles;
}

// Throws INVALID for a length in which nothing can be hidden.
void check_lengths(const Options& options) {
    constexpr double k_min_length = 64;
    for (const double length : options.lengths)
        if (length < k_min_length)
            fail(MINIM_E_INVALID, fmt::format("--lengths: {} is less than {} tokens", length, k_min_length));
}

void report_needles(const Options& options, const std::vector<Needle>& needles,
                    const std::vector<bool>& is_right) {
    const auto n_right = std::count(is_right.begin(), is_right.end(), true);
    if (options.prints_json) {
        Json runs = Json::array();
        for (size_t i = 0; i < needles.size(); ++i)
            runs.push_back({{"length", needles[i].length},
                            {"depth", needles[i].depth},
                            {"right", static_cast<bool>(is_right[i])}});
        const Json all = {{"questions", needles.size()}, {"right", n_right}, {"runs", runs}};
        return print(all.dump() + "\n");
    }
    print(fmt::format("{:>10}", "length"));
    for (const double depth : options.depths) print(fmt::format(" {:>5}%", depth));
    for (size_t i = 0; i < needles.size(); ++i) {
        if (i % options.depths.size() == 0) print(fmt::format("\n{:>10}", needles[i].length));
        print(fmt::format(" {:>6}", is_right[i] ? "yes" : "no"));
    }
    print(fmt::format("\n{} of {} found\n", n_right, needles.size()));
}

}  // namespace

void eval_needle(const Options& options, const minim::Cancel& cancel) {
    check_lengths(options);
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const std::vector<Needle> needles = needles_of(model, options);
    const auto conversation = [&](size_t i) {
        const std::string question = fmt::format(
            "{}\n\nWhat is the access code of {}? Answer with the number.", needles[i].text, needles[i].city);
        return Conversation{Json::array({{{"role", "user"}, {"content", question}}}).dump(), ""};
    };
    std::vector<bool> is_right(needles.size());
    for_each_answer(model, options, needles.size(), conversation, [&](size_t i, const minim::Output& output) {
        is_right[i] = output.content.value_or("").find(needles[i].number) != std::string::npos;
    });
    report_needles(options, needles, is_right);
    flush_output();
}

}  // namespace cli
