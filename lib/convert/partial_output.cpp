// SPDX-License-Identifier: Apache-2.0
#include "convert/partial_output.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/folder.h"
#include "base/format_text.h"
#include "base/io_error.h"

namespace minim::convert {
namespace {

constexpr uint64_t k_record_bytes = uint64_t{1} << 30;
constexpr double k_record_seconds = 60;
constexpr double k_record_share = 0.05;  // of the time may be spent on recording
constexpr mode_t k_folder_mode = 0777;
constexpr size_t k_marked_bytes = 24;  // of the header, which make the file a model; written last

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool exists(const std::string& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0;
}

bool is_same_file(const std::string& a, const std::string& b) {
    struct stat of_a {};
    struct stat of_b {};
    return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

void rename_file(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_io(to, "write", errno);
}

}  // namespace

PartialOutput::PartialOutput(const Options& options, const Plan& plan, const Source& source, const Job& job,
                             const Logger& log)
    : options_(options), plan_(plan), folder_(plan.partial_folder()), last_record_(seconds_now()) {
    for (const PlannedFile& file : plan.files)
        for (const File& from : source.checkpoint.files())
            if (is_same_file(plan.path_of(file), from.path()))
                fail(Status::invalid, "the output {} is the source", plan.path_of(file));
    std::error_code error;
    if (plan.layout && std::filesystem::equivalent(plan.path(), source.checkpoint.folder(), error))
        fail(Status::invalid, "the output {} is the source", plan.path());
    prepare_folder();
    try {
        open_journal(job);
        check_names();
        check_room();
        open_files();
    } catch (...) {
        if (is_new_ && files_.empty()) {  // there is nothing to go on with
            ::unlink((folder_ + "/journal").c_str());
            ::rmdir(folder_.c_str());
        }
        throw;
    }
    check_done(log);
}

std::string PartialOutput::path_in_folder(const PlannedFile& file) const {
    return folder_ + "/" + file.name;
}

void PartialOutput::prepare_folder() {
    if (options_.restarts && exists(folder_)) {
        std::error_code error;
        const bool is_ours = exists(folder_ + "/journal") || std::filesystem::is_empty(folder_, error);
        if (!is_ours) fail(Status::invalid, "the folder {} is not an unfinished output", folder_);
        const JournalFile journal(folder_ + "/journal");  // not while another process writes it
        if (parse_journal(journal.take_text()).is_renaming)
            for (const PlannedFile& file : plan_.files)
                if (!exists(path_in_folder(file))) ::unlink(plan_.path_of(file).c_str());
        std::filesystem::remove_all(folder_, error);
        if (error) fail_io(folder_, "remove", error.value());
    }
    if (::mkdir(folder_.c_str(), k_folder_mode) != 0 && errno != EEXIST) fail_io(folder_, "write", errno);
}

void PartialOutput::open_journal(const Job& job) {
    journal_ = std::make_unique<JournalFile>(folder_ + "/journal");
    const std::string text = journal_->take_text();
    if (text.empty()) {
        is_new_ = true;
        journal_->begin(job);
        flush_folder(folder_);
        return;
    }
    JournalContent content = parse_journal(text);
    if (const std::string what = difference(content.job, job); !what.empty())
        fail(Status::invalid, "{} is the unfinished output of another job: {}; --restart throws it away",
             folder_, what);
    done_ = std::move(content.done);
    is_renaming_ = content.is_renaming;
}

// A folder is replaced only if it is a model's: it has weights and no other folder.
void PartialOutput::check_folder_name() const {
    const std::string path = plan_.path();
    if (!exists(path)) return;
    if (!options_.overwrites) fail(Status::invalid, "the output {} exists; --overwrite replaces it", path);
    std::error_code error;
    bool has_weights = false;
    for (const std::string& name : names_in_folder(path, error)) {
        std::error_code ignored;
        if (std::filesystem::is_directory(std::filesystem::path(path) / name, ignored))
            fail(Status::invalid, "the output {} has a folder {}: it is not replaced", path, name);
        has_weights = has_weights || name.ends_with(".safetensors");
    }
    if (error || !has_weights)
        fail(Status::invalid, "the output {} is not a folder with weights: it is not replaced", path);
}

void PartialOutput::check_names() const {
    if (plan_.layout) return check_folder_name();
    if (options_.overwrites) return;
    for (const PlannedFile& file : plan_.files) {
        const bool is_ours = is_renaming_ && !exists(path_in_folder(file));
        if (!is_ours && exists(plan_.path_of(file)))
            fail(Status::invalid, "the output {} exists; --overwrite replaces it", plan_.path_of(file));
    }
}

// What an unfinished run has written is there already.
void PartialOutput::check_room() const {
    uint64_t needed = plan_.bytes;
    for (const PlannedFile& file : plan_.files) {
        struct stat info {};
        const bool is_ours = is_renaming_ && !exists(path_in_folder(file));
        const std::string path = is_ours ? plan_.path_of(file) : path_in_folder(file);
        constexpr uint64_t k_block = 512;
        if (::stat(path.c_str(), &info) == 0)
            needed -= std::min({needed, file.bytes, static_cast<uint64_t>(info.st_blocks) * k_block});
    }
    struct statvfs room {};
    if (::statvfs(folder_.c_str(), &room) != 0) return;
    const uint64_t free = uint64_t{room.f_bavail} * room.f_frsize;
    if (needed <= free) return;
    ErrorFacts facts;
    facts.os_code = ENOSPC;
    facts.requested = static_cast<int64_t>(needed);
    facts.available = static_cast<int64_t>(free);
    throw Error(Status::io, Reason::io,
                format_text("the output needs {} bytes in {}, where {} are free", needed, plan_.folder, free),
                facts);
}

void PartialOutput::open_files() {
    for (const PlannedFile& file : plan_.files) {
        const std::string path = path_in_folder(file);
        if (is_renaming_ && !exists(path) && exists(plan_.path_of(file)))
            rename_file(plan_.path_of(file), path);
        files_.emplace_back(path, file.bytes);
        // Not a model any more while its bytes may change.
        constexpr std::array<std::byte, k_marked_bytes> k_zeros{};
        files_.back().write_at(0, k_zeros);
    }
    is_renaming_ = false;
    flush_folder(folder_);
}

void PartialOutput::check_done(const Logger& log) {
    std::erase_if(done_, [&](const auto& entry) {
        const auto& [number, done] = entry;
        if (number < 0 || number >= std::ssize(plan_.tensors)) return true;
        const PlannedTensor& tensor = plan_.tensors[number];
        if (done.bytes != tensor.bytes || done.offset != tensor.offset) return true;
        const auto read = [&](uint64_t offset, std::span<std::byte> out) {
            files_[tensor.file].read_at(offset, out);
        };
        if (hash_of_tensor(tensor, read) == done.hash) return false;
        log.warning("tensor {} is not what an earlier run wrote; it is made again", shown(tensor.name));
        return true;
    });
    if (!done_.empty())
        log.warning("resuming: {} of {} tensors are done", done_.size(), plan_.tensors.size());
}

void PartialOutput::add_done(const DoneTensor& tensor) {
    done_.insert_or_assign(tensor.number, tensor);
    unrecorded_ += done_line(tensor);
    unflushed_bytes_ += tensor.bytes;
    const double waited = seconds_now() - last_record_;
    if (unflushed_bytes_ >= k_record_bytes || waited >= k_record_seconds ||
        waited * k_record_share >= record_seconds_)
        record();
}

void PartialOutput::record() {
    if (unrecorded_.empty()) return;
    const double begin = seconds_now();
    for (const PartFile& file : files_) file.flush();
    journal_->append(unrecorded_);
    unrecorded_.clear();
    unflushed_bytes_ = 0;
    last_record_ = seconds_now();
    record_seconds_ = last_record_ - begin;
}

void PartialOutput::write_side_files() {
    for (const auto& [name, text] : plan_.side_files) {
        const PartFile file(folder_ + "/" + name, text.size());
        file.write_at(0, std::as_bytes(std::span(text)));
        file.flush();
    }
}

void PartialOutput::write_headers(const checkpoint::MetaEntries& metadata) {
    record();
    std::vector<checkpoint::NewHeader> headers;
    for (size_t f = 0; f < files_.size(); ++f) {
        headers.push_back(header_of(plan_, metadata, static_cast<int64_t>(f)));
        files_[f].write_at(k_marked_bytes, std::span(headers.back().bytes).subspan(k_marked_bytes));
        files_[f].flush();
    }
    for (size_t f = 0; f < files_.size(); ++f) {
        files_[f].write_at(0, std::span(headers[f].bytes).first(k_marked_bytes));
        files_[f].flush();
    }
}

// A complete folder gets its name in one step. One that it replaces is moved into it before, and removed after.
void PartialOutput::publish_folder() {
    const std::string path = plan_.path();
    constexpr const char* k_replaced = "/replaced";
    std::error_code error;
    flush_folder(folder_);
    if (exists(path)) {
        std::filesystem::remove_all(folder_ + k_replaced, error);
        rename_file(path, folder_ + k_replaced);
    }
    rename_file(folder_, path);
    flush_folder(plan_.folder);
    ::unlink((path + "/journal").c_str());
    std::filesystem::remove_all(path + k_replaced, error);
    flush_folder(path);
}

void PartialOutput::publish() {
    if (plan_.layout) return publish_folder();
    journal_->append("rename\n");
    // Old files with these names would be parts of a model together with the first new ones.
    const std::string first = plan_.path_of(plan_.files.front());
    if (plan_.files.size() > 1 && exists(first)) {
        if (::unlink(first.c_str()) != 0) fail_io(first, "replace", errno);
        flush_folder(plan_.folder);
    }
    for (size_t f = plan_.files.size(); f-- > 0;) {
        if (f == 0) flush_folder(plan_.folder);
        rename_file(path_in_folder(plan_.files[f]), plan_.path_of(plan_.files[f]));
    }
    flush_folder(plan_.folder);
    ::unlink((folder_ + "/journal").c_str());
    if (::rmdir(folder_.c_str()) != 0) fail_io(folder_, "remove", errno);
    flush_folder(plan_.folder);
}

}  // namespace minim::convert
