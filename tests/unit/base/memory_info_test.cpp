// SPDX-License-Identifier: Apache-2.0
#include "base/memory_info.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "base/error.h"
#include "support/helpers.h"

using namespace minim;

TEST_CASE("available memory is some megabytes at least and never more than the machine has") {
    std::ifstream info("/proc/meminfo");
    std::string word;
    uint64_t total_kilobytes = 0;
    while (info >> word && word != "MemTotal:") {
    }
    REQUIRE(info >> total_kilobytes);
    CHECK(available_memory_bytes() > uint64_t{16} << 20);
    CHECK(available_memory_bytes() <= total_kilobytes * 1024);
}

TEST_CASE("what may be locked is the process's limit less what it has locked") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
    rlimit lower = before;
    lower.rlim_cur = std::min<rlim_t>(before.rlim_max, 65536);
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &lower) == 0);
    const LockLimit lock = lock_limit();
    CHECK(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
    CHECK(lock.limit == lower.rlim_cur);
    CHECK(lock.left() == lock.limit - std::min(lock.limit, lock.locked));
    CHECK(LockLimit().left() == UINT64_MAX);
    CHECK(LockLimit{.limit = 10, .locked = 4}.left() == 6);
    CHECK(LockLimit{.limit = 10, .locked = 11}.left() == 0);
}

TEST_CASE("what is available is within the limit of the address space, and an error for want of it says so") {
    if (std::getenv("MINIM_TEST_EMULATED") != nullptr) {
        WARN("skipped: an emulator does not limit the address space of its program");
        return;
    }
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
    if (before.rlim_cur != RLIM_INFINITY) {
        WARN("skipped: the address space is limited already");
        return;
    }
    CHECK(available_address_space_bytes() == UINT64_MAX);
    std::string pages;
    std::ifstream("/proc/self/statm") >> pages;
    const uint64_t used = std::stoull(pages) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    constexpr uint64_t k_left = uint64_t{64} << 20;
    rlimit lower = before;
    lower.rlim_cur = used + k_left;
    REQUIRE(::setrlimit(RLIMIT_AS, &lower) == 0);
    const uint64_t space = available_address_space_bytes();
    const uint64_t available = available_memory_bytes();
    const auto error = test::error_of([] { const Buffer buffer(uint64_t{1} << 30, "a buffer"); });
    REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(space <= k_left + (uint64_t{16} << 20));
    CHECK(space > 0);
    CHECK(available <= space);
    REQUIRE(error);
    CHECK(error->status() == Status::out_of_memory);
    CHECK(std::string_view(error->what()).find("ulimit -v") != std::string_view::npos);
    CHECK(error->facts().available <= static_cast<int64_t>(k_left + (uint64_t{16} << 20)));
}
