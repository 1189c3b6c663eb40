// SPDX-License-Identifier: Apache-2.0
#include "model/other_models.h"

#include <array>

namespace minim::model {
namespace {

struct Row {
    std::string_view name;
    std::string_view what;
};

// The names are in small letters, without separators of words. The first row whose name is the beginning of a text
// describes it.
constexpr Row k_models[] = {
    {"minimaxm31", "MiniMax-M3.1"},
    {"minimaxh3", "MiniMax-H3, a model of another kind"},
    {"minimaxm1", "MiniMax-M1, which has linear attention"},
    {"minimaxtext01", "MiniMax-Text-01, which has linear attention"},
    {"minimaxvl01", "MiniMax-VL-01, which reads pictures and has linear attention"},
    {"minimax01", "MiniMax-Text-01 or M1, which has linear attention"},
    {"minimaxforcausallm", "MiniMax-Text-01 or M1, which has linear attention"},
    {"minimaxmodel", "MiniMax-Text-01 or M1, which has linear attention"},
};

constexpr char small(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view other_model(std::string_view name) noexcept {
    std::array<char, 32> plain{};  // longer than any row
    size_t length = 0;
    for (const char c : name) {
        if (c == '-' || c == '_' || c == '.' || c == ' ') continue;
        if (length == plain.size()) break;
        plain[length++] = small(c);
    }
    const std::string_view text(plain.data(), length);
    for (const Row& row : k_models) {
        if (text.starts_with(row.name)) return row.what;
    }
    return text == "minimax" ? std::string_view("MiniMax-Text-01 or M1, which has linear attention")
                             : std::string_view();
}

}  // namespace minim::model
