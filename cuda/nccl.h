// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that ranks need. libnccl.so.2 is loaded at run time, so that the backend works without it, and its header is not
// needed: what is used has not changed since version 2.19.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "backend/group.h"
#include "cuda/runtime.h"

namespace minim::cuda::nccl {

using Result = int;
using Handle = void*;  // ncclComm_t

// ncclUniqueId: by it the ranks of a communicator find one another.
struct UniqueId {
    std::array<std::byte, 128> bytes = {};
};

// ncclConfig_t as of version 2.19; later versions take it by its size and version.
struct Config {
    size_t size = sizeof(Config);
    uint32_t magic = 0xCAFEBEEF;
    uint32_t version = 21900;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char* net_name;
    int split_share;
};

struct Functions {
    Result (*get_version)(int* version) = nullptr;
    Result (*get_unique_id)(UniqueId* id) = nullptr;
    Result (*init_rank)(Handle* handle, int n_ranks, UniqueId id, int rank, Config* config) = nullptr;
    Result (*get_async_error)(Handle handle, Result* error) = nullptr;
    Result (*abort)(Handle handle) = nullptr;
    Result (*destroy)(Handle handle) = nullptr;
    Result (*all_reduce)(const void* from, void* to, size_t count, int type, int operation, Handle handle,
                         runtime::Stream stream) = nullptr;
    Result (*send)(const void* from, size_t count, int type, int peer, Handle handle,
                   runtime::Stream stream) = nullptr;
    Result (*receive)(void* to, size_t count, int type, int peer, Handle handle,
                      runtime::Stream stream) = nullptr;
    Result (*group_start)() = nullptr;
    Result (*group_end)() = nullptr;
    const char* (*error_text)(Result result) = nullptr;
    const char* (*last_error)(Handle handle) = nullptr;
};

struct Library {
    Functions functions;
    int version = 0;  // 22809: 2.28.9
};

// The oldest version that is used, 2.19.
inline constexpr int k_oldest_version = 21900;

// "2.28.9"
std::string version_text(int version);

// Loads the library: MINIM_NCCL_LIBRARY if that is set, or else libnccl.so.2 where the loader finds it, or else in the folder
// MINIM_NCCL_FOLDER, which the Python package sets. It is never unloaded, because it has threads. Returns null, with the reason in
// `why_not`, if there is none or if it is too old.
std::shared_ptr<const Library> open(std::string& why_not);

// One rank of a communicator. One thread at a time. Its calls do not block: where the library goes on in the background, they wait
// for it, and throw the error that the group is abandoned with meanwhile, or peer_lost after the channel's time limit.
class Communicator {
  public:
    // All ranks call it at the same time, with the id that one of them has got. The channel must outlive it. Throws what the library
    // refuses with, and peer_lost.
    Communicator(std::shared_ptr<const Library> library, const UniqueId& id, int32_t device,
                 std::string device_name, const backend::GroupChannel& channel);
    // Waits at most 5 s for the library to free the rank's memory.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    // In the order of the stream. Not after end().
    void all_reduce(float* data, int64_t count, runtime::Stream stream);
    void send(const float* data, int64_t count, int32_t to, runtime::Stream stream);
    void receive(float* data, int64_t count, int32_t from, runtime::Stream stream);
    // Starts the sends and receives of `calls` together.
    void together(const std::function<void()>& calls);

    // Returns the error that the library has met in the background, if any.
    std::optional<Error> error() const;
    // Ends the work of this rank's streams: ncclCommAbort on a thread of its own, because it may wait for what ends later. Only once.
    void end() noexcept;
    bool has_ended() const noexcept { return has_ended_; }

  private:
    using Clock = std::chrono::steady_clock;
    struct Ending;

    void check(Result result, const char* what) const;
    void make(const UniqueId& id);
    bool is_abandoned() const noexcept;
    void start_ending(bool aborts) noexcept;
    [[noreturn]] void fail_with(Result result, const char* what) const;
    Error error_of(Result result, const char* what) const;

    const std::shared_ptr<const Library> library_;
    const int32_t device_;
    const std::string device_name_;
    const backend::GroupChannel& channel_;
    Handle handle_ = nullptr;
    bool is_together_ = false;
    bool has_ended_ = false;
    std::shared_ptr<Ending> ending_;  // null: it has not begun
};

// Returns an id for a new communicator. Throws internal.
UniqueId make_unique_id(const Library& library);

}  // namespace minim::cuda::nccl
