#include "gpu/emulated_thread.h"

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/half.h"

namespace minim::test {
namespace {

constexpr size_t k_stack_bytes = 64 * 1024;
constexpr size_t k_warp = 32;
constexpr size_t k_most_exchanged = 32;  // bytes a lane puts down
constexpr size_t k_alignment = 128;

struct Barrier {
    int arrived = 0;
    int generation = 0;
};

struct Warp {
    Barrier barrier;
    // Two, used in turn: a lane may put down the next value before another has read the last one.
    std::byte put_down[2][k_warp * k_most_exchanged];
};

struct FreeMemory {
    void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeMemory>;

// The stacks of n threads, kept from launch to launch.
std::byte* stacks_of(size_t n) {
    static thread_local AlignedBytes stacks;
    static thread_local size_t n_stacks = 0;
    if (n > n_stacks) {
        stacks.reset(static_cast<std::byte*>(std::aligned_alloc(k_alignment, n * k_stack_bytes)));
        n_stacks = n;
    }
    return stacks.get();
}

}  // namespace

// A thread's stack, and where on it the thread goes on. Only the first step onto a new stack needs a ucontext, whose
// switches are calls of the operating system.
struct Fiber {
    jmp_buf place;
    ucontext_t start;
    bool is_started = false;
};

// Runs block after block on the same threads.
class EmulatedBlock {
  public:
    EmulatedBlock(const cuda::fast::Grid& grid, int n_threads, bool backwards,
                  const std::function<void(EmulatedThread&)>& body)
        : shared_bytes_((static_cast<size_t>(grid.shared_bytes) + k_alignment) / k_alignment * k_alignment),
          shared_(static_cast<std::byte*>(std::aligned_alloc(k_alignment, shared_bytes_))),
          n_(static_cast<size_t>(n_threads)),
          backwards_(backwards),
          body_(body),
          warps_((n_ + k_warp - 1) / k_warp),
          fibers_(n_),
          turns_(n_),
          finished_(n_),
          stacks_(stacks_of(n_)) {
        for (size_t i = 0; i < n_; ++i) {
            ucontext_t& context = fibers_[i].start;
            getcontext(&context);
            context.uc_stack.ss_sp = stacks_ + i * k_stack_bytes;
            context.uc_stack.ss_size = k_stack_bytes;
            makecontext(&context, reinterpret_cast<void (*)()>(&EmulatedBlock::start), 0);
        }
    }

    void run(int x, int y) {
        x_ = x;
        y_ = y;
        std::memset(shared_.get(), 0xFF, shared_bytes_);
        threads_.clear();
        for (size_t i = 0; i < n_; ++i) threads_.emplace_back(*this, static_cast<int>(i));
        std::fill(finished_.begin(), finished_.end(), false);
        for (Warp& warp : warps_) warp.barrier = {};
        block_barrier_ = {};
        n_running_ = n_;
        idle_turns_ = 0;
        running_ = backwards_ ? n_ - 1 : 0;
        current_block() = this;
        main_.is_started = true;
        go(main_, fibers_[running_]);
        current_block() = nullptr;
        if (error_) std::rethrow_exception(error_);
    }

    void wait_for_block() { wait(block_barrier_, n_); }
    void wait_for_warp(size_t index) { wait(warps_[index / k_warp].barrier, k_warp); }
    const std::byte* exchange(size_t index, const void* own, size_t bytes) {
        Warp& warp = warps_[index / k_warp];
        std::byte* all = warp.put_down[turns_[index]++ % 2];
        std::memcpy(all + index % k_warp * bytes, own, bytes);
        wait_for_warp(index);
        return all;
    }

    int x() const { return x_; }
    int y() const { return y_; }
    std::byte* shared() const { return shared_.get(); }

  private:
    static EmulatedBlock*& current_block() {
        static thread_local EmulatedBlock* block = nullptr;
        return block;
    }
    static void go(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
        swapcontext(&from.start, &to.start);  // a jump to another stack looks to it like the end of all calls
        return;
#endif
        if (_setjmp(from.place) != 0) return;
        if (to.is_started) _longjmp(to.place, 1);
        to.is_started = true;
        setcontext(&to.start);
    }
    static void start() {
        current_block()->run_thread();
    }

    // Never returns: what comes after the last block is the end of the stacks.
    [[noreturn]] void run_thread() {
        const size_t own = running_;
        while (true) {
            try {
                body_(threads_[own]);
            } catch (...) {
                error_ = std::current_exception();
            }
            finished_[own] = true;
            --n_running_;
            idle_turns_ = 0;
            if (n_running_ > 0 && !error_) {
                do step();
                while (finished_[running_]);
                go(fibers_[own], fibers_[running_]);
            } else {
                go(fibers_[own], main_);
            }
        }
    }
    void step() {
        running_ = backwards_ ? (running_ + n_ - 1) % n_ : (running_ + 1) % n_;
    }
    void give_turn() {
        if (++idle_turns_ > 4 * n_) throw std::logic_error("threads of a block wait for each other");
        const size_t own = running_;
        do step();
        while (finished_[running_]);
        if (running_ != own) go(fibers_[own], fibers_[running_]);
    }
    void wait(Barrier& barrier, size_t count) {
        const int generation = barrier.generation;
        if (++barrier.arrived == static_cast<int>(count)) {
            barrier.arrived = 0;
            ++barrier.generation;
            idle_turns_ = 0;
            return;
        }
        while (barrier.generation == generation) give_turn();
    }

    int x_ = 0;
    int y_ = 0;
    size_t shared_bytes_;
    AlignedBytes shared_;
    size_t n_;
    bool backwards_;
    const std::function<void(EmulatedThread&)>& body_;
    std::vector<Warp> warps_;
    Barrier block_barrier_;
    std::vector<EmulatedThread> threads_;
    Fiber main_;
    std::vector<Fiber> fibers_;
    std::vector<size_t> turns_;
    std::vector<bool> finished_;
    std::byte* stacks_;
    size_t running_ = 0;
    size_t n_running_ = 0;
    size_t idle_turns_ = 0;
    std::exception_ptr error_;
};

void emulate(const cuda::fast::Grid& grid, int n_threads, bool backwards,
             const std::function<void(EmulatedThread&)>& body) {
    EmulatedBlock block(grid, n_threads, backwards, body);
    for (int64_t y = 0; y < grid.n_blocks_y; ++y)
        for (int64_t x = 0; x < grid.n_blocks; ++x) block.run(static_cast<int>(x), static_cast<int>(y));
}

bool& emulates_backwards() {
    static bool backwards = false;
    return backwards;
}

int EmulatedThread::block() const {
    return block_.x();
}
int EmulatedThread::block_y() const {
    return block_.y();
}
std::byte* EmulatedThread::shared() const {
    return block_.shared();
}
void EmulatedThread::sync() {
    block_.wait_for_block();
}
void EmulatedThread::sync_warp() {
    block_.wait_for_warp(static_cast<size_t>(index_));
}

const std::byte* EmulatedThread::shared_by_warp(const void* own, size_t bytes) {
    return block_.exchange(static_cast<size_t>(index_), own, bytes);
}

uint32_t EmulatedThread::largest_of_lanes(uint32_t x) {
    uint32_t all[k_warp];
    std::memcpy(all, shared_by_warp(&x, sizeof(x)), sizeof(all));
    return *std::max_element(std::begin(all), std::end(all));
}

void EmulatedThread::copy(void* to, const void* from, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0)
        throw std::logic_error("an asynchronous copy is not aligned");
    copies_.back().push_back({to, from, bytes});
}

void EmulatedThread::copies_end_group() {
    copies_.emplace_back();
}

void EmulatedThread::finish_copies(size_t n_left) {
    while (copies_.size() > n_left + 1) {
        for (const Copy& copy : copies_.front()) std::memcpy(copy.to, copy.from, copy.bytes);
        copies_.erase(copies_.begin());
    }
}

namespace {

// Fragments as PTX lays them out: lane 4 g + q holds of a the rows g and g + 8, word q of the first half of the columns
// and of the second; of b column g, word q of the first half of the rows and of the second.
struct Fragments {
    uint32_t a[4];
    uint32_t b[2];
};

// add(word of a, word of b) for all words along row `row` of a and column `column` of b.
template <typename Add>
void for_each_word(const std::byte* all, int row, int column, const Add& add) {
    Fragments lanes[k_warp];
    std::memcpy(lanes, all, sizeof(lanes));
    for (int half = 0; half < 2; ++half) {
        for (int q = 0; q < 4; ++q)
            add(lanes[row % 8 * 4 + q].a[row / 8 + 2 * half], lanes[column * 4 + q].b[half]);
    }
}

}  // namespace

void EmulatedThread::mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const Fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const std::byte* all = shared_by_warp(&own, sizeof(own));
    for (int i = 0; i < 4; ++i) {
        for_each_word(all, lane() / 4 + 8 * (i / 2), lane() % 4 * 2 + i % 2, [&](uint32_t x, uint32_t y) {
            for (int k = 0; k < 32; k += 8) c[i] += static_cast<int8_t>(x >> k) * static_cast<int8_t>(y >> k);
        });
    }
}

void EmulatedThread::mma_s8_16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    mma_s8(c, {a0, a1, 0, 0}, {b, 0});
}

void EmulatedThread::mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma_halves(c, a, b, f16_to_float);
}

void EmulatedThread::mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma_halves(c, a, b, bf16_to_float);
}

void EmulatedThread::mma_halves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                float (*widen)(uint16_t)) {
    const Fragments own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const std::byte* all = shared_by_warp(&own, sizeof(own));
    for (int i = 0; i < 4; ++i) {
        for_each_word(all, lane() / 4 + 8 * (i / 2), lane() % 4 * 2 + i % 2, [&](uint32_t x, uint32_t y) {
            for (int k = 0; k < 32; k += 16)
                c[i] += widen(static_cast<uint16_t>(x >> k)) * widen(static_cast<uint16_t>(y >> k));
        });
    }
}

void EmulatedThread::load(uint32_t (&r)[4], const void* row, bool transposed) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) throw std::logic_error("a matrix row is not aligned");
    const std::byte* all = shared_by_warp(&row, sizeof(row));
    for (int m = 0; m < 4; ++m) {
        const auto element = [&](int i, int j) {
            const std::byte* from;
            std::memcpy(&from, all + sizeof(from) * static_cast<size_t>(8 * m + i), sizeof(from));
            uint16_t value;
            std::memcpy(&value, from + 2 * j, sizeof(value));
            return static_cast<uint32_t>(value);
        };
        const int i = lane() / 4;
        const int j = lane() % 4 * 2;
        r[m] = transposed ? element(j, i) | element(j + 1, i) << 16 : element(i, j) | element(i, j + 1) << 16;
    }
    sync_warp();  // the rows may be written again from here on
}

void EmulatedThread::load_matrices(uint32_t (&r)[4], const void* row) {
    load(r, row, false);
}

void EmulatedThread::load_transposed(uint32_t (&r)[4], const void* row) {
    load(r, row, true);
}

uint32_t EmulatedThread::pack_f16(float a, float b) const {
    return static_cast<uint32_t>(float_to_f16(a)) | static_cast<uint32_t>(float_to_f16(b)) << 16;
}

float EmulatedThread::exp2(float x) const {
    return std::exp2(x);
}

void EmulatedThread::prefetch(const void* p, int bytes) const {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0 || bytes <= 0 || bytes % 16 != 0)
        throw std::logic_error("what is prefetched does not lie at multiples of 16 bytes");
}

int32_t EmulatedThread::add_to(int32_t* p, int32_t x) const {
    const int32_t before = *p;
    *p += x;
    return before;
}

}  // namespace minim::test
