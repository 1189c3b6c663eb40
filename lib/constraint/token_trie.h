// SPDX-License-Identifier: Apache-2.0
// The bytes of a vocabulary's ordinary tokens as a tree, so that tokens with a common prefix are tried together. Nodes are in
// depth-first order: the subtree of a node follows it, and can be skipped with one jump.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace minim::constraint {

// Immutable; any thread.
class TokenTrie {
  public:
    // Makes the tree of the tokens that are text; added tokens are markup and left out.
    explicit TokenTrie(const tokenizer::Tokenizer& tokenizer);

    struct Node {
        uint8_t byte;    // the last of the node's text
        uint16_t depth;  // bytes of the node's text; 1 for those that one byte leads to
        int32_t end;     // index behind the last node below this one
        int32_t token;   // the token with this text, or -1
    };
    std::span<const Node> nodes() const noexcept { return nodes_; }

    // A token with the same text as another one, of which only the first is in a node.
    struct Twin {
        int32_t first;
        int32_t other;
    };
    std::span<const Twin> twins() const noexcept { return twins_; }

    int32_t n_vocab() const noexcept { return n_vocab_; }
    size_t longest_token() const noexcept { return longest_token_; }  // bytes

  private:
    std::vector<Node> nodes_;
    std::vector<Twin> twins_;
    int32_t n_vocab_;
    size_t longest_token_ = 0;
};

}  // namespace minim::constraint
