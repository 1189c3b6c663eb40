// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <map>

#include "chat/render.h"
#include "model/chat_tokens.h"
#include "placement/backends.h"

namespace minim::test {

std::shared_ptr<const model::Model> bundled_model(std::string_view backend) {
    static std::map<std::string, std::shared_ptr<const model::Model>, std::less<>> models;
    auto& model = models[std::string(backend)];
    if (!model) {
        const Logger silent;
        model = std::make_shared<const model::Model>(
            std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf",
            placement::make_backend(backend, std::make_shared<ThreadPool>(2), active_cpu_level()),
            model::OpenOptions{}, silent);
    }
    return model;
}

std::vector<int32_t> question(const std::string& text) {
    const auto model = bundled_model();
    const std::string messages = R"([{"role": "user", "content": ")" + text + R"("}])";
    return model::chat_tokens(
        model->text().tokenizer(),
        chat::render(model->text().chat_templates().find("", false), messages, "", "", {}),
        tokenizer::Specials::exact);
}

engine::Session make_session(int64_t n_context, int64_t n_ubatch) {
    engine::SessionParams params;
    params.n_context = n_context;
    params.n_ubatch = n_ubatch;
    const Logger silent;
    return {bundled_model(), params, silent};
}

std::vector<int32_t> tokens_of(const engine::Session& session) {
    return {session.tokens().begin(), session.tokens().end()};
}

Answer rest_of(engine::Generation& generation) {
    Answer answer;
    while (auto event = generation.next(nullptr)) {
        answer.ids.push_back(event->choice.token);
        answer.texts.push_back(event->text);
        answer.text += event->text;
        answer.choices.push_back(std::move(event->choice));
    }
    answer.state = generation.state();
    return answer;
}

Answer answer(engine::Session& session, std::span<const int32_t> prompt,
              const engine::GenerateParams& params) {
    engine::Generation generation(session, params, prompt, nullptr);
    return rest_of(generation);
}

Answer answer(std::span<const int32_t> prompt, const engine::GenerateParams& params) {
    engine::Session session = make_session();
    return answer(session, prompt, params);
}

const std::vector<int32_t>& prompt() {
    static const std::vector<int32_t> ids = question("What is the capital of Peru?");
    return ids;
}

const Answer& greedy() {
    static const Answer whole = answer(prompt());
    return whole;
}

}  // namespace minim::test
