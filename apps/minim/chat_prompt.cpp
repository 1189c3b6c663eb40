// SPDX-License-Identifier: Apache-2.0
#include "chat_prompt.h"

namespace cli {

ChatPrompt chat_prompt(const minim::Model& model, const Options& options, const std::string& messages,
                       int32_t specials) {
    minim::ChatOptions chat;
    chat.kwargs = options.chat_kwargs;
    chat.thinking_off = options.reasoning_budget == 0;
    const minim::Tokens tokens = model.chat_tokenize_with(messages, chat, specials);
    ChatPrompt prompt{{tokens.begin(), tokens.end()}};
    prompt.opens_thought = model.chat_opens_thinking(prompt.ids);
    return prompt;
}

}  // namespace cli
