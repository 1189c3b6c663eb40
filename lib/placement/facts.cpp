// SPDX-License-Identifier: Apache-2.0
#include "placement/facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "placement/cards.h"

namespace minim::placement {
namespace {

struct Unit {
    std::string_view name;
    double amount;
};

constexpr Unit k_units[] = {{"B", 1.0},         {"kB", 1e3},           {"MB", 1e6},
                            {"GB", 1e9},        {"TB", 1e12},          {"KiB", 1024.0},
                            {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};

constexpr double k_max_bytes = 1e18;

constexpr Unit k_time_units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};
constexpr double k_max_seconds = 1.0;  // of one exchange

// Returns a number above 0 in units; nothing for any other text.
std::optional<double> measure_of(std::string_view text, std::span<const Unit> units) {
    double number = 0.0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(number) || number <= 0.0) return std::nullopt;
    const std::string_view rest = text.substr(end - text.data());
    const auto unit = std::ranges::find(units, rest, &Unit::name);
    return unit == units.end() ? std::nullopt : std::optional(number * unit->amount);
}

std::optional<double> size_of(std::string_view text) {
    const std::optional<double> bytes = measure_of(text, k_units);
    return bytes && *bytes >= 1.0 && *bytes <= k_max_bytes ? bytes : std::nullopt;
}

std::optional<double> time_of(std::string_view text) {
    const std::optional<double> seconds = measure_of(text, k_time_units);
    return seconds && *seconds <= k_max_seconds ? seconds : std::nullopt;
}

std::optional<double> bandwidth_of(std::string_view text) {
    constexpr std::string_view k_per_second = "/s";
    if (!text.ends_with(k_per_second)) return std::nullopt;
    return size_of(text.substr(0, text.size() - k_per_second.size()));
}

// Returns the text without spaces at its ends.
std::string_view trimmed(std::string_view text) {
    constexpr std::string_view k_spaces = " \t\r\n";
    const size_t begin = std::min(text.find_first_not_of(k_spaces), text.size());
    return text.substr(begin, text.find_last_not_of(k_spaces) + 1 - begin);
}

std::vector<std::string_view> parts_of(std::string_view text) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        parts.push_back(trimmed(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return parts;
}

// Devices whose measured bandwidths differ by less than this part count as equally fast: measuring is no more precise.
constexpr double k_even_part = 0.1;

}  // namespace

bool Machine::is_host(int64_t place) const noexcept {
    return place == host_place() || (is_open() && backends[place]->host() != nullptr);
}

bool Machine::has_own_memory(int64_t device) const noexcept {
    return !is_host(device) && backends[device]->available_bytes() != UINT64_MAX;
}

bool Machine::is_unified() const noexcept {
    return std::ranges::any_of(devices, &DeviceFacts::is_unified);
}

std::string_view Machine::name_of(int64_t place) const noexcept {
    if (is_open()) return backends[place]->name();
    return place == host_place() ? std::string_view("cpu") : devices[place].name;
}

std::optional<int64_t> Machine::place_of(std::string_view name) const {
    const std::string wanted = device_name(name);
    if (wanted == "cpu") return host_place();
    const auto device = std::ranges::find(devices, wanted, &DeviceFacts::name);
    if (device != devices.end()) return device - devices.begin();
    const auto other = others.find(wanted);
    return other == others.end() ? std::nullopt : std::optional(other->second);
}

void even_out(std::vector<DeviceFacts>& devices) {
    for (size_t i = 0; i < devices.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
            const double rate = devices[k].bytes_per_second;
            const bool is_even = std::abs(devices[i].bytes_per_second - rate) <= k_even_part * rate;
            if (!devices[i].is_measured || !devices[k].is_measured || !is_even) continue;
            devices[i].bytes_per_second = rate;
            break;
        }
    }
}

std::string device_name(std::string_view text) {
    if (text == "CPU") return "cpu";
    const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
    const auto digits = std::ranges::find_if_not(text, is_capital);
    const bool is_number = digits != text.begin() && digits != text.end() &&
                           std::all_of(digits, text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) return std::string(text);
    std::string name;
    for (const char c : std::string_view(text.begin(), digits)) name += static_cast<char>(c - 'A' + 'a');
    return name + ":" + std::string(digits, text.end());
}

// Returns whether a name is of the form "cuda:0".
bool is_device_name(std::string_view name) {
    const size_t colon = std::min(name.find(':'), name.size());
    const std::string_view kind = name.substr(0, colon);
    const std::string_view index = name.substr(std::min(colon + 1, name.size()));
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    constexpr size_t k_max_digits = 4;
    return !kind.empty() && kind[0] >= 'a' && kind[0] <= 'z' &&
           std::ranges::all_of(kind, [&](char c) { return (c >= 'a' && c <= 'z') || is_digit(c); }) &&
           !index.empty() && index.size() <= k_max_digits && std::ranges::all_of(index, is_digit) &&
           (index.size() == 1 || index[0] != '0');
}

DeviceFacts parse_device(std::string_view text) {
    const auto refuse = [&] {
        fail(Status::invalid,
             "device '{}' is not of the form NAME=MEMORY,BANDWIDTH[,pcie=BANDWIDTH], as in "
             "cuda:0=96GiB,1790GB/s,pcie=50GB/s, or NAME=MEMORY,BANDWIDTH,unified if it shares the host's "
             "memory",
             text);
    };
    const size_t equals = std::min(text.find('='), text.size());
    if (equals == 0) refuse();
    DeviceFacts facts;
    facts.name = device_name(trimmed(text.substr(0, equals)));
    if (!is_device_name(facts.name)) refuse();
    if (equals == text.size()) return facts;
    const std::vector<std::string_view> parts = parts_of(text.substr(equals + 1));
    constexpr std::string_view k_pcie = "pcie=";
    facts.is_unified = parts.size() == 3 && parts[2] == "unified";
    const bool has_link = parts.size() == 3 && parts[2].starts_with(k_pcie);
    if (parts.size() > 3 || (parts.size() == 3 && !has_link && !facts.is_unified)) refuse();
    const auto memory = size_of(parts[0]);
    const auto bandwidth = parts.size() > 1 ? bandwidth_of(parts[1]) : std::optional(0.0);
    const auto link = has_link ? bandwidth_of(parts[2].substr(k_pcie.size())) : std::optional(0.0);
    if (!memory || !bandwidth || !link) refuse();
    facts.memory_bytes = static_cast<uint64_t>(*memory);
    facts.bytes_per_second = *bandwidth;
    facts.link_bytes_per_second = *link;
    return facts;
}

namespace {

// Removes "4x " from the front of a text, and returns the 4; 1 if there is none.
int64_t take_count(std::string_view& text) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const std::string_view rest = trimmed(text.substr(end - text.data()));
    if (error != std::errc() || rest.empty() || (rest[0] != 'x' && rest[0] != 'X')) return 1;
    text = trimmed(rest.substr(1));
    return count;
}

// Returns the facts of "RTX 3090" or "RTX 3090,pcie=6GB/s"; nothing if that is no card.
std::optional<DeviceFacts> card_of(std::string_view text) {
    constexpr std::string_view k_pcie = ",pcie=";
    const size_t comma = text.find(k_pcie);
    std::optional<DeviceFacts> facts = find_card(text.substr(0, comma));
    if (!facts || comma == std::string_view::npos) return facts;
    const auto link = bandwidth_of(text.substr(comma + k_pcie.size()));
    if (!link) return std::nullopt;
    facts->link_bytes_per_second = *link;
    return facts;
}

// Adds the devices of one text, or of a part of one between commas. Cards get no name yet.
void add_devices(std::string_view text, std::vector<DescribedDevice>& devices) {
    constexpr int64_t k_max = 64;
    const std::string whole(text);
    std::string_view rest = trimmed(text);
    const int64_t count = take_count(rest);
    if (count < 1 || count > k_max)
        fail(Status::invalid, "'{}': {} devices are not possible; 1 to {} are", text, count, k_max);
    const size_t equals = rest.find('=');
    const std::optional<DeviceFacts> card = card_of(rest);
    const std::string name = device_name(trimmed(rest.substr(0, equals)));
    if (!card && is_device_name(name) && !find_card(rest.substr(0, equals))) {
        if (count != 1) fail(Status::invalid, "'{}': {} devices cannot have one name", text, count);
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view() : trimmed(rest.substr(equals + 1));
        const std::optional<DeviceFacts> named = card_of(value);
        devices.push_back({named ? *named : parse_device(rest), whole});
        devices.back().facts.name = name;
        return;
    }
    if (!card)
        fail(Status::invalid,
             "device '{}' is neither of the form NAME=MEMORY,BANDWIDTH[,pcie=BANDWIDTH], as in "
             "cuda:0=96GiB,1790GB/s,pcie=50GB/s, nor a card that is known: {}",
             text, known_cards());
    devices.insert(devices.end(), count, {*card, whole});
}

}  // namespace

std::vector<DescribedDevice> parse_devices(const std::vector<std::string>& texts) {
    std::vector<DescribedDevice> devices;
    for (const std::string& text : texts) {
        if (text.find('=') != std::string::npos) {
            add_devices(text, devices);
        } else {
            for (const std::string_view part : parts_of(text)) add_devices(part, devices);
        }
    }
    int64_t next = 0;
    for (DescribedDevice& device : devices) {
        while (device.facts.name.empty()) {
            const std::string name = format_text("cuda:{}", next++);
            const bool is_free = std::ranges::none_of(
                devices, [&](const DescribedDevice& other) { return other.facts.name == name; });
            if (is_free) device.facts.name = name;
        }
    }
    return devices;
}

DeviceBudget parse_device_budget(std::string_view text) {
    const size_t equals = text.find('=');
    DeviceBudget budget = {.name = device_name(trimmed(text.substr(0, equals)))};
    if (equals == std::string_view::npos) return budget;
    const std::string_view value = trimmed(text.substr(equals + 1));
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), budget.part, std::chars_format::fixed);
    const bool is_number = error == std::errc() && end == value.data() + value.size();
    if (is_number && budget.part > 0.0 && budget.part <= 1.0) return budget;
    budget.part = 0.0;
    const std::optional<double> bytes = size_of(value);
    if (budget.name.empty() || !bytes)
        fail(Status::invalid, "'{}' is no device with a budget; 'cuda:0=20GiB' and 'cuda:0=0.9' are", text);
    budget.bytes = static_cast<uint64_t>(*bytes);
    return budget;
}

std::vector<DeviceBudget> parse_device_budgets(std::string_view text) {
    std::vector<DeviceBudget> budgets;
    for (const std::string_view part : parts_of(text)) {
        DeviceBudget budget = parse_device_budget(part);
        if (std::ranges::count(budgets, budget.name, &DeviceBudget::name) > 0)
            fail(Status::invalid, "device {} is named twice", budget.name);
        budgets.push_back(std::move(budget));
    }
    return budgets;
}

HostFacts parse_host(std::string_view text) {
    const std::vector<std::string_view> parts = parts_of(text);
    const auto memory = parts.size() == 2 ? size_of(parts[0]) : std::nullopt;
    const auto bandwidth = parts.size() == 2 ? bandwidth_of(parts[1]) : std::nullopt;
    if (!memory || !bandwidth)
        fail(Status::invalid, "host '{}' is not of the form MEMORY,BANDWIDTH, as in 768GiB,576GB/s", text);
    return {static_cast<uint64_t>(*memory), *bandwidth, false, {}};
}

LinkFacts parse_link(std::string_view text) {
    const auto refuse = [&] {
        fail(Status::invalid, "link '{}' is not of the form TIME,BANDWIDTH, as in 9us,20GB/s", text);
    };
    LinkFacts link;
    for (const std::string_view part : parts_of(text)) {
        const std::optional<double> seconds = time_of(part);
        const std::optional<double> bandwidth = bandwidth_of(part);
        if (seconds && link.sum_seconds == 0.0) {
            link.sum_seconds = *seconds;
        } else if (bandwidth && link.bytes_per_second == 0.0) {
            link.bytes_per_second = *bandwidth;
        } else {
            refuse();
        }
    }
    return link;
}

}  // namespace minim::placement
