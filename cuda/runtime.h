// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that the backend needs. Tests on machines without a GPU link another implementation on
// host memory. Functions that return a text return an error, or null if there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/plugin.h"

namespace minim::cuda::runtime {

using Stream = void*;

// Returns all devices; one entry without an index in its name if the driver is missing or too old.
std::vector<backend::DeviceInfo> devices();
// Returns one device, if the driver works: querying a device uses some of its memory.
backend::DeviceInfo device(int32_t index);
int32_t device_count() noexcept;  // 0 if the driver does not work

void* allocate(int32_t device, uint64_t bytes);  // null if memory is short
void release(int32_t device, void* block) noexcept;
uint64_t free_bytes(
    int32_t device) noexcept;  // as the driver says; not for a device that shares the host's memory
bool shares_host_memory(int32_t device) noexcept;     // an integrated GPU
int32_t processor_count(int32_t device) noexcept;     // streaming multiprocessors
int64_t block_shared_bytes(int32_t device) noexcept;  // the most shared memory of a block
bool has_bulk_copies(int32_t device) noexcept;        // compute capability 9.0 or newer

Stream make_stream(int32_t device);                       // null if it fails
void end_stream(int32_t device, Stream stream) noexcept;  // once its work is done
const char* synchronize(int32_t device, Stream stream) noexcept;
// Sets whether the stream's work is done, without waiting.
const char* query(int32_t device, Stream stream, bool& is_done) noexcept;

enum class Way { to_device, to_host, on_device };

// Complete when the call returns.
const char* copy(int32_t device, Way way, void* to, const void* from, uint64_t bytes) noexcept;
// Asynchronous, in a stream. Pageable host memory that is copied to the device has been read when the call returns.
const char* copy_later(int32_t device, Stream stream, Way way, void* to, const void* from,
                       uint64_t bytes) noexcept;
// Asynchronous, in a stream, after the work that the other device's stream has been given.
const char* copy_from_peer(int32_t device, Stream stream, void* to, int32_t peer, Stream peer_stream,
                           const void* from, uint64_t bytes) noexcept;
// Lets kernels and copies of the device reach the peer's memory without the host in between. Returns whether they can.
bool reach_peer(int32_t device, int32_t peer) noexcept;
// Record the work of a stream as a graph: between the two calls it is recorded and not executed.
using Graph = void*;
const char* begin_record(int32_t device, Stream stream) noexcept;
// Returns null, with the reason in `why`, if the work cannot be a graph.
Graph end_record(int32_t device, Stream stream, const char*& why) noexcept;
const char* repeat(int32_t device, Graph graph, Stream stream) noexcept;
void end_graph(int32_t device, Graph graph) noexcept;

// Allocates pinned host memory; null if memory is short.
void* allocate_host(int32_t device, uint64_t bytes);
void release_host(int32_t device, void* block) noexcept;
// Pins memory that the program has allocated, for all devices. `was_pinned`: another device has done it.
enum class Pinning { done, was_pinned, refused };
Pinning pin_host(int32_t device, const void* memory, uint64_t bytes) noexcept;
void unpin_host(int32_t device, const void* memory) noexcept;

// Selects the device for kernels that this thread starts from now on. `early`: they may start before the previous one
// has ended. Clears earlier errors.
void use(int32_t device, bool early = true) noexcept;
// Returns whether every call on the device fails, as after an illegal address: its memory is then lost too. Any other error
// concerns one call.
bool is_lost(int32_t device) noexcept;
// Returns the error of kernels that this thread could not start since the last use().
const char* last_error() noexcept;

}  // namespace minim::cuda::runtime
