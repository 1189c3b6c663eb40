// SPDX-License-Identifier: Apache-2.0
#include "ranks/identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "ranks/texts.h"

namespace minim::ranks {
namespace {

template <typename Number>
Number number_of(const std::string& text, std::string_view what) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
        fail_file(Reason::value, "the {} of a process is '{}', which is no number", what, text);
    return number;
}

}  // namespace

Identity own_identity(int32_t n_devices) {
    Identity own;
    std::array<char, 256> host = {};
    if (::gethostname(host.data(), host.size() - 1) == 0) own.host = host.data();
    std::ifstream("/proc/sys/kernel/random/boot_id") >> own.boot_id;
    struct stat facts = {};
    if (::stat("/proc/self/ns/pid", &facts) == 0) own.pid_namespace = facts.st_ino;
    own.pid = ::getpid();
    own.n_devices = n_devices;
    return own;
}

bool is_of_same_machine(const Identity& a, const Identity& b) {
    return !a.boot_id.empty() && a.boot_id == b.boot_id && a.pid_namespace == b.pid_namespace;
}

std::vector<std::byte> encode(const Identity& identity) {
    const std::array<std::string, 5> texts = {
        identity.host, identity.boot_id, std::to_string(identity.pid_namespace), std::to_string(identity.pid),
        std::to_string(identity.n_devices)};
    return encode_texts(texts);
}

Identity parse_identity(std::span<const std::byte> bytes) {
    const std::vector<std::string> texts = parse_texts(bytes, "the first message of a process");
    if (texts.size() < 5)
        fail_file(Reason::truncated, "the first message of a process has {} texts; it needs 5", texts.size());
    return {.host = texts[0],
            .boot_id = texts[1],
            .pid_namespace = number_of<uint64_t>(texts[2], "pid namespace"),
            .pid = number_of<int64_t>(texts[3], "pid"),
            .n_devices = number_of<int32_t>(texts[4], "number of devices")};
}

}  // namespace minim::ranks
