// SPDX-License-Identifier: Apache-2.0
// The record of an unfinished conversion, so that a later run can go on: which job it is, and which tensors are on the disk.
//
//   minim-convert 1
//   job KEY VALUE                          a property of the job; a run goes on only if all are the same
//   done NUMBER OFFSET BYTES HASH ...      a tensor is on the disk: place, hash, and figures for the report
//   rename                                 the files are complete, and get their names
//
// A line without its end was being written when the process died; it does not count.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::convert {

// Properties of a job, in the order in which differences are reported. Values have no line breaks.
using Job = std::vector<std::pair<std::string, std::string>>;

// Sums of square errors of an encoded tensor.
struct ErrorSums {
    double error = 0;           // of (w - w')^2
    double square = 0;          // of w^2
    double weighted_error = 0;  // the same, each times its importance
    double weighted_square = 0;
};

struct DoneTensor {
    int64_t number = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t hash = 0;
    uint64_t source_hash = 0;
    ErrorSums errors = {};
    double seconds = 0;
};

struct JournalContent {
    Job job;
    std::map<int64_t, DoneTensor> done;
    bool is_renaming = false;
};

// Returns what a journal says; lines that are cut or damaged do not count.
JournalContent parse_journal(std::string_view text);

// Returns how `mine` differs from `theirs`, as a phrase for a message; empty if they are the same.
std::string difference(const Job& theirs, const Job& mine);

std::string done_line(const DoneTensor& tensor);

// The open file. Only one process has it open at a time.
class JournalFile {
  public:
    // Opens or creates it. Throws busy if another process writes it, and io.
    explicit JournalFile(std::string path);
    ~JournalFile();
    JournalFile(const JournalFile&) = delete;
    JournalFile& operator=(const JournalFile&) = delete;

    // Returns the text, and removes a line without its end, so that the next line begins a new one.
    std::string take_text() const;
    // Begins anew with the properties of a job.
    void begin(const Job& job) const;
    // Appends whole lines and waits until they are on the disk.
    void append(std::string_view lines) const;

  private:
    void write(std::string_view text) const;

    std::string path_;
    int descriptor_ = -1;
};

}  // namespace minim::convert
