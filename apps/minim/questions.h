// SPDX-License-Identifier: Apache-2.0
// Multiple-choice questions: JSON lines with the fields of MMLU-Pro, or llama.cpp's binary file of tasks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

struct Question {
    std::string id;        // question_id as JSON, or the question's number in the file, from 0 on
    std::string category;  // "": none
    std::string question;
    std::vector<std::string> options;  // 2 to 26
    int64_t answer = 0;                // index of the right option
    std::string worked;                // how the answer is found; "": not said
};

// Throws minim::Exception: NOT_FOUND or IO if the file cannot be read, and INVALID or FORMAT, naming the question, if one has a field
// missing or wrong.
std::vector<Question> read_questions(const std::string& path);

// Returns "A" for 0.
std::string letter_of(int64_t index);

// Returns the question with its options, each behind a letter: "QUESTION\nA. OPTION\nB. OPTION".
std::string lettered(const Question& question);

// Returns the index of the option that an answer names; -1: none. It is the last letter behind "answer is", else behind "answer:",
// else the last capital letter that stands alone and is an option.
int64_t chosen_option(std::string_view answer, int64_t n_options);

}  // namespace cli
