// SPDX-License-Identifier: Apache-2.0
#include "convert/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/file_calls.h"
#include "base/format_text.h"
#include "base/io_error.h"

namespace minim::convert {
namespace {

constexpr std::string_view k_first_line = "minim-convert 1";
constexpr std::string_view k_job = "job ";
constexpr std::string_view k_done = "done ";
constexpr std::string_view k_rename = "rename";
constexpr mode_t k_journal_mode = 0666;

// Returns the words of a line as hexadecimal numbers; nothing if one is none.
std::optional<std::vector<uint64_t>> numbers_of(std::string_view text) {
    std::vector<uint64_t> numbers;
    while (!text.empty()) {
        const size_t end = std::min(text.find(' '), text.size());
        uint64_t number = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + end, number, 16);
        if (error != std::errc() || stop != text.data() + end) return std::nullopt;
        numbers.push_back(number);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return numbers;
}

std::optional<DoneTensor> parse_done(std::string_view text) {
    const auto n = numbers_of(text);
    constexpr size_t k_n_numbers = 10;
    if (!n || n->size() != k_n_numbers) return std::nullopt;
    const auto real = [&](size_t i) { return std::bit_cast<double>((*n)[i]); };
    DoneTensor tensor;
    tensor.number = static_cast<int64_t>((*n)[0]);
    tensor.offset = (*n)[1];
    tensor.bytes = (*n)[2];
    tensor.hash = (*n)[3];
    tensor.source_hash = (*n)[4];
    tensor.errors = {real(5), real(6), real(7), real(8)};
    tensor.seconds = real(9);
    return tensor;
}

}  // namespace

JournalContent parse_journal(std::string_view text) {
    JournalContent content;
    bool is_first = true;
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (is_first && line != k_first_line) return {};
        is_first = false;
        if (line.starts_with(k_job)) {
            const std::string_view rest = line.substr(k_job.size());
            const size_t blank = std::min(rest.find(' '), rest.size());
            content.job.emplace_back(rest.substr(0, blank), rest.substr(std::min(blank + 1, rest.size())));
        } else if (line.starts_with(k_done)) {
            if (const auto tensor = parse_done(line.substr(k_done.size())))
                content.done.insert_or_assign(tensor->number, *tensor);
        } else if (line == k_rename) {
            content.is_renaming = true;
        }
    }
    return content;
}

std::string difference(const Job& theirs, const Job& mine) {
    for (const Job::value_type& part : mine) {
        const auto found =
            std::ranges::find_if(theirs, [&](const auto& other) { return other.first == part.first; });
        if (found == theirs.end()) return format_text("it does not say its {}", part.first);
        if (found->second != part.second)
            return format_text("its {} is {}, this one's {}", part.first, found->second, part.second);
    }
    return {};
}

std::string done_line(const DoneTensor& tensor) {
    const auto bits = [](double real) { return std::bit_cast<uint64_t>(real); };
    return format_text(
        "{}{:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x} {:x}\n", k_done, tensor.number, tensor.offset,
        tensor.bytes, tensor.hash, tensor.source_hash, bits(tensor.errors.error), bits(tensor.errors.square),
        bits(tensor.errors.weighted_error), bits(tensor.errors.weighted_square), bits(tensor.seconds));
}

JournalFile::JournalFile(std::string path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, k_journal_mode);
    if (descriptor_ < 0) fail_io(path_, "write", errno);
    // File systems without locks let two processes write; they would spoil each other's files only.
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::close(descriptor_);
    fail(Status::busy, "{}: another process is writing this output", path_);
}

JournalFile::~JournalFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::string JournalFile::take_text() const {
    std::string text;
    std::array<char, 65536> block;
    while (true) {
        const ssize_t n = ::pread(descriptor_, block.data(), block.size(), static_cast<off_t>(text.size()));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_io(path_, "read", errno);
        if (n == 0) break;
        text.append(block.data(), static_cast<size_t>(n));
    }
    const size_t whole = text.rfind('\n') + 1;  // 0 without a line
    if (whole == text.size()) return text;
    text.resize(whole);
    if (::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0) fail_io(path_, "write", errno);
    return text;
}

void JournalFile::begin(const Job& job) const {
    if (::ftruncate(descriptor_, 0) != 0) fail_io(path_, "write", errno);
    std::string text(k_first_line);
    text += '\n';
    for (const auto& [key, value] : job) text += format_text("{}{} {}\n", k_job, key, value);
    append(text);
}

void JournalFile::append(std::string_view lines) const {
    write(lines);
    flush_file(descriptor_, path_);
}

void JournalFile::write(std::string_view text) const {
    while (!text.empty()) {
        const ssize_t n = ::write(descriptor_, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail_io(path_, "write", n < 0 ? errno : EIO);
        text.remove_prefix(static_cast<size_t>(n));
    }
}

}  // namespace minim::convert
