// SPDX-License-Identifier: Apache-2.0
// Conversions that are interrupted, and go on.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "unit/convert/support.h"

namespace minim::convert {
namespace {

using namespace testing;
using test::expect_error;

Options three_parts(const std::string& output) {
    Options options = quantize_options(k_folder, output, "Q8_0");
    options.limits.tensors = 15;
    return options;
}

std::map<std::string, std::string> files_in(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        files[entry.path().filename()] = entry.is_directory() ? "folder" : text_of(entry.path());
    return files;
}

const std::map<std::string, std::string>& wanted_files() {
    static const std::map<std::string, std::string> k_files = [] {
        const TemporaryFolder folder;
        run(three_parts(folder / "x.gguf"));
        return files_in(folder.path());
    }();
    return k_files;
}

// Runs until n tensors are done, and is then cancelled.
void run_some(const Options& options, int64_t n) {
    expect_error(Status::cancelled, "the same command goes on",
                 [&] { run(options, {}, [&](const Progress& progress) { return progress.n_done < n; }); });
}

// Returns the tensors that the journal of an unfinished output has.
std::ptrdiff_t n_recorded(const std::string& folder) {
    std::ifstream file(folder + "/x.gguf.partial/journal");  // it may vanish at any time
    const std::string text(std::istreambuf_iterator<char>(file), {});
    return std::count(text.begin(), text.end(), '\n');
}

// No path with the output's name opens as a model.
void check_nothing_opens(const std::string& folder) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") continue;
        CHECK(error_of([&] { checkpoint::Checkpoint::open(entry.path(), Logger()); }));
    }
}

}  // namespace

TEST_CASE("a cancelled conversion goes on, to the same bytes") {
    for (const int64_t n : {1, 2, 17, 40}) {
        const TemporaryFolder folder;
        const Options options = three_parts(folder / "x.gguf");
        run_some(options, n);
        CHECK(std::filesystem::is_directory(folder / "x.gguf.partial"));
        check_nothing_opens(folder.path());
        const json report = run(options);
        CHECK(report["resumed"].get<int64_t>() >= n);
        CHECK(report["resumed"].get<int64_t>() < 42);
        CHECK(files_in(folder.path()) == wanted_files());
    }
}

TEST_CASE("a tensor that was changed meanwhile is made again") {
    const TemporaryFolder folder;
    const Options options = three_parts(folder / "x.gguf");
    run_some(options, 10);
    const std::string path = folder / "x.gguf.partial/x-00001-of-00003.gguf";
    std::string bytes = text_of(path);
    const json planned = plan(options);
    const size_t at = bytes.size() / 3;
    bytes[at] = static_cast<char>(bytes[at] + 1);
    test::write_text(path, bytes);
    run(options);
    CHECK(files_in(folder.path()) == wanted_files());
}

TEST_CASE("an unfinished output of another job is kept until --restart") {
    const TemporaryFolder folder;
    Options options = three_parts(folder / "x.gguf");
    run_some(options, 10);
    Options other = options;
    other.types.rules = {"attn_q=f16"};
    expect_error(Status::invalid, "attn_q=f16", [&] { run(other); });
    other = options;
    other.program_version = "another";
    expect_error(Status::invalid, "its version is test", [&] { run(other); });
    other.restarts = true;
    other.program_version = "test";
    CHECK(run(other)["resumed"] == 0);
    CHECK(files_in(folder.path()) == wanted_files());
}

TEST_CASE("a folder that is no unfinished output is not thrown away") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "x.gguf.partial");
    test::write_text(folder / "x.gguf.partial/mine", "text");
    Options options = three_parts(folder / "x.gguf");
    options.restarts = true;
    expect_error(Status::invalid, "is not an unfinished output", [&] { run(options); });
    CHECK(text_of(folder / "x.gguf.partial/mine") == "text");
}

// A process that dies at any time leaves nothing that opens, unless it is complete.
TEST_CASE("a conversion that is killed at any time goes on, to the same bytes") {
    wanted_files();
    const int n_times = MINIM_FULL_TESTS != 0 ? 50 : 6;
    uint32_t state = 12345;
    for (int i = 0; i < n_times; ++i) {
        const TemporaryFolder folder;
        const Options options = three_parts(folder / "x.gguf");
        for (int round = 0; round < 3; ++round) {
            const pid_t child = ::fork();
            if (child == 0) {
                try {
                    const ThreadPool threads(2);
                    convert_model(options, threads, nullptr, nullptr, Logger());
                } catch (...) {
                    ::_exit(1);
                }
                ::_exit(0);
            }
            REQUIRE(child > 0);
            // Some tensors are recorded when the process dies, or none if it is slow.
            state = state * 1664525U + 1013904223U;
            const auto wanted = static_cast<std::ptrdiff_t>((state >> 8) % 40);
            for (int wait = 0; wait < 500 && n_recorded(folder.path()) < wanted; ++wait)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::microseconds((state >> 16) % 20'000));
            ::kill(child, SIGKILL);
            int status = 0;
            ::waitpid(child, &status, 0);
            if (WIFEXITED(status) != 0) {
                CHECK(WEXITSTATUS(status) == 0);
                break;
            }
            // The first part has its name only if all of them have.
            if (std::filesystem::exists(folder / "x-00001-of-00003.gguf")) {
                checkpoint::Checkpoint::open(folder / "x-00001-of-00003.gguf", Logger());
                break;
            }
            for (int part = 2; part <= 3; ++part) {
                const std::string path = folder / ("x-0000" + std::to_string(part) + "-of-00003.gguf");
                CHECK(error_of([&] { checkpoint::Checkpoint::open(path, Logger()); }));
            }
        }
        if (std::filesystem::exists(folder / "x.gguf.partial") ||
            !std::filesystem::exists(folder / "x-00001-of-00003.gguf"))
            run(options);
        CHECK(files_in(folder.path()) == wanted_files());
    }
}

TEST_CASE("files that get their names when the process dies are found again") {
    const TemporaryFolder folder;
    const Options options = three_parts(folder / "x.gguf");
    run_some(options, 30);
    const std::string partial = folder / "x.gguf.partial";
    // As if a run had died after it gave the last two parts their names.
    for (const char* name : {"/x-00003-of-00003.gguf", "/x-00002-of-00003.gguf"})
        std::filesystem::rename(partial + name, folder.path() + name);
    test::write_text(partial + "/journal", text_of(partial + "/journal") + "rename\n");
    CHECK(run(options)["resumed"].get<int64_t>() >= 30);
    CHECK(files_in(folder.path()) == wanted_files());
}

TEST_CASE("a limit on file sizes is an error with file and reason, and nothing is lost") {
    const TemporaryFolder folder;
    const Options options = three_parts(folder / "x.gguf");
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit limit = {100'000, 100'000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const ThreadPool threads(2);
        const auto error = error_of([&] { convert_model(options, threads, nullptr, nullptr, Logger()); });
        const bool is_right = error && error->status() == Status::io &&
                              std::string(error->what()).find("x-00001-of-00003.gguf") != std::string::npos &&
                              std::string(error->what()).find("File too large") != std::string::npos;
        ::_exit(is_right ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) != 0);
    CHECK(WEXITSTATUS(status) == 0);
    run(options);
    CHECK(files_in(folder.path()) == wanted_files());
}

TEST_CASE("a source that vanishes or shrinks is an error that names it") {
    const TemporaryFolder folder;
    std::filesystem::copy_file(k_q8_0, folder / "a.gguf");
    const Options options = options_of(folder / "a.gguf", folder / "x.gguf");
    expect_error(Status::format, "a.gguf", [&] {
        run(options, {}, [&](const Progress&) {
            std::filesystem::resize_file(folder / "a.gguf", 600'000);
            return true;
        });
    });
    CHECK_FALSE(std::filesystem::exists(folder / "x.gguf"));
    std::filesystem::remove(folder / "a.gguf");
    expect_error(Status::not_found, "a.gguf", [&] { run(options); });
}

TEST_CASE("a folder that cannot be written is an error that names the output") {
    if (::geteuid() == 0) {
        const TemporaryFolder folder;
        expect_error(Status::io, "/sys/x.gguf.partial", [&] { run(options_of(k_q8_0, "/sys/x.gguf")); });
        return;
    }
    const TemporaryFolder folder;
    std::filesystem::permissions(folder.path(),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    expect_error(Status::io, "x.gguf.partial", [&] { run(options_of(k_q8_0, folder / "x.gguf")); });
    std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

}  // namespace minim::convert
