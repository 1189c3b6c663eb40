// SPDX-License-Identifier: Apache-2.0
#include "ranks/hello.h"

#include <atomic>
#include <mutex>
#include <string>

#include "ranks/self_test.h"
#include "ranks/tags.h"
#include "reference/reference_backend.h"
#include "runtime/host_group.h"
#include "support/helpers.h"
#include "unit/ranks/support.h"

using namespace minim;
using namespace minim::ranks;
using namespace minim::test;
using std::chrono::milliseconds;

namespace {

Hello some_hello() {
    Hello hello;
    hello.library_version = "0.1.0";
    hello.plugin_build = "12.2.0";
    hello.fingerprint = "0123456789abcdef";
    hello.options = "deterministic 0";
    hello.plan = "tensor 2";
    hello.n_devices = "1";
    hello.device_kind = "cpu";
    hello.compute_capability = "9.0";
    hello.device_names = "cpu";
    hello.n_cores = 2;
    hello.n_possible_cores = 2;
    return hello;
}

constexpr runtime::GroupLimits k_self_test_limits = {.n_sum = k_self_test_floats};

std::vector<SumTime> run_self_test(Processes& processes, milliseconds limit) {
    const auto backend = reference::make_reference_backend();
    const auto scratch = backend->reserve({});
    const auto end = processes.connect(0);
    runtime::HostGroup group(*backend, *end, k_self_test_limits);
    return test_sums(*backend, *scratch, group, limit);
}

}  // namespace

TEST_CASE("equal processes get the greetings of all") {
    expect_no_errors(run_processes(3, k_options, [](Processes& processes) {
        Hello own = some_hello();
        own.device_names = "cpu of " + std::to_string(processes.process());
        const Lines lines;
        const std::vector<Hello> all = exchange(processes, own, lines.log);
        require_here(all.size() == 3, "there are three");
        for (int32_t p = 0; p < 3; ++p)
            require_here(all[p].device_names == "cpu of " + std::to_string(p), "they are in order");
        require_here(lines.all.empty(), "there is no warning");
    }));
}

TEST_CASE("every difference of a process fails in all processes, with both values") {
    struct Case {
        std::string Hello::*member;
        const char* part;
    };
    const Case cases[] = {
        {&Hello::library_version, "has another version of the library"},
        {&Hello::plugin_build, "has a library of another compiler"},
        {&Hello::fingerprint, "has opened another model: fingerprint"},
        {&Hello::options, "was started with other options: "},
        {&Hello::plan, "shares the model among ranks in another way"},
        {&Hello::n_devices, "has another number of devices"},
        {&Hello::device_kind, "has devices of another kind"},
        {&Hello::compute_capability, "has devices of another compute capability"},
    };
    for (const Case& difference : cases)
        for (const int32_t differing : {0, 1, 2}) {
            const auto errors = run_processes(3, k_options, [&](Processes& processes) {
                Hello own = some_hello();
                if (processes.process() == differing) own.*difference.member = "another";
                exchange(processes, own, Logger());
            });
            expect_errors(errors, Status::invalid, difference.part);
            const std::string usual = some_hello().*difference.member;
            for (int32_t p = 0; p < 3; ++p) {
                const std::string text = errors[p]->what();
                const bool is_differing = p == differing;
                const std::string values =
                    is_differing ? " " + usual + ", here another" : " another, here " + usual;
                INFO(text);
                CHECK(text.ends_with(values));
                const int32_t named = !is_differing ? differing : differing == 0 ? 1 : 0;
                CHECK(text.starts_with("rank " + std::to_string(named) + " (host "));
            }
        }
}

TEST_CASE("a process that is bound to fewer cores than its share warns") {
    expect_no_errors(run_processes(2, k_options, [](Processes& processes) {
        Hello own = some_hello();
        own.n_possible_cores = 16;
        own.n_cores = processes.process() == 0 ? 8 : 1;
        const Lines lines;
        exchange(processes, own, lines.log);
        const size_t n_expected = processes.process() == 0 ? 0 : 1;
        require_here(lines.holding("this rank is bound to 1 of 16 cores") == n_expected, "one process warns");
        require_here(lines.holding("--bind-to none") == lines.all.size(), "it says what helps");
    }));
}

TEST_CASE("a process knows its cores") {
    Hello hello;
    set_cores(hello);
    CHECK(hello.n_cores >= 1);
    CHECK(hello.n_possible_cores >= hello.n_cores);
}

TEST_CASE("processes meet") {
    std::atomic<int> n_arrived = 0;
    expect_no_errors(run_processes(3, k_options, [&](Processes& processes) {
        ++n_arrived;
        meet(processes);
        require_here(n_arrived == 3, "all have arrived");
    }));
}

TEST_CASE("the self-test sums numbers of three sizes, and tells the times") {
    expect_no_errors(run_processes(3, k_options, [](Processes& processes) {
        const std::vector<SumTime> times = run_self_test(processes, k_self_test_limit);
        require_here(times.size() == 3, "there are three times");
        require_here(times[0].n_bytes == 8 && times[1].n_bytes == 12'288 && times[2].n_bytes == 1'048'576,
                     "sums of 8 bytes, 12 KiB and 1 MiB");
        for (const SumTime& time : times) require_here(time.seconds > 0, "a sum takes time");
    }));
}

TEST_CASE("a self-test whose messages are altered fails with what may help") {
    const auto errors =
        run_processes(2, k_options, [](Processes& processes) { run_self_test(processes, k_self_test_limit); },
                      {.tag = rank_tag(0, 0), .flips = std::byte(1)});
    expect_errors(errors, Status::internal, "NCCL_P2P_DISABLE=1");
    expect_errors(errors, Status::internal, "of a sum of 2 is");
}

TEST_CASE("a self-test whose messages are lost ends within its limit, with what may help") {
    const auto start = std::chrono::steady_clock::now();
    const auto errors =
        run_processes(2, k_options, [](Processes& processes) { run_self_test(processes, milliseconds(300)); },
                      {.tag = rank_tag(0, 0), .drops = true});
    CHECK(std::chrono::steady_clock::now() - start < milliseconds(5'000));
    expect_errors(errors, Status::peer_lost, "NCCL_SOCKET_IFNAME");
    expect_errors(errors, Status::peer_lost, "no sum within 0.3 s");
}
