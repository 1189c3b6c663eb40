// SPDX-License-Identifier: Apache-2.0
#include "ranks/hello.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/format_text.h"
#include "base/own_thread.h"
#include "ranks/texts.h"

namespace minim::ranks {
namespace {

// Reading the headers of a model from a slow disk takes long, and not equally long everywhere.
constexpr std::chrono::milliseconds k_limit{600'000};

struct Field {
    std::string Hello::*member;
    const char* difference;  // {}: the value of the other process, the value here
};

constexpr Field k_fields[] = {
    {&Hello::library_version, "has another version of the library: {}, here {}"},
    {&Hello::plugin_build, "has a library of another compiler: {}, here {}"},
    {&Hello::fingerprint, "has opened another model: fingerprint {}, here {}"},
    {&Hello::plan, "shares the model among ranks in another way: {}, here {}"},
    {&Hello::n_devices, "has another number of devices: {}, here {}"},
    {&Hello::options, "was started with other options: {}, here {}"},
    {&Hello::device_kind, "has devices of another kind: {}, here {}"},
    {&Hello::compute_capability, "has devices of another compute capability: {}, here {}"},
};

std::vector<std::byte> encode(const Hello& hello) {
    std::vector<std::string> texts;
    for (const Field& field : k_fields) texts.push_back(hello.*field.member);
    texts.push_back(hello.device_names);
    texts.push_back(std::to_string(hello.n_cores));
    texts.push_back(std::to_string(hello.n_possible_cores));
    return encode_texts(texts);
}

int32_t number_of(const std::string& text) {
    int32_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// Another version of the library may send fewer or more fields, of which the version is the first.
Hello parse_hello(std::span<const std::byte> bytes) {
    std::vector<std::string> texts = parse_texts(bytes, "the greeting of a process");
    texts.resize(std::size(k_fields) + 3);
    Hello hello;
    size_t i = 0;
    for (const Field& field : k_fields) hello.*field.member = texts[i++];
    hello.device_names = texts[i++];
    hello.n_cores = number_of(texts[i++]);
    hello.n_possible_cores = number_of(texts[i]);
    return hello;
}

std::string shown(const std::string& value) {
    return value.empty() ? "none" : value;
}

// Returns what the first process that differs from this one differs in; nothing if all are equal.
std::optional<std::string> first_difference(const Processes& processes, const std::vector<Hello>& all) {
    const Hello& own = all[processes.process()];
    for (int32_t p = 0; p < processes.size(); ++p)
        for (const Field& field : k_fields) {
            const std::string& theirs = all[p].*field.member;
            if (theirs == own.*field.member) continue;
            return processes.name(p) + " " +
                   fmt::format(fmt::runtime(field.difference), shown(theirs), shown(own.*field.member));
        }
    return std::nullopt;
}

int32_t count_allowed_cores() {
    constexpr int k_max_cores = 8192;
    cpu_set_t* const set = CPU_ALLOC(k_max_cores);
    if (set == nullptr) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(k_max_cores);
    const bool is_known = ::sched_getaffinity(0, bytes, set) == 0;
    const int n = is_known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    return n;
}

// A thread of its own asks for all cores: it gets those that the system's administrator allows, whatever a launcher has bound the
// process to.
int32_t count_possible_cores() {
    int32_t n = 0;
    std::thread thread = start_thread("minim-cores", "the thread that counts cores", [&] {
        constexpr int k_max_cores = 8192;
        cpu_set_t* const set = CPU_ALLOC(k_max_cores);
        if (set == nullptr) return;
        const size_t bytes = CPU_ALLOC_SIZE(k_max_cores);
        CPU_ZERO_S(bytes, set);
        for (int core = 0; core < k_max_cores; ++core) CPU_SET_S(core, bytes, set);
        if (::sched_setaffinity(0, bytes, set) == 0) n = count_allowed_cores();
        CPU_FREE(set);
    });
    thread.join();
    return n;
}

void warn_of_few_cores(const Processes& processes, const Hello& own, const Logger& log) {
    int32_t n_here = 0;
    for (int32_t p = 0; p < processes.size(); ++p)
        if (processes.identity(p).boot_id == processes.identity(processes.process()).boot_id) ++n_here;
    if (own.n_cores == 0 || own.n_cores >= own.n_possible_cores / std::max(n_here, 1)) return;
    log.warning(
        "this rank is bound to {} of {} cores (mpirun binds up to two ranks to a core each): --bind-to none",
        own.n_cores, own.n_possible_cores);
}

}  // namespace

void set_cores(Hello& hello) {
    hello.n_cores = count_allowed_cores();
    hello.n_possible_cores = count_possible_cores();
}

std::vector<Hello> exchange(Processes& processes, const Hello& own, const Logger& log) {
    const std::vector<std::byte> bytes = encode(own);
    std::vector<Hello> all(processes.size());
    for (int32_t p = 0; p < processes.size(); ++p)
        if (p != processes.process()) processes.send(p, bytes);
    for (int32_t p = 0; p < processes.size(); ++p)
        all[p] = p == processes.process() ? own : parse_hello(processes.receive(p, k_limit));
    if (const std::optional<std::string> difference = first_difference(processes, all)) {
        // If two processes differ, every process differs from one of them. None ends before all have read the others' greetings.
        meet(processes);
        processes.leave();
        processes.let_leader_go_first();
        fail(Status::invalid, "{}", *difference);
    }
    warn_of_few_cores(processes, own, log);
    return all;
}

void meet(Processes& processes) {
    for (int32_t p = 0; p < processes.size(); ++p)
        if (p != processes.process()) processes.send(p, {});
    for (int32_t p = 0; p < processes.size(); ++p) {
        if (p == processes.process()) continue;
        const std::vector<std::byte> bytes = processes.receive(p);
        if (!bytes.empty())
            fail_internal("{} has sent {} bytes where it should wait for the others", processes.name(p),
                          bytes.size());
    }
}

}  // namespace minim::ranks
