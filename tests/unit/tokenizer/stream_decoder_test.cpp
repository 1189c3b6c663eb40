// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/stream_decoder.h"

#include <random>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace minim::tokenizer;

namespace {

std::string decode(std::initializer_list<std::string_view> chunks) {
    StreamDecoder decoder;
    std::string text;
    for (const std::string_view chunk : chunks) {
        decoder.push(chunk, text);
        CHECK(decoder.pending_bytes() <= 3);
    }
    decoder.finish(text);
    CHECK(decoder.pending_bytes() == 0);
    return text;
}

}  // namespace

TEST_CASE("text split at every byte boundary comes out whole") {
    const std::string text = "a\u00E9\u4F60\U0001F436z\U0010FFFF";
    for (size_t first = 0; first <= text.size(); ++first) {
        for (size_t second = first; second <= text.size(); ++second) {
            const std::string_view view = text;
            CHECK(decode({view.substr(0, first), view.substr(first, second - first), view.substr(second)}) ==
                  text);
        }
    }
}

TEST_CASE("a whole character is emitted with its last byte and not before") {
    StreamDecoder decoder;
    CHECK(decoder.push("x\xF0") == "x");
    CHECK(decoder.push("\x9F").empty());
    CHECK(decoder.push("\x90").empty());
    CHECK(decoder.pending_bytes() == 3);
    CHECK(decoder.push("\xB6y") == "\U0001F436y");
    CHECK(decoder.finish().empty());
}

TEST_CASE("a byte that cannot continue is replaced at once") {
    StreamDecoder decoder;
    CHECK(decoder.push("\xFF") == "\uFFFD");
    CHECK(decoder.push("\x80") == "\uFFFD");
    CHECK(decoder.push("\xE2\x82").empty());
    CHECK(decoder.push("a") == "\uFFFDa");
    CHECK(decoder.push("\xE0\x80") == "\uFFFD\uFFFD");
    CHECK(decoder.push("\xE2\x82").empty());
    CHECK(decoder.push("\xE2") == "\uFFFD");
    CHECK(decoder.push("\x82\xAC") == "\u20AC");
}

TEST_CASE("the end of the stream replaces bytes held back once") {
    CHECK(decode({"a\xF0\x9F\x90"}) == "a\uFFFD");
    CHECK(decode({"a\xC3"}) == "a\uFFFD");
    CHECK(decode({"\xED\xA0\x80"}) == "\uFFFD\uFFFD\uFFFD");
    CHECK(decode({"\xF0\x80\x80\x41"}) ==
          "\uFFFD\uFFFD\uFFFD"
          "A");
    CHECK(decode({}).empty());
}

TEST_CASE("a finished decoder is as new") {
    StreamDecoder decoder;
    CHECK(decoder.push("\xC3").empty());
    CHECK(decoder.finish() == "\uFFFD");
    CHECK(decoder.push("\xA9") == "\uFFFD");
}

TEST_CASE("how random bytes are split does not change what they decode to") {
    std::mt19937 random(5);
    const std::string_view alphabet = "a\x80\xA9\xBF\xC3\xE2\x82\xF0\x9F\xED\xA0\xF4\xFF";
    for (int round = 0; round < 2000; ++round) {
        std::string bytes(1 + random() % 12, '\0');
        for (char& byte : bytes) byte = alphabet[random() % alphabet.size()];
        const std::string whole = decode({bytes});
        StreamDecoder decoder;
        std::string text;
        for (const char byte : bytes) decoder.push({&byte, 1}, text);
        decoder.finish(text);
        REQUIRE(text == whole);
    }
}
