// SPDX-License-Identifier: Apache-2.0
// Sorts names, to look them up and to find repeated ones. They are sorted and not hashed, because they come from a
// hostile file: a million names with the same hash would keep a hash table busy for hours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace minim::checkpoint {

// Returns the indices of `items` (fewer than 2^32) in the order of their names. Equal names keep the order of the
// items. `name_of` is a pointer to the member, or a function of the item.
template <typename Items, typename NameOf>
std::vector<uint32_t> order_by_name(const Items& items, NameOf name_of) {
    std::vector<uint32_t> order(items.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        const int compared = std::string_view(std::invoke(name_of, items[a]))
                                 .compare(std::string_view(std::invoke(name_of, items[b])));
        return compared != 0 ? compared < 0 : a < b;
    });
    return order;
}

template <typename Items, typename NameOf>
std::optional<size_t> find_by_name(const Items& items, const std::vector<uint32_t>& order, NameOf name_of,
                                   std::string_view name) {
    const auto found =
        std::lower_bound(order.begin(), order.end(), name, [&](uint32_t index, std::string_view key) {
            return std::string_view(std::invoke(name_of, items[index])) < key;
        });
    if (found == order.end() || std::string_view(std::invoke(name_of, items[*found])) != name)
        return std::nullopt;
    return *found;
}

// Returns the first item whose name an earlier item has too.
template <typename Items, typename NameOf>
std::optional<size_t> find_repeated(const Items& items, const std::vector<uint32_t>& order, NameOf name_of) {
    std::optional<size_t> repeated;
    for (size_t i = 1; i < order.size(); ++i) {
        const std::string_view before = std::invoke(name_of, items[order[i - 1]]);
        const std::string_view here = std::invoke(name_of, items[order[i]]);
        if (before == here && (!repeated || order[i] < *repeated)) repeated = order[i];
    }
    return repeated;
}

}  // namespace minim::checkpoint
