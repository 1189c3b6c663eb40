// SPDX-License-Identifier: Apache-2.0
// What test_ranks.py runs under mpirun: each process has the ranks of MINIM_TEST_DEVICES devices (1), and a model that is a sum.
//
//   ranks_program exchange          sums, slots and rows of all ranks, bit by bit
//   ranks_program hello [R]         processes compare what they have opened; process R has another model
//   ranks_program steps busy|idle   the leader drives steps until an error ends them, or stops driving after ten
//   ranks_program fails R           rank R has no memory in the fifth step
//   ranks_program leaves R          process R ends before it has opened the model
//   ranks_program rest SECONDS      how much of a core a follower takes between two steps
//   ranks_program twice             two models, one after the other
//   ranks_program times             seconds of sums
//   ranks_program message           seconds of a step's message
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "placement/plugins.h"
#include "ranks/follower.h"
#include "ranks/hello.h"
#include "ranks/launcher.h"
#include "ranks/leader.h"
#include "ranks/processes.h"
#include "ranks/self_test.h"
#include "reference/reference_backend.h"
#include "runtime/forward_pass.h"
#include "runtime/host_group.h"

using namespace minim;
using namespace minim::ranks;

namespace {

constexpr runtime::GroupLimits k_limits = {
    .n_sum = k_self_test_floats, .n_slots = 64, .hidden = 96, .n_gather = 10'000};

template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
    const std::string line = format_text(text, std::forward<Args>(args)...) + "\n";
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
}

int64_t number_of_environment(const char* name, int64_t otherwise) {
    const char* const value = std::getenv(name);
    return value == nullptr ? otherwise : std::atoll(value);
}

std::unique_ptr<Processes> open_processes() {
    const ProcessOptions options = {
        .n_devices = static_cast<int32_t>(number_of_environment("MINIM_TEST_DEVICES", 1)),
        .timeout = std::chrono::milliseconds(number_of_environment("MINIM_TEST_TIMEOUT", 30'000))};
    return std::make_unique<Processes>(placement::load_link_plugin().open(), options);
}

using Rank = std::function<void(runtime::HostGroup& group, backend::Scratch& scratch)>;

// The ranks of a process, a thread each while a function runs.
class LocalRanks {
  public:
    explicit LocalRanks(Processes& processes)
        : backend_(reference::make_reference_backend()), ends_(connect_ranks(processes)) {
        for (const auto& end : ends_) {
            groups_.push_back(std::make_unique<runtime::HostGroup>(*backend_, *end, k_limits));
            scratches_.push_back(backend_->reserve({}));
        }
    }

    const backend::Backend& backend() const { return *backend_; }

    void run(const Rank& rank) {
        std::vector<std::optional<Error>> errors(groups_.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < groups_.size(); ++i)
            threads.emplace_back([&, i] {
                try {
                    rank(*groups_[i], *scratches_[i]);
                } catch (...) {
                    errors[i].emplace(current_error());
                    groups_[i]->abandon(*errors[i]);
                }
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::optional<Error>& error : errors)
            if (error) throw Error(*error);
    }

  private:
    std::shared_ptr<const backend::Backend> backend_;
    std::vector<std::unique_ptr<runtime::Transport>> ends_;
    std::vector<std::unique_ptr<runtime::HostGroup>> groups_;
    std::vector<std::unique_ptr<backend::Scratch>> scratches_;
};

// ---- exchange ----

// The numbers of a rank: sums of them depend on the order of the additions.
std::vector<float> numbers(int32_t rank, int64_t count) {
    std::mt19937 random(static_cast<uint32_t>(rank) + 100);
    std::vector<float> values(count);
    for (float& value : values)
        value =
            std::ldexp(static_cast<float>(random() % 65536) - 32768.0F, static_cast<int>(random() % 24) - 12);
    return values;
}

void require_bits(const std::vector<float>& data, const std::vector<float>& expected, std::string_view what) {
    if (std::memcmp(data.data(), expected.data(), expected.size() * sizeof(float)) != 0)
        fail_internal("{} of {} numbers has other bits", what, expected.size());
}

void check_sums(runtime::HostGroup& group, backend::Scratch& scratch) {
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{3072}, runtime::k_max_floats_to_all,
                                runtime::k_max_floats_to_all + 1, k_self_test_floats}) {
        std::vector<float> expected = numbers(0, count);
        for (int32_t r = 1; r < group.size(); ++r) {
            const std::vector<float> term = numbers(r, count);
            for (int64_t i = 0; i < count; ++i) expected[i] += term[i];
        }
        std::vector<float> data = numbers(group.rank(), count);
        group.sum(scratch, data.data(), count);
        require_bits(data, expected, "a sum");
    }
}

void check_slots(runtime::HostGroup& group, backend::Scratch& scratch) {
    constexpr int64_t k_slots = 37;
    constexpr int64_t k_hidden = 96;
    std::vector<int32_t> ids(k_slots);
    std::vector<float> expected(k_slots * k_hidden);
    std::vector<float> out(k_slots * k_hidden, -1.0F);
    for (int64_t slot = 0; slot < k_slots; ++slot) {
        ids[slot] = static_cast<int32_t>((slot * slot + 3 * slot) % 16);
        const int32_t owner = ids[slot] % group.size();
        const std::vector<float> values = numbers(owner * 100 + static_cast<int32_t>(slot), k_hidden);
        std::copy(values.begin(), values.end(), expected.begin() + slot * k_hidden);
        if (owner == group.rank()) std::copy(values.begin(), values.end(), out.begin() + slot * k_hidden);
    }
    group.share_slots(scratch, ids.data(), k_slots, k_hidden, out.data());
    require_bits(out, expected, "an exchange of slots");
}

void check_rows(runtime::HostGroup& group, backend::Scratch& scratch) {
    constexpr int64_t k_rows = 3;
    constexpr int64_t k_width = 50;
    std::vector<float> whole(k_rows * k_width * group.size());
    group.gather_rows(scratch, numbers(group.rank(), k_rows * k_width).data(), k_rows, k_width, whole.data());
    if (group.rank() != 0) return;
    std::vector<float> expected;
    for (int64_t row = 0; row < k_rows; ++row)
        for (int32_t r = 0; r < group.size(); ++r) {
            const std::vector<float> part = numbers(r, k_rows * k_width);
            expected.insert(expected.end(), part.begin() + row * k_width, part.begin() + (row + 1) * k_width);
        }
    require_bits(whole, expected, "a gathering of rows");
}

void exchange_all(Processes& processes) {
    LocalRanks ranks(processes);
    ranks.run([](runtime::HostGroup& group, backend::Scratch& scratch) {
        for (int i = 0; i < 5; ++i) {
            check_sums(group, scratch);
            check_slots(group, scratch);
            check_rows(group, scratch);
        }
        std::mt19937 random(7);
        for (int i = 0; i < 300; ++i) {
            const auto count = static_cast<int64_t>(1 + random() % (i % 20 == 0 ? 100'000 : 500));
            std::vector<float> data(count, static_cast<float>(group.rank() + i));
            group.sum(scratch, data.data(), count);
            const int32_t n = group.size();
            const int32_t sum = n * i + n * (n - 1) / 2;
            const std::vector<float> expected(count, static_cast<float>(sum));
            require_bits(data, expected, "one of many sums");
        }
    });
    meet(processes);
    processes.leave();
    if (processes.process() == 0)
        say("the bits of {} ranks are right", processes.size() * processes.n_devices());
}

// ---- steps ----

double cpu_seconds() {
    timespec time = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A step is 20 sums. The token of its first row says what else it does.
class Sums final : public FollowerCalls {
  public:
    static constexpr int32_t k_measures = 1'000'000;

    Sums(Processes& processes, int32_t failing) : ranks_(processes), failing_(failing) {}

    void compute(int32_t token) {
        if (token == k_measures) measure();
        ranks_.run([&](runtime::HostGroup& group, backend::Scratch& scratch) {
            std::vector<float> data(20'000);
            for (int i = 0; i < 20; ++i) {
                if (i == 10 && token == 5 && group.rank() == failing_)
                    fail_out_of_memory("what rank 1 wants", 1000, 10);
                const auto value = static_cast<float>(token % k_measures);
                std::fill(data.begin(), data.end(), value);
                group.sum(scratch, data.data(), std::ssize(data));
                if (data[777] != value * static_cast<float>(group.size()))
                    fail_internal("a sum is {}", data[777]);
            }
        });
    }

    void make_space(uint32_t, int64_t, int64_t) override {}
    void end_space(uint32_t) noexcept override {}
    void step(const StepMessage& step) override { compute(step.rows[0].token); }
    void make_pool(uint32_t, const backend::KvLayout&) override {}
    void end_pool(uint32_t) noexcept override {}
    void add_slab(uint32_t, int32_t, int64_t) override {}
    void drop_slab(uint32_t, int32_t) noexcept override {}
    void copy(uint32_t, backend::KvPage, backend::KvPage) noexcept override {}
    std::vector<std::byte> read(uint32_t, backend::KvPage) override { return {}; }
    void write(uint32_t, backend::KvPage, std::span<const std::byte>) override {}

  private:
    // Says how much of a core the process has taken since the last time.
    void measure() {
        using Clock = std::chrono::steady_clock;
        const Clock::time_point now = Clock::now();
        const double cpu = cpu_seconds();
        const std::chrono::duration<double> seconds = now - last_;
        if (cpu_ > 0) say("a follower took {:.4f} of a core", (cpu - cpu_) / seconds.count());
        last_ = now;
        cpu_ = cpu;
    }

    LocalRanks ranks_;
    const int32_t failing_;
    std::chrono::steady_clock::time_point last_;
    double cpu_ = 0;
};

// Drives a step on all processes.
void drive(Leader& leader, Sums& sums, uint32_t space, int32_t token) {
    static const std::vector<backend::KvPage> k_pages(100);
    static std::vector<std::byte*> places(k_pages.size());
    backend::KvSequence sequence;
    sequence.pages = places;
    sequence.numbers = k_pages;
    const runtime::StepRow row = {token, {&sequence, 0}, true};
    leader.start(space, {&row, 1});
    sums.compute(token % Sums::k_measures);
}

void wait_for_loss(const Processes& processes, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds)) {
        processes.require();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

void run_steps(Processes& processes, const std::string& kind, int32_t failing, double rest) {
    Sums sums(processes, failing);
    if (processes.process() > 0) {
        follow(processes, sums);
        return;
    }
    Leader leader(processes);
    const uint32_t space = leader.make_space(1, 64);
    for (int32_t i = 0; i < 10; ++i) drive(leader, sums, space, i);
    say("ready");
    if (kind == "idle") wait_for_loss(processes, 60);
    for (int32_t i = 0; kind == "busy"; ++i) drive(leader, sums, space, 10 + i % 100);
    if (kind != "rest") return;
    for (int i = 0; i < 2; ++i) {
        drive(leader, sums, space, Sums::k_measures);
        wait_for_loss(processes, rest);
    }
}

void say_times(Processes& processes) {
    LocalRanks ranks(processes);
    ranks.run([&](runtime::HostGroup& group, backend::Scratch& scratch) {
        for (const SumTime& time : test_sums(ranks.backend(), scratch, group))
            if (group.rank() == 0) say("{} bytes: {:.1f} us", time.n_bytes, time.seconds * 1e6);
        std::vector<float> data(3072);
        const auto start = std::chrono::steady_clock::now();
        constexpr int k_sums = 2000;
        for (int i = 0; i < k_sums; ++i) group.sum(scratch, data.data(), std::ssize(data));
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        if (group.rank() == 0) say("12288 bytes, mean: {:.1f} us", seconds.count() / k_sums * 1e6);
    });
    meet(processes);
    processes.leave();
}

// Prints what the message of a step of 16 sequences with 4,096 positions each costs the process that sends it.
void say_message_times(Processes& processes) {
    Sums sums(processes, -1);
    if (processes.process() > 0) {
        follow(processes, sums);
        return;
    }
    constexpr size_t k_sequences = 16;
    constexpr int k_steps = 2000;
    const std::vector<backend::KvPage> pages(64);
    std::vector<std::byte*> places(pages.size());
    const std::vector<backend::KvSequence> sequences(k_sequences, {.pages = places, .numbers = pages});
    Leader leader(processes);
    const uint32_t space = leader.make_space(k_sequences, 4096);
    std::chrono::duration<double> seconds{};
    for (int i = 0; i < k_steps; ++i) {
        std::vector<runtime::StepRow> rows;
        for (const backend::KvSequence& sequence : sequences) rows.push_back({i, {&sequence, 0}, true});
        const auto start = std::chrono::steady_clock::now();
        leader.start(space, rows);
        seconds += std::chrono::steady_clock::now() - start;
        sums.compute(i % Sums::k_measures);
    }
    say("message of a step of {} rows, mean: {:.1f} us", k_sequences, seconds.count() / k_steps * 1e6);
}

void greet(Processes& processes, int32_t differing) {
    Hello hello;
    hello.library_version = "1";
    hello.fingerprint = processes.process() == differing ? "bbbb" : "aaaa";
    set_cores(hello);
    exchange(processes, hello, Logger());
    meet(processes);
    processes.leave();
    if (processes.process() == 0) say("all are equal");
}

void run(const std::string& command, const std::string& argument) {
    const int32_t number = std::atoi(argument.c_str());
    if (command == "leaves" && find_launch().process == number) std::_Exit(3);
    const std::unique_ptr<Processes> processes = open_processes();
    if (processes->size() != find_launch().size || processes->process() != find_launch().process)
        fail_internal("the launcher's numbers are others than those of MPI");
    say("process {} has pid {}", processes->process(), ::getpid());
    if (command == "exchange") exchange_all(*processes);
    if (command == "hello") greet(*processes, argument.empty() ? -1 : number);
    if (command == "steps") run_steps(*processes, argument, -1, 0);
    if (command == "fails") run_steps(*processes, "busy", number, 0);
    if (command == "rest") run_steps(*processes, "rest", -1, number);
    if (command == "times") say_times(*processes);
    if (command == "message") say_message_times(*processes);
    if (command == "twice") run_steps(*processes, "", -1, 0);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    const std::string argument = argc > 2 ? argv[2] : "";
    try {
        run(command, argument);
        if (command == "twice") run(command, argument);
    } catch (const Error& error) {
        timespec now = {};
        ::clock_gettime(CLOCK_REALTIME, &now);
        std::fprintf(stderr, "process %d at %.3f: status %d: %s\n", static_cast<int>(find_launch().process),
                     static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9,
                     static_cast<int>(error.status()), error.what());
        std::fflush(stderr);
        std::this_thread::sleep_for(
            std::chrono::milliseconds(number_of_environment("MINIM_TEST_LAST_MS", 0)));
        return 1;
    }
    return 0;
}
