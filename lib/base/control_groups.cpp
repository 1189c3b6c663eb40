// SPDX-License-Identifier: Apache-2.0
#include "base/control_groups.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace minim {
namespace {

// The names of a path: {"docker", "x"} for "/docker/x".
using Names = std::vector<std::string>;

struct Group {
    std::string controllers;  // "cpu,cpuacct"; empty for version 2, which has one hierarchy for all
    Names path;               // seen from the root of the namespace; may begin with ".."
};

struct Mount {
    std::string options;  // those of the file system: "rw,cpu,cpuacct"; "cgroup2" for version 2
    Names root;           // the group that is mounted, seen as Group::path
    std::string point;
};

// Returns the text of a file; empty if it cannot be read.
std::string text_of(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
    std::string text;
    if (!file) return text;
    char block[4096];
    while (const size_t got = std::fread(block, 1, sizeof(block), file.get())) text.append(block, got);
    return text;
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, at);) parts.push_back(part);
    return parts;
}

Names names_of(const std::string& path) {
    Names names = split(path, '/');
    std::erase(names, "");
    return names;
}

bool lists(const std::string& list, std::string_view name) {
    return std::ranges::count(split(list, ','), name) != 0;
}

// mountinfo writes spaces and other special characters as "\040".
std::string unescaped(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        uint8_t code = 0;
        const char* digits = text.data() + i + 1;
        if (text[i] == '\\' && i + 3 < text.size() &&
            std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
            plain += static_cast<char>(code);
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

// A line of /proc/self/cgroup is "4:memory:/docker/x", or "0::/docker/x" for version 2. The path may hold colons.
std::vector<Group> groups_of(const std::string& text, std::string_view controller) {
    std::vector<Group> groups;
    for (const std::string& line : split(text, '\n')) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && !lists(controllers, controller)) continue;
        groups.push_back({controllers, names_of(line.substr(second + 1))});
    }
    return groups;
}

// A line of mountinfo is "36 35 0:32 ROOT POINT rw,relatime shared:9 - cgroup cgroup rw,memory".
std::vector<Mount> mounts_of(const std::string& text) {
    std::vector<Mount> mounts;
    for (const std::string& line : split(text, '\n')) {
        const size_t mark = line.find(" - cgroup");
        if (mark == std::string::npos) continue;
        const std::vector<std::string> head = split(line.substr(0, mark), ' ');
        const std::vector<std::string> tail = split(line.substr(mark + 3), ' ');
        if (head.size() < 5 || tail.size() < 3) continue;
        mounts.push_back(
            {tail[0] == "cgroup2" ? tail[0] : tail[2], names_of(unescaped(head[3])), unescaped(head[4])});
    }
    return mounts;
}

// Adds the folder of a group below `top`, and those of its parents up to `top` itself.
void add_chain(const std::string& top, std::span<const std::string> path, std::vector<std::string>& folders) {
    folders.push_back(top);
    for (const std::string& name : path) folders.push_back(folders.back() + "/" + name);
}

bool is_there(const std::string& top, std::span<const std::string> path) {
    std::vector<std::string> chain;
    add_chain(top, path, chain);
    return ::access(chain.back().c_str(), F_OK) == 0;
}

// Adds the folders of a group where a mount shows it. Returns false if none does.
bool add_mounted(const Group& group, std::string_view controller, const std::vector<Mount>& mounts,
                 std::vector<std::string>& folders) {
    bool found = false;
    for (const Mount& mount : mounts) {
        const bool same =
            group.controllers.empty() ? mount.options == "cgroup2" : lists(mount.options, controller);
        if (!same ||
            !std::ranges::equal(mount.root,
                                std::span(group.path).first(std::min(mount.root.size(), group.path.size()))))
            continue;
        const auto below = std::span<const std::string>(group.path).subspan(mount.root.size());
        if (std::ranges::count(below, "..") != 0) continue;  // outside the mounted group: "/../x"
        add_chain(mount.point, below, folders);
        found = found || is_there(mount.point, below);
    }
    return found;
}

// Adds the folders of a group below the usual ones. A container often sees its own group there, or a parent of it, while the path
// is the host's: names at the front of the path are left out until the folder exists.
void add_usual(const Group& group, std::string_view controller, const std::string& usual,
               std::vector<std::string>& folders) {
    Names path = group.path;
    std::erase(path, "..");
    std::vector<std::string> tops = {usual, usual + "/unified"};
    if (!group.controllers.empty()) {
        tops = {usual + "/" + group.controllers, usual + "/" + std::string(controller)};
    }
    for (const std::string& top : tops) {
        add_chain(top, path, folders);
        std::span<const std::string> seen = path;
        while (!seen.empty() && !is_there(top, seen)) seen = seen.subspan(1);
        add_chain(top, seen, folders);
    }
}

// Returns the folders of the process's groups and of their parents. Some may not exist.
std::vector<std::string> folders_of(const ControlGroupFiles& files, std::string_view controller) {
    const std::vector<Mount> mounts = mounts_of(text_of(files.mounts));
    std::vector<Group> groups = groups_of(text_of(files.groups), controller);
    if (groups.empty()) groups.emplace_back();
    std::vector<std::string> folders;
    for (const Group& group : groups) {
        if (!add_mounted(group, controller, mounts, folders))
            add_usual(group, controller, files.usual_folder, folders);
    }
    return folders;
}

// Returns the number at the start of a text: nothing for "max", which means no limit, and for -1, which means that in version 1.
std::optional<uint64_t> number_in(std::string_view text) {
    uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc()) return std::nullopt;
    return value;
}

// Returns the number of a line "KEY NUMBER".
std::optional<uint64_t> number_of(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with(key) && line.substr(key.size()).starts_with(' '))
            return number_in(line.substr(key.size() + 1));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return std::nullopt;
}

// Returns the cores that a quota grants; both numbers are microseconds.
int32_t cores_of(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
    constexpr uint64_t k_usual_period = 100'000;
    if (!quota || period == uint64_t{0}) return INT32_MAX;
    const uint64_t cores = (std::max<uint64_t>(*quota, 1) - 1) / period.value_or(k_usual_period) + 1;
    return static_cast<int32_t>(std::min<uint64_t>(cores, INT32_MAX));
}

int32_t cores_of_folder(const std::string& folder) {
    std::vector<std::string> both =
        split(text_of(folder + "/cpu.max"), ' ');  // "QUOTA PERIOD" or "max PERIOD"
    both.resize(2);
    return std::min(cores_of(number_in(both[0]), number_in(both[1])),
                    cores_of(number_in(text_of(folder + "/cpu.cfs_quota_us")),
                             number_in(text_of(folder + "/cpu.cfs_period_us"))));
}

uint64_t left_under(std::optional<uint64_t> limit, uint64_t used, uint64_t cache) {
    if (!limit) return UINT64_MAX;
    return *limit - std::min(*limit, used - std::min(used, cache));
}

uint64_t memory_of_folder(const std::string& folder) {
    const auto number = [&](const char* name) { return number_in(text_of(folder + name)); };
    // Above memory.high the kernel slows a process down until it hardly runs: as good as a limit.
    const std::optional<uint64_t> most = number("/memory.max");
    const std::optional<uint64_t> high = number("/memory.high");
    const std::optional<uint64_t> own = number("/memory.limit_in_bytes");  // version 1
    if (!most && !high && !own) return UINT64_MAX;
    const std::string stat = text_of(folder + "/memory.stat");
    uint64_t cache = 0;
    for (const char* key : {"inactive_file", "active_file"}) {
        // In version 1 the plain keys leave out the groups below.
        const std::optional<uint64_t> total = number_of(stat, std::string("total_") + key);
        cache += (total ? total : number_of(stat, key)).value_or(0);
    }
    const uint64_t used = number("/memory.current").value_or(0);
    const uint64_t used_1 = number("/memory.usage_in_bytes").value_or(0);
    // Version 1 tells of the limits of parents that no mount shows.
    const std::optional<uint64_t> above = number_of(stat, "hierarchical_memory_limit");
    return std::min({left_under(most, used, cache), left_under(high, used, cache),
                     left_under(own, used_1, cache), left_under(above, used_1, cache)});
}

// The folders of one controller, each followed by a line end. No heap memory is kept for them.
struct KnownFolders {
    std::mutex mutex;
    bool are_known = false;
    size_t size = 0;
    std::array<char, 8192> text{};
};

std::vector<std::string> folders_of_process(KnownFolders& known, std::string_view controller) {
    const std::lock_guard lock(known.mutex);
    if (known.are_known) return split(std::string(known.text.data(), known.size), '\n');
    std::vector<std::string> folders = folders_of({}, controller);
    std::string text;
    for (const std::string& folder : folders) text += folder + '\n';
    if (text.size() <= known.text.size()) {
        std::ranges::copy(text, known.text.begin());
        known.size = text.size();
        known.are_known = true;
    }
    return folders;
}

// Returns the least that one of the folders gives; the largest value if nothing can be read.
template <typename Folders, typename Value>
Value least(Folders find_folders, Value (*of_folder)(const std::string&)) noexcept {
    Value value = std::numeric_limits<Value>::max();
    try {
        for (const std::string& folder : find_folders()) value = std::min(value, of_folder(folder));
    } catch (...) {  // no memory for these texts
    }
    return value;
}

}  // namespace

int32_t control_group_cores(const ControlGroupFiles& files) noexcept {
    return least([&] { return folders_of(files, "cpu"); }, &cores_of_folder);
}

uint64_t control_group_memory(const ControlGroupFiles& files) noexcept {
    return least([&] { return folders_of(files, "memory"); }, &memory_of_folder);
}

int32_t control_group_cores() noexcept {
    static KnownFolders known;
    return least([] { return folders_of_process(known, "cpu"); }, &cores_of_folder);
}

uint64_t control_group_memory() noexcept {
    static KnownFolders known;
    return least([] { return folders_of_process(known, "memory"); }, &memory_of_folder);
}

}  // namespace minim
