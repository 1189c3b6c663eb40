// SPDX-License-Identifier: Apache-2.0
// Links between devices where something is missing: on the host only, with the stand-in for NCCL.
#include <dlfcn.h>

#include <cstdlib>

#include "cuda/nccl.h"
#include "gpu/linked_ranks.h"
#include "gpu/nccl_of_tests.h"
#include "gpu/nccl_on_host.h"
#include "gpu/recorder.h"
#include "support/catch.h"

namespace minim::test {
namespace {

// Sets an environment variable for a while.
class Setting {
  public:
    Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Setting() { ::unsetenv(name_); }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

  private:
    const char* name_;
};

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

template <typename Function>
Function stand_in(const char* name) {
    void* const library = ::dlopen(MINIM_NCCL_ON_HOST, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    REQUIRE(library != nullptr);
    return reinterpret_cast<Function>(::dlsym(library, name));
}

// Sums one number on two ranks; returns what it is on each, and what became of them.
LinkedEnd sum_on_two(std::vector<float>& sums, const LinkOptions& options, int64_t count = 1) {
    sums.assign(2, 0);
    return run_linked(2, options, [&](LinkedRank& rank) {
        const std::vector<float> own(count, static_cast<float>(rank.rank() + 1));
        sums[rank.rank()] = rank.sum(own, rank.link.ways().size() - 1).back();
    });
}

}  // namespace

TEST_CASE(
    "links: without NCCL small sums use the kernel, others the host, and the remark says what to install") {
    const Setting missing("MINIM_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    std::vector<float> sums;
    for (const int64_t count : {1, 100'000}) {
        const LinkedEnd end = sum_on_two(sums, {}, count);
        for (const auto& error : end.errors) CHECK_FALSE(error.has_value());
        CHECK(sums == std::vector<float>{3, 3});
        CHECK(contains(end.remarks[0], "large sums over GPUs go through host memory"));
        CHECK(contains(end.remarks[0], "/nowhere/libnccl.so.2"));
        CHECK(contains(end.remarks[0], "nvidia-nccl-cu13"));
    }
}

TEST_CASE("links: without NCCL there is none between processes") {
    const Setting missing("MINIM_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    std::vector<float> sums;
    const LinkedEnd end = sum_on_two(sums, {.is_one_process = false});
    CHECK(end.is_linked == std::vector<bool>{false, false});
    CHECK(contains(end.remarks[0], "sums over GPUs go through host memory"));
}

TEST_CASE("links: an NCCL that is too old is not used") {
    prepare_nccl(2);
    const Setting old(k_nccl_version, "21805");
    std::string why_not;
    CHECK(cuda::nccl::open(why_not) == nullptr);
    CHECK(contains(why_not, "2.18.5"));
    CHECK(contains(why_not, "2.19.0"));
    std::vector<float> sums;
    const LinkedEnd end = sum_on_two(sums, {});
    CHECK(contains(end.remarks[1], "rank 0 has no NCCL 2.19.0 or later: libnccl.so.2 is version 2.18.5"));
    CHECK(sums == std::vector<float>{3, 3});
}

TEST_CASE("links: where NCCL refuses to connect the ranks, they go without it, and the remark says why") {
    prepare_nccl(2);
    const auto count = stand_in<int (*)()>(k_nccl_count);
    const Setting refuses(k_nccl_refuses, "1");
    std::vector<float> sums;
    const LinkedEnd end = sum_on_two(sums, {}, 100'000);
    for (const auto& error : end.errors) CHECK_FALSE(error.has_value());
    CHECK(sums == std::vector<float>{3, 3});
    CHECK(contains(end.remarks[0], "large sums over GPUs go through host memory"));
    CHECK(contains(end.remarks[0], "rank 0: cuda:0: NCCL cannot connect the ranks"));
    CHECK(contains(end.remarks[0], "invalid argument"));
    CHECK(count() == 0);
}

TEST_CASE("links: a library that lacks a function is not used") {
    const Setting other("MINIM_NCCL_LIBRARY", "libc.so.6");
    std::string why_not;
    CHECK(cuda::nccl::open(why_not) == nullptr);
    CHECK(contains(why_not, "libnccl.so.2 has no ncclGetVersion"));
}

TEST_CASE("links: NCCL is found in the folder that the environment names, if the loader knows none") {
    ::unsetenv("MINIM_NCCL_LIBRARY");
    const std::string file = MINIM_NCCL_ON_HOST;
    const Setting folder("MINIM_NCCL_FOLDER", file.substr(0, file.rfind('/')).c_str());
    std::string why_not;
    const auto library = cuda::nccl::open(why_not);
    REQUIRE(library != nullptr);
    CHECK(library->version >= cuda::nccl::k_oldest_version);
}

TEST_CASE("links: where devices do not reach each other, the kernel sums in host memory") {
    prepare_nccl(2);
    reaches_peers() = false;
    std::vector<float> sums;
    std::vector<std::string> ways;
    const LinkedEnd end = run_linked(2, {}, [&](LinkedRank& rank) {
        if (rank.rank() == 0) ways.assign(rank.link.ways().begin(), rank.link.ways().end());
        std::vector<float> sum;
        for (int i = 0; i < 5; ++i)
            sum = rank.sum(std::vector<float>(3072, static_cast<float>(rank.rank() + i)), 1);
        if (sum != std::vector<float>(3072, 9)) fail_internal("a sum is {}", sum.back());
    });
    reaches_peers() = true;
    for (const auto& error : end.errors)
        if (error) FAIL_CHECK(error->what());
    CHECK(ways == std::vector<std::string>{"NCCL", "a kernel over host memory"});
}

TEST_CASE(
    "links: an error that NCCL meets in the background ends the wait with its text, and all communicators "
    "end") {
    prepare_nccl(2);
    const auto count = stand_in<int (*)()>(k_nccl_count);
    CHECK(count() == 0);
    const LinkedEnd end = run_linked(2, {}, [&](LinkedRank& rank) {
        if (rank.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            stand_in<void (*)()>(k_nccl_break)();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return;
        }
        rank.sum(std::vector<float>(100'000, 1), 0);
    });
    REQUIRE(end.errors[0].has_value());
    CHECK(end.errors[0]->status() == Status::peer_lost);
    CHECK(contains(end.errors[0]->what(), "cuda:0: NCCL cannot exchange: remote process exited"));
    CHECK(count() == 0);
}

}  // namespace minim::test
