// SPDX-License-Identifier: Apache-2.0
// Multiple-choice questions, scored by the logits of the letters, by the log-probabilities of the options, or by an answer.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "eval_answers.h"
#include "failure.h"
#include "json_lines.h"
#include "open_model.h"
#include "output.h"
#include "questions.h"
#include "text_scores.h"
#include "token_logits.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

// What is known of one question.
struct Outcome {
    std::string category;
    bool is_right = false;
    bool is_answered = true;
};

// ---- the file of results ----

// Cuts the last line off a file if it has no end: the run that wrote it was killed.
void drop_unfinished_line(const std::string& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || size == 0) return;
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t end = text.rfind('\n');
    if (end + 1 == text.size()) return;
    std::filesystem::resize_file(path, end == std::string::npos ? 0 : end + 1, error);
    if (error) fail(MINIM_E_IO, fmt::format("cannot write '{}': {}", path, error.message()), error.value());
}

// Reads the results of earlier runs, and appends those of this one.
class Results {
  public:
    // path "": nothing is read or written. score: how questions are scored; throws INVALID if the file has results of another way.
    Results(const std::string& path, const std::string& score) : path_(path), score_(score) {
        std::error_code error;
        if (path.empty()) return;
        if (std::filesystem::exists(path, error)) {
            drop_unfinished_line(path);
            for_each_json_line(path, [&](const nlohmann::json& line, const std::string&) {
                if (const std::string of_line = line.value("score", score_); of_line != score_)
                    fail(MINIM_E_INVALID,
                         fmt::format("'{}' has results of --score {}: name another file for --score {}",
                                     path_, of_line, score_));
                Outcome one;
                one.category = line.at("category").is_null() ? "" : line.at("category").get<std::string>();
                one.is_right = line.at("correct").get<bool>();
                one.is_answered = !line.at("chosen").is_null();
                earlier_[line.at("question_id").dump()] = one;
            });
        }
        file_.open(path, std::ios::binary | std::ios::app);
        check();
    }

    // id: as JSON.
    const Outcome* find(const std::string& id) const {
        const auto found = earlier_.find(id);
        return found == earlier_.end() ? nullptr : &found->second;
    }

    void add(const Question& question, int64_t chosen, const char* key, const Json& scores_or_text) {
        if (path_.empty()) return;
        Json line = {{"question_id", Json::parse(question.id)},
                     {"category", question.category.empty() ? Json() : Json(question.category)},
                     {"answer", letter_of(question.answer)},
                     {"chosen", chosen < 0 ? Json() : Json(letter_of(chosen))},
                     {"correct", chosen == question.answer},
                     {"score", score_},
                     {key, scores_or_text}};
        file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
        check();
    }

  private:
    void check() const {
        if (!file_) fail(MINIM_E_IO, fmt::format("cannot write '{}'", path_));
    }

    const std::string path_;
    const std::string score_;
    std::map<std::string, Outcome> earlier_;
    std::ofstream file_;
};

// ---- prompts ----

bool is_same(const Question& a, const Question& b) {
    return a.question == b.question && a.options == b.options;
}

// Returns the worked examples of a question, without itself: those of its category, or, if there are none, of any.
std::vector<const Question*> shots_for(const Question& question, const std::vector<Question>& shots,
                                       int64_t most) {
    std::vector<const Question*> chosen;
    const auto take = [&](const auto& fits) {
        for (const Question& shot : shots)
            if (std::ssize(chosen) < most && !is_same(shot, question) && fits(shot)) chosen.push_back(&shot);
    };
    take([&](const Question& shot) { return shot.category == question.category; });
    if (chosen.empty()) take([](const Question&) { return true; });
    return chosen;
}

std::string letter_prompt(const Question& question, const std::vector<const Question*>& shots) {
    std::string prompt;
    for (const Question* shot : shots)
        prompt += fmt::format("{}\nAnswer: {}\n\n", lettered(*shot), letter_of(shot->answer));
    return prompt + lettered(question) + "\nAnswer:";
}

std::string continuation_prompt(const Question& question, const std::vector<const Question*>& shots) {
    std::string prompt;
    for (const Question* shot : shots)
        prompt += fmt::format("{} {}\n\n", shot->question, shot->options[shot->answer]);
    return prompt + question.question;
}

Conversation conversation_of(const Question& question, const std::vector<const Question*>& shots) {
    constexpr std::string_view k_task =
        "Answer the multiple-choice question. Think step by step, then end with a line of the form \"The "
        "answer is (X)\", where X is the letter of the right option.\n\n";
    Json messages = Json::array();
    const auto ask = [&](const Question& one) {
        const std::string text = messages.empty() ? std::string(k_task) : "";
        messages.push_back({{"role", "user"}, {"content", text + lettered(one)}});
    };
    for (const Question* shot : shots) {
        ask(*shot);
        const std::string answer = fmt::format("The answer is ({}).", letter_of(shot->answer));
        const bool has_answer = chosen_option(shot->worked, std::ssize(shot->options)) == shot->answer;
        const std::string worked =
            shot->worked.empty() ? answer : shot->worked + (has_answer ? "" : "\n" + answer);
        messages.push_back({{"role", "assistant"}, {"content", worked}});
    }
    ask(question);
    return {messages.dump(), ""};
}

// ---- scores ----

// A session that keeps the beginning that two prompts have in common.
class Scorer {
  public:
    Scorer(const minim::Model& model, const Options& options, size_t longest, const minim::Cancel& cancel)
        : session_(model, session_options(options, longest)), cancel_(cancel) {}

    // Returns the logits after the last id.
    std::span<const float> last(const Ids& ids) {
        // Forgets all tokens from the first that differs on, and the last one, whose logits are wanted.
        const minim::Tokens kept = session_.tokens();
        const auto differs = std::mismatch(kept.begin(), kept.end(), ids.begin(), ids.end()).second;
        session_.truncate(std::min(static_cast<size_t>(differs - ids.begin()), ids.size() - 1));
        const size_t n = session_.token_count();
        session_.eval({ids.data() + n, ids.size() - n}, false, buffer_, &cancel_);
        return buffer_;
    }

  private:
    minim::Session session_;
    const minim::Cancel& cancel_;
    std::vector<float> buffer_;
};

Ids ids_of(const minim::Model& model, const std::string& text) {
    const minim::Tokens tokens = model.tokenize(text);
    return {tokens.begin(), tokens.end()};
}

// Returns the index of the largest score, the lower one of equal ones.
int64_t best_of(const std::vector<double>& scores) {
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

// Returns the log-probability of each letter after the prompt.
std::vector<double> letter_scores(const minim::Model& model, Scorer& scorer, const Question& question,
                                  const Ids& prompt) {
    const std::span<const float> logits = scorer.last(prompt);
    const double log_sum = log_sum_exp(logits);
    std::vector<double> scores;
    for (int64_t i = 0; i < std::ssize(question.options); ++i) {
        const int32_t letter = ids_of(model, " " + letter_of(i)).front();
        scores.push_back(static_cast<double>(logits[letter]) - log_sum);
    }
    return scores;
}

// Returns the number of ids that all lists begin with, at least 1 and less than the length of each.
size_t common_prefix(const std::vector<Ids>& lists, const Question& question) {
    size_t n = lists.front().size();
    for (const Ids& ids : lists) {
        const auto differs =
            std::mismatch(lists.front().begin(), lists.front().end(), ids.begin(), ids.end()).first;
        n = std::min({n, static_cast<size_t>(differs - lists.front().begin()), ids.size() - 1});
    }
    if (n == 0)
        fail(MINIM_E_INVALID,
             fmt::format("question {}: its options have no token in common to begin with", question.id));
    return n;
}

// ---- the command ----

struct Work {
    std::vector<Question> questions;  // to be answered
    std::vector<Question> shots;
    std::vector<Outcome> outcomes;
};

void note(Work& work, Results& results, const Question& question, int64_t chosen, const char* key,
          const Json& scores_or_text) {
    results.add(question, chosen, key, scores_or_text);
    work.outcomes.push_back({question.category, chosen == question.answer, chosen >= 0});
}

void show_progress(size_t done, size_t count) {
    if (isatty(STDERR_FILENO) != 1) return;
    print_note(fmt::format("\rquestion {} of {}\x1b[K{}", done, count, done == count ? "\r\x1b[K" : ""));
}

// One prompt after another: a prompt alone fills a step, and the engine would divide it, so that other requests need not wait.
void score_by_letters(const minim::Model& model, const Options& options, Work& work, Results& results,
                      const minim::Cancel& cancel) {
    std::vector<Ids> prompts;
    size_t longest = 1;
    for (const Question& question : work.questions) {
        const auto shots = shots_for(question, work.shots, options.n_shots);
        longest =
            std::max(longest, prompts.emplace_back(ids_of(model, letter_prompt(question, shots))).size());
    }
    Scorer scorer(model, options, longest, cancel);
    for (size_t i = 0; i < prompts.size(); ++i) {
        const std::vector<double> scores = letter_scores(model, scorer, work.questions[i], prompts[i]);
        note(work, results, work.questions[i], best_of(scores), "scores", scores);
        show_progress(i + 1, prompts.size());
    }
}

void score_by_continuations(const minim::Model& model, const Options& options, Work& work, Results& results) {
    struct OptionText {
        size_t question = 0;
        ScoredText text = {};
    };
    std::vector<OptionText> texts;  // of all questions, in order
    size_t longest = 1;
    for (size_t number = 0; number < work.questions.size(); ++number) {
        const Question& question = work.questions[number];
        const auto shots = shots_for(question, work.shots, options.n_shots);
        const std::string prompt = continuation_prompt(question, shots) + " ";
        std::vector<Ids> lists;
        for (const std::string& option : question.options) lists.push_back(ids_of(model, prompt + option));
        const size_t first = common_prefix(lists, question);
        for (Ids& ids : lists) {
            longest = std::max(longest, ids.size());
            texts.push_back({number, {std::move(ids), first}});
        }
    }
    std::vector<double> scores;  // of the question whose options come
    const auto text = [&](size_t i) { return texts[i].text; };
    for_each_score(model, options, texts.size(), longest, text, [&](size_t i, double sum) {
        const auto& [number, scored] = texts[i];
        const Question& question = work.questions[number];
        scores.push_back(sum / static_cast<double>(scored.ids.size() - scored.first));
        if (scores.size() < question.options.size()) return;
        note(work, results, question, best_of(scores), "scores", scores);
        scores.clear();
        show_progress(number + 1, work.questions.size());
    });
}

void score_by_answers(const minim::Model& model, const Options& options, Work& work, Results& results) {
    const auto conversation = [&](size_t i) {
        const Question& question = work.questions[i];
        return conversation_of(question, shots_for(question, work.shots, options.n_shots));
    };
    for_each_answer(model, options, work.questions.size(), conversation,
                    [&](size_t i, const minim::Output& output) {
                        const Question& question = work.questions[i];
                        const std::string text = output.content.value_or("");
                        const int64_t chosen = chosen_option(text, std::ssize(question.options));
                        note(work, results, question, chosen, "text", text);
                        show_progress(i + 1, work.questions.size());
                    });
}

Json figures_of(const std::vector<Outcome>& outcomes) {
    int64_t right = 0;
    int64_t unanswered = 0;
    for (const Outcome& one : outcomes) {
        right += one.is_right ? 1 : 0;
        unanswered += one.is_answered ? 0 : 1;
    }
    const Share share = share_of(right, std::ssize(outcomes));
    return {{"questions", outcomes.size()}, {"correct", right},
            {"accuracy", share.value},      {"low", share.low},
            {"high", share.high},           {"unanswered", unanswered}};
}

void report(const Options& options, const std::vector<Outcome>& outcomes) {
    std::map<std::string, std::vector<Outcome>> by_category;
    for (const Outcome& one : outcomes)
        by_category[one.category.empty() ? "none" : one.category].push_back(one);
    Json all = figures_of(outcomes);
    Json categories = Json::object();
    for (const auto& [category, some] : by_category) categories[category] = figures_of(some);
    all["categories"] = categories;
    if (options.prints_json) return print(all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    print(fmt::format("{:<24} {:>9} {:>8} {:>9}   {}\n", "category", "questions", "correct", "accuracy",
                      "95 % interval"));
    const auto print_line = [](const std::string& name, const Json& figures) {
        print(fmt::format("{:<24} {:>9} {:>8} {:>8.2f}%   {:.2f}% to {:.2f}%\n", printable(name, 60),
                          figures["questions"].get<int64_t>(), figures["correct"].get<int64_t>(),
                          100.0 * figures["accuracy"].get<double>(), 100.0 * figures["low"].get<double>(),
                          100.0 * figures["high"].get<double>()));
    };
    if (by_category.size() > 1)
        for (const auto& [category, some] : by_category) print_line(category, figures_of(some));
    print_line("all", all);
    if (const auto n = all["unanswered"].get<int64_t>(); n > 0)
        print(fmt::format("{} answers name no option\n", n));
}

Work work_of(const Options& options, const Results& results) {
    Work work;
    std::set<std::string> ids;
    int64_t n_taken = 0;
    for (Question& question : read_questions(options.files.front())) {
        if (!options.category.empty() && question.category != options.category) continue;
        if (options.limit > 0 && n_taken == options.limit) break;
        ++n_taken;
        if (!ids.insert(question.id).second && !options.output_file.empty())
            fail(MINIM_E_INVALID, fmt::format("'{}' has two questions {}, which -o cannot tell apart",
                                              options.files.front(), question.id));
        if (const Outcome* earlier = results.find(question.id)) {
            work.outcomes.push_back(*earlier);
        } else {
            work.questions.push_back(std::move(question));
        }
    }
    if (n_taken == 0)
        fail(MINIM_E_INVALID,
             fmt::format(
                 "'{}' has no questions{}", options.files.front(),
                 options.category.empty() ? "" : fmt::format(" of the category '{}'", options.category)));
    if (options.shots_file.empty()) return work;
    work.shots = read_questions(options.shots_file);
    if (work.shots.empty())
        fail(MINIM_E_INVALID, fmt::format("--shots: '{}' has no questions", options.shots_file));
    return work;
}

}  // namespace

void eval_choice(const Options& options, const minim::Cancel& cancel) {
    Results results(options.output_file, options.score);
    Work work = work_of(options, results);
    if (!work.outcomes.empty())
        print_note(fmt::format("minim: {} of {} questions are in '{}' already\n", work.outcomes.size(),
                               work.outcomes.size() + work.questions.size(), printable(options.output_file)));
    if (!work.questions.empty()) {
        const minim::Runtime runtime = open_runtime(options);
        const minim::Model model = open_model(runtime, options, cancel);
        if (options.score == "generate") {
            score_by_answers(model, options, work, results);
        } else if (options.score == "letter") {
            score_by_letters(model, options, work, results, cancel);
        } else {
            score_by_continuations(model, options, work, results);
        }
    }
    report(options, work.outcomes);
    flush_output();
}

}  // namespace cli
