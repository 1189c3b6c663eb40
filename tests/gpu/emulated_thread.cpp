// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulated_thread.h"

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/format_text.h"
#include "base/half.h"
#include "cuda/host_piece.h"
#include "format/e4m3.h"

namespace minim::test {
namespace {

constexpr size_t k_stack_bytes = 64 * 1024;
constexpr size_t k_warp = 32;
constexpr size_t k_max_exchanged = 32;  // bytes a lane puts down
constexpr size_t k_alignment = 128;

struct Barrier {
    int arrived = 0;
    int generation = 0;
};

// A barrier of shared memory, and what is free when one of its phases ends.
struct PhaseBarrier {
    int count = 0;
    int arrived = 0;
    int64_t bytes = 0;      // announced and not arrived
    int64_t not_begun = 0;  // announced and not started
    int generation = 0;     // phases that have ended
    void* freed = nullptr;
    size_t freed_bytes = 0;
};
struct BulkCopy {
    void* to;
    const void* from;
    int bytes;
    cuda::fast::Bar* bar;
};

// A thread waits as long as a number has a value: the generation of the barrier that it came to. Others ask, so that a thread gets no
// turn in vain.
struct Waiting {
    const int* number;
    int value;
    bool is_over() const { return *number != value; }
};
constexpr int k_constant = 1;
constexpr Waiting k_runs = {&k_constant, 0};
constexpr Waiting k_is_finished = {&k_constant, 1};

struct Warp {
    Barrier barrier;
    // Two, used in turn: a lane may put down the next value before another has read the last one.
    std::byte put_down[2][k_warp * k_max_exchanged];
};

struct FreeMemory {
    void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeMemory>;

// The stacks of n threads, kept from launch to launch.
class Stacks {
  public:
    explicit Stacks(size_t n) : n_(n) {
        const auto found = std::ranges::find_if(kept(), [&](const Stacks& some) { return some.n_ >= n; });
        if (found != kept().end()) {
            *this = std::move(*found);
            kept().erase(found);
        } else {
            bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(k_alignment, n * k_stack_bytes)));
        }
    }
    Stacks(Stacks&&) = default;
    Stacks& operator=(Stacks&&) = default;
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;
    ~Stacks() = default;

    std::byte* of(size_t thread) const { return bytes_.get() + thread * k_stack_bytes; }
    static void keep(Stacks&& stacks) { kept().push_back(std::move(stacks)); }

  private:
    static std::vector<Stacks>& kept() {
        static thread_local std::vector<Stacks> kept;
        return kept;
    }
    size_t n_;
    AlignedBytes bytes_;
};

bool is_same_place(const std::source_location& a, const std::source_location& b) {
    return a.line() == b.line() && a.column() == b.column() &&
           (a.function_name() == b.function_name() || std::strcmp(a.function_name(), b.function_name()) == 0);
}

std::string text_of(const std::source_location& place) {
    return format_text("line {} of {}", place.line(), place.function_name());
}

}  // namespace

// A thread's stack, and where on it the thread goes on. Only the first step onto a new stack needs a ucontext, whose
// switches are calls of the operating system.
struct Fiber {
    jmp_buf place;
    ucontext_t start;
    bool is_started = false;
};

class EmulatedGrid;

struct BlockIndex {
    int x = 0;
    int y = 0;
};

// A place where blocks of a grid run, one after the other, on the same threads.
class EmulatedBlock {
  public:
    EmulatedBlock(EmulatedGrid& grid, int64_t shared_bytes, size_t n_threads, void (*start)())
        : grid_(grid),
          shared_bytes_((static_cast<size_t>(shared_bytes) + k_alignment) / k_alignment * k_alignment),
          shared_(static_cast<std::byte*>(std::aligned_alloc(k_alignment, shared_bytes_))),
          n_(n_threads),
          warps_((n_ + k_warp - 1) / k_warp),
          fibers_(n_),
          turns_(n_),
          waiting_(n_, k_is_finished),
          waits_for_piece_(n_, 0),
          piece_place_(n_),
          stacks_(n_) {
        threads_.reserve(n_);
        for (size_t i = 0; i < n_; ++i) {
            ucontext_t& context = fibers_[i].start;
            getcontext(&context);
            context.uc_stack.ss_sp = stacks_.of(i);
            context.uc_stack.ss_size = k_stack_bytes;
            makecontext(&context, start, 0);
        }
    }
    EmulatedBlock(const EmulatedBlock&) = delete;
    EmulatedBlock& operator=(const EmulatedBlock&) = delete;
    ~EmulatedBlock() { Stacks::keep(std::move(stacks_)); }

    // Begins a block. The first thread to take a turn is the one after `before_first`.
    void begin(BlockIndex index, size_t before_first) {
        index_ = index;
        std::memset(shared_.get(), 0xFF, shared_bytes_);
        threads_.clear();
        for (size_t i = 0; i < n_; ++i) threads_.emplace_back(*this, static_cast<int>(i));
        std::ranges::fill(waiting_, k_runs);
        std::ranges::fill(waits_for_piece_, uint8_t{0});
        for (Warp& warp : warps_) warp.barrier = {};
        phase_barriers_.clear();
        bulk_copies_.clear();
        barrier_ = {};
        stages_barrier_ = {};
        n_running_ = n_;
        running_ = before_first;
    }
    bool is_done() const { return n_running_ == 0; }
    // The thread whose turn it is also gets the block's next turn.
    void keep_turn() { keeps_turn_ = true; }
    // Gives the turn to the next thread that does not wait. Returns false if there is none.
    bool step(bool backwards) {
        if (std::exchange(keeps_turn_, false)) return true;
        for (size_t i = 0; i < n_; ++i) {
            if (backwards) {
                running_ = running_ == 0 ? n_ - 1 : running_ - 1;
            } else {
                running_ = running_ == n_ - 1 ? 0 : running_ + 1;
            }
            if (waiting_[running_].is_over()) return true;
        }
        return false;
    }
    size_t running() const { return running_; }
    Fiber& fiber() { return fibers_[running_]; }
    EmulatedThread& thread() { return threads_[running_]; }
    void finish_thread() {
        waiting_[running_] = k_is_finished;
        if (--n_running_ > 0) return;
        if (has_bulk_copies()) throw std::logic_error("a block ends while a bulk copy is under way");
        for (const auto& [bar, barrier] : phase_barriers_)
            if (barrier.bytes != 0)
                throw std::logic_error(format_text(
                    "a block ends while {} bytes that were announced have not been copied", barrier.bytes));
    }

    void wait_for_block(const std::source_location& at) {
        if (barrier_.arrived == 0) place_ = at;
        if (!is_same_place(place_, at))
            throw std::logic_error(format_text("threads of a block came to its barrier in {} and in {}",
                                               text_of(place_), text_of(at)));
        wait(barrier_, n_);
    }
    void wait_for_stages(size_t count) {
        if (stages_barrier_.arrived == 0) n_at_stages_ = count;
        if (count != n_at_stages_ || count % k_warp != 0 || count > n_)
            throw std::logic_error(
                format_text("{} threads of {} at a barrier of {}", count, n_, n_at_stages_));
        wait(stages_barrier_, count);
    }
    PhaseBarrier& phase_barrier(cuda::fast::Bar* bar) {
        const auto found = phase_barriers_.find(bar);
        if (found == phase_barriers_.end()) throw std::logic_error("a barrier that was not started");
        return found->second;
    }
    void start_barrier(cuda::fast::Bar* bar, int count) {
        if (!phase_barriers_.try_emplace(bar, PhaseBarrier{.count = count}).second)
            throw std::logic_error("a barrier is started twice");
    }
    void arrive(cuda::fast::Bar* bar, int bytes);
    void wait_for_phase(cuda::fast::Bar* bar, uint32_t parity, const std::source_location& at);
    void start_bulk_copy(const BulkCopy& copy);
    // Lets the copies of a barrier arrive; null: the oldest one of any. Returns false if there is none.
    bool finish_bulk_copy(const cuda::fast::Bar* bar);
    bool has_bulk_copies() const { return !bulk_copies_.empty(); }

    // Waits until another piece is put, or only gives the turn to the others if the piece comes from the host.
    void wait_for_piece(bool is_from_host, const std::source_location& at);
    void note_piece();
    // Adds the places where threads wait for pieces.
    void list_piece_places(std::vector<std::string>& places) const {
        for (size_t i = 0; i < n_; ++i) {
            if (!waits_for_piece_[i] || waiting_[i].is_over()) continue;
            std::string place = text_of(piece_place_[i]);
            if (std::ranges::find(places, place) == places.end()) places.push_back(std::move(place));
        }
    }
    void wait_for_warp(size_t index) { wait(warps_[index / k_warp].barrier, k_warp); }
    void wait_for_inputs();
    void let_others();
    bool copies_arrive_at_once(const EmulatedThread& thread) const;
    const std::byte* exchange(size_t index, const void* own, size_t bytes) {
        Warp& warp = warps_[index / k_warp];
        std::byte* all = warp.put_down[turns_[index]++ % 2];
        std::memcpy(all + index % k_warp * bytes, own, bytes);
        wait_for_warp(index);
        return all;
    }

    int x() const { return index_.x; }
    int y() const { return index_.y; }
    std::byte* shared() const { return shared_.get(); }

  private:
    void wait(Barrier& barrier, size_t count);
    void end_phase_if_complete(PhaseBarrier& barrier);

    EmulatedGrid& grid_;
    BlockIndex index_;
    std::map<cuda::fast::Bar*, PhaseBarrier> phase_barriers_;
    std::deque<BulkCopy> bulk_copies_;  // under way
    size_t shared_bytes_;
    AlignedBytes shared_;
    size_t n_;
    std::vector<Warp> warps_;
    Barrier barrier_;
    std::source_location place_;  // the barrier at which the first waiting thread arrived
    Barrier stages_barrier_;
    size_t n_at_stages_ = 0;
    std::vector<EmulatedThread> threads_;
    std::vector<Fiber> fibers_;
    std::vector<size_t> turns_;
    std::vector<Waiting> waiting_;
    std::vector<uint8_t> waits_for_piece_;           // 1: by waiting_
    std::vector<std::source_location> piece_place_;  // of the thread's last piece that was not there
    Stacks stacks_;
    size_t running_ = 0;  // the thread whose turn it is or was last
    size_t n_running_ = 0;
    bool keeps_turn_ = false;
};

// A launch. The threads of a block take turns in order; two blocks alternate at random.
class EmulatedGrid {
  public:
    EmulatedGrid(const cuda::fast::Grid& grid, int n_threads, const Emulation& how, KernelBody body,
                 bool runs_together = false)
        : how_(how), body_(std::move(body)), random_(how.seed), n_threads_(static_cast<size_t>(n_threads)) {
        for (int64_t y = 0; y < grid.n_blocks_y; ++y)
            for (int64_t x = 0; x < grid.n_blocks; ++x)
                order_.push_back({static_cast<int>(x), static_cast<int>(y)});
        if (is_random())
            for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
        const size_t n_together =
            runs_together ? order_.size() : std::min<size_t>(is_random() ? 2 : 1, order_.size());
        for (size_t i = 0; i < n_together; ++i) {
            blocks_.push_back(
                std::make_unique<EmulatedBlock>(*this, grid.shared_bytes, n_threads_, &EmulatedGrid::start));
            begin_next(*blocks_.back());
        }
        running_ = blocks_.front().get();
    }

    // Runs the first blocks as far as they get before their inputs are ready.
    void run_ahead() { run(); }
    void finish() {
        has_inputs_ = 1;
        run();
    }

    const Emulation& how() const { return how_; }
    const int& has_inputs() const { return has_inputs_; }
    int& n_put() { return n_put_; }
    // Returns whether something that may happen now or later happens now.
    bool happens_now() { return is_random() && random_() % 4 == 0; }
    bool is_random() const { return how_.seed != 0; }

    // Called if the thread whose turn it is must wait for an event. Returns after the event.
    void give_turn() { leave(running_->fiber()); }
    // Called if the thread does not wait, but other threads may go ahead here: those of the other block or of both.
    void let_others() {
        if (blocks_.size() < 2) return;
        if (random_() % 2 == 0) running_->keep_turn();
        n_turns_left_ = 0;
        leave(running_->fiber());
    }

  private:
    static EmulatedGrid*& current() {
        static thread_local EmulatedGrid* grid = nullptr;
        return grid;
    }
    static void go(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
        swapcontext(&from.start, &to.start);  // the sanitizer would take a jump for a return
        return;
#endif
        if (_setjmp(from.place) != 0) return;
        if (to.is_started) _longjmp(to.place, 1);
        to.is_started = true;
        setcontext(&to.start);
    }
    static void start() {
        current()->run_thread();
    }

    void run() {
        if (choose_next()) {
            current() = this;
            main_.is_started = true;
            go(main_, running_->fiber());
            current() = nullptr;
        }
        if (error_) std::rethrow_exception(error_);
    }
    void begin_next(EmulatedBlock& block) {
        const size_t first = is_random() ? random_() % n_threads_ : how_.backwards ? 0 : n_threads_ - 1;
        block.begin(order_[next_++], first);
    }
    // Never returns: after the last block the stacks are no longer used.
    [[noreturn]] void run_thread() {
        EmulatedBlock& block = *running_;
        Fiber& own = block.fiber();
        EmulatedThread* const thread = &block.thread();
        while (true) {
            try {
                body_(*thread);
                block.finish_thread();
            } catch (...) {
                error_ = std::current_exception();
            }
            if (block.is_done() && next_ < order_.size()) begin_next(block);
            leave(own);
        }
    }
    void leave(Fiber& own) {
        Fiber& next = !error_ && choose_next() ? running_->fiber() : main_;
        if (&next != &own) go(own, next);
    }
    // Returns whether there is a thread that may go on.
    bool choose_next() {
        if (blocks_.size() > 1 && n_turns_left_-- == 0) {
            running_ = blocks_[random_() % blocks_.size()].get();
            n_turns_left_ = size_t{1} << random_() % 12;  // few, or as many as it takes to get far ahead
        }
        if (running_->step(how_.backwards)) return true;
        for (const auto& block : blocks_) {
            running_ = block.get();
            if (running_->step(how_.backwards)) return true;
        }
        // The hardware finishes what is under way.
        for (const auto& block : blocks_) {
            if (!block->has_bulk_copies()) continue;
            while (block->finish_bulk_copy(nullptr)) {
            }
            running_ = block.get();
            if (running_->step(how_.backwards)) return true;
        }
        const bool is_done = std::ranges::all_of(blocks_, [](const auto& block) { return block->is_done(); });
        if (!is_done && has_inputs_ == 1) error_ = std::make_exception_ptr(std::logic_error(why_stuck()));
        return false;
    }

    std::string why_stuck() const {
        std::vector<std::string> places;
        for (const auto& block : blocks_) block->list_piece_places(places);
        std::string text = "threads of a block wait for each other";
        for (const std::string& place : places)
            text += (place == places.front() ? ", and for others in " : " and in ") + place;
        return text;
    }

    const Emulation how_;
    const KernelBody body_;
    std::mt19937 random_;
    const size_t n_threads_;
    std::vector<BlockIndex> order_;
    size_t next_ = 0;  // block to begin
    std::vector<std::unique_ptr<EmulatedBlock>> blocks_;
    EmulatedBlock* running_ = nullptr;
    size_t n_turns_left_ = 0;  // turns of running_ before a block is drawn again
    int n_put_ = 0;            // pieces
    int has_inputs_ = 0;       // 1: the threads that wait for their inputs go on
    Fiber main_;
    std::exception_ptr error_;
};

void EmulatedBlock::wait(Barrier& barrier, size_t count) {
    if (++barrier.arrived == static_cast<int>(count)) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    waiting_[running_] = {&barrier.generation, barrier.generation};
    grid_.give_turn();
}

void EmulatedBlock::wait_for_inputs() {
    waiting_[running_] = {&grid_.has_inputs(), 0};
    if (!waiting_[running_].is_over()) grid_.give_turn();
}

void EmulatedBlock::let_others() {
    grid_.let_others();
}

void EmulatedBlock::wait_for_piece(bool is_from_host, const std::source_location& at) {
    piece_place_[running_] = at;
    waits_for_piece_[running_] = is_from_host ? 0 : 1;
    waiting_[running_] = is_from_host ? k_runs : Waiting{&grid_.n_put(), grid_.n_put()};
    grid_.give_turn();
}

void EmulatedBlock::end_phase_if_complete(PhaseBarrier& barrier) {
    if (barrier.arrived < barrier.count || barrier.bytes > 0) return;
    barrier.arrived = 0;
    ++barrier.generation;
    if (barrier.freed != nullptr) std::memset(barrier.freed, 0xFF, barrier.freed_bytes);
}

void EmulatedBlock::arrive(cuda::fast::Bar* bar, int bytes) {
    PhaseBarrier& barrier = phase_barrier(bar);
    if (barrier.arrived == barrier.count) throw std::logic_error("more arrivals than a barrier waits for");
    ++barrier.arrived;
    barrier.bytes += bytes;
    barrier.not_begun += bytes;
    end_phase_if_complete(barrier);
}

void EmulatedBlock::wait_for_phase(cuda::fast::Bar* bar, uint32_t parity, const std::source_location& at) {
    PhaseBarrier& barrier = phase_barrier(bar);
    while (static_cast<uint32_t>(barrier.generation) % 2 == parity) {
        if (!grid_.is_random() && finish_bulk_copy(bar)) continue;
        piece_place_[running_] = at;
        waits_for_piece_[running_] = 1;
        waiting_[running_] = {&barrier.generation, barrier.generation};
        if (grid_.happens_now()) finish_bulk_copy(nullptr);
        grid_.give_turn();
    }
}

void EmulatedBlock::start_bulk_copy(const BulkCopy& copy) {
    PhaseBarrier& barrier = phase_barrier(copy.bar);
    const auto* to = static_cast<const std::byte*>(copy.to);
    if (to < shared() || to + copy.bytes > shared() + shared_bytes_)
        throw std::logic_error("a bulk copy does not end in shared memory");
    if (copy.bytes > barrier.not_begun)
        throw std::logic_error(
            format_text("a bulk copy of {} bytes where {} are announced", copy.bytes, barrier.not_begun));
    barrier.not_begun -= copy.bytes;
    bulk_copies_.push_back(copy);
    while (grid_.how().copies_at_once && finish_bulk_copy(nullptr)) {
    }
}

bool EmulatedBlock::finish_bulk_copy(const cuda::fast::Bar* bar) {
    const auto next = std::ranges::find_if(
        bulk_copies_, [&](const BulkCopy& copy) { return bar == nullptr || copy.bar == bar; });
    if (next == bulk_copies_.end()) return false;
    const BulkCopy copy = *next;
    bulk_copies_.erase(next);
    std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    PhaseBarrier& barrier = phase_barrier(copy.bar);
    barrier.bytes -= copy.bytes;
    end_phase_if_complete(barrier);
    return true;
}

void EmulatedBlock::note_piece() {
    ++grid_.n_put();
}

bool EmulatedBlock::copies_arrive_at_once(const EmulatedThread& thread) const {
    // What is copied before the wait may arrive before it.
    return grid_.how().copies_at_once || (grid_.how().starts_early && !thread.has_waited());
}

void emulate(const cuda::fast::Grid& grid, int n_threads, const Emulation& how, const KernelBody& body,
             bool runs_together) {
    if (grid.n_blocks == 0 || grid.n_blocks_y == 0) return;
    EmulatedGrid(grid, n_threads, how, body, runs_together).finish();
}

Emulation& emulation() {
    static Emulation how;
    return how;
}

namespace {

// The maximum number of kernels that may have threads on a device at a time.
constexpr size_t k_max_in_flight = 4;

struct InFlight {
    cuda::fast::Stream stream;
    bool holds_next;
    std::unique_ptr<EmulatedGrid> grid;
};

// The kernels of this thread that are in flight, in order.
std::deque<InFlight>& in_flight() {
    static thread_local std::deque<InFlight> kernels;
    return kernels;
}

void finish_kernels_but(size_t n_left) {
    while (in_flight().size() > n_left) {
        const InFlight first = std::move(in_flight().front());
        in_flight().pop_front();
        try {
            first.grid->finish();
        } catch (...) {
            drop_kernels();
            throw;
        }
    }
}

}  // namespace

void finish_kernels() {
    finish_kernels_but(0);
}

void drop_kernels() noexcept {
    in_flight().clear();
}

void start_kernel(cuda::fast::Stream stream, const cuda::fast::Grid& grid, int n_threads,
                  const KernelKind& kind, const KernelBody& body) {
    if (outside_work().valid()) outside_work().wait();
    if (!emulation().starts_early) {
        finish_kernels();
        emulate(grid, n_threads, emulation(), body, kind.runs_together);
        return;
    }
    if (grid.n_blocks == 0 || grid.n_blocks_y == 0) return;
    std::deque<InFlight>& ahead = in_flight();
    const bool same_stream = ahead.empty() || ahead.back().stream == stream;
    const bool is_stored = !ahead.empty() && ahead.back().holds_next;
    finish_kernels_but(!same_stream ? 0 : is_stored ? 1 : k_max_in_flight - 1);
    auto kernel = std::make_unique<EmulatedGrid>(grid, n_threads, emulation(), body, kind.runs_together);
    kernel->run_ahead();
    ahead.push_back({stream, kind.holds_next, std::move(kernel)});
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
void EmulatedThread::sync(std::source_location at) {
    block_.wait_for_block(at);
}
void EmulatedThread::sync_stages_of(int n_threads) {
    block_.wait_for_stages(static_cast<size_t>(n_threads));
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
    if (block_.copies_arrive_at_once(*this)) {
        std::memcpy(to, from, bytes);
    } else {
        copies_.back().push_back({to, from, bytes});
    }
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
    const auto word = [all](int lane, size_t offset) {
        uint32_t x;
        std::memcpy(&x, all + static_cast<size_t>(lane) * sizeof(Fragments) + offset, sizeof(x));
        return x;
    };
    for (size_t half = 0; half < 2; ++half) {
        const size_t of_a =
            offsetof(Fragments, a) + sizeof(uint32_t) * (static_cast<size_t>(row / 8) + 2 * half);
        const size_t of_b = offsetof(Fragments, b) + sizeof(uint32_t) * half;
        for (int q = 0; q < 4; ++q) add(word(row % 8 * 4 + q, of_a), word(column * 4 + q, of_b));
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

namespace {

// Returns the lower half of x.
float half_of(uint32_t x) {
    return f16_to_float(static_cast<uint16_t>(x));
}

}  // namespace

uint32_t EmulatedThread::subtract_f16(uint32_t a, uint32_t b) const {
    return pack_f16(half_of(a) - half_of(b), half_of(a >> 16) - half_of(b >> 16));
}

uint32_t EmulatedThread::multiply_f16(uint32_t a, uint32_t b) const {
    return pack_f16(half_of(a) * half_of(b), half_of(a >> 16) * half_of(b >> 16));
}

uint32_t EmulatedThread::fma_f16(uint32_t a, uint32_t b, uint32_t c) const {
    // The product is exact in float. The sum is rounded to float first, which is not the same in rare cases.
    const auto fma = [](uint32_t x, uint32_t y, uint32_t z) { return half_of(x) * half_of(y) + half_of(z); };
    return pack_f16(fma(a, b, c), fma(a >> 16, b >> 16, c >> 16));
}

void EmulatedThread::halves_of_e4m3(uint32_t (&r)[2], uint32_t codes) const {
    const auto half = [&](int byte) { return e4m3_to_float(static_cast<uint8_t>(codes >> (8 * byte))); };
    for (int i = 0; i < 2; ++i) r[i] = pack_f16(half(i), half(i + 2));
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
    let_other_blocks();
    return before;
}

void EmulatedThread::wait_for_inputs() {
    block_.wait_for_inputs();
    has_waited_ = true;
}

void EmulatedThread::bar_start(cuda::fast::Bar* bar, int count) {
    block_.start_barrier(bar, count);
}
void EmulatedThread::bar_expect(cuda::fast::Bar* bar, int bytes) {
    block_.arrive(bar, bytes);
}
void EmulatedThread::bar_arrive(cuda::fast::Bar* bar) {
    block_.arrive(bar, 0);
}
void EmulatedThread::bar_wait(cuda::fast::Bar* bar, uint32_t parity, std::source_location at) {
    block_.wait_for_phase(bar, parity, at);
}
void EmulatedThread::bar_frees(cuda::fast::Bar* bar, void* place, int bytes) {
    PhaseBarrier& barrier = block_.phase_barrier(bar);
    barrier.freed = place;
    barrier.freed_bytes = static_cast<size_t>(bytes);
}
void EmulatedThread::copy_bulk(void* to, const void* from, int bytes, cuda::fast::Bar* bar) {
    const uintptr_t ends = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (ends % 16 != 0 || bytes % 16 != 0 || bytes <= 0)
        throw std::logic_error("a bulk copy does not lie at multiples of 16 bytes");
    block_.start_bulk_copy({to, from, bytes, bar});
}

void EmulatedThread::put_piece(cuda::fast::Piece* piece, const cuda::fast::Piece& value) const {
    if (!has_waited_) throw std::logic_error("a kernel puts a piece before it has waited for its inputs");
    if (value.turn == 0) throw std::logic_error("a piece of turn 0");
    if (cuda::load_piece(piece).turn == value.turn)
        throw std::logic_error(format_text("a piece is written twice in turn {}", value.turn));
    cuda::store_piece(piece, value);
    block_.note_piece();
    let_other_blocks();
}

bool EmulatedThread::get_piece(const cuda::fast::Piece* piece, uint32_t turn,
                               uint32_t (&words)[cuda::fast::k_piece_words], bool is_from_host,
                               const std::source_location& at) const {
    const cuda::fast::Piece found = cuda::load_piece(piece);
    if (found.turn != turn) {
        if (is_from_host) std::this_thread::yield();
        block_.wait_for_piece(is_from_host, at);
        return false;
    }
    std::ranges::copy(found.word, words);
    return true;
}

void EmulatedThread::let_other_blocks() const {
    block_.let_others();
}

}  // namespace minim::test
