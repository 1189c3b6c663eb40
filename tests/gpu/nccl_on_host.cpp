// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl.so.2 whose ranks are threads of one process and whose GPUs' memory is the host's. It has the functions that
// cuda/nccl.h binds. It sums in the opposite of rank order, as NCCL may; it connects in the background; and what a rank waits for ends
// only when the others come or when the rank is aborted.
#include "gpu/nccl_on_host.h"

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/nccl.h"

namespace {

using minim::cuda::nccl::Config;
using minim::cuda::nccl::UniqueId;
using Floats = std::vector<float>;

constexpr int k_success = 0;
constexpr int k_internal_error = 3;
constexpr int k_invalid_argument = 4;
constexpr int k_remote_error = 6;
constexpr int k_in_progress = 7;
constexpr int k_float32 = 7;
constexpr int k_default_version = 22809;

// What the ranks of an id share.
struct Room {
    int n_ranks = 0;
    int n_joined = 0;
    std::map<std::pair<int, int>, std::deque<Floats>> sent;  // by sender and receiver
    struct Sum {
        std::map<int, Floats> parts;
        int n_read = 0;
    };
    std::map<int64_t, Sum> sums;  // by number
};

// One for all rooms: tests are small.
struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int64_t, std::shared_ptr<Room>> rooms;
    int64_t last_id = 0;
    int n_communicators = 0;
    minim::test::NcclRun run = nullptr;
};

State& state() {
    static State state;
    return state;
}

// A rank of a communicator.
struct Comm {
    std::shared_ptr<Room> room;
    int rank = 0;
    int64_t n_sums = 0;
    bool is_aborted = false;
    bool has_failed = false;
    int n_starts = 0;  // of work; the first one goes on in the background
    bool is_starting = false;
};

struct Message {
    std::shared_ptr<Comm> comm;
    const float* from;  // null: it is received
    float* to;
    size_t count;
    int peer;
};

// The communicators by handle: work under way outlives the handle.
std::map<void*, std::shared_ptr<Comm>>& communicators() {
    static std::map<void*, std::shared_ptr<Comm>> all;
    return all;
}

std::shared_ptr<Comm> comm_of(void* handle) {
    const std::lock_guard lock(state().mutex);
    const auto found = communicators().find(handle);
    return found == communicators().end() ? nullptr : found->second;
}

// Waits until `is_ready`, under the lock. Returns false if the rank is aborted.
template <typename Ready>
bool wait(std::unique_lock<std::mutex>& lock, const Comm& comm, const Ready& is_ready) {
    state().changed.wait(lock, [&] { return comm.is_aborted || is_ready(); });
    return !comm.is_aborted;
}

void sum(Comm& comm, const float* from, float* to, size_t count) {
    std::unique_lock lock(state().mutex);
    Room& room = *comm.room;
    const int64_t number = comm.n_sums++;
    Room::Sum& all = room.sums[number];
    all.parts[comm.rank].assign(from, from + count);
    state().changed.notify_all();
    if (!wait(lock, comm, [&] { return static_cast<int>(all.parts.size()) == room.n_ranks; })) return;
    for (const auto& [rank, part] : all.parts) comm.has_failed = comm.has_failed || part.size() != count;
    if (comm.has_failed) return;
    Floats total = all.parts[room.n_ranks - 1];
    for (int rank = room.n_ranks - 2; rank >= 0; --rank)
        for (size_t i = 0; i < count; ++i) total[i] += all.parts[rank][i];
    std::memcpy(to, total.data(), count * sizeof(float));
    if (++all.n_read == room.n_ranks) room.sums.erase(number);
}

void exchange(const std::vector<Message>& messages) {
    std::unique_lock lock(state().mutex);
    for (const Message& message : messages) {
        if (message.from == nullptr) continue;
        message.comm->room->sent[{message.comm->rank, message.peer}].emplace_back(
            message.from, message.from + message.count);
    }
    state().changed.notify_all();
    for (const Message& message : messages) {
        if (message.from != nullptr) continue;
        std::deque<Floats>& sent = message.comm->room->sent[{message.peer, message.comm->rank}];
        if (!wait(lock, *message.comm, [&] { return !sent.empty(); })) return;
        message.comm->has_failed = message.comm->has_failed || sent.front().size() != message.count;
        if (!message.comm->has_failed)
            std::memcpy(message.to, sent.front().data(), message.count * sizeof(float));
        sent.pop_front();
    }
}

int start(Comm& comm, std::function<void()> work) {
    using Work = std::function<void()>;
    auto data = std::make_unique<Work>(std::move(work));
    state().run([](void* one) { (*static_cast<Work*>(one))(); },
                [](void* one) { delete static_cast<Work*>(one); }, data.release());
    comm.is_starting = ++comm.n_starts == 1;
    return comm.is_starting ? k_in_progress : k_success;
}

// The messages of a group that has begun on this thread.
struct Group {
    int depth = 0;
    std::vector<Message> messages;
};

Group& group() {
    static thread_local Group group;
    return group;
}

int add(Message message) {
    if (message.comm == nullptr || message.peer < 0 || message.peer >= message.comm->room->n_ranks)
        return k_invalid_argument;
    group().messages.push_back(std::move(message));
    return k_success;
}

int end(void* handle, bool aborts) {
    const std::lock_guard lock(state().mutex);
    const auto found = communicators().find(handle);
    if (found == communicators().end()) return k_invalid_argument;
    found->second->is_aborted = aborts;
    communicators().erase(found);
    --state().n_communicators;
    state().changed.notify_all();
    return k_success;
}

}  // namespace

// The target compiles with default visibility.
extern "C" {

void minim_nccl_on_host_run_with(minim::test::NcclRun run) {
    state().run = run;
}

void minim_nccl_on_host_break() {
    const std::lock_guard lock(state().mutex);
    for (const auto& [handle, comm] : communicators()) comm->has_failed = true;
}

int minim_nccl_on_host_count() {
    const std::lock_guard lock(state().mutex);
    return state().n_communicators;
}

int ncclGetVersion(int* version) {
    const char* text = std::getenv(minim::test::k_nccl_version);
    *version = text == nullptr ? k_default_version : std::atoi(text);
    return k_success;
}

int ncclGetUniqueId(UniqueId* id) {
    const std::lock_guard lock(state().mutex);
    *id = {};
    const int64_t number = ++state().last_id;
    std::memcpy(id->bytes.data() + 64, &number,
                sizeof(number));  // not at the beginning: all bytes have to arrive
    state().rooms[number] = std::make_shared<Room>();
    return k_success;
}

int ncclCommInitRankConfig(void** handle, int n_ranks, UniqueId id, int rank, const Config* config) {
    if (config->size != sizeof(Config) || config->magic != 0xCAFEBEEF || config->blocking != 0)
        return k_invalid_argument;
    if (std::getenv(minim::test::k_nccl_refuses) != nullptr) return k_invalid_argument;
    int64_t number;
    std::memcpy(&number, id.bytes.data() + 64, sizeof(number));
    const std::lock_guard lock(state().mutex);
    const auto room = state().rooms.find(number);
    if (room == state().rooms.end()) return k_invalid_argument;
    auto comm = std::make_shared<Comm>();
    comm->room = room->second;
    comm->rank = rank;
    comm->room->n_ranks = n_ranks;
    ++comm->room->n_joined;
    *handle = comm.get();
    communicators()[comm.get()] = std::move(comm);
    ++state().n_communicators;
    return k_in_progress;
}

int ncclCommGetAsyncError(void* handle, int* error) {
    const std::shared_ptr<Comm> comm = comm_of(handle);
    if (comm == nullptr) return k_invalid_argument;
    const std::lock_guard lock(state().mutex);
    const bool is_connecting = comm->room->n_joined < comm->room->n_ranks;
    const bool is_starting = std::exchange(comm->is_starting, false);
    *error = comm->has_failed ? k_remote_error : is_connecting || is_starting ? k_in_progress : k_success;
    return k_success;
}

int ncclCommAbort(void* handle) {
    return end(handle, true);
}

int ncclCommDestroy(void* handle) {
    return end(handle, false);
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, void* handle, void*) {
    const std::shared_ptr<Comm> comm = comm_of(handle);
    if (comm == nullptr || type != k_float32 || operation != 0) return k_invalid_argument;
    return start(*comm, [=] { sum(*comm, static_cast<const float*>(from), static_cast<float*>(to), count); });
}

int ncclSend(const void* from, size_t count, int type, int peer, void* handle, void*) {
    if (type != k_float32 || group().depth == 0) return k_invalid_argument;
    return add({comm_of(handle), static_cast<const float*>(from), nullptr, count, peer});
}

int ncclRecv(void* to, size_t count, int type, int peer, void* handle, void*) {
    if (type != k_float32 || group().depth == 0) return k_invalid_argument;
    return add({comm_of(handle), nullptr, static_cast<float*>(to), count, peer});
}

int ncclGroupStart() {
    ++group().depth;
    return k_success;
}

int ncclGroupEnd() {
    if (--group().depth > 0) return k_success;
    std::vector<Message> messages = std::exchange(group().messages, {});
    if (messages.empty()) return k_success;
    const std::shared_ptr<Comm> comm = messages.front().comm;
    return start(*comm, [messages = std::move(messages)] { exchange(messages); });
}

const char* ncclGetErrorString(int result) {
    return result == k_internal_error ? "internal error"
           : result == k_remote_error ? "remote process exited"
                                      : "invalid argument";
}

const char* ncclGetLastError(void*) {
    return "the stand-in says no more";
}

}  // extern "C"
