// SPDX-License-Identifier: Apache-2.0
// A cache, in a device's memory, of the experts that are used most; the host has all experts. One table for each layer
// has the place of each expert in the device's memory, or null. It changes only between steps, so in a step every
// expert is computed either by the device or by the host.
//
// Use counts decay with the tokens computed. After a step an expert that was missed replaces the least used one if it
// is used clearly more. This depends only on the experts that steps chose: equal requests in equal steps give equal
// tables, and so equal bits.
//
//     end_step(k)      an expert and its victim are chosen
//     begin_step(k+1)  the victim leaves the table; a thread copies the expert to its place
//     begin_step(k+3)  the expert appears in the table (eager: as soon as it has arrived)
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <thread>
#include <vector>

#include "backend/host_device.h"
#include "base/log.h"
#include "runtime/expert_copier.h"
#include "runtime/expert_stream.h"
#include "runtime/pooled_layer.h"
#include "weights/reader.h"

namespace minim::runtime {

enum class ExpertMoves : uint8_t {
    fixed,         // no moves
    reproducible,  // an expert appears a fixed number of steps after it was chosen
    eager,         // an expert appears once it has arrived: results differ in the last bits from run to run
};

struct ExpertPoolOptions {
    uint64_t bytes = 0;
    ExpertMoves moves = ExpertMoves::reproducible;
    // Uses of each expert that are known from before, [layer of the model][expert]. The experts used most are on the
    // device at first. Empty: the first experts of every layer are.
    std::vector<std::vector<float>> uses = {};
    // The host's memory that has the experts. It is pinned if experts may be copied later; memory that is mapped from a file
    // stays as it is, as it may be larger than the host's memory.
    std::vector<std::span<const std::byte>> host_memory = {};
    // The rule by which steps copy experts that are not on the device. The areas for them come out of `bytes`; none are
    // needed if all experts fit.
    StreamRule stream = {};
};

struct ExpertPoolState {
    int64_t n_places = 0;
    int64_t n_hits = 0;  // slots whose expert was on the device
    int64_t n_misses = 0;
    int64_t n_moves = 0;
    uint64_t bytes = 0;        // of the device's memory
    uint64_t moved_bytes = 0;  // in moves
    int64_t n_streamed = 0;    // experts copied for one step
    uint64_t streamed_bytes = 0;
};

class ExpertPool {
  public:
    // Allocates memory of the device, and fills it on all threads of `host`. The arguments must outlive it. Throws
    // out_of_device_memory, device_lost, unsupported for a format that the device does not run, and what reading
    // weights throws.
    ExpertPool(const backend::Backend& device, const backend::HostDevice& host,
               std::vector<PooledLayer> layers, int64_t first_layer, const weights::Reader& reader,
               const ExpertPoolOptions& options, const Logger& log);
    ~ExpertPool();
    ExpertPool(const ExpertPool&) = delete;
    ExpertPool& operator=(const ExpertPool&) = delete;

    // A step of one stream. Tables do not change while a Step exists.
    class Step {
      public:
        // Throws device_lost.
        explicit Step(ExpertPool& pool) : pool_(pool) { pool_.begin_step(); }
        ~Step() { pool_.leave(); }
        Step(const Step&) = delete;
        Step& operator=(const Step&) = delete;
        // Chooses the experts that move. Call it once the step is computed.
        void end(int64_t n_tokens) { pool_.end_step(n_tokens); }

      private:
        ExpertPool& pool_;
    };

    // Layers count from the pool's first layer on: those of a stage.
    const backend::ExpertWeights& on_device(int64_t layer) const { return slot(layer).on_device; }
    const backend::ExpertWeights& on_host(int64_t layer) const { return slot(layer).on_host; }
    bool has(int64_t layer) const noexcept {
        return layer >= 0 && layer < std::ssize(slot_of_) && slot_of_[layer] >= 0;
    }

    // Counts the experts that the running step has chosen in a layer. Any thread.
    void note(int64_t layer, std::span<const int32_t> ids);

    // Returns null if no step copies experts.
    ExpertStream* stream() const noexcept { return stream_.get(); }
    const PooledLayer& layer(int64_t layer_of_stage) const { return layers_[slot_of_[layer_of_stage]]; }
    // Counts experts that the running step has copied. Any thread.
    void note_streamed(int64_t layer_of_stage, std::span<const int32_t> experts);

    // false: steps from now on are not counted, and move no experts. Not while a step runs.
    void count_uses(bool counts) noexcept { counts_uses_ = counts; }

    ExpertPoolState state() const;
    // Returns the bytes of the places and tables in the device's memory.
    uint64_t device_bytes() const noexcept { return tables_->size() + (memory_ ? memory_->size() : 0); }
    // Returns the use counts as they have decayed by now, [pooled layer][expert].
    std::vector<std::vector<float>> uses() const;
    std::span<const PooledLayer> layers() const noexcept { return layers_; }

  private:
    struct Slot {  // of a pooled layer
        backend::ExpertWeights on_device, on_host;
        backend::ExpertPlace* table = nullptr;  // of the device, in its memory
        std::vector<uint8_t> is_on_device;      // 1: on the device
        std::vector<int32_t> place_of;          // -1: none; set also for experts on their way
        std::vector<double> score;              // uses, each counted more than those before it (use_weight())
        std::vector<uint8_t> is_used;           // in the running step
        int64_t n_here = 0;
    };
    enum class PlaceState : uint8_t { free, leaving, filling, here };
    struct Expert {
        int32_t slot = -1;
        int32_t expert = -1;
    };
    struct Place {
        std::byte* data = nullptr;
        PlaceState state = PlaceState::free;
        Expert holds;          // here, leaving
        Expert next;           // leaving, filling
        int64_t due_step = 0;  // filling: when it appears
        bool is_done = false;  // filling; guarded by mover_mutex_
        bool has_failed = false;
    };
    struct PlaceClass {  // places of one size
        uint64_t bytes = 0;
        std::vector<size_t> slots;
        std::vector<size_t> places;
    };
    const Slot& slot(int64_t layer) const { return slots_[slot_of_[layer]]; }
    void make_slots(int64_t first_layer);
    void pin(const backend::HostDevice& host, std::span<const std::span<const std::byte>> memory);
    uint64_t make_stream(const backend::HostDevice& host, const ExpertPoolOptions& options);
    void make_places(uint64_t bytes);
    void choose_first(const std::vector<std::vector<float>>& uses);
    void fill_first(const backend::HostDevice& host);
    void copy_expert(const Expert& expert, std::byte* to, ExpertCopier& copier) const;
    void appear(Place& place);
    void vanish(Place& place);

    void begin_step();
    void leave() noexcept { running_.unlock_shared(); }
    void end_step(int64_t n_tokens);
    void finish_moves();
    void start_moves();
    double use_weight() const;
    void choose_moves(PlaceClass& of);
    std::vector<Expert> candidates(const PlaceClass& of) const;
    std::vector<size_t> victims(const PlaceClass& of) const;
    void move_experts();

    const backend::Backend& device_;
    const std::vector<PooledLayer> layers_;
    const weights::Reader& reader_;
    const ExpertMoves moves_;
    const Logger& log_;
    std::vector<std::unique_ptr<backend::Pinned>> pinned_;
    std::vector<int32_t> slot_of_;  // of a layer of the stage; -1: not pooled
    std::vector<Slot> slots_;
    std::vector<PlaceClass> classes_;
    std::vector<Place> places_;
    std::unique_ptr<backend::Memory> memory_;
    std::unique_ptr<backend::Memory> tables_;
    std::unique_ptr<ExpertStream> stream_;

    std::shared_mutex running_;  // shared: a step runs; exclusive: tables change
    mutable std::mutex mutex_;   // guards what steps count and choose
    int64_t n_tokens_ = 0;
    int64_t n_steps_ = 0;
    ExpertPoolState state_;

    std::mutex mover_mutex_;
    std::condition_variable mover_changed_;
    std::deque<Place*> to_move_;
    std::optional<ExpertCopier> mover_copier_;
    bool ends_ = false;
    std::atomic<bool> counts_uses_ = true;
    std::thread mover_;
};

}  // namespace minim::runtime
