// SPDX-License-Identifier: Apache-2.0
#include "constraint/token_trie.h"

#include <map>
#include <string>

#include "support/catch.h"
#include "support/tiny_tokenizer.h"

using namespace minim;
using namespace minim::constraint;
using minim::test::tiny_tokenizer;

TEST_CASE("the tree holds every token of text under its bytes, and no markup") {
    const auto tokenizer = tiny_tokenizer();
    const TokenTrie trie(*tokenizer);
    CHECK(trie.n_vocab() == tokenizer->n_tokens());
    std::map<int32_t, std::string> found;
    std::string path;
    const auto nodes = trie.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
        REQUIRE(nodes[i].depth <= path.size() + 1);
        path.resize(nodes[i].depth - size_t{1});
        path += static_cast<char>(nodes[i].byte);
        if (nodes[i].token >= 0) found[nodes[i].token] = path;
        // Exactly the nodes below a node, up to `end`, are deeper.
        const auto end = static_cast<size_t>(nodes[i].end);
        REQUIRE(end > i);
        for (size_t below = i + 1; below < end; ++below) REQUIRE(nodes[below].depth > nodes[i].depth);
        if (end < nodes.size()) REQUIRE(nodes[end].depth <= nodes[i].depth);
    }
    for (const TokenTrie::Twin& twin : trie.twins()) found[twin.other] = found.at(twin.first);
    size_t longest = 0;
    for (int32_t id = 0; id < tokenizer->n_tokens(); ++id) {
        const bool is_text = tokenizer::is_ordinary(tokenizer->token_type(id));
        if (!is_text) {
            CHECK(found.count(id) == 0);
            continue;
        }
        CHECK(found.at(id) == tokenizer->token_bytes(id));
        longest = std::max(longest, tokenizer->token_bytes(id).size());
    }
    CHECK(trie.longest_token() == longest);
}
