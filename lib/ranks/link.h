// SPDX-License-Identifier: Apache-2.0
// Messages between the processes of a launch, as a plug-in provides them. `libminim-mpi.so` exports minim_link_plugin(). It has its
// own copies of the layers that it uses and shares only the C++ runtime with the library. So both must be of one build: `interface`
// and `build` are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace minim::ranks {

// A message under way. Its bytes must stay until it has ended.
struct Transfer {
    uint64_t handle = 0;  // the link's own
    bool has_ended = false;
    uint64_t n_bytes = 0;  // of a message received, once it has ended
};

// Messages with a tag from one process to another arrive in the order in which they were sent. No function waits for another process.
// Any thread; a Transfer is used by one thread at a time. Functions throw peer_lost if the library below reports an error.
class Link {
  public:
    virtual ~Link() = default;

    virtual int32_t process() const noexcept = 0;
    virtual int32_t size() const noexcept = 0;

    virtual Transfer send(int32_t to, int32_t tag, std::span<const std::byte> bytes) = 0;
    virtual Transfer receive(int32_t from, int32_t tag, std::span<std::byte> bytes) = 0;

    // Makes progress with all messages, and marks those of these that have ended.
    virtual void end_some(std::span<Transfer* const> transfers) = 0;

    // Returns the bytes of the first message that has arrived and for which no receive() was called; nothing if there is none.
    virtual std::optional<uint64_t> arrived(int32_t from, int32_t tag) = 0;

    // Ends all communication of this operating system process: another one is lost, or messages were left unfinished. Nothing is
    // finalised at exit, since that would wait for the lost process. No other function may be called afterwards.
    virtual void give_up() noexcept = 0;
};

// The largest tag.
inline constexpr int32_t k_max_tag = 32767;

// The version of the interface. Increase it if anything in this file changes.
inline constexpr uint32_t k_link_interface = 1;
// Identifies the compiler, and with it the layout of its standard library.
inline constexpr const char* k_link_build = __VERSION__;

struct LinkPlugin {
    uint32_t interface;  // first, so that it can be read in every version
    const char* build;
    // Connects the processes of the launch: all call it, once for each model. Throws unsupported, peer_lost.
    std::unique_ptr<Link> (*open)();
};

using LinkPluginFunction = const LinkPlugin* (*)();
inline constexpr const char* k_link_plugin_function = "minim_link_plugin";

}  // namespace minim::ranks
