// SPDX-License-Identifier: Apache-2.0
#include "state_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "metrics.h"
#include "options/folder.h"

namespace server {

namespace {

using Seconds = std::chrono::duration<double>;

// Set before main() begins.
const double process_start = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

struct MemorySizes {
    int64_t virtual_bytes = 0;
    int64_t resident_bytes = 0;
};

MemorySizes memory_sizes() {
    MemorySizes sizes;
    std::ifstream("/proc/self/statm") >> sizes.virtual_bytes >> sizes.resident_bytes;  // in pages
    const int64_t page = sysconf(_SC_PAGESIZE);
    return {sizes.virtual_bytes * page, sizes.resident_bytes * page};
}

// Returns the number of open files, without the one that counts them.
int64_t n_open_files() {
    std::error_code error;
    const auto n = static_cast<int64_t>(program::names_in_folder("/proc/self/fd", error).size());
    return error ? 0 : n - 1;
}

void write_process_value(const char* name, const char* type, const char* help, double value,
                         std::string& out) {
    write_head(name, type, help, out);
    out += fmt::format("{} {}\n", name, value);
}

}  // namespace

std::string process_metrics(const std::string& prefix) {
    std::string out;
    write_head(prefix + "build_info", "gauge", "1, with the version of the program", out);
    out += fmt::format("{}build_info{{version={}}} 1\n", prefix, quoted_label(minim_version()));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    write_process_value("process_cpu_seconds_total", "counter", "CPU time of all threads, user and system",
                        seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime), out);
    const MemorySizes sizes = memory_sizes();
    write_process_value("process_resident_memory_bytes", "gauge", "Memory in use, mapped files included",
                        static_cast<double>(sizes.resident_bytes), out);
    write_process_value("process_virtual_memory_bytes", "gauge", "Size of the address space",
                        static_cast<double>(sizes.virtual_bytes), out);
    write_process_value("process_open_fds", "gauge", "Open files and connections",
                        static_cast<double>(n_open_files()), out);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    write_process_value("process_max_fds", "gauge", "Limit of open files and connections",
                        static_cast<double>(limit.rlim_cur), out);
    write_process_value("process_start_time_seconds", "gauge",
                        "When the process began, in seconds since 1970", process_start, out);
    return out;
}

std::string model_metrics(const std::string& prefix, const ServedModel& served) {
    const std::string& label = served.metrics->label;
    std::string out;
    write_head(prefix + "model_info", "gauge", "1, with the devices of the model's layers and experts", out);
    out += fmt::format("{}model_info{{{},placement={}}} 1\n", prefix, label,
                       quoted_label(served.info.placement));
    const auto write_gauge = [&](const char* name, const char* help, auto value) {
        write_head(prefix + name, "gauge", help, out);
        out += fmt::format("{}{}{{{}}} {}\n", prefix, name, label, value);
    };
    write_gauge("model_weight_bytes", "Bytes of the model's weights", served.info.weight_bytes);
    write_gauge("model_context_tokens", "Tokens of one request at most, prompt and answer", served.n_context);
    write_gauge("model_slots", "Requests that run at once", served.n_slots);
    return out;
}

}  // namespace server
