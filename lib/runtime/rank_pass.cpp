// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_pass.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "runtime/shared_experts.h"

namespace minim::runtime {
namespace {

// The maximum number of rows of a step in which the host's threads stay awake. With more rows a layer takes milliseconds, so the
// time to wake the threads does not matter.
constexpr int64_t k_max_awake_rows = 64;

// Returns the backend that computes on host memory in a step with devices; null: there is none, or no device.
const backend::HostDevice* host_beside_devices(std::span<const Stage> stages) {
    const backend::HostDevice* host = nullptr;
    bool has_device = false;
    const auto look_at = [&](const backend::HostDevice* found) {
        if (found == nullptr) has_device = true;
        if (host == nullptr) host = found;
    };
    for (const Stage& stage : stages) {
        look_at(stage.host());
        for (int64_t i = 0; i < stage.n_layer; ++i) look_at(stage.host_of_experts(i));
    }
    return has_device ? host : nullptr;
}

}  // namespace

RankPass::RankPass(std::span<const Stage> stages, Architecture architecture,
                   std::span<const std::unique_ptr<ExpertPool>> pools)
    : stages_(stages.begin(), stages.end()),
      architecture_(std::move(architecture)),
      pools_(pools),
      host_beside_devices_(host_beside_devices(stages)),
      part_keys_(2 * (architecture_.n_layer + 1)) {
    int64_t first = 0;
    for (const Stage& stage : stages_) first_layer_.push_back(std::exchange(first, first + stage.n_layer));
}

RankPass::RankPass(const Shard& shard, Architecture architecture, RankLinks links)
    : links_(std::move(links)),
      has_embedding_(shard.has_embedding),
      has_output_(shard.has_output),
      stages_({{shard.backend, shard.n_layer}}),
      first_layer_({shard.first_layer}),
      architecture_(std::move(architecture)),
      host_beside_devices_(nullptr),
      part_keys_(2 * (architecture_.n_layer + 1)) {}

RankPass::Part RankPass::part_from(size_t stage_index, int64_t begin) const {
    const Stage& stage = stages_[stage_index];
    const auto is_computed_here = [&](int64_t i) {
        return stage.has_experts_of(i) || is_shared(stage_index, i) ||
               !has_experts(first_layer_[stage_index] + i);
    };
    int64_t end = begin;
    while (end < stage.n_layer && is_computed_here(end)) ++end;
    const bool projects = has_output_ && stage_index + 1 == stages_.size() && end == stage.n_layer;
    return {.stage = stage_index,
            .begin = begin,
            .end = end,
            .embeds = has_embedding_ && stage_index == 0 && begin == 0,
            .projects = projects,
            .is_empty = begin == stage.n_layer && !projects};
}

// Returns whether rows whose logits nobody wants are left out after the layer's attention. An observer is one rank's alone,
// and the ranks of a group compute the same rows.
bool RankPass::leaves_rows_out(int64_t layer, const Step& step) const {
    const bool shows_all = (step.observer && links_.is_alone()) || step.inputs != nullptr;
    return layer + 1 == architecture_.n_layer && !shows_all && step.n_wanted < std::ssize(step.rows);
}

// Throws cancelled if the step is to end: all ranks of a group or none. Steps of few rows of a group, and steps of a
// pipeline, end by themselves.
void RankPass::go_on(const Step& step) const {
    if (links_.is_alone()) return throw_if_cancelled(step.cancel, "evaluation");
    if (links_.pipeline == nullptr && std::ssize(step.rows) > k_max_awake_rows)
        step.space.stages_.front().group->go_on(step.cancel);
}

// Moves x and o of the rows with requested logits to the front.
void RankPass::leave_rows_out(Step& step, StageSpace& space) const {
    const int64_t hidden = architecture_.shape.hidden;
    const int64_t width = architecture_.shape.n_head * architecture_.shape.head_dim;
    const auto move_row = [&](float* data, int64_t row_width, int64_t to, int64_t from) {
        space.backend->move(*space.scratch, reinterpret_cast<std::byte*>(data + to * row_width),
                            reinterpret_cast<const std::byte*>(data + from * row_width),
                            static_cast<uint64_t>(row_width) * sizeof(float));
    };
    int64_t kept = 0;
    for (size_t i = 0; i < step.rows.size(); ++i) {
        if (!step.rows[i].wants_logits) continue;
        const auto from = static_cast<int64_t>(i);
        if (kept != from) {
            move_row(space.x, hidden, kept, from);
            move_row(space.o, width, kept, from);
        }
        ++kept;
    }
    step.n = step.n_wanted;
}

void RankPass::observe(int64_t layer, const Activations& a, const Step& step) const {
    std::vector<float> x(a.n * architecture_.shape.hidden);
    // In a layer without experts no row chooses any.
    std::vector<float> gates(a.n * architecture_.shape.n_expert_used, 0.0F);
    std::vector<int32_t> ids(gates.size(), -1);
    const auto fetch = [&](auto& to, const void* from) {
        a.backend.download(a.scratch, reinterpret_cast<std::byte*>(to.data()),
                           static_cast<const std::byte*>(from), to.size() * sizeof(to[0]));
    };
    fetch(x, a.x);
    if (has_experts(layer)) {
        fetch(gates, a.gates);
        fetch(ids, a.ids);
    }
    a.backend.synchronize(a.scratch);
    step.observer(layer, a.n, x.data(), ids.data(), gates.data());
}

// Computes the layers of a part: this is the only loop over layers.
void RankPass::layers(const Part& part, Step& step) const {
    StageSpace& stage = step.space.stages_[part.stage];
    for (int64_t i = part.begin; i <= part.end && i < stages_[part.stage].n_layer; ++i) {
        const int64_t layer = first_layer_[part.stage] + i;
        go_on(step);
        architecture_.attend(activations(stage, step), layer, i);
        if (step.inputs != nullptr)
            step.inputs->see_attention(activations(stage, step), architecture_.shape, layer);
        if (leaves_rows_out(layer, step)) leave_rows_out(step, stage);
        if (step.n == 0) return;
        const Activations a = activations(stage, step);
        architecture_.add_attention(a, layer);
        if (links_.is_alone()) throw_if_cancelled(step.cancel, "evaluation");
        if (has_experts(layer)) {
            architecture_.choose_experts(a, layer);
            if (i == part.end) return;
            if (is_shared(part.stage, i)) {
                stage.shared->add(a.scratch, *pool_of(part.stage), i, {a.n, a.h, a.ids, a.gates, a.x},
                                  step.cancel);
                add_dense(a, layer, true, step.inputs);
            } else {
                add_experts(stage, a, layer, step.inputs);
            }
        } else {
            architecture_.normalise_dense(a, layer);
            add_dense_layer(stage, a, layer, step.inputs);
        }
        if (step.observer) observe(layer, a, step);
    }
}

// x += the feed-forward of h that every row takes, or, without `adds`, x = it.
void RankPass::add_dense(const Activations& a, int64_t layer, bool adds, InputObserver* inputs) const {
    if (!architecture_.dense) return;
    const backend::ExpertWeights& weights = architecture_.dense(layer);
    if (inputs != nullptr) return inputs->add_dense(a, architecture_.shape, layer, weights);
    a.backend.experts(a.scratch, a.h, a.n, a.dense_ids, a.dense_gates, 1, weights, a.x, adds);
}

// x += the feed-forward of h in a layer without experts, on this rank and, if they have parts of it, the others of its group.
void RankPass::add_dense_layer(StageSpace& stage, const Activations& a, int64_t layer,
                               InputObserver* inputs) const {
    const bool is_divided = links_.share.divides_dense();
    add_dense(a, layer, !is_divided || links_.share.rank == 0, inputs);
    if (is_divided) stage.group->sum(a.scratch, a.x, a.n * architecture_.shape.hidden);
}

// x += experts of h and the feed-forward that every row takes, on this rank and the others of its group. Experts that are whole on
// their ranks give the additions of a single device. Parts of the feed-forward are summed together with the experts.
void RankPass::add_experts(StageSpace& stage, const Activations& a, int64_t layer,
                           InputObserver* inputs) const {
    const backend::ExpertWeights& weights = architecture_.experts(layer);
    if (inputs != nullptr) {
        inputs->add_experts(a, architecture_.shape, layer, weights);
        return add_dense(a, layer, true, inputs);
    }
    const int64_t n_used = architecture_.shape.n_expert_used;
    const int64_t hidden = architecture_.shape.hidden;
    if (stage.choices != nullptr) compare_choices(stage, a, layer);
    if (stage.slots != nullptr) {
        a.backend.expert_slots(a.scratch, a.h, a.n, a.ids, n_used, weights, stage.slots);
        stage.group->share_slots(a.scratch, a.ids, a.n * n_used, hidden, stage.slots);
        a.backend.add_slots(a.scratch, stage.slots, a.gates, a.n, n_used, hidden, a.x);
        return add_dense(a, layer, true, nullptr);
    }
    const bool adds = stage.group == nullptr || stage.group->rank() == 0;
    a.backend.experts(a.scratch, a.h, a.n, a.ids, a.gates, n_used, weights, a.x, adds);
    const bool is_divided = links_.share.divides_dense();
    if (is_divided) add_dense(a, layer, true, nullptr);
    if (stage.group != nullptr) stage.group->sum(a.scratch, a.x, a.n * hidden);
    if (!is_divided) add_dense(a, layer, true, nullptr);
}

// Throws internal if the ranks of a group have not chosen the same experts. Each sums two halves of a hash of each row's choice over
// the ranks, which float adds without rounding, and compares with its own.
void RankPass::compare_choices(StageSpace& stage, const Activations& a, int64_t layer) const {
    const int64_t n_used = architecture_.shape.n_expert_used;
    std::vector<int32_t> ids(a.n * n_used);
    a.backend.download(a.scratch, reinterpret_cast<std::byte*>(ids.data()),
                       reinterpret_cast<const std::byte*>(a.ids), ids.size() * sizeof(ids[0]));
    a.backend.wait(a.scratch);
    std::vector<float> own;
    for (int64_t row = 0; row < a.n; ++row) {
        const uint64_t hash = hash_bytes(std::as_bytes(std::span(ids).subspan(row * n_used, n_used)));
        own.push_back(static_cast<float>(hash & 0xFFFF));
        own.push_back(static_cast<float>(hash >> 48));
    }
    const uint64_t bytes = float_bytes(a.n, 2);
    auto* const device = reinterpret_cast<std::byte*>(stage.choices);
    a.backend.upload(a.scratch, device, reinterpret_cast<const std::byte*>(own.data()), bytes);
    stage.group->sum(a.scratch, stage.choices, 2 * a.n);
    std::vector<float> sums(own.size());
    a.backend.download(a.scratch, reinterpret_cast<std::byte*>(sums.data()), device, bytes);
    a.backend.wait(a.scratch);
    const auto n_ranks = static_cast<float>(stage.group->size());
    for (size_t i = 0; i < own.size(); ++i)
        if (sums[i] != n_ranks * own[i])
            fail_internal("the ranks have chosen different experts for row {} in layer {}", i / 2, layer);
}

// Receives the residual stream from the pipeline's stage before this one.
void RankPass::receive_rows(Step& step) const {
    if (links_.before < 0) return;
    StageSpace& first = step.space.stages_.front();
    const uint64_t bytes = float_bytes(step.n, architecture_.shape.hidden);
    const auto ticket = links_.pipeline->receive(links_.before, {step.space.passing_.data(), bytes});
    links_.pipeline->wait({&ticket, 1});
    first.backend->upload(*first.scratch, reinterpret_cast<std::byte*>(first.x), step.space.passing_.data(),
                          bytes);
}

void RankPass::send_rows(Step& step) const {
    if (links_.after < 0) return;
    StageSpace& last = step.space.stages_.back();
    const uint64_t bytes = float_bytes(step.n, architecture_.shape.hidden);
    last.backend->download(*last.scratch, step.space.passing_.data(),
                           reinterpret_cast<const std::byte*>(last.x), bytes);
    last.backend->wait(*last.scratch);
    const auto ticket = links_.pipeline->send(links_.after, {step.space.passing_.data(), bytes});
    links_.pipeline->wait({&ticket, 1});
}

// Adds, for the layer with which a part ends, the experts to x, on the device that has them. x is sent there and back.
// The order of additions is that of a single device.
void RankPass::experts_offloaded(const Part& part, Step& step) const {
    const int64_t layer = first_layer_[part.stage] + part.end;
    StageSpace& stage = step.space.stages_[part.stage];
    ExpertSpace& away = stage.experts_on(*stages_[part.stage].experts_of(part.end));
    const Side here = stage.side();
    const Side there = away.side();
    const int64_t n = step.n;
    const int64_t n_used = architecture_.shape.n_expert_used;
    const int64_t hidden = architecture_.shape.hidden;
    std::byte* passing = step.space.passing_.data();
    pass(here, stage.x, there, away.x, n * hidden, passing);
    pass(here, stage.routing.gates, there, away.routing.gates, 2 * n * n_used,
         passing + float_bytes(step.space.n_rows_, hidden));
    // The choices of a lost device are not valid experts, so the loss must be detected before the experts are looked up.
    here.backend.wait(here.scratch);
    architecture_.normalise_on_another_stage(there.backend, there.scratch, away.x, n, layer, away.h);
    if (step.inputs != nullptr) {
        const Activations rows = {.backend = there.backend,
                                  .scratch = there.scratch,
                                  .n = n,
                                  .x = away.x,
                                  .h = away.h,
                                  .q = nullptr,
                                  .k = nullptr,
                                  .v = nullptr,
                                  .o = nullptr,
                                  .ids = away.routing.ids(n, n_used),
                                  .gates = away.routing.gates,
                                  .places = {}};
        step.inputs->add_experts(rows, architecture_.shape, layer, architecture_.experts(layer));
    } else {
        there.backend.experts(there.scratch, away.h, n, away.routing.ids(n, n_used), away.routing.gates,
                              n_used, architecture_.experts(layer), away.x, true);
    }
    pass(there, away.x, here, stage.x, n * hidden, passing);
    wait_for_passed(there, here);
    const Activations a = activations(stage, step);
    add_dense(a, layer, true, step.inputs);
    if (step.observer) observe(layer, a, step);
}

// Returns the function that computes the host's experts of a part's shared layers; empty if the part has none.
std::function<void()> RankPass::answers_of(const Part& part, Step& step) const {
    int64_t first = part.begin;
    while (first < part.end && !is_shared(part.stage, first)) ++first;
    if (first == part.end) return {};
    return [this, part, &step] {
        const auto rows_of = [&](int64_t layer) {
            return leaves_rows_out(first_layer_[part.stage] + layer, step) ? step.n_wanted
                                                                           : std::ssize(step.rows);
        };
        step.space.stages_[part.stage].shared->answer(*pool_of(part.stage), part.begin, part.end, rows_of,
                                                      step.cancel);
    };
}

// Issues the operations of a part that a device may record: they make no transfers to or from the host.
void RankPass::operations(const Part& part, Step& step) const {
    StageSpace& stage = step.space.stages_[part.stage];
    if (part.embeds)
        architecture_.embed(activations(stage, step), std::span(step.space.tokens_).first(step.rows.size()));
    layers(part, step);
    if (part.projects && step.inputs != nullptr && step.inputs->sees_head()) {
        architecture_.normalise_output(activations(stage, step));
        step.inputs->see_head(activations(stage, step), architecture_.shape);
    }
    if (!part.projects || step.n_wanted == 0) return;
    if (step.n_wanted < step.n) leave_rows_out(step, stage);  // an observer saw every row
    architecture_.normalise_output(activations(stage, step));
    step.space.logits_->compute(stage.side(), stage.h, 0, architecture_, stage.group.get());
}

// Returns whether the device repeats the operations that it has recorded for this part.
bool RankPass::begin_recorded(const Part& part, Step& step) const {
    const StageSpace& stage = step.space.stages_[part.stage];
    const bool has_queries = part.projects && step.space.logits_->has_queries();
    const int64_t first = first_layer_[part.stage] + part.begin;
    backend::StepBatch batch;
    if (part.embeds) batch.ids = std::span(step.space.tokens_).first(step.rows.size());
    batch.rows = std::span(stage.rows).first(step.rows.size());
    batch.n_head = architecture_.shape.n_head;
    batch.n_head_kv = architecture_.shape.n_head_kv;
    batch.calls = &part_keys_[2 * first + (has_queries ? 1 : 0)];
    return stage.backend->begin_step(*stage.scratch, batch);
}

void RankPass::run(const Part& part, Step& step) const {
    StageSpace& stage = step.space.stages_[part.stage];
    const std::function<void()> answers = answers_of(part, step);
    std::optional<Answering> answering;
    const auto compute = [&] {
        if (answers && !answering) answering.emplace(*stage.shared, answers);
        operations(part, step);
    };
    if (part.projects && step.n_wanted > 0) step.space.logits_->upload_queries(stage.side(), 0);
    bool is_repeated = false;
    if (!step.is_repeatable || part.is_empty) {
        compute();
    } else {
        do {
            is_repeated = begin_recorded(part, step);
            if (!is_repeated) compute();
        } while (!is_repeated && !stage.backend->end_step(*stage.scratch));
    }
    if (answering) {
        answering->finish();
    } else if (answers && is_repeated) {
        answers();
    }
    if (part.projects) fetch_logits_of_groups(step);
}

// Brings the logits of the first group to the host, and computes the other groups.
void RankPass::fetch_logits_of_groups(Step& step) const {
    StageSpace& last = step.space.stages_.back();
    Logits& logits = *step.space.logits_;
    for (int64_t first = 0; first < step.n_wanted; first += logits.group_rows()) {
        if (first > 0) {
            logits.upload_queries(last.side(), first);
            logits.compute(last.side(), last.h, first, architecture_, last.group.get());
        }
        logits.fetch(last.side(), first);
    }
}

void RankPass::compute_stage(size_t stage_index, Step& step) const {
    for (int64_t begin = 0;; ++begin) {
        const Part part = part_from(stage_index, begin);
        run(part, step);
        if (part.end == stages_[stage_index].n_layer || step.n == 0) return;
        experts_offloaded(part, step);
        begin = part.end;
    }
}

void RankPass::compute(Step& step) const {
    RankSpace& space = step.space;
    for (size_t i = 0; i < step.rows.size(); ++i) {
        space.tokens_[i] = step.rows[i].token;
        for (size_t stage = 0; stage < stages_.size(); ++stage)
            space.stages_[stage].rows[i] = {step.rows[i].at.sequence + step.first_view + stage,
                                            step.rows[i].at.position};
    }
    receive_rows(step);
    for (size_t s = 0; s < stages_.size(); ++s) {
        if (s > 0) {
            const Side from = space.stages_[s - 1].side();
            const Side to = space.stages_[s].side();
            pass(from, space.stages_[s - 1].x, to, space.stages_[s].x, step.n * architecture_.shape.hidden,
                 space.passing_.data());
            wait_for_passed(from, to);
        }
        compute_stage(s, step);
    }
    send_rows(step);
}

void RankPass::step(std::span<const StepRow> rows, size_t first_view, RankSpace& space,
                    const StepOutput& output, const CancelToken* cancel, const LayerObserver& observer,
                    InputObserver* inputs) const {
    if (std::ssize(rows) > space.n_rows_)
        fail_internal("a step of {} rows in space for {}", rows.size(), space.n_rows_);
    // A device works for some 60 us between two jobs of the host's threads: they would fall asleep in each layer.
    std::optional<ThreadPool::Awake> awake;
    if (host_beside_devices_ != nullptr && std::ssize(rows) <= k_max_awake_rows) {
        const ThreadPool* pool = host_beside_devices_->threads_for(std::ssize(rows));
        if (pool != nullptr) awake.emplace(*pool);
    }
    try {
        const auto n_wanted =
            std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.wants_logits; });
        space.logits_->begin(n_wanted, output);
        const int64_t n = std::ssize(rows);
        const backend::Group* group = space.stages_.front().group.get();
        const bool may_record = links_.pipeline == nullptr && (group == nullptr || group->records());
        const bool is_repeatable =
            may_record && !observer && inputs == nullptr && n_wanted == n && n <= backend::k_max_top_k_rows;
        Step step = {rows, first_view, space, cancel, observer, inputs, n_wanted, is_repeatable, n};
        std::deque<ExpertPool::Step> pool_steps;
        for (size_t s = 0; s < stages_.size(); ++s) {
            if (space.stages_[s].shared == nullptr) continue;
            space.stages_[s].shared->begin(!is_repeatable);
            pool_steps.emplace_back(*pool_of(s));
        }
        compute(step);
        space.for_each_stream([](const auto& backend, auto& scratch) { backend.synchronize(scratch); });
        for (ExpertPool::Step& pool_step : pool_steps) pool_step.end(n);
    } catch (...) {
        for (const StageSpace& stage : space.stages_)
            if (stage.shared != nullptr) stage.shared->give_up();
        // Nothing of this step may still be running when its pages and its space are used for something else.
        space.for_each_stream([](const auto& backend, auto& scratch) {
            try {
                backend.synchronize(scratch);
            } catch (const Error&) {  // a lost device is the error in flight, or the next call reports it
            }
        });
        throw;
    }
}

void RankPass::fetch_logits(RankSpace& space, int64_t wanted_row, float* logits) const {
    const StageSpace& last = space.stages_.back();
    space.logits_->fetch_row(last.side(), last.h, wanted_row, logits, architecture_);
}

TopK RankPass::top_k(RankSpace& space, int64_t wanted_row, const TopKQuery& query) const {
    const StageSpace& last = space.stages_.back();
    return space.logits_->ask_again(last.side(), last.h, wanted_row, query, architecture_);
}

}  // namespace minim::runtime
