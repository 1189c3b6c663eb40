// SPDX-License-Identifier: Apache-2.0
// The texts that end repetitions for DRY sampling (sampling/dry.h), in the tokens of a vocabulary.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sampling/dry.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

// Any thread. A breaker's tokens are cached, because finding them reads the whole vocabulary.
class DryBreakers {
  public:
    // `text` must not be empty; only its first k_max_breaker_bytes bytes are used.
    std::shared_ptr<const sampling::DryBreaker> find(const tokenizer::Tokenizer& tokenizer,
                                                     const std::string& text);

  private:
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const sampling::DryBreaker>> known_;
};

}  // namespace minim::model
