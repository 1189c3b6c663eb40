#include "base/memory_info.h"

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
