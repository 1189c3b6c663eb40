// SPDX-License-Identifier: Apache-2.0
#include "unit/ranks/support.h"

#include <string_view>
#include <thread>
#include <utility>

namespace minim::test {

std::vector<std::optional<Error>> run_processes(int32_t n, const ranks::ProcessOptions& options,
                                                const std::function<void(ranks::Processes&)>& process,
                                                const Disturbance& disturbance) {
    auto links = connect_processes(n, disturbance);
    std::vector<std::optional<Error>> errors(n);
    std::vector<std::thread> threads;
    threads.reserve(n);
    for (int32_t p = 0; p < n; ++p)
        threads.emplace_back([&, p] {
            try {
                ranks::Processes processes(std::move(links[p]), options);
                try {
                    process(processes);
                    processes.leave();
                } catch (const Error& error) {
                    errors[p].emplace(error);
                    processes.abandon(error);
                }
            } catch (const Error& error) {
                errors[p].emplace(error);
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

void require_here(bool holds, std::string_view what) {
    if (!holds) fail_internal("not so: {}", what);
}

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
    for (const std::optional<Error>& error : errors)
        if (error) FAIL_CHECK(error->what());
}

void expect_errors(const std::vector<std::optional<Error>>& errors, Status status, std::string_view part) {
    for (const std::optional<Error>& error : errors) {
        INFO("wanted: " << part);
        REQUIRE(error);
        INFO("message: " << error->what());
        CHECK(error->status() == status);
        CHECK(std::string_view(error->what()).find(part) != std::string_view::npos);
    }
}

}  // namespace minim::test
