// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/format_text.h"
#include "base/sha256.h"
#include "check/files.h"
#include "checkpoint/printable.h"

namespace minim::check {
namespace {

using checkpoint::Checkpoint;

constexpr size_t k_sum_bytes = size_t{4} << 20;

std::string sha256_of_file(const File& file, uint64_t bytes) {
    std::vector<std::byte> piece(std::min<uint64_t>(k_sum_bytes, bytes));
    Sha256 sha;
    for (uint64_t at = 0; at < bytes; at += piece.size()) {
        const std::span part = std::span(piece).first(std::min<uint64_t>(piece.size(), bytes - at));
        file.read_at(at, part);
        sha.add(part);
    }
    return sha.finish();
}

std::string file_name(const std::string& path) {
    return std::filesystem::path(path).filename().string();
}

std::vector<std::string> sha256_of_files(const Checkpoint& checkpoint, std::span<const size_t> which,
                                         const Reading& reading) {
    std::vector<std::string> sums(which.size());
    const auto file = [&](int64_t i) -> const File& {
        return checkpoint.files()[which[static_cast<size_t>(i)]];
    };
    run_in_groups(
        reading, std::ssize(which), [&](int64_t i) { return file(i).size(); },
        [&](int64_t i) { sums[static_cast<size_t>(i)] = sha256_of_file(file(i), file(i).size()); });
    return sums;
}

struct ListedSum {
    std::string digits;
    std::string name;
};

// Reads lines of 64 digits, a space, a space or an asterisk, and a name.
std::vector<ListedSum> parse_sums(std::string_view text) {
    std::vector<ListedSum> sums;
    int64_t n_lines = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++n_lines;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.front() == '#') continue;
        const std::string_view digits = line.substr(0, std::min<size_t>(64, line.size()));
        const bool has_digits = digits.size() == 64 &&
                                digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
        if (!has_digits || line.size() < 67 || line[64] != ' ' || (line[65] != ' ' && line[65] != '*'))
            fail(Status::invalid,
                 "line {} of the sums is '{}'; sha256sum writes 64 digits, two spaces and a name", n_lines,
                 checkpoint::printable(line));
        ListedSum sum{std::string(digits), file_name(std::string(line.substr(66)))};
        for (char& digit : sum.digits)
            digit = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit + 32) : digit;
        sums.push_back(std::move(sum));
    }
    return sums;
}

}  // namespace

void check_sums(const Opened& opened, std::string_view sums, const Reading& reading, Report& report) {
    report.stages.emplace_back("sums");
    const std::vector<ListedSum> listed = parse_sums(sums);
    std::vector<size_t> which;
    std::vector<const ListedSum*> wanted;
    for (size_t i = 0; i < opened.checkpoint.files().size(); ++i) {
        const std::string name = file_name(opened.checkpoint.files()[i].path());
        const auto sum = std::ranges::find(listed, name, &ListedSum::name);
        if (sum == listed.end()) {
            report.fault(FaultClass::hash, name, "is not in the list of sums");
            continue;
        }
        which.push_back(i);
        wanted.push_back(&*sum);
    }
    const std::vector<std::string> found = sha256_of_files(opened.checkpoint, which, reading);
    for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] != wanted[i]->digits)
            report.fault(FaultClass::hash, wanted[i]->name,
                         format_text("has SHA-256 {}; it should be {}", found[i], wanted[i]->digits));
    }
}

std::string sums_of(const Checkpoint& checkpoint, const Reading& reading) {
    std::vector<size_t> which(checkpoint.files().size());
    std::iota(which.begin(), which.end(), size_t{0});
    const std::vector<std::string> sums = sha256_of_files(checkpoint, which, reading);
    std::string text;
    for (size_t i = 0; i < sums.size(); ++i)
        text += format_text("{}  {}\n", sums[i], file_name(checkpoint.files()[i].path()));
    return text;
}

}  // namespace minim::check
