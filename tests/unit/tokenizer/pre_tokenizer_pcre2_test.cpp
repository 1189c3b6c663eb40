// SPDX-License-Identifier: Apache-2.0
// Compares the scanner with a regular-expression engine that runs the pattern itself. The characters come from
// blocks that have not changed since Unicode 14, as the engine's tables may be older than ours.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "support/catch.h"
#include "tokenizer/pre_tokenizer.h"

using namespace minim;
using namespace minim::tokenizer;

namespace {

class Regex {
  public:
    explicit Regex(std::string_view pattern) {
        int error = 0;
        PCRE2_SIZE offset = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
        REQUIRE(code_ != nullptr);
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
        match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    }

    // Returns the end of the match at `begin`, or `begin` if there is none.
    size_t match_end(std::string_view text, size_t begin) const {
        const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      begin, PCRE2_ANCHORED, match_.get(), nullptr);
        return found < 1 ? begin : pcre2_get_ovector_pointer(match_.get())[1];
    }

  private:
    std::unique_ptr<pcre2_code, decltype([](pcre2_code* code) { pcre2_code_free(code); })> code_;
    std::unique_ptr<pcre2_match_data, decltype([](pcre2_match_data* data) { pcre2_match_data_free(data); })>
        match_;
};

struct Range {
    char32_t first, last;
};

constexpr Range k_ranges[] = {
    {0x00, 0x7F},     {0x20, 0x7E},     {0x20, 0x2F},     {0x30, 0x39},       {0x41, 0x5A},
    {0x61, 0x7A},     {0x09, 0x0D},     {0x20, 0x20},     {0x80, 0x24F},      {0x2B0, 0x2FF},
    {0x300, 0x36F},   {0x391, 0x3A1},   {0x3B1, 0x3C9},   {0x400, 0x482},     {0x483, 0x489},
    {0x5D0, 0x5EA},   {0x621, 0x64A},   {0x660, 0x669},   {0x904, 0x94D},     {0x966, 0x96F},
    {0x1E00, 0x1EFF}, {0x2000, 0x203F}, {0x2150, 0x2188}, {0x3000, 0x3003},   {0x3041, 0x3096},
    {0x4E00, 0x4EFF}, {0xAC00, 0xACFF}, {0xFF10, 0xFF5A}, {0x1D400, 0x1D454}, {0x1F300, 0x1F3FF},
    {0x20D0, 0x20F0}, {0x1C5, 0x1C5},   {0x17F, 0x17F},   {0xAA, 0xAA},       {0x85, 0x85},
    {0x2028, 0x2028},
};

const std::string_view k_snippets[] = {"'s", "'T",   "'re",  "'LL", "'vE", "'m",    "'D", "'ſ",
                                       "//", "\r\n", "\n\n", "  ",  "\t",  "   \n", "'",  "/"};

std::string random_text(std::mt19937& random) {
    const auto below = [&](size_t n) { return random() % n; };
    std::string text;
    for (size_t count = 1 + below(20); count > 0; --count) {
        if (below(5) == 0) {
            text += k_snippets[below(std::size(k_snippets))];
            continue;
        }
        const Range range = k_ranges[below(std::size(k_ranges))];
        for (size_t run = 1 + below(3); run > 0; --run) {
            append_utf8(range.first + static_cast<char32_t>(below(range.last - range.first + 1)), text);
        }
    }
    return text;
}

void compare(std::string_view pattern, PieceRules rules, uint32_t seed) {
    const Regex regex(pattern);
    std::mt19937 random(seed);
    for (int i = 0; i < 30000; ++i) {
        const std::string text = random_text(random);
        const PieceScanner scanner(text, rules);
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = scanner.piece_end(begin);
            if (end != regex.match_end(text, begin)) {
                CAPTURE(text, begin, end);
                REQUIRE(end == regex.match_end(text, begin));
            }
            begin = end;
        }
    }
}

}  // namespace

TEST_CASE("the scanner cuts as PCRE2 does with the pattern") {
    compare(k_piece_pattern, PieceRules::model, 1);
}

TEST_CASE("the scanner with engine rules cuts as PCRE2 does with classes of ASCII case") {
    const std::string upper = R"((?:(?![a-z])\p{L}))";
    const std::string lower = R"((?:(?![A-Z])\p{L}))";
    const std::string prefix = R"([^\r\n\p{L}\p{N}]?)";
    const std::string suffix = "(?:'[sStTmMdD]|'[rRvV][eE]|'[lL][lL])?";
    const std::string rest = R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    compare(prefix + upper + "*" + lower + "+" + suffix + "|" + prefix + upper + "+" + lower + "*" + suffix +
                rest,
            PieceRules::gguf_engine, 2);
}
