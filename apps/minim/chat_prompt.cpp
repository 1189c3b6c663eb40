// SPDX-License-Identifier: Apache-2.0
#include "chat_prompt.h"

namespace cli {
namespace {

Beginning beginning_after(const minim::Model& model, const std::vector<int32_t>& prompt) {
    if (model.chat_opens_thinking(prompt)) return Beginning::reasoning;
    return model.chat_may_reason(prompt) ? Beginning::as_model_decides : Beginning::content;
}

}  // namespace

ChatPrompt chat_prompt(const minim::Model& model, const Options& options, const std::string& messages,
                       int32_t specials) {
    minim::ChatOptions chat;
    chat.kwargs = options.chat_kwargs;
    chat.thinking_off = options.reasoning_budget == 0;
    const minim::Tokens tokens = model.chat_tokenize_with(messages, chat, specials);
    ChatPrompt prompt{{tokens.begin(), tokens.end()}};
    prompt.beginning = beginning_after(model, prompt.ids);
    return prompt;
}

}  // namespace cli
