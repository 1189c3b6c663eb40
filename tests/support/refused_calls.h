// SPDX-License-Identifier: Apache-2.0
// Runs code where the system refuses some calls, as odd file systems and sandboxes do.
#pragma once

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>

namespace minim::test {

// System call `number` fails with the errno `code` if each argument (its index, its lower half) has the value.
struct RefusedCall {
    long number = 0;
    uint32_t code = 0;
    struct Argument {
        uint32_t index = 0;
        uint32_t value = 0;
    };
    std::vector<Argument> arguments = {};
};

// Adds a rule to this process, for good. Returns false if the system has no such rules.
inline bool refuse(const RefusedCall& call) {
    constexpr uint16_t k_load = BPF_LD | BPF_W | BPF_ABS;
    constexpr uint16_t k_equal = BPF_JMP | BPF_JEQ | BPF_K;
    constexpr uint16_t k_return = BPF_RET | BPF_K;
    const auto n = static_cast<uint8_t>(call.arguments.size());
    std::vector<sock_filter> program = {
        {k_load, 0, 0, 0}, {k_equal, 0, static_cast<uint8_t>(1 + 2 * n), static_cast<uint32_t>(call.number)}};
    for (uint8_t i = 0; i < n; ++i) {
        const RefusedCall::Argument& argument = call.arguments[i];
        program.push_back({k_load, 0, 0, 16 + 8 * argument.index});
        program.push_back({k_equal, 0, static_cast<uint8_t>(1 + 2 * (n - 1 - i)), argument.value});
    }
    program.push_back({k_return, 0, 0, SECCOMP_RET_ERRNO | call.code});
    program.push_back({k_return, 0, 0, SECCOMP_RET_ALLOW});
    const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Runs `work` in a process of its own in which the calls are refused. Returns the text that it returns, or that of its
// exception; nothing if the system has no such rules.
template <typename Work>
std::optional<std::string> where_refused(const std::vector<RefusedCall>& calls, Work&& work) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
        std::string text = "-";
        bool possible = true;
        for (const RefusedCall& call : calls) possible = possible && refuse(call);
        try {
            if (possible) text = "+" + work();
        } catch (const std::exception& error) {
            text = std::string("+") + error.what();
        }
        ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string text;
    char block[512];
    ssize_t got = 0;
    while ((got = ::read(ends[0], block, sizeof(block))) > 0) text.append(block, static_cast<size_t>(got));
    ::close(ends[0]);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return "the process ended early";
    if (text == "-") return std::nullopt;
    return text.substr(1);
}

}  // namespace minim::test
