// SPDX-License-Identifier: Apache-2.0
// The chat templates of a checkpoint. Most have one; some have others by name, as "tool_use".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "chat/template.h"
#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

class ChatTemplates {
  public:
    ChatTemplates() = default;
    // Reads chat_template.jinja, else `chat_template` of tokenizer_config.json (a text, or a list of named ones). For a
    // GGUF file, reads `tokenizer.chat_template` and `tokenizer.chat_template.NAME`. Logs a warning if there is no
    // template, and for each template that cannot be used.
    // `own` is a template in place of all those, unless it is empty. Throws invalid if `own` is a name and no template, unsupported
    // if it cannot be parsed.
    ChatTemplates(const checkpoint::Checkpoint& checkpoint, const tokenizer::Tokenizer& tokenizer,
                  std::string_view file, std::string_view own, const Logger& log);

    // Returns a template by its name. If `name` is empty, returns "tool_use" if the request has tools and that template
    // exists, else "default". Throws not_found for an unknown name, and unsupported, saying why, if the checkpoint has
    // no template or the template cannot be used.
    const chat::Template& find(std::string_view name, bool has_tools) const;

  private:
    struct Entry {
        std::string name;
        std::optional<chat::Template> parsed;
        std::string why_not;  // why it cannot be used
    };
    const Entry* entry(std::string_view name) const noexcept;

    std::vector<Entry> entries_;
    std::string file_;
};

}  // namespace minim::model
