// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/helpers.h"

using namespace minim;

namespace {

struct Written {
    std::vector<std::pair<int32_t, std::string>> lines;
    static void take(void* self, int32_t level, const char* line) {
        static_cast<Written*>(self)->lines.emplace_back(level, line);
    }
};

void write_all(const Logger& log) {
    log.write(LogLevel::error, "error");
    log.warning("warning {}", 1);
    log.info("info {} {}", 2, "x");
    log.write(LogLevel::debug, "debug");
}

}  // namespace

TEST_CASE("a logger without a function is silent and wants nothing") {
    Logger log;
    write_all(log);
    CHECK_FALSE(log.wants(LogLevel::error));
    log.set(nullptr, nullptr, LogLevel::debug);
    write_all(log);
    CHECK_FALSE(log.wants(LogLevel::error));
}

TEST_CASE("lines up to the level are written, with their level") {
    for (int32_t level = 0; level <= 4; ++level) {
        Written written;
        Logger log;
        log.set(&Written::take, &written, static_cast<LogLevel>(level));
        write_all(log);
        INFO("level " << level);
        REQUIRE(written.lines.size() == static_cast<size_t>(level));
        for (int32_t i = 0; i < level; ++i) CHECK(written.lines[static_cast<size_t>(i)].first == i + 1);
        if (level >= 3) CHECK(written.lines[2].second == "info 2 x");
    }
}

TEST_CASE("a line of level off is never written") {
    Written written;
    Logger log;
    log.set(&Written::take, &written, LogLevel::debug);
    log.write(LogLevel::off, "nothing");
    CHECK(written.lines.empty());
}

TEST_CASE("a logger may call the library back") {
    Logger log;
    log.set([](void* self, int32_t,
               const char*) { static_cast<Logger*>(self)->set(nullptr, nullptr, LogLevel::off); },
            &log, LogLevel::info);
    log.info("once");
    CHECK_FALSE(log.wants(LogLevel::error));
}

TEST_CASE("lines of several threads all arrive") {
    struct Counter {
        std::atomic<int> count{0};
    } counter;
    Logger log;
    log.set([](void* self, int32_t, const char*) { static_cast<Counter*>(self)->count.fetch_add(1); },
            &counter, LogLevel::info);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&log] {
            for (int i = 0; i < 100; ++i) log.info("line {}", i);
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(counter.count == 400);
}
