// SPDX-License-Identifier: Apache-2.0
// Files of log-probabilities of all tokens at the positions of a text, to compare models with. llama-perplexity's form:
//
//   "_logits_" | u32 chunk | i32 vocabulary | i32 chunks | i32 tokens [chunks, chunk]
//   for each chunk, for each position chunk/2 .. chunk-2: F32 step | F32 lowest | u16 code [vocabulary] | u16 0 if it is odd
//
// log p = step * code + lowest; lowest is at most 16 below the likeliest token, whose code is 65535. minim's own form, for
// all positions or for the likeliest tokens alone:
//
//   "minim-kl" | u32 chunk | i32 vocabulary | i32 chunks | u32 flags (1: all positions, 2: compact) | i32 tokens [chunks, chunk]
//   for each position, compact: F32 log p of the next token | F32 p of all others | F32 step | F32 lowest | u32 count
//                               u32 token [count], likeliest first | u16 code [count] | u16 0 if count is odd
//   else: as above
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cli {

struct KlHeader {
    int64_t chunk_tokens = 0;
    int64_t n_vocab = 0;
    int64_t n_chunks = 0;
    bool has_all_positions = false;
    bool is_compact = false;
    std::vector<int32_t> tokens;  // [n_chunks, chunk_tokens]

    // Returns the first position of a chunk whose log-probabilities are there; the last one is chunk_tokens - 2.
    int64_t first() const noexcept { return has_all_positions ? 0 : chunk_tokens / 2; }
    // Returns the number of positions of a chunk.
    int64_t n_positions() const noexcept { return chunk_tokens - 1 - first(); }
    std::span<const int32_t> chunk(int64_t i) const {
        return std::span(tokens).subspan(static_cast<size_t>(i * chunk_tokens),
                                         static_cast<size_t>(chunk_tokens));
    }
};

// The log-probabilities of one position.
struct KlRow {
    std::vector<int32_t> ids;  // of a compact file; empty: log_p has all tokens by id
    std::vector<float> log_p;  // likeliest first if there are ids
    double rest = 0.0;         // probability of all tokens without an entry
    double next_log_p = 0.0;   // of the token that follows
    int32_t likeliest = 0;
};

// Removes an unfinished file at its end.
class KlWriter {
  public:
    // Throws minim::Exception with status IO, as add() and commit().
    KlWriter(std::string path, const KlHeader& header);
    ~KlWriter();
    KlWriter(const KlWriter&) = delete;
    KlWriter& operator=(const KlWriter&) = delete;

    // Appends a position: its logits [n_vocab], and the token that follows.
    void add(std::span<const float> logits, int32_t next);
    // Gives the file its name, in place of an older one.
    void commit();

  private:
    void add_whole(std::span<const float> logits);
    void add_compact(std::span<const float> logits, int32_t next);
    void write(const void* data, size_t bytes);
    [[noreturn]] void fail_write() const;

    const std::string path_;
    const std::string draft_;
    const bool is_compact_;
    std::FILE* file_;
    std::vector<uint16_t> codes_;
    std::vector<int32_t> order_;
};

class KlReader {
  public:
    // Throws minim::Exception: NOT_FOUND, IO, or FORMAT, naming what is wrong.
    explicit KlReader(const std::string& path);

    const KlHeader& header() const noexcept { return header_; }
    // Reads the next position. `next`: the token that follows.
    void read(int32_t next, KlRow& row);

  private:
    void read_header();
    void read_whole(int32_t next, KlRow& row);
    void read_compact(KlRow& row);
    void read_codes(float step, float lowest, size_t count, KlRow& row);
    void read_bytes(void* data, size_t bytes);
    template <typename T>
    T number() {
        T value;
        read_bytes(&value, sizeof(value));
        return value;
    }
    [[noreturn]] void fail_format(std::string_view what) const;

    struct CloseFile {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };

    const std::string path_;
    std::unique_ptr<std::FILE, CloseFile> file_;
    uint64_t file_bytes_ = 0;
    KlHeader header_;
    std::vector<uint16_t> codes_;
};

}  // namespace cli
