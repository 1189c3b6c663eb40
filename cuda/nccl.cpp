// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl.h"

#include <dlfcn.h>

#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/own_thread.h"

namespace minim::cuda::nccl {
namespace {

// Of the library's header.
constexpr Result k_success = 0;
constexpr Result k_remote_error = 6;
constexpr Result k_in_progress = 7;
constexpr int k_float32 = 7;
constexpr int k_sum = 0;

constexpr const char* k_name = "libnccl.so.2";
// How long a rank may take to free what it has, and how often it is asked whether it goes on.
constexpr std::chrono::seconds k_end_limit{5};
constexpr std::chrono::microseconds k_nap{50};
// The first connection of some machines takes up to 20 s.
constexpr std::chrono::seconds k_connect_limit{120};

std::vector<std::string> names() {
    if (const char* file = std::getenv("MINIM_NCCL_LIBRARY"); file != nullptr && *file != '\0') return {file};
    std::vector<std::string> all = {k_name};
    if (const char* folder = std::getenv("MINIM_NCCL_FOLDER"); folder != nullptr && *folder != '\0')
        all.push_back(format_text("{}/{}", folder, k_name));
    return all;
}

// Returns null, with the reasons in `why_not`.
void* load(std::string& why_not) {
    for (const std::string& name : names()) {
        if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
            why_not.clear();
            return handle;
        }
        const char* why = ::dlerror();
        why_not += format_text("{}{}", why_not.empty() ? "" : "; ", why == nullptr ? "no reason given" : why);
    }
    return nullptr;
}

}  // namespace

std::string version_text(int version) {
    return format_text("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::shared_ptr<const Library> open(std::string& why_not) {
    void* const handle = load(why_not);
    if (handle == nullptr) return nullptr;
    auto library = std::make_shared<Library>();
    const auto bind = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, symbol));
        if (function == nullptr && why_not.empty()) why_not = format_text("{} has no {}", k_name, symbol);
    };
    Functions& f = library->functions;
    bind(f.get_version, "ncclGetVersion");
    if (f.get_version == nullptr) return nullptr;
    if (f.get_version(&library->version) != k_success || library->version < k_oldest_version) {
        why_not = format_text("{} is version {}; {} is the oldest that is used", k_name,
                              version_text(library->version), version_text(k_oldest_version));
        return nullptr;
    }
    bind(f.get_unique_id, "ncclGetUniqueId");
    bind(f.init_rank, "ncclCommInitRankConfig");
    bind(f.get_async_error, "ncclCommGetAsyncError");
    bind(f.abort, "ncclCommAbort");
    bind(f.destroy, "ncclCommDestroy");
    bind(f.all_reduce, "ncclAllReduce");
    bind(f.send, "ncclSend");
    bind(f.receive, "ncclRecv");
    bind(f.group_start, "ncclGroupStart");
    bind(f.group_end, "ncclGroupEnd");
    bind(f.error_text, "ncclGetErrorString");
    bind(f.last_error, "ncclGetLastError");
    if (!why_not.empty()) return nullptr;
    return library;
}

UniqueId make_unique_id(const Library& library) {
    UniqueId id;
    const Result result = library.functions.get_unique_id(&id);
    if (result != k_success)
        fail(Status::internal, "NCCL makes no id for the ranks: {}: {}", library.functions.error_text(result),
             library.functions.last_error(nullptr));
    return id;
}

// The thread that ends a communicator. It outlives the communicator if the library does not return.
struct Communicator::Ending {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
};

Communicator::Communicator(std::shared_ptr<const Library> library, const UniqueId& id, int32_t device,
                           std::string device_name, const backend::GroupChannel& channel)
    : library_(std::move(library)), device_(device), device_name_(std::move(device_name)), channel_(channel) {
    try {
        make(id);
    } catch (...) {
        if (handle_ != nullptr) start_ending(true);
        throw;
    }
}

void Communicator::make(const UniqueId& id) {
    Config config;
    config.blocking = 0;
    config.cga_cluster_size = config.min_ctas = config.max_ctas = config.split_share =
        INT_MIN;  // as it likes
    config.net_name = nullptr;
    runtime::use(device_);
    Result result = library_->functions.init_rank(&handle_, channel_.size(), id, channel_.rank(), &config);
    const Clock::time_point start = Clock::now();
    while (result == k_in_progress) {
        channel_.throw_if_abandoned();
        if (Clock::now() - start > k_connect_limit)
            fail(Status::peer_lost, "{}: the ranks have not found one another with NCCL within {} s",
                 device_name_, k_connect_limit.count());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const Result asked = library_->functions.get_async_error(handle_, &result);
        if (asked != k_success) result = asked;
    }
    if (result != k_success)
        fail_with(result, "connect the ranks (MINIM_CUDA_DEBUG=no-nccl does without it)");
}

Communicator::~Communicator() {
    if (!has_ended_) start_ending(is_abandoned());
    if (ending_ == nullptr) return;  // no thread: its memory stays taken
    std::unique_lock lock(ending_->mutex);
    ending_->changed.wait_for(lock, k_end_limit, [&] { return ending_->is_done; });
}

bool Communicator::is_abandoned() const noexcept {
    try {
        channel_.throw_if_abandoned();
        return false;
    } catch (...) {
        return true;
    }
}

void Communicator::start_ending(bool aborts) noexcept {
    has_ended_ = true;
    try {
        const auto ending = std::make_shared<Ending>();
        std::thread thread =
            start_thread("minim-nccl-end", "the thread that ends NCCL",
                         [ending, library = library_, handle = handle_, device = device_, aborts] {
                             runtime::use(device);
                             if (aborts) {
                                 library->functions.abort(handle);
                             } else {
                                 library->functions.destroy(handle);
                             }
                             const std::lock_guard lock(ending->mutex);
                             ending->is_done = true;
                             ending->changed.notify_all();
                         });
        thread.detach();
        ending_ = ending;
    } catch (...) {  // no thread: the streams of this rank do not end, and its device is lost
    }
}

void Communicator::end() noexcept {
    if (!has_ended_) start_ending(true);
}

Error Communicator::error_of(Result result, const char* what) const {
    const Functions& f = library_->functions;
    const Status status = result == k_remote_error ? Status::peer_lost : Status::internal;
    const char* last = f.last_error(handle_);
    return {status, Reason::none,
            format_text("{}: NCCL cannot {}: {}{}{}", device_name_, what, f.error_text(result),
                        last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last)};
}

void Communicator::fail_with(Result result, const char* what) const {
    throw Error(error_of(result, what));
}

// Waits until the library has started what was asked for.
void Communicator::check(Result result, const char* what) const {
    if (is_together_ && result == k_in_progress) return;  // started at the end of the group
    const Clock::time_point start = Clock::now();
    while (result == k_in_progress) {
        channel_.throw_if_abandoned();
        if (Clock::now() - start > std::max<Clock::duration>(channel_.timeout(), k_connect_limit))
            fail(Status::peer_lost, "{}: another rank does not answer NCCL", device_name_);
        std::this_thread::sleep_for(k_nap);
        const Result asked = library_->functions.get_async_error(handle_, &result);
        if (asked != k_success) result = asked;
    }
    if (result != k_success) fail_with(result, what);
}

void Communicator::all_reduce(float* data, int64_t count, runtime::Stream stream) {
    check(library_->functions.all_reduce(data, data, static_cast<size_t>(count), k_float32, k_sum, handle_,
                                         stream),
          "sum");
}

void Communicator::send(const float* data, int64_t count, int32_t to, runtime::Stream stream) {
    check(library_->functions.send(data, static_cast<size_t>(count), k_float32, to, handle_, stream), "send");
}

void Communicator::receive(float* data, int64_t count, int32_t from, runtime::Stream stream) {
    check(library_->functions.receive(data, static_cast<size_t>(count), k_float32, from, handle_, stream),
          "receive");
}

void Communicator::together(const std::function<void()>& calls) {
    check(library_->functions.group_start(), "begin a group");
    is_together_ = true;
    try {
        calls();
    } catch (...) {
        is_together_ = false;
        library_->functions.group_end();
        throw;
    }
    is_together_ = false;
    check(library_->functions.group_end(), "send and receive");
}

std::optional<Error> Communicator::error() const {
    Result state = k_success;
    const Result asked = library_->functions.get_async_error(handle_, &state);
    const Result result = asked != k_success ? asked : state;
    if (result == k_success || result == k_in_progress) return std::nullopt;
    return error_of(result, "exchange");
}

}  // namespace minim::cuda::nccl
