// SPDX-License-Identifier: Apache-2.0
#include "kl_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "failure.h"
#include "token_logits.h"

namespace cli {
namespace {

constexpr std::string_view k_llama_magic = "_logits_";
constexpr std::string_view k_own_magic = "minim-kl";
constexpr uint32_t k_all_positions_flag = 1;
constexpr uint32_t k_compact_flag = 2;
constexpr float k_range = 16.0F;  // of log-probabilities that codes can tell apart
constexpr float k_max_code = 65535.0F;
// A compact row keeps the likeliest tokens until the others together have less than this, or it has the most tokens.
constexpr double k_largest_rest = 0x1p-16;
constexpr size_t k_max_kept = 8192;
constexpr int64_t k_max_vocab = int64_t{1} << 24;

// Codes of logits between `lowest` and `largest`. Smaller logits get the code 0.
struct KlScale {
    float lowest, step;

    KlScale(float largest, float smallest)
        : lowest(std::max(smallest, largest - k_range)), step((largest - lowest) / k_max_code) {}
    uint16_t code(float logit) const {
        if (step == 0.0F || logit <= lowest) return 0;
        return static_cast<uint16_t>(std::lround(std::min((logit - lowest) / step, k_max_code)));
    }
};

uint64_t whole_row_bytes(int64_t n_vocab) {
    return 2 * sizeof(float) + static_cast<uint64_t>((n_vocab + 1) / 2 * 2) * sizeof(uint16_t);
}

}  // namespace

KlWriter::KlWriter(std::string path, const KlHeader& header)
    : path_(std::move(path)),
      draft_(path_ + ".partial"),
      is_compact_(header.is_compact),
      file_(std::fopen(draft_.c_str(), "wb")) {
    if (file_ == nullptr) fail_write();
    const uint32_t flags =
        (header.has_all_positions ? k_all_positions_flag : 0) | (header.is_compact ? k_compact_flag : 0);
    write((flags == 0 ? k_llama_magic : k_own_magic).data(), k_own_magic.size());
    const std::array<int32_t, 3> sizes = {static_cast<int32_t>(header.chunk_tokens),
                                          static_cast<int32_t>(header.n_vocab),
                                          static_cast<int32_t>(header.n_chunks)};
    write(sizes.data(), sizeof(sizes));
    if (flags != 0) write(&flags, sizeof(flags));
    write(header.tokens.data(), header.tokens.size() * sizeof(int32_t));
}

KlWriter::~KlWriter() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(draft_.c_str());
}

void KlWriter::fail_write() const {
    const int code = errno;
    fail(code == ENOENT ? MINIM_E_NOT_FOUND : MINIM_E_IO,
         fmt::format("cannot write '{}': {}", path_, std::strerror(code)), code);
}

void KlWriter::write(const void* data, size_t bytes) {
    if (std::fwrite(data, 1, bytes, file_) != bytes) fail_write();
}

void KlWriter::add(std::span<const float> logits, int32_t next) {
    if (is_compact_) {
        add_compact(logits, next);
    } else {
        add_whole(logits);
    }
}

void KlWriter::add_whole(std::span<const float> logits) {
    const auto [smallest, largest] = std::minmax_element(logits.begin(), logits.end());
    const KlScale scale(*largest, *smallest);
    const std::array<float, 2> head = {
        scale.step, static_cast<float>(static_cast<double>(scale.lowest) - log_sum_exp(logits))};
    codes_.assign((logits.size() + 1) / 2 * 2, 0);
    std::ranges::transform(logits, codes_.begin(), [&](float logit) { return scale.code(logit); });
    write(head.data(), sizeof(head));
    write(codes_.data(), codes_.size() * sizeof(uint16_t));
}

void KlWriter::add_compact(std::span<const float> logits, int32_t next) {
    const double log_sum = log_sum_exp(logits);
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto most = static_cast<std::ptrdiff_t>(std::min(k_max_kept, logits.size()));
    std::partial_sort(order_.begin(), order_.begin() + most, order_.end(), [&](int32_t a, int32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    double kept = 0.0;
    size_t count = 0;
    while (count < static_cast<size_t>(most) && 1.0 - kept >= k_largest_rest)
        kept += std::exp(static_cast<double>(logits[order_[count++]]) - log_sum);
    const KlScale scale(logits[order_[0]], logits[order_[count - 1]]);
    const std::array<float, 4> head = {static_cast<float>(static_cast<double>(logits[next]) - log_sum),
                                       static_cast<float>(std::max(1.0 - kept, 0.0)), scale.step,
                                       static_cast<float>(static_cast<double>(scale.lowest) - log_sum)};
    const auto n = static_cast<uint32_t>(count);
    codes_.assign((count + 1) / 2 * 2, 0);
    for (size_t i = 0; i < count; ++i) codes_[i] = scale.code(logits[order_[i]]);
    write(head.data(), sizeof(head));
    write(&n, sizeof(n));
    write(order_.data(), count * sizeof(int32_t));
    write(codes_.data(), codes_.size() * sizeof(uint16_t));
}

void KlWriter::commit() {
    std::FILE* file = std::exchange(file_, nullptr);
    const bool is_written = std::fclose(file) == 0;
    if (is_written && std::rename(draft_.c_str(), path_.c_str()) == 0) return;
    const int code = errno;
    std::remove(draft_.c_str());
    errno = code;
    fail_write();
}

KlReader::KlReader(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    std::error_code error;
    if (file_ == nullptr || std::filesystem::is_directory(path, error)) {
        const int code = file_ == nullptr ? errno : EISDIR;
        fail(code == ENOENT ? MINIM_E_NOT_FOUND : MINIM_E_IO,
             fmt::format("cannot read '{}': {}", path, std::strerror(code)), code);
    }
    file_bytes_ = std::filesystem::file_size(path, error);
    if (error) fail(MINIM_E_IO, fmt::format("cannot read '{}': {}", path, error.message()), error.value());
    read_header();
}

void KlReader::fail_format(std::string_view what) const {
    fail(MINIM_E_FORMAT, fmt::format("'{}' is no file of log-probabilities: {}", path_, what));
}

void KlReader::read_bytes(void* data, size_t bytes) {
    if (std::fread(data, 1, bytes, file_.get()) == bytes) return;
    if (std::ferror(file_.get()) != 0) {
        const int code = errno;
        fail(MINIM_E_IO, fmt::format("cannot read '{}': {}", path_, std::strerror(code)), code);
    }
    fail_format("it ends too early");
}

void KlReader::read_header() {
    std::array<char, 8> magic{};
    read_bytes(magic.data(), magic.size());
    const std::string_view kind(magic.data(), magic.size());
    if (kind != k_llama_magic && kind != k_own_magic) fail_format("it begins with other bytes");
    header_.chunk_tokens = number<int32_t>();
    header_.n_vocab = number<int32_t>();
    header_.n_chunks = number<int32_t>();
    const uint32_t flags = kind == k_own_magic ? number<uint32_t>() : 0;
    if (flags > (k_all_positions_flag | k_compact_flag)) fail_format(fmt::format("its flags are {}", flags));
    header_.has_all_positions = (flags & k_all_positions_flag) != 0;
    header_.is_compact = (flags & k_compact_flag) != 0;
    if (header_.chunk_tokens < 2 || header_.n_positions() < 1 || header_.n_chunks < 1 ||
        header_.n_vocab < 1 || header_.n_vocab > k_max_vocab)
        fail_format(fmt::format("it has {} chunks of {} tokens and a vocabulary of {}", header_.n_chunks,
                                header_.chunk_tokens, header_.n_vocab));
    const uint64_t n_tokens =
        static_cast<uint64_t>(header_.n_chunks) * static_cast<uint64_t>(header_.chunk_tokens);
    if (n_tokens > file_bytes_ / sizeof(int32_t)) fail_format("its tokens do not fit into it");
    header_.tokens.resize(n_tokens);
    read_bytes(header_.tokens.data(), n_tokens * sizeof(int32_t));
    for (const int32_t token : header_.tokens)
        if (token < 0 || token >= header_.n_vocab) fail_format(fmt::format("it has the token {}", token));
    if (header_.is_compact) return;
    const auto n_rows = static_cast<uint64_t>(header_.n_chunks * header_.n_positions());
    const auto at = static_cast<uint64_t>(std::ftell(file_.get()));
    if (file_bytes_ - at != n_rows * whole_row_bytes(header_.n_vocab))
        fail_format(fmt::format("it has {} bytes behind its tokens, {} positions need {}", file_bytes_ - at,
                                n_rows, n_rows * whole_row_bytes(header_.n_vocab)));
}

void KlReader::read_codes(float step, float lowest, size_t count, KlRow& row) {
    if (!std::isfinite(step) || !std::isfinite(lowest) || step < 0.0F)
        fail_format("a step or a lowest log-probability is no number");
    codes_.resize((count + 1) / 2 * 2);
    read_bytes(codes_.data(), codes_.size() * sizeof(uint16_t));
    row.log_p.resize(count);
    for (size_t i = 0; i < count; ++i) row.log_p[i] = step * static_cast<float>(codes_[i]) + lowest;
}

void KlReader::read(int32_t next, KlRow& row) {
    if (header_.is_compact) {
        read_compact(row);
    } else {
        read_whole(next, row);
    }
}

void KlReader::read_whole(int32_t next, KlRow& row) {
    const auto step = number<float>();
    const auto lowest = number<float>();
    row.ids.clear();
    row.rest = 0.0;
    read_codes(step, lowest, static_cast<size_t>(header_.n_vocab), row);
    row.next_log_p = static_cast<double>(row.log_p[next]);
    const auto end = codes_.begin() + static_cast<std::ptrdiff_t>(header_.n_vocab);
    row.likeliest = static_cast<int32_t>(std::max_element(codes_.begin(), end) - codes_.begin());
}

void KlReader::read_compact(KlRow& row) {
    const auto next_log_p = number<float>();
    const auto rest = number<float>();
    const auto step = number<float>();
    const auto lowest = number<float>();
    const auto count = number<uint32_t>();
    if (count == 0 || count > std::min<uint64_t>(k_max_kept, static_cast<uint64_t>(header_.n_vocab)))
        fail_format(fmt::format("a position has {} tokens", count));
    if (!std::isfinite(next_log_p) || !(rest >= 0.0F && rest <= 1.0F))
        fail_format("a log-probability or a rest is no number");
    row.ids.resize(count);
    read_bytes(row.ids.data(), count * sizeof(int32_t));
    for (const int32_t id : row.ids)
        if (id < 0 || id >= header_.n_vocab) fail_format(fmt::format("it has the token {}", id));
    read_codes(step, lowest, count, row);
    row.rest = static_cast<double>(rest);
    row.next_log_p = static_cast<double>(next_log_p);
    row.likeliest = row.ids.front();
}

}  // namespace cli
