// The texts that end repetitions for DRY sampling (sampling/dry.h), in the tokens of a vocabulary.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sampling/dry.h"
#include "tokenizer/tokenizer.h"

namespace minim::model {

// Any thread. Finding a breaker's tokens takes a look at the whole vocabulary, so they are kept.
class DryBreakers {
  public:
    // `text` is not empty; its first k_most_breaker_bytes bytes count.
    std::shared_ptr<const sampling::DryBreaker> find(const tokenizer::Tokenizer& tokenizer,
                                                     const std::string& text);

  private:
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const sampling::DryBreaker>> known_;
};

}  // namespace minim::model
