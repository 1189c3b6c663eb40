// SPDX-License-Identifier: Apache-2.0
// The bundled model, and its prompts, sessions and answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "engine/session.h"
#include "model/model.h"
#include "support/helpers.h"

namespace minim::test {

constexpr int32_t k_end_of_turn = 2004;  // [e~[

// Returns the bundled model, which is opened once in a process.
std::shared_ptr<const model::Model> bundled_model(std::string_view backend = "cpu");

// Returns the ids of a conversation of one question, up to where the answer begins.
std::vector<int32_t> question(const std::string& text);

engine::Session make_session(int64_t n_context = 512, int64_t n_ubatch = 512);

std::vector<int32_t> tokens_of(const engine::Session& session);

struct Answer {
    std::vector<int32_t> ids;
    std::vector<std::string> texts;  // the text of each token
    std::string text;
    std::vector<sampling::Choice> choices;
    engine::GenerationState state;
};

// Returns the remaining tokens of a generation.
Answer rest_of(engine::Generation& generation);
Answer answer(engine::Session& session, std::span<const int32_t> prompt,
              const engine::GenerateParams& params = {});
// Returns the answer in a session of its own.
Answer answer(std::span<const int32_t> prompt, const engine::GenerateParams& params = {});

// The question that most tests ask, and its whole greedy answer, which ends with the model's end token.
const std::vector<int32_t>& prompt();
const Answer& greedy();

}  // namespace minim::test
