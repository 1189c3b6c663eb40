// SPDX-License-Identifier: Apache-2.0
#include "ranks/self_test.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/format_text.h"
#include "base/own_thread.h"

namespace minim::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t k_counts[] = {2, 3072, k_self_test_floats};
constexpr size_t k_small_sum = 1;  // of k_counts: a row
constexpr int k_repetitions = 3;
constexpr std::string_view k_help =
    "what may help: NCCL_P2P_DISABLE=1; the IOMMU and ACS switched off, or uvm_disable_hmm=1 for the "
    "driver's module nvidia_uvm; "
    "a larger /dev/shm; NCCL_SOCKET_IFNAME naming the network that all machines share";

Error with_help(const Error& error) {
    return {error.status(), error.reason(),
            format_text("the ranks cannot exchange sums: {}; {}", error.what(), k_help), error.facts()};
}

// Small whole numbers: their sums are exact in every order.
float number(int32_t rank, int64_t i) {
    return static_cast<float>((i * 7 + rank * 13) % 64 + rank);
}

// Abandons the group if it is not ended within the limit.
class Limit {
  public:
    Limit(backend::Group& group, std::chrono::milliseconds limit)
        : thread_(start_thread("minim-self-test", "the thread that limits the self-test",
                               [this, &group, limit] { watch(group, limit); })) {}
    ~Limit() {
        {
            const std::lock_guard lock(mutex_);
            has_ended_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

  private:
    void watch(backend::Group& group, std::chrono::milliseconds limit) {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit, [&] { return has_ended_; })) return;
        const double seconds = static_cast<double>(limit.count()) / 1000;
        group.abandon(Error(Status::peer_lost, Reason::none, format_text("no sum within {:g} s", seconds)));
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool has_ended_ = false;
    std::thread thread_;
};

struct Test {
    const backend::Backend& backend;
    backend::Scratch& scratch;
    backend::Group& group;
    std::unique_ptr<backend::Memory> memory = backend.allocate(k_self_test_floats * 4, "self-test of sums");
    std::vector<float> numbers = std::vector<float>(k_self_test_floats);

    // Returns the seconds of one sum.
    double sum(int64_t count) {
        for (int64_t i = 0; i < count; ++i) numbers[i] = number(group.rank(), i);
        auto* const bytes = reinterpret_cast<std::byte*>(numbers.data());
        backend.write(memory->data(), bytes, static_cast<uint64_t>(count) * 4);
        const Clock::time_point start = Clock::now();
        group.sum(scratch, reinterpret_cast<float*>(memory->data()), count);
        backend.synchronize(scratch);
        const std::chrono::duration<double> seconds = Clock::now() - start;
        backend.read(bytes, memory->data(), static_cast<uint64_t>(count) * 4);
        check(count);
        return seconds.count();
    }

    void check(int64_t count) const {
        for (int64_t i = 0; i < count; ++i) {
            float expected = 0;
            for (int32_t rank = 0; rank < group.size(); ++rank) expected += number(rank, i);
            if (numbers[i] != expected)
                fail_internal("number {} of a sum of {} is {}, not {}", i, count, numbers[i], expected);
        }
    }
};

}  // namespace

std::vector<SumTime> test_sums(const backend::Backend& backend, backend::Scratch& scratch,
                               backend::Group& group, std::chrono::milliseconds limit) {
    try {
        const Limit limited(group, limit);
        Test test = {.backend = backend, .scratch = scratch, .group = group};
        std::vector<SumTime> times;
        for (const int64_t count : k_counts) {
            SumTime& time = times.emplace_back(SumTime{.n_bytes = count * 4, .seconds = test.sum(count)});
            for (int i = 1; i < k_repetitions; ++i) time.seconds = std::min(time.seconds, test.sum(count));
        }
        return times;
    } catch (...) {
        const Error error = with_help(current_error());
        group.abandon(error);
        throw Error(error);
    }
}

Ways choose_way(const backend::Backend& backend, backend::Scratch& scratch, backend::Group& group,
                backend::GroupLink& link, backend::GroupChannel& channel, std::chrono::milliseconds limit) {
    Ways ways;
    for (size_t way = 0; way < link.ways().size(); ++way) {
        link.use_way(way);
        ways.all.push_back({link.ways()[way], test_sums(backend, scratch, group, limit)});
    }
    const auto small_sum = [](const WayTimes& way) { return way.times[k_small_sum].seconds; };
    ways.chosen = std::ranges::min_element(ways.all, {}, small_sum) - ways.all.begin();
    // Of rank 0: the ranks measure different times.
    std::vector<size_t> choices(channel.size());
    channel.exchange(std::as_bytes(std::span(&ways.chosen, 1)), std::as_writable_bytes(std::span(choices)));
    ways.chosen = choices.front();
    link.use_way(ways.chosen);
    return ways;
}

}  // namespace minim::ranks
