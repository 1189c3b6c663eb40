// SPDX-License-Identifier: Apache-2.0
#include "prompt_fields.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "sampling_fields.h"
#include "turn.h"

namespace server {

std::vector<int32_t> tokens_of_text(const std::string& text, const char* name, const ServedModel& serving,
                                    int32_t specials) {
    check_length(text.size() / serving.longest_token, serving, name, ApiFamily::openai, /*is_bound=*/true);
    const minim::Tokens tokens = serving.model.tokenize(text, specials);
    return {tokens.begin(), tokens.end()};
}

std::vector<int32_t> tokens_of_mixed(const Json& prompt, const Fields& request, const char* name,
                                     const ServedModel& serving, int32_t specials) {
    if (prompt.is_string()) return tokens_of_text(prompt, name, serving, specials);
    if (!prompt.is_array())
        request.refuse(name, fmt::format("must be a string or a list of token ids and strings, not {}",
                                         kind_of(prompt)));
    std::vector<int32_t> ids;
    for (const Json& part : prompt) {
        const std::vector<int32_t> some =
            part.is_string()
                ? tokens_of_text(part, name, serving, specials)
                : read_ids(Json::array({part}), request, name, "has {} among ids and strings", serving);
        ids.insert(ids.end(), some.begin(), some.end());
    }
    return ids;
}

void check_prompt(const std::vector<int32_t>& ids, const Fields& request, const char* name,
                  const ServedModel& serving) {
    if (ids.empty()) request.refuse(name, "is empty");
    check_length(ids.size(), serving, name, ApiFamily::openai);
}

}  // namespace server
