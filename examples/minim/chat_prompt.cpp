// SPDX-License-Identifier: Apache-2.0
#include "chat_prompt.h"

namespace cli {

ChatPrompt chat_prompt(const minim::Model& model, const Options& options, const std::string& messages,
                       int32_t specials) {
    const minim::Tokens tokens = model.chat_tokenize(messages, {}, options.chat_kwargs, specials);
    ChatPrompt prompt;
    prompt.ids.assign(tokens.begin(), tokens.end());
    prompt.opens_thought = model.chat_render(messages, {}, options.chat_kwargs).view().ends_with("<think>\n");
    if (!prompt.opens_thought || options.reasoning_budget != 0) return prompt;
    const minim::Tokens newline = model.tokenize("\n");
    const bool ends_in_newline =
        newline.size() == 1 && !prompt.ids.empty() && prompt.ids.back() == newline[0];
    if (ends_in_newline) prompt.ids.pop_back();  // two newlines are one token
    const minim::Tokens rest = model.tokenize(ends_in_newline ? "\n\n</think>\n\n" : "\n</think>\n\n");
    prompt.ids.insert(prompt.ids.end(), rest.begin(), rest.end());
    prompt.opens_thought = false;
    return prompt;
}

}  // namespace cli
