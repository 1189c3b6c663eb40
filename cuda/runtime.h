// The little of the CUDA runtime that the backend needs. runtime.cpp is the real one; the tests of a machine without
// a GPU link one that works on host memory. A text returned says what went wrong, null that nothing did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/plugin.h"

namespace minim::cuda::runtime {

using Stream = void*;

// All devices there are; one entry without a name's index where the driver is missing or too old.
std::vector<backend::DeviceInfo> devices();
// One of them alone, where the driver answers: to ask a device takes some of its memory.
backend::DeviceInfo device(int32_t index);
int32_t device_count() noexcept;  // 0 where it does not

void* allocate(int32_t device, uint64_t bytes);  // null where there is no room
void release(int32_t device, void* block) noexcept;
uint64_t free_bytes(int32_t device) noexcept;
int32_t processor_count(int32_t device) noexcept;  // streaming multiprocessors

Stream make_stream(int32_t device);                       // null where there is none to be had
void end_stream(int32_t device, Stream stream) noexcept;  // once its work is done
const char* synchronize(int32_t device, Stream stream) noexcept;

enum class Way { to_device, to_host, on_device };

// Done when the call returns.
const char* copy(int32_t device, Way way, void* to, const void* from, uint64_t bytes) noexcept;
// As part of a stream. Pageable host memory that goes to the device has been read when the call returns.
const char* copy_later(int32_t device, Stream stream, Way way, void* to, const void* from,
                       uint64_t bytes) noexcept;
// As part of a stream, after what the other device's stream has been given.
const char* copy_from_peer(int32_t device, Stream stream, void* to, int32_t peer, Stream peer_stream,
                           const void* from, uint64_t bytes) noexcept;
// Work of a stream as a graph: between the two it is recorded and not done.
using Graph = void*;
const char* begin_record(int32_t device, Stream stream) noexcept;
// Null where it cannot be a graph; `why` says why not.
Graph end_record(int32_t device, Stream stream, const char*& why) noexcept;
const char* repeat(int32_t device, Graph graph, Stream stream) noexcept;
void end_graph(int32_t device, Graph graph) noexcept;

// Host memory that copies of a stream read in its time; null where there is no room.
void* allocate_host(int32_t device, uint64_t bytes);
void release_host(int32_t device, void* block) noexcept;

// Kernels that this thread starts from now on go to the device, and where `early` may start before the one ahead of them has
// ended. Forgets what went wrong before.
void use(int32_t device, bool early = true) noexcept;
// Whether the device fails whatever it is asked, as after an illegal address: then its memory is lost too. Any other error is that
// of one call.
bool is_lost(int32_t device) noexcept;
// Of kernels that this thread could not start since the last use().
const char* last_error() noexcept;

}  // namespace minim::cuda::runtime
