// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include "support/catch.h"

using namespace minim::tokenizer;

namespace {

std::vector<std::string> pieces(std::string_view text, PieceRules rules = PieceRules::model) {
    std::vector<std::string> found;
    const PieceScanner scanner(text, rules);
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = scanner.piece_end(begin);
        REQUIRE(end > begin);
        REQUIRE(end <= text.size());
        found.emplace_back(text.substr(begin, end - begin));
        begin = end;
    }
    return found;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("words split where case falls, by Unicode's idea of case") {
    CHECK(pieces("приВет") == Pieces{"при", "Вет"});
    CHECK(pieces("ÉcoleXy") == Pieces{"École", "Xy"});
    CHECK(pieces("HTTPServer") == Pieces{"HTTPServer"});
    CHECK(pieces("camelCaseWord") == Pieces{"camel", "Case", "Word"});
    CHECK(pieces("ABC") == Pieces{"ABC"});
    CHECK(pieces("ǅabc") == Pieces{"ǅabc"});
}

TEST_CASE("marks belong to the word they stand in") {
    CHECK(pieces("नमस्ते") == Pieces{"नमस्ते"});
    CHECK(pieces("cafe\u0301s") == Pieces{"cafe\u0301s"});
    CHECK(pieces("\u0301") == Pieces{"\u0301"});
    CHECK(pieces("!\u0301") == Pieces{"!\u0301"});
    CHECK(pieces("!!\u0301") == Pieces{"!!\u0301"});
    CHECK(pieces("A\u0301B") == Pieces{"A\u0301", "B"});
}

TEST_CASE("an upper-case run gives back characters until its last one is also lower") {
    CHECK(pieces("ªAB") == Pieces{"ª", "AB"});
    CHECK(pieces("ABªCD") == Pieces{"ABª", "CD"});
    CHECK(pieces(".ªA") == Pieces{".ª", "A"});
    CHECK(pieces(".AB") == Pieces{".AB"});
}

TEST_CASE("one leading character that is no letter, number or line break joins a word") {
    CHECK(pieces(" end") == Pieces{" end"});
    CHECK(pieces("\tsum") == Pieces{"\tsum"});
    CHECK(pieces("\u3000x") == Pieces{"\u3000x"});
    CHECK(pieces("(a)") == Pieces{"(a", ")"});
    CHECK(pieces("\nx") == Pieces{"\n", "x"});
    CHECK(pieces("1x") == Pieces{"1", "x"});
}

TEST_CASE("contractions stay with their word in any case") {
    CHECK(pieces("IT'S it'll") == Pieces{"IT'S", " it'll"});
    CHECK(pieces("a's b'T c'Re d'vE e'M f'lL g'd") ==
          Pieces{"a's", " b'T", " c'Re", " d'vE", " e'M", " f'lL", " g'd"});
    CHECK(pieces("a's't") == Pieces{"a's", "'t"});
    CHECK(pieces("a'sx") == Pieces{"a's", "x"});
    CHECK(pieces("a'rx") == Pieces{"a", "'rx"});
    CHECK(pieces("a'x") == Pieces{"a", "'x"});
    CHECK(pieces("a'l") == Pieces{"a", "'l"});
    CHECK(pieces("a'") == Pieces{"a", "'"});
    CHECK(pieces("1's") == Pieces{"1", "'s"});
    CHECK(pieces("a’s") == Pieces{"a", "’s"});
}

TEST_CASE("a long s is an s where case is ignored") {
    CHECK(pieces("a'ſt") == Pieces{"a'ſ", "t"});
    CHECK(pieces("a'ſt", PieceRules::gguf_engine) == Pieces{"a", "'ſt"});
}

TEST_CASE("numbers come in threes") {
    CHECK(pieces("1234567") == Pieces{"123", "456", "7"});
    CHECK(pieces("٣٤٥٦") == Pieces{"٣٤٥", "٦"});
    CHECK(pieces("Ⅷ½²³") == Pieces{"Ⅷ½²", "³"});
    CHECK(pieces(" 12") == Pieces{" ", "12"});
}

TEST_CASE("punctuation takes one space before it and line breaks and slashes after it") {
    CHECK(pieces("a//\n\nb") == Pieces{"a", "//\n\n", "b"});
    CHECK(pieces(" !!\r\n/\n x") == Pieces{" !!\r\n/\n", " x"});
    CHECK(pieces("  !") == Pieces{" ", " !"});
    CHECK(pieces("\t!") == Pieces{"\t", "!"});
    CHECK(pieces("!/\n!") == Pieces{"!/\n", "!"});
    CHECK(pieces("🐶🐶\n") == Pieces{"🐶🐶\n"});
    CHECK(pieces("\x1c\x1d") == Pieces{"\x1c\x1d"});
    CHECK(pieces("\u200b") == Pieces{"\u200b"});
}

TEST_CASE("white space ends after its last line break, or leaves one character for what follows") {
    CHECK(pieces("x  \n y") == Pieces{"x", "  \n", " y"});
    CHECK(pieces("  end") == Pieces{" ", " end"});
    CHECK(pieces("  1") == Pieces{" ", " ", "1"});
    CHECK(pieces("   ") == Pieces{"   "});
    CHECK(pieces("\n  \n\n \t") == Pieces{"\n  \n\n", " \t"});
    CHECK(pieces("\u3000\u2003x") == Pieces{"\u3000", "\u2003x"});
    CHECK(pieces(" \u0085\u2028 1") == Pieces{" \u0085\u2028", " ", "1"});
}

TEST_CASE("a byte that is not UTF-8 is a piece of its own") {
    CHECK(pieces("ab\xFF"
                 "cd") == Pieces{"ab", "\xFF", "cd"});
    CHECK(pieces("\xE2\x82") == Pieces{"\xE2", "\x82"});
    CHECK(pieces("\xED\xA0\x80") == Pieces{"\xED", "\xA0", "\x80"});
    CHECK(pieces("  \xFF") == Pieces{" ", " ", "\xFF"});
    CHECK(pieces("!\xC3!\n") == Pieces{"!", "\xC3", "!\n"});
    CHECK(pieces("12\xF0"
                 "3") == Pieces{"12", "\xF0", "3"});
}

TEST_CASE("the rules of GGUF engines know no marks and only ASCII case") {
    const auto engine = [](std::string_view text) { return pieces(text, PieceRules::gguf_engine); };
    CHECK(engine("नमस्ते") == Pieces{"नमस", "्त", "े"});
    CHECK(engine("cafe\u0301s") == Pieces{"cafe", "\u0301s"});
    CHECK(engine("приВет") == Pieces{"приВет"});
    CHECK(engine("camelCase ИВАН IT'S 1234 x//\n") ==
          Pieces{"camel", "Case", " ИВАН", " IT'S", " ", "123", "4", " x", "//\n"});
}

TEST_CASE("a megabyte without a boundary is one piece") {
    const size_t n = 1'000'000;
    CHECK(pieces(std::string(n, 'a')).size() == 1);
    CHECK(pieces(std::string(n, 'A')).size() == 1);
    CHECK(pieces(std::string(n, '!')).size() == 1);
    CHECK(pieces(std::string(n, '\n')).size() == 1);
    CHECK(pieces(std::string(n, ' ') + "x").size() == 2);
    std::string mixed;
    for (size_t i = 0; i < n / 3; ++i) mixed += "ªA";
    CHECK(pieces(mixed) == Pieces{mixed.substr(0, mixed.size() - 1), "A"});
}
