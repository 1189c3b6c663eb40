// SPDX-License-Identifier: Apache-2.0
// The server's memory of its answers. Any thread.
//
// TurnMemory: the token ids of an answer. A client sends the answer back as text and JSON, whose rendering seldom has the same
// tokens (blank lines before a tool call, another way to cut a word). If the rendered turn is a remembered one, the generated ids
// are put in its place, so that the prefix cache finds them.
//
// ReasoningMemory: the reasoning before a tool call, by the call's id, for clients that do not send it back.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "json.h"
#include "minim/minim.hpp"
#include "recent.h"

namespace server {

class TurnMemory {
  public:
    explicit TurnMemory(const minim::Model& model);

    // `message` is the answer as a client sends it back; `prompt` and `generated` are the ids it was made from.
    void remember(const Json& message, const std::vector<int32_t>& prompt,
                  const std::vector<int32_t>& generated);
    // Returns the prompt with the generated ids in the place of remembered turns.
    std::vector<int32_t> splice(const std::vector<int32_t>& prompt);

  private:
    const minim::Model& model_;
    const int32_t end_;  // the token that ends a turn, or -1
    std::mutex mutex_;   // protects turns_
    Recent<std::vector<int32_t>> turns_{size_t{32} << 20};
};

class ReasoningMemory {
  public:
    void remember(const std::string& call_id, const std::string& reasoning);
    std::optional<std::string> find(const std::string& call_id);

  private:
    std::mutex mutex_;
    Recent<std::string> texts_{size_t{32} << 20};
};

}  // namespace server
