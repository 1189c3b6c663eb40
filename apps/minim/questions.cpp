// SPDX-License-Identifier: Apache-2.0
#include "questions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "failure.h"
#include "json_lines.h"

namespace cli {
namespace {

using nlohmann::json;

constexpr size_t k_max_options = 26;
constexpr uint32_t k_max_answers = 100;  // of a task of llama.cpp

int64_t answer_index(const json& line, const std::string& place, size_t n_options) {
    const bool is_index = line.contains("answer_index");
    const json& answer = line.at(is_index ? "answer_index" : "answer");
    int64_t index = -1;
    if (is_index) {
        index = answer.get<int64_t>();
    } else if (const auto letter = answer.get<std::string>(); letter.size() == 1) {
        index = letter[0] - 'A';
    }
    if (index < 0 || index >= static_cast<int64_t>(n_options))
        fail(MINIM_E_INVALID,
             fmt::format("{}: the answer {} is none of the {} options", place,
                         answer.dump(-1, ' ', false, json::error_handler_t::replace), n_options));
    return index;
}

std::string text_member(const json& line, const char* key) {
    const auto found = line.find(key);
    return found == line.end() || found->is_null() ? std::string() : found->get<std::string>();
}

void check_options(const Question& question, const std::string& place) {
    if (question.options.size() < 2 || question.options.size() > k_max_options)
        fail(MINIM_E_INVALID, fmt::format("{}: {} options, from 2 to {} are possible", place,
                                          question.options.size(), k_max_options));
}

std::vector<Question> read_lines(const std::string& path) {
    std::vector<Question> questions;
    for_each_json_line(path, [&](const json& line, const std::string& place) {
        Question one;
        one.id = line.contains("question_id") ? line["question_id"].dump() : std::to_string(questions.size());
        one.category = text_member(line, "category");
        one.question = line.at("question").get<std::string>();
        one.options = line.at("options").get<std::vector<std::string>>();
        one.answer = answer_index(line, place, one.options.size());
        one.worked = text_member(line, "cot_content");
        check_options(one, place);
        questions.push_back(std::move(one));
    });
    return questions;
}

// Reads the binary file:
//
//   u32 tasks | u32 position of each | for each: text question | answers with one right | answers with several right
//   text: u32 bytes, bytes; answers: u32 count | text of each | i32 label of each, 1: right
class TaskReader {
  public:
    TaskReader(const std::string& path, std::string bytes) : path_(path), bytes_(std::move(bytes)) {}

    std::vector<Question> read() {
        const auto count = number("the number of tasks");
        if (count > bytes_.size() / sizeof(uint32_t)) fail_task("the file is too short for its tasks");
        skip(count * sizeof(uint32_t));
        std::vector<Question> questions;
        for (task_ = 0; task_ < count; ++task_) {
            Question one;
            one.id = std::to_string(task_);
            one.question = text();
            one.answer = -1;
            std::vector<std::string> options;
            const std::vector<int32_t> labels = answers(one.options);
            for (size_t i = 0; i < labels.size(); ++i)
                if (labels[i] == 1 && one.answer < 0) one.answer = static_cast<int64_t>(i);
            if (one.answer < 0) fail_task("no answer is right");
            answers(options);  // several right ones, which are not scored
            check_options(one, fmt::format("'{}', task {}", path_, task_));
            questions.push_back(std::move(one));
        }
        return questions;
    }

  private:
    [[noreturn]] void fail_task(const char* what) const {
        fail(MINIM_E_FORMAT, fmt::format("'{}', task {}: {}", path_, task_, what));
    }
    void skip(size_t count) {
        if (count > bytes_.size() - at_) fail_task("the file ends too early");
        at_ += count;
    }
    uint32_t number(const char*) {
        uint32_t value = 0;
        const size_t at = at_;
        skip(sizeof(value));
        std::memcpy(&value, bytes_.data() + at, sizeof(value));
        return value;
    }
    std::string text() {
        const uint32_t size = number("a text");
        const size_t at = at_;
        skip(size);
        return bytes_.substr(at, size);
    }
    std::vector<int32_t> answers(std::vector<std::string>& texts) {
        const uint32_t count = number("answers");
        if (count > k_max_answers) fail_task("it has too many answers");
        for (uint32_t i = 0; i < count; ++i) texts.push_back(text());
        std::vector<int32_t> labels(count);
        const size_t at = at_;
        skip(count * sizeof(int32_t));
        if (count > 0) std::memcpy(labels.data(), bytes_.data() + at, count * sizeof(int32_t));
        return labels;
    }

    const std::string& path_;
    const std::string bytes_;
    size_t at_ = 0;
    uint32_t task_ = 0;
};

bool is_blank(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns the option of a letter; -1: it is none.
int64_t option_of(char c, int64_t n_options) {
    return c >= 'A' && c < 'A' + n_options ? c - 'A' : -1;
}

// A letter that a text names behind a lead such as "answer is".
struct Named {
    size_t at = 0;
    char letter = 0;  // 0: none
};

// Returns the last capital letter behind `lead`, with or without "(" before it. skips_blanks: blanks may be between.
Named last_behind(std::string_view answer, std::string_view lead, bool skips_blanks) {
    Named last;
    for (size_t at = answer.find(lead); at != std::string_view::npos; at = answer.find(lead, at + 1)) {
        size_t next = at + lead.size();
        while (skips_blanks && next < answer.size() && is_blank(answer[next])) ++next;
        if (next < answer.size() && answer[next] == '(') ++next;
        if (next < answer.size() && answer[next] >= 'A' && answer[next] <= 'Z') last = {at, answer[next]};
    }
    return last;
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    // A number of tasks below 2^24 has a zero byte, and no text has one.
    std::array<char, sizeof(uint32_t)> start{};
    file.read(start.data(), start.size());
    if (!file || std::ranges::find(start, '\0') == start.end()) return read_lines(path);
    file.seekg(0);
    return TaskReader(path, {std::istreambuf_iterator<char>(file), {}}).read();
}

std::string letter_of(int64_t index) {
    return std::string(1, static_cast<char>('A' + index));
}

std::string lettered(const Question& question) {
    std::string text = question.question;
    for (size_t i = 0; i < question.options.size(); ++i)
        text += fmt::format("\n{}. {}", letter_of(static_cast<int64_t>(i)), question.options[i]);
    return text;
}

int64_t chosen_option(std::string_view answer, int64_t n_options) {
    const Named said = last_behind(answer, "answer is ", false);
    if (said.letter != 0) return option_of(said.letter, n_options);
    const Named upper = last_behind(answer, "Answer:", true);
    const Named lower = last_behind(answer, "answer:", true);
    const Named& later = upper.letter != 0 && (lower.letter == 0 || upper.at > lower.at) ? upper : lower;
    if (later.letter != 0) return option_of(later.letter, n_options);
    for (size_t at = answer.size(); at-- > 0;) {
        const bool stands_alone =
            (at == 0 || !is_word(answer[at - 1])) && (at + 1 == answer.size() || !is_word(answer[at + 1]));
        if (stands_alone && option_of(answer[at], n_options) >= 0) return option_of(answer[at], n_options);
    }
    return -1;
}

}  // namespace cli
