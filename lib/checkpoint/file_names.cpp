// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_names.h"

#include <algorithm>

namespace minim::checkpoint {
namespace {

constexpr std::string_view k_separators = "._-";

bool is_letter(char c) {
    return c >= 'a' && c <= 'z';
}

bool skip(std::string_view& text, std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
}

void skip_separator(std::string_view& text) {
    if (!text.empty() && k_separators.find(text.front()) != std::string_view::npos) text.remove_prefix(1);
}

bool skip_digits(std::string_view& text) {
    constexpr size_t k_max = 6;
    size_t n = 0;
    while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
    if (n == 0 || n > k_max) return false;
    text.remove_prefix(n);
    return true;
}

// Returns whether a text is the number of a piece: "1", "001", "1of2", "00001-of-00002"; behind a word also "a" and "aa".
bool is_number(std::string_view text, bool has_word) {
    if (skip_digits(text)) {
        if (text.empty()) return true;
        skip_separator(text);
        if (!skip(text, "of")) return false;
        skip_separator(text);
        return skip_digits(text) && text.empty();
    }
    // `split` counts aa, ab, ...; "gz", "bz" and "xz" say that a file is compressed.
    const bool all_letters = !text.empty() && text.size() <= 3 && std::ranges::all_of(text, is_letter);
    if (has_word) return all_letters;
    return all_letters && text.size() == 2 && text[1] != 'z';
}

// Returns whether what follows the usual ending of a file makes it a piece: ".part1of2", ".001", "-split-a".
bool is_piece_tail(std::string_view tail) {
    if (tail.empty() || k_separators.find(tail.front()) == std::string_view::npos) return false;
    tail.remove_prefix(1);
    bool has_word = false;
    for (const std::string_view word : {"part", "split", "chunk", "piece"})
        has_word = has_word || skip(tail, word);
    if (has_word) skip_separator(tail);
    return is_number(tail, has_word);
}

bool is_piece(std::string_view name) {
    for (const std::string_view ending : {".gguf", ".safetensors"}) {
        const size_t at = name.rfind(ending);
        if (at != std::string_view::npos) return is_piece_tail(name.substr(at + ending.size()));
    }
    // Without such an ending only a word says it: "model.part1of2".
    for (const std::string_view word : {"part", "split"}) {
        const size_t at = name.rfind(word);
        if (at != std::string_view::npos && at > 0 && is_piece_tail(name.substr(at - 1))) return true;
    }
    return false;
}

}  // namespace

std::string in_small_letters(std::string_view text) {
    std::string small(text);
    for (char& c : small) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return small;
}

bool ends_in(std::string_view name, std::string_view ending) {
    return name.size() >= ending.size() &&
           in_small_letters(name.substr(name.size() - ending.size())) == ending;
}

std::string describe_name(std::string_view file) {
    const std::string name = in_small_letters(file);
    for (const std::string_view ending : {".part", ".partial", ".crdownload", ".download", ".opdownload",
                                          ".incomplete", ".filepart", ".aria2", ".!ut", ".!qb", ".tmp"})
        if (name.ends_with(ending))
            return "its name says that it is part of a download that has not finished: wait until it has, or "
                   "download the file again";
    if (is_piece(name))
        return "its name says that it is one part of a file that was cut into pieces: join all parts in "
               "their "
               "order into one file (cat NAME.part* > NAME), and open that";
    return {};
}

}  // namespace minim::checkpoint
