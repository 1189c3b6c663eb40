// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a block (cuda/fast/device.h) on the CPU. Each thread is a context of its own, which switches to
// the next one when it must wait. So a kernel runs as it is written, with its shared memory, its barriers and the
// functions of its warps; only nothing runs in parallel.
//
// Faults that would show on the hardware show here as well. Shared memory begins as NaN. The threads of a block must
// come to its barrier at one place of the program. Emulation chooses among the orders that a machine leaves open, so
// that a kernel that lacks a barrier, a wait or an atomic operation computes something else.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuda/fast/device.h"
#include "cuda/fast/multiply_rows.h"
#include "cuda/fast/piece.h"
#include "gpu/recorder.h"

namespace minim::test {

// The choices that a machine leaves open. Results must not depend on them.
struct Emulation {
    bool backwards = false;  // threads take their turns in the opposite order
    // Asynchronous copies arrive when they are started, not when they are waited for. Bulk copies arrive at a random turn in between if
    // blocks are in random order.
    bool copies_at_once = false;
    // Kernels are finished late: as many as possible are in flight together, and the threads of each run ahead to where
    // they wait for their inputs before earlier kernels are done. Results are complete when finish_kernels()
    // (recorder.h) returns.
    bool starts_early = false;
    uint32_t seed = 0;  // not 0: blocks begin in random order, two at a time whose threads mix at random
};

// The emulation of launches from now on.
Emulation& emulation();

// Forgets this thread's kernels that are not done yet.
void drop_kernels() noexcept;

// Sets the emulation of launches in its scope. Kernels that are not done when the scope ends are dropped.
class Emulating {
  public:
    explicit Emulating(const Emulation& how) : before_(emulation()) { emulation() = how; }
    Emulating(const Emulating&) = delete;
    Emulating& operator=(const Emulating&) = delete;
    ~Emulating() {
        drop_kernels();
        emulation() = before_;
    }

  private:
    Emulation before_;
};

class EmulatedBlock;

class EmulatedThread {
  public:
    EmulatedThread(EmulatedBlock& block, int index) : block_(block), index_(index) {}

    int index() const { return index_; }
    int block() const;
    int block_y() const;
    std::byte* shared() const;
    void sync(std::source_location at = std::source_location::current());
    // A named barrier: n_threads threads reach it, at any places of the program.
    template <int n_threads>
    void sync_stages() {
        sync_stages_of(n_threads);
    }
    void sync_warp();
    template <typename Number>
    Number from_lane_xor(Number x, int mask) {
        Number other;
        std::memcpy(&other, shared_by_warp(&x, sizeof(x)) + sizeof(x) * static_cast<size_t>(lane() ^ mask),
                    sizeof(other));
        return other;
    }
    float from_lane(float x, int lane) {
        float other;
        std::memcpy(&other, shared_by_warp(&x, sizeof(x)) + sizeof(x) * static_cast<size_t>(lane),
                    sizeof(other));
        return other;
    }
    uint32_t largest_of_lanes(uint32_t x);
    void copy_16(void* to, const void* from) { copy(to, from, 16); }
    void copy_4(void* to, const void* from) { copy(to, from, 4); }
    void copy_16_if(bool wanted, void* to, const void* from) {
        if (wanted) copy_16(to, from);
    }
    void copies_end_group();
    template <int n>
    void copies_wait() {
        finish_copies(n);
    }
    void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
    void mma_s8_16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b);
    void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
    void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
    void load_matrices(uint32_t (&r)[4], const void* row);
    void load_transposed(uint32_t (&r)[4], const void* row);
    uint32_t pack_f16(float a, float b) const;
    uint32_t subtract_f16(uint32_t a, uint32_t b) const;
    uint32_t multiply_f16(uint32_t a, uint32_t b) const;
    uint32_t fma_f16(uint32_t a, uint32_t b, uint32_t c) const;
    template <int n_inputs, Format halves = Format::f16, int n_panels, int n_steps>
    void multiply_rows(float (&sum)[n_panels][n_inputs / 8][4], const uint32_t (&a)[n_panels][n_steps][4],
                       const std::byte* b, int count) {
        cuda::fast::multiply_rows_by_mma<n_inputs, halves>(*this, sum, a, b, count);
    }
    template <int n_inputs, int n_panels, int n_steps>
    void multiply_scaled_rows(float (&sum)[n_panels][n_inputs / 8][4],
                              const uint32_t (&a)[n_panels][n_steps][4], const float (&scale)[n_panels][2],
                              const std::byte* b, int count) {
        cuda::fast::multiply_scaled_rows_by_mma<n_inputs>(*this, sum, a, scale, b, count);
    }
    void halves_of_e4m3(uint32_t (&r)[2], uint32_t codes) const;
    float exp2(float x) const;
    int32_t add_to(int32_t* p, int32_t x) const;
    template <class X>
    X load_fresh(const X* p) const {
        const X x = *p;
        let_other_blocks();
        return x;
    }
    uint32_t load_flag(const uint32_t* p) const { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    void set_flag(uint32_t* p, uint32_t x) const { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
    template <class X>
    X load_from_host(const X* p) const {
        return *p;
    }
    template <cuda::fast::Scope scope>
    void put(cuda::fast::Piece* piece, const uint32_t (&words)[cuda::fast::k_piece_words],
             uint32_t turn) const {
        put_piece(piece, {{words[0], words[1], words[2]}, turn});
    }
    template <cuda::fast::Scope scope>
    bool get(const cuda::fast::Piece* piece, uint32_t turn, uint32_t (&words)[cuda::fast::k_piece_words],
             std::source_location at = std::source_location::current()) const {
        return get_piece(piece, turn, words, scope == cuda::fast::Scope::system, at);
    }
    static constexpr bool k_has_bulk_copies = true;
    void bar_start(cuda::fast::Bar* bar, int count);
    void bar_expect(cuda::fast::Bar* bar, int bytes);
    void bar_arrive(cuda::fast::Bar* bar);
    void bar_wait(cuda::fast::Bar* bar, uint32_t parity,
                  std::source_location at = std::source_location::current());
    void bar_frees(cuda::fast::Bar* bar, void* place, int bytes);
    void copy_bulk(void* to, const void* from, int bytes, cuda::fast::Bar* bar);
    void fence_for_host() const { let_other_blocks(); }
    void nap(int n) const { std::this_thread::sleep_for(std::chrono::nanoseconds(n)); }
    uint64_t nanoseconds() const {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
    }
    void fence() const { let_other_blocks(); }
    void wait_for_inputs();
    bool has_waited() const { return has_waited_; }
    void let_next_begin() const {}
    void prefetch(const void* p, int bytes) const;

  private:
    struct Copy {
        void* to;
        const void* from;
        size_t bytes;
    };
    int lane() const { return index_ % 32; }
    void sync_stages_of(int n_threads);
    void copy(void* to, const void* from, size_t bytes);
    void finish_copies(size_t n_left);
    // Returns what every lane of the warp put down; valid until the warp puts down something else.
    const std::byte* shared_by_warp(const void* own, size_t bytes);
    void put_piece(cuda::fast::Piece* piece, const cuda::fast::Piece& value) const;
    // A thread that finds another turn gives its own to the others. If the device's threads all wait for pieces of each other, that is
    // an error which names the places.
    bool get_piece(const cuda::fast::Piece* piece, uint32_t turn,
                   uint32_t (&words)[cuda::fast::k_piece_words], bool is_from_host,
                   const std::source_location& at) const;
    // Lets other blocks run, at a place where blocks may see what others write.
    void let_other_blocks() const;
    void load(uint32_t (&r)[4], const void* row, bool transposed);
    void mma_halves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float (*widen)(uint16_t));

    EmulatedBlock& block_;
    int index_;
    bool has_waited_ = false;
    std::vector<std::vector<Copy>> copies_ = std::vector<std::vector<Copy>>(1);  // the last group is open
};

using KernelBody = std::function<void(EmulatedThread&)>;

// Runs every block of a grid. `body` is the kernel. runs_together: all blocks are on the device at once, so that they may wait for each
// other's pieces.
void emulate(const cuda::fast::Grid& grid, int n_threads, const Emulation& how, const KernelBody& body,
             bool runs_together = false);

// What a kernel says of itself (cuda/fast/device.h).
struct KernelKind {
    bool holds_next = false;
    bool runs_together = false;
};

// Launches a kernel with the settings of emulation(). The next kernel of the stream begins before the kernels ahead of
// this one are done, unless this one holds it back.
void start_kernel(cuda::fast::Stream stream, const cuda::fast::Grid& grid, int n_threads,
                  const KernelKind& kind, const KernelBody& body);

}  // namespace minim::test

namespace minim::cuda::fast {

template <class Kernel>
bool runs_together(const Grid&) {
    return test::blocks_run_together();
}

template <class Kernel>
void launch(Stream stream, const Grid& grid, const Kernel& kernel) {
    ++test::kernels_launched();
    if constexpr (requires { Kernel::k_by_tables; }) test::kernels_by_tables() += Kernel::k_by_tables ? 1 : 0;
    if (k_runs_together<Kernel>) ++test::kernels_together();
    if (k_starts_early<Kernel>) test::note_early_kernel();
    if (k_waits_for_host<Kernel>) test::note_waiting_kernel();
    test::do_or_record([=] {
        constexpr test::KernelKind k_kind = {k_holds_next<Kernel>, k_runs_together<Kernel>};
        test::start_kernel(stream, grid, Kernel::k_threads, k_kind, [kernel](test::EmulatedThread& thread) {
            if (!k_starts_early<Kernel>) thread.wait_for_inputs();
            kernel(thread);
            if (!thread.has_waited())
                throw std::logic_error("a kernel that starts early did not wait for its inputs");
        });
    });
}

}  // namespace minim::cuda::fast
