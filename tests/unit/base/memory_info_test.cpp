#include "base/memory_info.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "support/catch.h"

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
