// SPDX-License-Identifier: Apache-2.0
// The text of generations is delayed if it must be, never lost, and never cut inside a character.
#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "engine/generation.h"
#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Finish;
using engine::GenerateParams;
using engine::Generation;
using engine::Session;

namespace {

const std::vector<int32_t>& emoji_prompt() {
    static const std::vector<int32_t> ids = question("Show me the emoji of a pig.");
    return ids;
}

Answer with_stop(const std::string& stop) {
    GenerateParams params;
    params.stop_texts = {stop};
    return answer(prompt(), params);
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        if (step.state != Utf8State::complete) return false;
        text.remove_prefix(step.length);
    }
    return true;
}

bool ends_inside_character(const std::vector<int32_t>& ids) {
    const std::string bytes = bundled_model()->text().tokenizer().decode_bytes(ids, true);
    return !is_utf8(bytes);
}

}  // namespace

TEST_CASE("each token of a plain answer brings its own text at once") {
    REQUIRE(greedy().text.size() > 20);
    for (size_t i = 0; i < greedy().ids.size(); ++i) {
        CHECK(greedy().texts[i] == bundled_model()->text().tokenizer().token_bytes(greedy().ids[i]));
    }
}

TEST_CASE("a stop text anywhere in the answer ends it there, however many tokens it spans") {
    const std::string& text = greedy().text;
    for (const size_t length : std::vector<size_t>{1, 4, 11}) {
        for (size_t at = 0; at + length <= text.size(); at += 7) {
            const std::string stop = text.substr(at, length);
            const Answer cut = with_stop(stop);
            INFO("stop text '" << stop << "'");
            CHECK(cut.text == text.substr(0, text.find(stop)));
            CHECK(cut.state.finish == Finish::stop_text);
            CHECK(cut.state.stop_token == -1);
            CHECK(cut.ids ==
                  std::vector<int32_t>(greedy().ids.begin(),
                                       greedy().ids.begin() + static_cast<ptrdiff_t>(cut.ids.size())));
        }
    }
}

TEST_CASE("a stop text that almost comes takes nothing away") {
    const std::string& text = greedy().text;
    for (size_t at = 0; at < text.size(); at += 5) {
        const std::string stop = text.substr(at, 9) + "#";
        const Answer whole = with_stop(stop);
        INFO("stop text '" << stop << "'");
        CHECK(whole.text == text);
        CHECK(whole.ids == greedy().ids);
        CHECK(whole.state.finish == Finish::end);
    }
}

TEST_CASE("text held back at the end comes out, whatever ends the answer") {
    const std::string& text = greedy().text;
    for (size_t length = 1; length <= 12; ++length) {
        const std::string stop = text.substr(text.size() - length) + "#";
        INFO("stop text '" << stop << "'");
        const Answer ended = with_stop(stop);
        CHECK(ended.text == text);

        GenerateParams params;
        params.stop_texts = {stop};
        params.max_tokens = static_cast<int64_t>(greedy().ids.size());
        const Answer cut = answer(prompt(), params);
        CHECK(cut.text == text);
        CHECK(cut.ids == greedy().ids);
        CHECK(cut.state.finish == Finish::length);

        params.max_tokens = 0;
        Session session = make_session(static_cast<int64_t>(prompt().size() + greedy().ids.size()));
        const Answer full = answer(session, prompt(), params);
        CHECK(full.text == text);
        CHECK(full.state.finish == Finish::context_full);
    }
}

TEST_CASE("tokens wait while a stop text may be coming, and then bring their own text") {
    // The stop text begins inside the third token and equals the answer up to its middle, but then differs.
    const std::string& text = greedy().text;
    const size_t begin = greedy().texts[0].size() + greedy().texts[1].size() + 1;
    const std::string stop = text.substr(begin, text.size() / 2) + "#";
    Session session = make_session();
    GenerateParams params;
    params.stop_texts = {stop};
    Generation generation(session, params, prompt(), nullptr);
    for (size_t i = 0; i < greedy().ids.size(); ++i) {
        const auto event = generation.next(nullptr);
        REQUIRE(event);
        CHECK(event->text == greedy().texts[i]);
        const auto n_reported = static_cast<int64_t>(prompt().size() + i + 1);
        if (i == 2) CHECK(session.n_tokens() > n_reported);  // the following tokens were needed to decide
    }
    CHECK_FALSE(generation.next(nullptr));
}

TEST_CASE("the finish is not announced before the last token is reported") {
    GenerateParams params;
    params.stop_texts = {greedy().text.substr(greedy().text.size() - 12) + "#"};
    Session session = make_session();
    Generation generation(session, params, prompt(), nullptr);
    for (size_t i = 0; i + 1 < greedy().ids.size(); ++i) {
        REQUIRE(generation.next(nullptr));
        REQUIRE(generation.state().finish == Finish::none);
        REQUIRE(generation.state().stop_token == -1);
    }
    REQUIRE(generation.next(nullptr));
    CHECK(generation.state().finish == Finish::end);
    CHECK(generation.state().stop_token == k_end_of_turn);
}

TEST_CASE("stop() forgets tokens that were still waiting") {
    GenerateParams params;
    params.stop_texts = {greedy().text.substr(greedy().text.size() - 12) + "#"};
    Session session = make_session();
    Generation generation(session, params, prompt(), nullptr);
    // The last tokens are all known when the first of them is reported.
    const size_t n = greedy().ids.size() - 1;
    for (size_t i = 0; i < n; ++i) REQUIRE(generation.next(nullptr));
    generation.stop();
    CHECK(generation.state().finish == Finish::stopped);
    CHECK(generation.state().n_generated == static_cast<int64_t>(n));
    CHECK(session.n_tokens() == static_cast<int64_t>(prompt().size() + n));
    CHECK_FALSE(generation.next(nullptr));
    CHECK(answer(session, {}).ids == std::vector<int32_t>{greedy().ids.back()});
}

TEST_CASE("a stop text ends the answer before its end token does") {
    const std::string& text = greedy().text;
    const Answer cut = with_stop(text.substr(text.size() - 1));
    CHECK(cut.state.finish == Finish::stop_text);
}

TEST_CASE("of several stop texts the first to be complete ends the answer") {
    GenerateParams params;
    params.stop_texts = {"no such text", "Lima", " is"};
    const Answer cut = answer(prompt(), params);
    CHECK(cut.state.stop_text == (greedy().text.find("Lima") < greedy().text.find(" is") ? 1 : 2));
    const size_t end = std::min(greedy().text.find("Lima"), greedy().text.find(" is"));
    CHECK(cut.text == greedy().text.substr(0, end));
}

TEST_CASE("a character that several tokens spell is reported whole") {
    const Answer emoji = answer(emoji_prompt());
    INFO(emoji.text);
    CHECK(emoji.text.find("\U0001F437") != std::string::npos);
    CHECK(emoji.text == bundled_model()->text().tokenizer().decode(emoji.ids, true));
    bool was_split = false;
    for (size_t i = 0; i < emoji.ids.size(); ++i) {
        CHECK(is_utf8(emoji.texts[i]));
        was_split = was_split || ends_inside_character(
                                     {emoji.ids.begin(), emoji.ids.begin() + static_cast<ptrdiff_t>(i + 1)});
    }
    CHECK(was_split);
}

TEST_CASE("an answer cut inside a character ends with the replacement character") {
    const Answer emoji = answer(emoji_prompt());
    bool was_cut = false;
    for (size_t n = 1; n < emoji.ids.size(); ++n) {
        GenerateParams params;
        params.max_tokens = static_cast<int64_t>(n);
        const Answer cut = answer(emoji_prompt(), params);
        INFO(n << " tokens: " << cut.text);
        CHECK(cut.ids.size() == n);
        CHECK(is_utf8(cut.text));
        if (ends_inside_character(cut.ids)) {
            was_cut = true;
            CHECK(cut.text.ends_with("\uFFFD"));
        } else {
            CHECK(emoji.text.starts_with(cut.text));
        }
    }
    CHECK(was_cut);
}

TEST_CASE("a character can be a stop text") {
    GenerateParams params;
    params.stop_texts = {"\U0001F437"};
    const Answer whole = answer(emoji_prompt());
    const Answer cut = answer(emoji_prompt(), params);
    CHECK(cut.text == whole.text.substr(0, whole.text.find("\U0001F437")));
    CHECK(cut.state.finish == Finish::stop_text);
}
