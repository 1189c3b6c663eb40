// SPDX-License-Identifier: Apache-2.0
// The operations of a GPU on packed weights (fast/), collected as a list and lowered to kernels: those of a step when it
// ends or when something else uses the stream, those outside of a step at once. Those that only exact arithmetic has
// kernels for are those of ExactOperations.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "cuda/blas.h"
#include "cuda/cuda_backend.h"
#include "cuda/debug.h"
#include "cuda/exact_operations.h"
#include "cuda/exchange.h"
#include "cuda/fast_step.h"
#include "panel/panel.h"

namespace minim::cuda {
namespace {

using backend::Arithmetic;
using backend::MemoryUse;

// The bytes that packing copies at a time, at least a panel.
constexpr uint64_t k_pack_bytes = uint64_t{16} << 20;

class FastOperations : public ExactOperations {
  public:
    FastOperations(int32_t index, std::string name, uint64_t budget_bytes, bool is_fixed)
        : ExactOperations(index, std::move(name), budget_bytes),
          is_fixed_(is_fixed),
          dense_(find_library()) {}

    std::unique_ptr<Scratch> reserve(const backend::StepLimits& limits) const override {
        std::unique_ptr<Scratch> scratch = ExactOperations::reserve(limits);
        auto& s = static_cast<Stream&>(*scratch);
        s.fixed = is_fixed_;
        // In deterministic arithmetic one kernel serves every number of rows.
        if (paths_.stream && !is_fixed_ && runtime::has_bulk_copies(index_))
            s.stream_device = {s.n_processors, static_cast<int32_t>(runtime::block_shared_bytes(index_))};
        const std::vector<int32_t> none(fast::n_arrival_counters(limits));
        check(runtime::copy(index_, Way::to_device, s.fast_work.arrived, none.data(),
                            none.size() * sizeof(int32_t)));
        if (limits.n_rows > 0) s.list.reserve();
        return scratch;
    }

    bool begin_step(Scratch& scratch, const backend::StepBatch& batch) const override {
        Stream& s = own(scratch);
        if (s.fast_work.query == nullptr || batch.rows.empty() || !is_working(s)) return false;
        put_batch(s, batch.ids, batch.rows, batch.n_head, batch.n_head_kv);
        s.list.known = {};
        const RecordKey key = {batch.calls,       std::ssize(batch.rows), !batch.ids.empty(),
                               s.batch.n_context, s.batch.n_tiles,        *batch.rows[0].sequence->layout};
        s.list.is_step = !s.records.begin(s.stream, key);
        return !s.list.is_step;
    }
    bool end_step(Scratch& scratch) const override {
        Stream& s = own(scratch);
        s.list.is_step = false;
        if (s.records.is_recording()) s.list.known = {};
        return s.records.end(s.stream);
    }

    bool packs(Format format) const noexcept override { return fast::has_panels(format); }
    void pack(std::span<std::byte* const> data, const Matrix& shape) const override;
    void adopt(Scratch& scratch, std::span<std::byte* const> data, const Matrix& shape) const override {
        Stream& s = own(scratch);
        const int64_t n_panels = shape.rows / panel::k_panel_rows;
        const fast::PackShape pack_shape = fast::pack_shape(shape.format, shape.row_bytes);
        launch(s, [&] {
            for (std::byte* matrix : data)
                fast::reorder_words(s.stream, pack_shape, n_panels, reinterpret_cast<uint8_t*>(matrix));
        });
    }

    void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
              float* h) const override {
        if (n > 0) add(scratch, NormCall{x, n, weight.data, weight.size, eps, h});
    }

    void linear(Scratch& scratch, const float* h, int64_t n,
                std::span<const LinearTask> tasks) const override {
        for (; n > 0 && !tasks.empty();) {
            const auto some = tasks.first(std::min(tasks.size(), OperationList::k_max_tasks));
            tasks = tasks.subspan(some.size());
            add(scratch, LinearCall{h, n, static_cast<Stream&>(scratch).list.copy(some)});
        }
    }

    void head_squares(Scratch& scratch, const AttendArgs& args, float* squares) const override {
        if (!fast::attend_runs(args.head_dim, args.n_head, args.n_head_kv))
            return ExactOperations::head_squares(scratch, args, squares);
        if (args.n > 0)
            add(scratch, SquaresCall{{args.n, args.q, args.n_head * args.head_dim, args.k,
                                      args.n_head_kv * args.head_dim, squares}});
    }

    void attend(Scratch& scratch, const AttendArgs& args) const override {
        auto& s = static_cast<Stream&>(scratch);
        if (!fast::attend_runs(args.head_dim, args.n_head, args.n_head_kv) ||
            (args.index != nullptr && s.fast_work.chosen_pages.pages_a_head == 0))
            return ExactOperations::attend(scratch, args);
        if (args.n == 0) return;
        const exact::Cache cache = put_cache(s, args);
        if (args.index == nullptr) return add(s, fast::attend_call(s, cache, args));
        add(s, fast::attend_chosen_call(s, cache, args, index_of(s, args), index_rows(s, args)));
    }

    void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
               int64_t n_used, int32_t* ids, float* gates) const override {
        if (n_used > fast::k_max_used)
            return ExactOperations::route(scratch, h, n, router, bias, n_used, ids, gates);
        if (n == 0) return;
        const fast::Choice choice = {bias.data, n_used, ids, gates};
        if (fast::is_float(router.format)) return add(scratch, RouteCall{h, n, weight_of(router), choice});
        const LinearTask task = {&router, static_cast<Stream&>(scratch).work.score, false};
        linear(scratch, h, n, {&task, 1});
        add(scratch, ChooseCall{n, router.rows, choice});
    }

    void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y, bool adds) const override {
        if (n > 0 && has_table(scratch, weights))
            add(scratch, ExpertsCall{h, n, ids, n_used, ExpertViews(weights), gates, y, adds});
    }

    void expert_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                      const ExpertWeights& weights, float* out) const override {
        experts(scratch, h, n, ids, nullptr, n_used, weights, out, false);
    }

    void post(Scratch& scratch, backend::Exchange& exchange, int64_t turn, const float* h, const int32_t* ids,
              int64_t n, int64_t n_used, int64_t hidden) const override {
        auto& with = static_cast<HostExchange&>(exchange);
        if (!with.is_by_pieces())
            return ExactOperations::post(scratch, exchange, turn, h, ids, n, n_used, hidden);
        auto& s = static_cast<Stream&>(scratch);
        PostCall call = {&with,
                         h,
                         n * hidden,
                         ids,
                         n,
                         n_used,
                         with.posted_pieces(turn, s.work.step),
                         with.step_to_take(turn)};
        if (post_with_choice(s, call)) return;
        if (n > k_max_posted_rows) {
            copy_posted(own(scratch), with, h, call.n_floats, ids, n * n_used);
            call.n_floats = call.n = 0;
        }
        add(scratch, call);
    }

    void collect(Scratch& scratch, backend::Exchange& exchange, int64_t turn,
                 const backend::ExpertPlace* places, const int32_t* ids, int64_t n, int64_t n_used,
                 int64_t hidden, float* out) const override {
        const auto& with = static_cast<const HostExchange&>(exchange);
        if (!with.is_by_pieces() || n > k_max_posted_rows)
            return ExactOperations::collect(scratch, exchange, turn, places, ids, n, n_used, hidden, out);
        auto& s = static_cast<Stream&>(scratch);
        s.host_is_late = with.late();
        if (n > 0)
            add(scratch, CollectCall{with.awaited_pieces(turn, s.work.step, patience(n)),
                                     {places, ids, n, n_used, hidden, out}});
    }

    // Adds up in the kernel that collects the slots, if that has not been launched yet.
    void add_slots(Scratch& scratch, const float* out, const float* gates, int64_t n, int64_t n_used,
                   int64_t hidden, float* y) const override {
        auto& s = static_cast<Stream&>(scratch);
        if (!s.list.operations.empty()) {
            auto* collect = std::get_if<CollectCall>(&s.list.operations.back().call);
            if (collect != nullptr && collect->slots.gates == nullptr && collect->slots.out == out &&
                collect->slots.n == n && collect->slots.n_used == n_used && collect->slots.hidden == hidden) {
                collect->slots.gates = gates;
                collect->slots.y = y;
                return;
            }
        }
        ExactOperations::add_slots(scratch, out, gates, n, n_used, hidden, y);
    }

    void observe_slots(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, int64_t n_used,
                       const ExpertWeights& weights, float* middle, float* out) const override {
        if (n == 0 || !has_table(scratch, weights)) return;
        ExpertsCall call = {h, n, ids, n_used, ExpertViews(weights), nullptr, out, false};
        call.middle = middle;
        add(scratch, call);
    }

  private:
    LaunchPaths paths() const noexcept override { return paths_; }
    // Lets the kernel of the choice post its rows as well, if it has not been launched yet.
    static bool post_with_choice(Stream& s, const PostCall& call) {
        if (s.list.operations.empty()) return false;
        auto* route = std::get_if<RouteCall>(&s.list.operations.back().call);
        if (route == nullptr || route->with != nullptr || route->n > fast::k_max_route_posted ||
            route->n != call.n || route->h != call.h || route->choice.ids != call.ids ||
            route->choice.n_used != call.n_used)
            return false;
        route->with = call.with;
        route->post = call.to;
        route->step_to_take = call.step_to_take;
        return true;
    }
    // Ends the exchanges of operations that the stream does not start, so that nobody waits for what they post.
    static void give_up_posts(const std::vector<Operation>& operations) noexcept {
        for (const Operation& operation : operations) {
            if (const auto* route = std::get_if<RouteCall>(&operation.call); route && route->with)
                route->with->give_up();
            if (const auto* post = std::get_if<PostCall>(&operation.call)) post->with->give_up();
        }
    }
    // Adds an operation to the list. A norm waits there for the operation after it even outside of a step.
    template <typename Call>
    void add(Scratch& scratch, const Call& call) const {
        auto& s = static_cast<Stream&>(scratch);
        s.list.operations.push_back({.call = call});
        if (!s.list.is_step || s.list.is_full()) lower(s, fast::may_fold(s, s.list.operations.back()));
    }
    bool adds_in_rank_order() const noexcept override { return is_fixed_; }
    void launch_all(Stream& s) const override {
        if (!s.list.operations.empty()) lower(s, false);
    }
    // Launches the operations of the list; all but the last one if it waits.
    void lower(Stream& s, bool last_waits) const {
        std::vector<Operation>& all = s.list.operations;
        const Operation last = all.back();
        if (last_waits) all.pop_back();
        fast::fold_norms(s);
        fast::share_places(s);
        fast::find_inputs(s);
        for (const Operation& operation : all) {
            if (operation.is_folded) continue;
            launch(s, [&] {
                fast::launch_operation(s, operation);
                note(s, std::exchange(s.dense_error, nullptr));
            });
        }
        if (!is_working(s)) {
            s.list.known = {};
            give_up_posts(all);
        }
        s.list.clear();
        if (last_waits) all.push_back(last);
    }
    void take_work(Stream& stream, Taker& taker) const override;
    std::unique_ptr<blas::Library> find_library() {
        if (is_fixed_ || !debug_switches().library) return nullptr;
        std::string why_not;
        auto library = blas::open(index_, why_not);
        if (library == nullptr)
            remark_ = format_text("prompts of F16 and BF16 weights go slowly without cuBLASLt: {}", why_not);
        return library;
    }

    const bool is_fixed_;
    const LaunchPaths paths_ = launch_paths();
    mutable DenseProducts dense_;
    mutable std::mutex pack_mutex_;  // there are buffers to pack for one thread only
};

void FastOperations::take_work(Stream& s, Taker& taker) const {
    ExactOperations::take_work(s, taker);
    const backend::StepLimits& limits = s.limits;
    FastWork& work = s.fast_work;
    const int64_t n_slots = limits.n_rows * limits.n_expert_used;
    const int64_t longest = std::max(limits.hidden, limits.n_head * limits.head_dim);
    taker.take(work.input, limits.n_rows * (longest / 32 + 1));
    taker.take(work.quantized_slots, n_slots * (limits.slot_ff() / 32 + 1));
    taker.take(work.halved, limits.n_rows * (longest / 128));
    taker.take(work.halved_slots, n_slots * (limits.slot_ff() / 128));
    if (paths_.tiles) {
        taker.take(work.tile_input.half, limits.n_rows * longest);
        taker.take(work.tile_input.factor, limits.n_rows * fast::n_factors(longest, s.tile_size));
        taker.take(work.tile_slots.half, n_slots * limits.slot_ff());
        taker.take(work.tile_slots.factor, n_slots * fast::n_factors(limits.slot_ff(), s.tile_size));
    }
    taker.take(work.tiles.slot, n_slots);
    int64_t n_tiles = fast::most_expert_tiles(n_slots, limits.n_expert);
    if (paths_.stream) n_tiles = std::max(n_tiles, fast::most_stream_tiles(limits));
    taker.take(work.tiles.tile, n_tiles);
    taker.take(work.tiles.count, 1);
    taker.take(work.router_partial, fast::route_partial_floats(limits.n_rows));
    taker.take(work.arrived, fast::n_arrival_counters(limits));
    if (dense_.has_library() && limits.n_rows >= DenseProducts::k_min_rows) {
        work.dense = &dense_;
        taker.take(work.narrowed, limits.n_rows * longest);
        taker.take(work.narrowed_factor, limits.n_rows);
        taker.take(work.dense_workspace, static_cast<int64_t>(DenseProducts::k_workspace_bytes));
        work.n_unpacked = paths_.dense_prompts ? fast::n_unpacked_weights(limits) : 0;
        if (work.n_unpacked > 0) taker.take(work.unpacked, work.n_unpacked);
    }
    if (paths_.chosen_places) taker.take(work.chosen, fast::n_chosen_places(limits));
    if (fast::attend_runs(limits.head_dim, limits.n_head, limits.n_head_kv)) {
        taker.take(work.query, limits.n_rows * limits.n_head * limits.head_dim);
        const int64_t bytes =
            is_fixed_ ? fast::fixed_partial_bytes(limits.n_rows, limits.n_head_kv, limits.head_dim)
                      : fast::partial_bytes(limits.n_rows, limits.n_head, limits.n_head_kv, limits.head_dim,
                                            s.n_processors);
        taker.take(work.partial, bytes / static_cast<int64_t>(sizeof(float)));
        fast::ChosenPages& chosen = work.chosen_pages;
        chosen.pages_a_head = fast::chosen_pages_a_head(limits.index);
        if (chosen.pages_a_head > 0) {
            taker.take(chosen.tiles, 2 * limits.n_rows);
            taker.take(chosen.position, limits.n_rows);
            taker.take(chosen.first_page, limits.n_rows);
            taker.take(chosen.pages, limits.n_rows * limits.n_head_kv * chosen.pages_a_head);
        }
    }
}

// Packs panel after panel from a copy of some megabytes at a time, or of fewer if the weights leave less memory.
void FastOperations::pack(std::span<std::byte* const> data, const Matrix& shape) const {
    const int64_t n_panels = shape.rows / panel::k_panel_rows;
    if (n_panels == 0 || data.empty()) return;
    const auto panel_bytes = static_cast<uint64_t>(panel::k_panel_rows * shape.row_bytes);
    const std::lock_guard lock(pack_mutex_);
    const uint64_t room = std::min(k_pack_bytes, available_bytes());
    const auto n_together =
        std::min(n_panels, static_cast<int64_t>(std::max<uint64_t>(1, room / panel_bytes)));
    const std::unique_ptr<backend::Memory> rows =
        allocate(static_cast<uint64_t>(n_together) * panel_bytes, "packing weights", MemoryUse::work);
    const auto* from = reinterpret_cast<const uint8_t*>(rows->data());
    const fast::PackShape pack_shape = fast::pack_shape(shape.format, shape.row_bytes);
    runtime::Stream stream = runtime::make_stream(index_);
    if (stream == nullptr) fail_on_device(name_, Status::out_of_device_memory, "no further stream");
    const char* why = nullptr;
    for (std::byte* matrix : data) {
        for (int64_t done = 0; done < n_panels && why == nullptr; done += n_together) {
            const int64_t count = std::min(n_together, n_panels - done);
            std::byte* to = matrix + static_cast<uint64_t>(done) * panel_bytes;
            why = runtime::copy_later(index_, stream, Way::on_device, rows->data(), to,
                                      static_cast<uint64_t>(count) * panel_bytes);
            if (why != nullptr) break;
            runtime::use(index_);
            fast::pack(stream, from, pack_shape, count, reinterpret_cast<uint8_t*>(to));
            why = runtime::last_error();
        }
    }
    const char* why_not_done = runtime::synchronize(index_, stream);
    runtime::end_stream(index_, stream);
    check(why != nullptr ? why : why_not_done);
}

}  // namespace

std::unique_ptr<backend::Backend> make_cuda_backend(int32_t index, Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    const bool is_exact = arithmetic == Arithmetic::exact;
    std::string name = format_text("cuda:{}{}", index, is_exact ? " (exact)" : "");
    if (is_exact) return std::make_unique<ExactOperations>(index, std::move(name), budget_bytes);
    return std::make_unique<FastOperations>(index, std::move(name), budget_bytes,
                                            arithmetic == Arithmetic::deterministic);
}

}  // namespace minim::cuda
