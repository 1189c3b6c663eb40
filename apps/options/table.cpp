// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "foreign.h"
#include "set.h"

namespace program {
namespace {

// Returns the number of letters to insert, leave out, replace or exchange with the next one.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before;
    std::vector<size_t> above(b.size() + 1);
    std::vector<size_t> row(b.size() + 1);
    std::iota(above.begin(), above.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + differs});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        before = std::exchange(above, row);
    }
    return above.back();
}

}  // namespace

bool has_name(std::string_view names, std::string_view name) {
    bool has = false;
    for_each_name(names, [&](std::string_view one) { has = has || one == name; });
    return has;
}

std::string_view long_name(std::string_view names) {
    std::string_view found;
    for_each_name(names, [&](std::string_view one) {
        if (found.empty() && one.starts_with("--")) found = one;
    });
    return found.empty() ? names.substr(0, names.find(' ')) : found;
}

std::string_view command_name(Command command) {
    constexpr std::string_view k_names[] = {
        "minim",         "minim chat",        "minim tokenize",     "minim perplexity",  "minim imatrix",
        "minim eval kl", "minim eval choice", "minim eval compare", "minim eval needle", "minim eval tools",
        "minim inspect", "minim devices",     "minim plan",         "minim convert",     "minim quantize",
        "minim check",   "minim options",     "minim-server"};
    return k_names[static_cast<size_t>(command)];
}

std::span<const Section> sections() {
    static const Section k_sections[] = {{"Model, devices and memory", model_rows()},
                                         {"Answers", answer_rows()},
                                         {"minim", minim_rows()},
                                         {"minim convert and minim quantize", convert_rows()},
                                         {"minim-server", server_rows()}};
    return k_sections;
}

std::span<const Foreign> foreign_options() {
    static const std::vector<Foreign> k_options = [] {
        std::vector<Foreign> all(llama_options().begin(), llama_options().end());
        all.insert(all.end(), python_options().begin(), python_options().end());
        return all;
    }();
    return k_options;
}

const Row* find_row(std::string_view name, Command command) {
    using Index = std::unordered_map<std::string_view, std::vector<const Row*>>;
    static const Index k_index = [] {
        Index index;
        for (const Section& section : sections()) {
            for (const Row& row : section.rows) {
                const auto add = [&](std::string_view one) { index[one].push_back(&row); };
                for_each_name(row.names, add);
                for_each_name(row.opposite, add);
            }
        }
        return index;
    }();
    const auto rows = k_index.find(name);
    if (rows == k_index.end()) return nullptr;
    for (const Row* row : rows->second)
        if ((row->commands & bit(command)) != 0) return row;
    return rows->second.front();
}

const Foreign* find_foreign(std::string_view name) {
    using Index = std::unordered_map<std::string_view, const Foreign*>;
    static const Index k_index = [] {
        Index index;
        for (const Foreign& foreign : foreign_options())
            for_each_name(foreign.names, [&](std::string_view one) { index.emplace(one, &foreign); });
        return index;
    }();
    const auto found = k_index.find(name);
    return found == k_index.end() ? nullptr : found->second;
}

std::string nearest_name(std::string_view name, Command command) {
    std::string best;
    size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
    const auto consider = [&](std::string_view known) {
        const bool is_beginning = name.size() > 4 && known.starts_with(name);
        const size_t longer = std::max(name.size(), known.size()) - std::min(name.size(), known.size());
        if (!is_beginning && longer >= best_distance) return;
        const size_t far = is_beginning ? 1 : distance(name, known);
        if (far >= best_distance) return;
        best_distance = far;
        best = known;
    };
    for (const Section& section : sections()) {
        for (const Row& row : section.rows) {
            if ((row.commands & bit(command)) == 0) continue;
            for_each_name(row.names, consider);
            for_each_name(row.opposite, consider);
        }
    }
    return best;
}

}  // namespace program
