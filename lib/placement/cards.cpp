// SPDX-License-Identifier: Apache-2.0
#include "placement/cards.h"

#include <algorithm>

namespace minim::placement {
namespace {

struct Card {
    std::string_view name;
    double gib;             // memory
    double gigabytes;       // a second, of the memory
    double link_gigabytes;  // a second, of the link to the host: about 0.8 of PCIe's nominal rate
    int32_t n_multiprocessors;
    double ghz;                  // under load
    int32_t compute_capability;  // times 10
    bool is_unified = false;     // shares the host's memory; no link then
};

// By the vendor's data sheets. A name without its usual suffix is the variant listed first.
constexpr Card k_cards[] = {
    {"RTX 3060", 12, 360, 25, 28, 1.75, 86},
    {"RTX 3080", 10, 760, 25, 68, 1.70, 86},
    {"RTX 3080 Ti", 12, 912, 25, 80, 1.67, 86},
    {"RTX 3090", 24, 936, 25, 82, 1.70, 86},
    {"RTX 3090 Ti", 24, 1008, 25, 84, 1.86, 86},
    {"RTX 4060 Ti", 16, 288, 12.5, 34, 2.50, 89},
    {"RTX 4070", 12, 504, 25, 46, 2.48, 89},
    {"RTX 4070 Ti Super", 16, 672, 25, 66, 2.50, 89},
    {"RTX 4080", 16, 717, 25, 76, 2.50, 89},
    {"RTX 4080 Super", 16, 736, 25, 80, 2.50, 89},
    {"RTX 4090", 24, 1008, 25, 128, 2.52, 89},
    {"RTX 5060 Ti", 16, 448, 25, 36, 2.50, 120},
    {"RTX 5070", 12, 672, 50, 48, 2.45, 120},
    {"RTX 5070 Ti", 16, 896, 50, 70, 2.40, 120},
    {"RTX 5080", 16, 960, 50, 84, 2.50, 120},
    {"RTX 5090", 32, 1792, 50, 170, 2.40, 120},
    {"RTX A5000", 24, 768, 25, 64, 1.69, 86},
    {"RTX A6000", 48, 768, 25, 84, 1.80, 86},
    {"RTX 5000 Ada", 32, 576, 25, 100, 2.50, 89},
    {"RTX 6000 Ada", 48, 960, 25, 142, 2.50, 89},
    {"RTX PRO 5000", 48, 1344, 50, 110, 2.30, 120},
    {"RTX PRO 6000", 96, 1790, 50, 188, 2.30, 120},
    {"A10", 24, 600, 25, 72, 1.69, 86},
    {"A30", 24, 933, 25, 56, 1.44, 80},
    {"A40", 48, 696, 25, 84, 1.74, 86},
    {"A100 80GB", 80, 2039, 25, 108, 1.41, 80},
    {"A100 40GB", 40, 1555, 25, 108, 1.41, 80},
    {"L4", 24, 300, 25, 58, 2.04, 89},
    {"L40", 48, 864, 25, 142, 2.49, 89},
    {"L40S", 48, 864, 25, 142, 2.52, 89},
    {"H100", 80, 3350, 50, 132, 1.75, 90},
    {"H100 PCIe", 80, 2039, 50, 114, 1.75, 90},
    {"H100 NVL", 94, 3900, 50, 132, 1.75, 90},
    {"H20", 96, 4000, 50, 78, 1.75, 90},
    {"H200", 139, 4800, 50, 132, 1.75, 90},
    {"GH200", 96, 4000, 400, 132, 1.75, 90},
    {"B200", 179, 8000, 50, 148, 1.85, 100},
    {"B300", 268, 8000, 50, 148, 1.85, 103},
    {"GB10", 121.6, 273, 0, 48, 2.40, 121, true},
};

// Words of a card's name that say nothing of its memory.
constexpr std::string_view k_fillers[] = {"nvidia",  "geforce", "tesla",       "blackwell", "generation",
                                          "edition", "server",  "workstation", "sxm5",      "sxm4",
                                          "sxm",     "hbm3e",   "hbm3"};

// Returns the name in lower case, without fillers, spaces and hyphens.
std::string key_of(std::string_view name) {
    std::string key;
    std::string word;
    const auto end_word = [&] {
        if (std::ranges::find(k_fillers, word) == std::end(k_fillers)) key += word;
        word.clear();
    };
    for (const char c : name) {
        if (c == ' ' || c == '-' || c == '_') {
            end_word();
        } else {
            word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        }
    }
    end_word();
    return key;
}

bool is_named(const Card& card, std::string_view key) {
    const std::string own = key_of(card.name);
    if (own == key) return true;
    constexpr std::string_view k_series = "rtx";
    constexpr std::string_view k_size = "80gb";
    if (own.starts_with(k_series) && std::string_view(own).substr(k_series.size()) == key) return true;
    if (own.ends_with(k_size) && std::string_view(own).substr(0, own.size() - k_size.size()) == key)
        return true;
    return own + k_size.data() == key && card.gib == 80;
}

}  // namespace

std::optional<DeviceFacts> find_card(std::string_view name) {
    const std::string key = key_of(name);
    if (key.empty()) return std::nullopt;
    const auto* const card =
        std::ranges::find_if(k_cards, [&](const Card& known) { return is_named(known, key); });
    if (card == std::end(k_cards)) return std::nullopt;
    DeviceFacts facts;
    facts.memory_bytes = static_cast<uint64_t>(card->gib * 1073741824.0);
    facts.bytes_per_second = card->gigabytes * 1e9;
    facts.link_bytes_per_second = card->link_gigabytes * 1e9;
    facts.multiprocessor_hz = card->n_multiprocessors * card->ghz * 1e9;
    facts.compute_capability = card->compute_capability;
    facts.is_unified = card->is_unified;
    return facts;
}

std::string known_cards() {
    std::string names;
    for (const Card& card : k_cards) names.append(names.empty() ? "" : ", ").append(card.name);
    return names;
}

}  // namespace minim::placement
