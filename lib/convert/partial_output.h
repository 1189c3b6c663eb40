// SPDX-License-Identifier: Apache-2.0
// The folder OUTPUT.partial, in which an output is made, and the steps that give finished files their names. The first bytes of a file
// stay zero until all of its bytes are on the disk, so that no unfinished file opens as a model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "convert/journal.h"
#include "convert/options.h"
#include "convert/part_file.h"
#include "convert/plan.h"

namespace minim::convert {

// Members are for one thread at a time.
class PartialOutput {
  public:
    // Opens the folder of this job, or makes it. Tensors that an earlier run finished are checked by their hashes. Throws invalid if the output
    // exists, is the source, or if the folder belongs to another job; busy if another process writes it; io if there is no room.
    PartialOutput(const Options& options, const Plan& plan, const Source& source, const Job& job,
                  const Logger& log);
    PartialOutput(const PartialOutput&) = delete;
    PartialOutput& operator=(const PartialOutput&) = delete;

    const std::map<int64_t, DoneTensor>& done() const noexcept { return done_; }
    const PartFile& file(int64_t number) const { return files_[number]; }

    // Remembers a tensor whose bytes have been written. It is recorded once they are on the disk: after each GiB, each minute, and more
    // often if that takes little time.
    void add_done(const DoneTensor& tensor);
    // Records all tensors that were added.
    void record();

    // Writes the small files of a folder.
    void write_side_files();
    // Writes the headers, and flushes the files: they are then complete.
    void write_headers(const checkpoint::MetaEntries& metadata);
    // Gives the files their names, the first one last, and removes the folder; or gives the folder its name.
    void publish();

  private:
    void check_names() const;
    void check_folder_name() const;
    void publish_folder();
    void prepare_folder();
    void open_journal(const Job& job);
    void check_room() const;
    void open_files();
    void check_done(const Logger& log);
    std::string path_in_folder(const PlannedFile& file) const;

    const Options& options_;
    const Plan& plan_;
    std::string folder_;
    std::unique_ptr<JournalFile> journal_;
    bool is_new_ = false;       // no earlier run began it
    bool is_renaming_ = false;  // an earlier run was giving names
    std::vector<PartFile> files_;
    std::map<int64_t, DoneTensor> done_;
    std::string unrecorded_;  // lines of the journal
    uint64_t unflushed_bytes_ = 0;
    double last_record_ = 0;     // seconds of the clock
    double record_seconds_ = 0;  // that the last one took
};

}  // namespace minim::convert
