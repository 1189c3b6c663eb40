// SPDX-License-Identifier: Apache-2.0
#include "model/minimax_m2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace minim::model {

using backend::LinearTask;

std::vector<float> rope_frequencies(const Config& config) {
    std::vector<float> frequency(static_cast<size_t>(config.rotary_dim / 2));
    for (size_t i = 0; i < frequency.size(); ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_dim);
        frequency[i] = static_cast<float>(std::pow(config.rope_theta, exponent));
    }
    return frequency;
}

namespace {

// Rows whose logits a device keeps at a time.
constexpr int64_t k_logit_rows = backend::k_most_shortlist_rows;

// The most rows of a step in which the host's threads stay awake. With more rows a layer takes milliseconds, so the
// time to wake the threads does not matter.
constexpr int64_t k_most_awake_rows = 64;

// Returns the backend that computes on host memory in a step with devices; null: there is none, or no device.
const backend::Backend* host_beside_devices(std::span<const Stage> stages) {
    const backend::Backend* host = nullptr;
    bool has_device = false;
    const auto look_at = [&](const backend::Backend& backend) {
        if (!backend.uses_host_memory()) {
            has_device = true;
        } else if (host == nullptr) {
            host = &backend;
        }
    };
    for (const Stage& stage : stages) {
        look_at(*stage.backend);
        for (const auto& experts : stage.experts) look_at(*experts);
    }
    return has_device ? host : nullptr;
}

// A backend that somebody else keeps.
Stage whole_model(const backend::Backend& backend, const Config& config) {
    return {std::shared_ptr<const backend::Backend>(std::shared_ptr<void>(), &backend), config.n_layer};
}

uint64_t float_bytes(int64_t rows, int64_t row_floats) {
    uint64_t bytes = 0;
    if (!checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(row_floats) * sizeof(float), bytes))
        fail_out_of_memory("activations", UINT64_MAX, 0);
    return bytes;
}

}  // namespace

StepSpace::ExpertSpace& StepSpace::StageSpace::experts_on(const backend::Backend& device) {
    return *std::ranges::find(experts, &device, &ExpertSpace::backend);
}

StepSpace::StageSpace StepSpace::make_stage(const Stage& stage, const backend::StepLimits& limits) const {
    const int64_t q_width = limits.n_head * limits.head_dim;
    const int64_t kv_width = limits.n_head_kv * limits.head_dim;
    const int64_t row_floats = 2 * limits.hidden + 2 * q_width + 2 * kv_width + 2 * limits.n_expert_used;

    StageSpace space = {};
    space.backend = stage.backend.get();
    space.scratch = space.backend->reserve(limits);
    space.memory = space.backend->allocate(float_bytes(n_rows_, row_floats), "activations");
    auto* next = reinterpret_cast<float*>(space.memory->data());
    const auto take = [&](int64_t row_width) { return std::exchange(next, next + n_rows_ * row_width); };
    // First those whose heads devices read by 16 bytes, which any number of rows leaves aligned.
    space.q = take(q_width);
    space.o = take(q_width);
    space.k = take(kv_width);
    space.v = take(kv_width);
    space.x = take(limits.hidden);
    space.h = take(limits.hidden);
    space.routing.gates = take(2 * limits.n_expert_used);
    space.rows.resize(static_cast<size_t>(n_rows_));
    return space;
}

// That of the stage which the device has, or one for experts alone.
backend::Scratch& StepSpace::stream_on(const backend::Backend& device, const backend::StepLimits& limits) {
    const auto of_stage = std::ranges::find(stages_, &device, &StageSpace::backend);
    if (of_stage != stages_.end()) return *of_stage->scratch;
    auto of_experts = std::ranges::find(streams_, &device, &Stream::backend);
    if (of_experts == streams_.end())
        of_experts = streams_.insert(of_experts, {&device, device.reserve(limits)});
    return *of_experts->scratch;
}

StepSpace::ExpertSpace StepSpace::make_experts(const StageSpace& stage, const backend::Backend& device,
                                               const backend::StepLimits& limits) {
    ExpertSpace space = {};
    space.backend = &device;
    space.scratch = &stream_on(device, limits);
    const uint64_t bytes = float_bytes(n_rows_, 2 * limits.hidden + 2 * limits.n_expert_used);
    constexpr const char* k_what = "activations for experts";
    space.memory = device.uses_host_memory() ? stage.backend->allocate_staging(bytes, k_what)
                                             : device.allocate(bytes, k_what);
    space.x = reinterpret_cast<float*>(space.memory->data());
    space.h = space.x + n_rows_ * limits.hidden;
    space.routing.gates = space.h + n_rows_ * limits.hidden;
    return space;
}

void StepSpace::add_expert_spaces(std::span<const Stage> stages, const backend::StepLimits& limits) {
    for (size_t s = 0; s < stages.size(); ++s) {
        StageSpace& stage = stages_[s];
        for (int64_t i = 0; i < stages[s].n_layer; ++i) {
            const backend::Backend* device = stages[s].experts_of(i).get();
            if (stages[s].shares_experts_of(i)) {
                if (stage.shared == nullptr)
                    stage.shared = std::make_unique<SharedExperts>(
                        *stage.backend, *device, stream_on(*device, limits), limits, stages[s].n_layer);
                continue;
            }
            if (device == stage.backend ||
                std::ranges::find(stage.experts, device, &ExpertSpace::backend) != stage.experts.end())
                continue;
            stage.experts.push_back(make_experts(stage, *device, limits));
        }
    }
}

// Every stream of a step's work.
template <typename Visit>
void StepSpace::for_each_stream(const Visit& visit) const {
    for (const StageSpace& stage : stages_) visit(*stage.backend, *stage.scratch);
    for (const Stream& stream : streams_) visit(*stream.backend, *stream.scratch);
}

StepSpace::StepSpace(std::span<const Stage> stages, const Config& config, int64_t n_rows, int64_t n_context)
    : n_rows_(n_rows), tokens_(static_cast<size_t>(n_rows)) {
    backend::StepLimits limits;
    limits.n_rows = n_rows_;
    limits.n_context = n_context;
    limits.hidden = config.hidden;
    limits.n_head = config.n_head;
    limits.n_head_kv = config.n_head_kv;
    limits.head_dim = config.head_dim;
    limits.n_expert = config.n_expert;
    limits.n_expert_used = config.n_expert_used;
    limits.expert_ff = config.expert_ff;
    limits.n_vocab = config.n_vocab;
    for (const Stage& stage : stages) stages_.push_back(make_stage(stage, limits));
    limits.n_context = 1;  // experts look at a row alone
    add_expert_spaces(stages, limits);
    const bool changes_device = stages.size() > 1 || !stages_.front().experts.empty();
    if (changes_device)
        passing_ = Buffer(float_bytes(n_rows, config.hidden + 2 * config.n_expert_used), "activations");
    const backend::Backend& last = *stages.back().backend;
    if (!last.uses_host_memory())
        logits_ = last.allocate(float_bytes(std::min(n_rows, k_logit_rows), config.n_vocab), "logits");
    if (logits_ && last.makes_shortlists()) shortlists_ = std::make_unique<ShortlistSpace>(last, n_rows);
}

StepSpace::StepSpace(const backend::Backend& backend, const Config& config, int64_t n_rows, int64_t n_context)
    : StepSpace(std::array<Stage, 1>{whole_model(backend, config)}, config, n_rows, n_context) {}

ForwardPass::ForwardPass(std::span<const Stage> stages, const Config& config, const Weights& weights,
                         std::span<const std::unique_ptr<ExpertPool>> pools)
    : stages_(stages.begin(), stages.end()),
      config_(config),
      weights_(weights),
      pools_(pools),
      rope_frequency_(rope_frequencies(config)),
      host_beside_devices_(host_beside_devices(stages)) {}

ForwardPass::ForwardPass(const backend::Backend& backend, const Config& config, const Weights& weights)
    : ForwardPass(std::array<Stage, 1>{whole_model(backend, config)}, config, weights) {}

// o = attention of the normalised x; x is unchanged.
void ForwardPass::attention(const LayerWeights& layer, int64_t layer_of_stage, int64_t n,
                            StageSpace& space) const {
    const backend::Backend& backend = *space.backend;
    backend.norm(*space.scratch, space.x, n, layer.attn_norm, config_.norm_eps, space.h);
    const LinearTask qkv[] = {
        {&layer.wq, space.q, false}, {&layer.wk, space.k, false}, {&layer.wv, space.v, false}};
    backend.linear(*space.scratch, space.h, n, qkv);
    backend::AttendArgs args;
    args.n = n;
    args.q = space.q;
    args.k = space.k;
    args.v = space.v;
    args.o = space.o;
    args.rows = std::span(space.rows).first(static_cast<size_t>(n));
    args.layer = layer_of_stage;
    args.n_head = config_.n_head;
    args.n_head_kv = config_.n_head_kv;
    args.head_dim = config_.head_dim;
    args.q_norm = layer.q_norm;
    args.k_norm = layer.k_norm;
    args.norm_eps = config_.norm_eps;
    args.rope_frequency = rope_frequency_;
    backend.attend(*space.scratch, args);
}

// Chooses the experts of each row and their weights.
void ForwardPass::choose_experts(const LayerWeights& layer, int64_t n, StageSpace& space) const {
    const backend::Backend& backend = *space.backend;
    backend::Scratch& scratch = *space.scratch;
    const int64_t n_used = config_.n_expert_used;
    backend.norm(scratch, space.x, n, layer.ffn_norm, config_.norm_eps, space.h);
    backend.route(scratch, space.h, n, layer.router, layer.router_bias, n_used, space.routing.ids(n, n_used),
                  space.routing.gates);
    if (config_.expert_weights_scale != 1.0F)
        backend.scale(scratch, space.routing.gates, n * n_used, config_.expert_weights_scale);
}

// x += experts of the normalised x, on the device that has them: x is sent there and back. The order of additions is
// that of a single device.
void ForwardPass::experts_elsewhere(size_t stage_index, int64_t layer_of_stage, int64_t n, Step& step) const {
    const LayerWeights& layer =
        weights_.layers[static_cast<size_t>(first_layer(stage_index) + layer_of_stage)];
    StageSpace& stage = step.space.stages_[stage_index];
    ExpertSpace& away = stage.experts_on(*stages_[stage_index].experts_of(layer_of_stage));
    const Side here = {*stage.backend, *stage.scratch};
    const Side there = {*away.backend, *away.scratch};
    const int64_t n_x = n * config_.hidden;
    const int64_t n_used = config_.n_expert_used;
    std::byte* passing = step.space.passing_.data();
    pass(here, stage.x, there, away.x, n_x, passing);
    pass(here, stage.routing.gates, there, away.routing.gates, 2 * n * n_used,
         passing + float_bytes(step.space.n_rows_, config_.hidden));
    // The choices of a lost device are not valid experts, so the loss must be detected before the experts are looked up.
    here.backend.wait(here.scratch);
    there.backend.norm(there.scratch, away.x, n, layer.experts_norm, config_.norm_eps, away.h);
    there.backend.experts(there.scratch, away.h, n, away.routing.ids(n, n_used), away.routing.gates, n_used,
                          layer.experts, away.x);
    pass(there, away.x, here, stage.x, n_x, passing);
    if (here.backend.uses_host_memory()) there.backend.wait(there.scratch);
}

// After the last attention only rows with requested logits are needed: moves their x and o to the front.
void ForwardPass::keep_wanted_rows(std::span<const StepRow> rows, StageSpace& space) const {
    const int64_t width = config_.n_head * config_.head_dim;
    const auto move_row = [&](float* data, int64_t row_width, int64_t to, int64_t from) {
        space.backend->move(*space.scratch, reinterpret_cast<std::byte*>(data + to * row_width),
                            reinterpret_cast<const std::byte*>(data + from * row_width),
                            static_cast<uint64_t>(row_width) * sizeof(float));
    };
    int64_t kept = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].wants_logits) continue;
        const auto from = static_cast<int64_t>(i);
        if (kept != from) {
            move_row(space.x, config_.hidden, kept, from);
            move_row(space.o, width, kept, from);
        }
        ++kept;
    }
}

// Copies from one device to another: directly if both can or one of them works on host memory, else through `passing`
// on the host. A later host-side write must be ordered after this copy: in the same stream, or after wait(). A device
// that works on host memory has the data after waiting for `from`.
void ForwardPass::pass(const Side& from, const float* data, const Side& to, float* place, int64_t count,
                       std::byte* passing) {
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    const auto* source = reinterpret_cast<const std::byte*>(data);
    auto* target = reinterpret_cast<std::byte*>(place);
    if (to.backend.receive(to.scratch, target, from.backend, from.scratch, source, bytes)) return;
    if (to.backend.uses_host_memory()) {
        from.backend.download(from.scratch, target, source, bytes);
        return;
    }
    if (!from.backend.uses_host_memory()) {
        from.backend.download(from.scratch, passing, source, bytes);
        from.backend.wait(from.scratch);
        source = passing;
    }
    to.backend.upload(to.scratch, target, source, bytes);
}

// Sends x from one stage to the next.
void ForwardPass::pass_on(int64_t n, StageSpace& from, StageSpace& to, std::byte* passing) const {
    const Side from_side = {*from.backend, *from.scratch};
    pass(from_side, from.x, {*to.backend, *to.scratch}, to.x, n * config_.hidden, passing);
    if (to.backend->uses_host_memory()) from.backend->wait(*from.scratch);
}

void ForwardPass::observe(const LayerObserver& observer, int64_t layer, int64_t n, StageSpace& space) const {
    std::vector<float> x(static_cast<size_t>(n * config_.hidden));
    std::vector<float> gates(static_cast<size_t>(n * config_.n_expert_used));
    std::vector<int32_t> ids(gates.size());
    const auto fetch = [&](auto& to, const void* from) {
        space.backend->download(*space.scratch, reinterpret_cast<std::byte*>(to.data()),
                                static_cast<const std::byte*>(from), to.size() * sizeof(to[0]));
    };
    fetch(x, space.x);
    fetch(gates, space.routing.gates);
    fetch(ids, space.routing.ids(n, config_.n_expert_used));
    space.backend->synchronize(*space.scratch);
    observer(layer, n, x.data(), ids.data(), gates.data());
}

// Where the last device computes the logits of some rows.
float* ForwardPass::logits_place(int64_t first, Step& step) const {
    StepSpace& space = step.space;
    space.first_logits_ = first;
    if (space.logits_) return reinterpret_cast<float*>(space.logits_->data());
    return step.output.logits + first * config_.n_vocab;
}

// Logits of rows first .. first + count of the last stage's normalised x.
void ForwardPass::project(int64_t first, int64_t count, StageSpace& last, float* logits) const {
    const LinearTask head = {&weights_.output, logits, false};
    last.backend->linear(*last.scratch, last.h + first * config_.hidden, count, {&head, 1});
}

void ForwardPass::make_shortlists(int64_t first, int64_t count, StepSpace& space) const {
    StageSpace& last = space.stages_.back();
    last.backend->shortlist(*last.scratch, reinterpret_cast<const float*>(space.logits_->data()), count,
                            config_.n_vocab, space.shortlists_->task(first));
}

void ForwardPass::download_rows(int64_t first, int64_t count, StepSpace& space, float* logits) const {
    StageSpace& last = space.stages_.back();
    const uint64_t at = float_bytes(first - space.first_logits_, config_.n_vocab);
    last.backend->download(*last.scratch, reinterpret_cast<std::byte*>(logits), space.logits_->data() + at,
                           float_bytes(count, config_.n_vocab));
}

// What is wanted of the rows whose logits are there, to the host.
void ForwardPass::fetch_output(int64_t first, int64_t count, Step& step) const {
    StepSpace& space = step.space;
    const auto& queries = step.output.queries;
    if (!space.logits_) return;
    const auto download = [&](int64_t row, int64_t n) {
        if (step.output.logits != nullptr)
            download_rows(row, n, space, step.output.logits + row * config_.n_vocab);
    };
    if (queries.empty()) return download(first, count);
    space.shortlists_->download(*space.stages_.back().scratch, first);
    for (int64_t row = first; row < first + count; ++row)
        if (queries[static_cast<size_t>(row)].n_candidates == 0) download(row, 1);
}

// Logits of the first n rows of the last stage.
void ForwardPass::output(int64_t n, Step& step) const {
    StepSpace& space = step.space;
    StageSpace& last = space.stages_.back();
    last.backend->norm(*last.scratch, last.x, n, weights_.output_norm, config_.norm_eps, last.h);
    const int64_t n_together = space.logits_ ? k_logit_rows : n;
    for (int64_t first = 0; first < n; first += n_together) {
        const int64_t count = std::min(n_together, n - first);
        if (!step.output.queries.empty()) space.shortlists_->upload(*last.scratch, first);
        project(first, count, last, logits_place(first, step));
        if (!step.output.queries.empty()) make_shortlists(first, count, space);
        fetch_output(first, count, step);
    }
}

// Computes the logits of a row again where others have taken their place: with its neighbours, as before, so that they
// are the same bits.
void ForwardPass::keep_logits_of(int64_t wanted_row, StepSpace& space) const {
    if (!space.keeps_logits() || wanted_row >= space.n_wanted_)
        fail_internal("logits of row {} of {} that a device was to keep", wanted_row, space.n_wanted_);
    const int64_t first = wanted_row / k_logit_rows * k_logit_rows;
    if (first == space.first_logits_) return;
    project(first, std::min(k_logit_rows, space.n_wanted_ - first), space.stages_.back(),
            reinterpret_cast<float*>(space.logits_->data()));
    space.first_logits_ = first;
}

void ForwardPass::fetch_logits(StepSpace& space, int64_t wanted_row, float* logits) const {
    StageSpace& last = space.stages_.back();
    keep_logits_of(wanted_row, space);
    download_rows(wanted_row, 1, space, logits);
    last.backend->synchronize(*last.scratch);
}

Shortlist ForwardPass::shortlist(StepSpace& space, int64_t wanted_row, const ShortlistQuery& query) const {
    StageSpace& last = space.stages_.back();
    keep_logits_of(wanted_row, space);
    const auto* row = reinterpret_cast<const float*>(space.logits_->data()) +
                      (wanted_row - space.first_logits_) * config_.n_vocab;
    space.shortlists_->ask({&query, 1});
    space.shortlists_->upload(*last.scratch, 0);
    last.backend->shortlist(*last.scratch, row, 1, config_.n_vocab, space.shortlists_->task(0));
    space.shortlists_->download(*last.scratch, 0);
    last.backend->synchronize(*last.scratch);
    return space.shortlist(0);
}

int64_t ForwardPass::first_layer(size_t stage_index) const {
    int64_t first = 0;
    for (size_t s = 0; s < stage_index; ++s) first += stages_[s].n_layer;
    return first;
}

// A stage's device works alone from the layer `begin` on up to this one, whose experts are offloaded, or to the end.
int64_t ForwardPass::end_of_part(size_t stage_index, int64_t begin) const {
    const Stage& stage = stages_[stage_index];
    while (begin < stage.n_layer && (stage.has_experts_of(begin) || is_shared(stage_index, begin))) ++begin;
    return begin;
}

// Whether rows whose logits nobody wants are left out after the layer's attention.
bool ForwardPass::keeps_wanted_rows(int64_t layer, const Step& step) const {
    return layer + 1 == config_.n_layer && !step.observer && step.n_wanted < std::ssize(step.rows);
}

// Computes the host's experts of layers begin .. end - 1; empty where none of them is shared.
std::function<void()> ForwardPass::answers_of_part(size_t stage_index, int64_t begin, int64_t end,
                                                   Step& step) const {
    ExpertPool* pool = pool_of(stage_index);
    int64_t first = begin;
    while (first < end && !is_shared(stage_index, first)) ++first;
    if (first == end) return {};
    return [this, pool, stage_index, begin, end, &step] {
        SharedExperts& shared = *step.space.stages_[stage_index].shared;
        const auto rows_of = [&](int64_t layer) {
            return keeps_wanted_rows(first_layer(stage_index) + layer, step) ? step.n_wanted
                                                                             : std::ssize(step.rows);
        };
        shared.answer(*pool, begin, end, rows_of, step.cancel);
    };
}

// Layers begin .. end - 1 of a stage, and `end` up to the choice of its experts where there is such a layer. Returns how
// many rows are left, which are fewer after the last attention where not all are wanted.
int64_t ForwardPass::part(size_t stage_index, int64_t begin, int64_t end, int64_t n, Step& step) const {
    StageSpace& stage = step.space.stages_[stage_index];
    const int64_t first = first_layer(stage_index);
    const int64_t n_used = config_.n_expert_used;
    for (int64_t i = begin; i <= end && i < stages_[stage_index].n_layer; ++i) {
        throw_if_cancelled(step.cancel, "evaluation");
        const int64_t index = first + i;
        const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
        attention(layer, i, n, stage);
        if (keeps_wanted_rows(index, step)) {
            keep_wanted_rows(step.rows, stage);
            n = step.n_wanted;
            if (n == 0) return 0;
        }
        const LinearTask output = {&layer.wo, stage.x, true};
        stage.backend->linear(*stage.scratch, stage.o, n, {&output, 1});
        throw_if_cancelled(step.cancel, "evaluation");
        choose_experts(layer, n, stage);
        if (i == end) break;
        const int32_t* ids = stage.routing.ids(n, n_used);
        if (is_shared(stage_index, i)) {
            stage.shared->add(*stage.scratch, *pool_of(stage_index), i,
                              {n, stage.h, ids, stage.routing.gates, stage.x});
        } else {
            stage.backend->experts(*stage.scratch, stage.h, n, ids, stage.routing.gates, n_used,
                                   layer.experts, stage.x);
        }
        if (step.observer) observe(step.observer, index, n, stage);
    }
    return n;
}

// The layers of a stage. Returns how many rows are left.
int64_t ForwardPass::layers(size_t stage_index, Step& step) const {
    auto n = static_cast<int64_t>(step.rows.size());
    for (int64_t begin = 0;; ++begin) {
        const int64_t end = end_of_part(stage_index, begin);
        std::optional<Answering> answering;
        if (auto answers = answers_of_part(stage_index, begin, end, step))
            answering.emplace(*step.space.stages_[stage_index].shared, std::move(answers));
        n = part(stage_index, begin, end, n, step);
        if (answering) answering->finish();
        if (n == 0 || end == stages_[stage_index].n_layer) return n;
        experts_elsewhere(stage_index, end, n, step);
        if (step.observer)
            observe(step.observer, first_layer(stage_index) + end, n, step.space.stages_[stage_index]);
        begin = end;
    }
}

// A stage of a step that a device may record, each part of it by itself: all rows want logits, and they are computed at
// once.
void ForwardPass::repeatable_stage(size_t stage_index, Step& step) const {
    StageSpace& stage = step.space.stages_[stage_index];
    const backend::Backend& backend = *stage.backend;
    const auto n = static_cast<int64_t>(step.rows.size());
    const int64_t n_layer = stages_[stage_index].n_layer;
    const std::span<const int32_t> tokens = std::span(step.space.tokens_).first(step.rows.size());
    backend::StepBatch batch;
    batch.rows = std::span(stage.rows).first(step.rows.size());
    batch.n_head = config_.n_head;
    batch.n_head_kv = config_.n_head_kv;
    for (int64_t begin = 0;; ++begin) {
        const int64_t end = end_of_part(stage_index, begin);
        const bool embeds = stage_index == 0 && begin == 0;
        const bool projects = stage_index + 1 == stages_.size() && end == n_layer;
        batch.ids = embeds ? tokens : std::span<const int32_t>();
        const bool has_queries = projects && !step.output.queries.empty();
        batch.calls = weights_.layers.data() + first_layer(stage_index) + begin;
        if (has_queries) batch.calls = &weights_.output;
        const bool is_empty = begin == n_layer && !projects;
        if (has_queries) step.space.shortlists_->upload(*stage.scratch, 0);
        const std::function<void()> answers = answers_of_part(stage_index, begin, end, step);
        std::optional<Answering> answering;
        bool is_repeated = false;
        do {
            is_repeated = !is_empty && backend.begin_step(*stage.scratch, batch);
            if (is_empty || is_repeated) break;
            if (answers && !answering) answering.emplace(*stage.shared, answers);
            if (embeds) backend.embed(*stage.scratch, weights_.embedding, tokens, stage.x);
            part(stage_index, begin, end, n, step);
            if (projects) {
                backend.norm(*stage.scratch, stage.x, n, weights_.output_norm, config_.norm_eps, stage.h);
                project(0, n, stage, logits_place(0, step));
                if (has_queries) make_shortlists(0, n, step.space);
            }
        } while (!backend.end_step(*stage.scratch));
        if (answering) {
            answering->finish();
        } else if (answers && is_repeated) {
            answers();
        }
        if (projects) fetch_output(0, n, step);
        if (end == n_layer) return;
        experts_elsewhere(stage_index, end, n, step);
        begin = end;
    }
}

void ForwardPass::compute(Step& step) const {
    StepSpace& space = step.space;
    auto n = static_cast<int64_t>(step.rows.size());
    for (size_t i = 0; i < step.rows.size(); ++i) {
        space.tokens_[i] = step.rows[i].token;
        for (size_t stage = 0; stage < stages_.size(); ++stage)
            space.stages_[stage].rows[i] = {step.rows[i].at.sequence + stage, step.rows[i].at.position};
    }
    const bool is_repeatable = !step.observer && step.n_wanted == n && n <= k_logit_rows;
    for (size_t s = 0; s < stages_.size(); ++s) {
        StageSpace& stage = space.stages_[s];
        if (s > 0) pass_on(n, space.stages_[s - 1], stage, space.passing_.data());
        if (is_repeatable) {
            repeatable_stage(s, step);
            continue;
        }
        if (s == 0)
            stage.backend->embed(*stage.scratch, weights_.embedding,
                                 std::span(space.tokens_).first(step.rows.size()), stage.x);
        n = layers(s, step);
    }
    if (is_repeatable || step.n_wanted == 0) return;
    if (step.n_wanted < n) keep_wanted_rows(step.rows, space.stages_.back());
    output(step.n_wanted, step);
}

void ForwardPass::step(std::span<const StepRow> rows, StepSpace& space, float* logits,
                       const CancelToken* cancel, const LayerObserver& observer) const {
    step(rows, space, StepOutput{logits, {}}, cancel, observer);
}

void ForwardPass::step(std::span<const StepRow> rows, StepSpace& space, const StepOutput& output,
                       const CancelToken* cancel, const LayerObserver& observer) const {
    if (std::ssize(rows) > space.n_rows_)
        fail_internal("a step of {} rows in space for {}", rows.size(), space.n_rows_);
    // A device works for some 60 us between two jobs of the host's threads: they would fall asleep in each layer.
    std::optional<ThreadPool::Awake> awake;
    if (host_beside_devices_ != nullptr && std::ssize(rows) <= k_most_awake_rows) {
        const ThreadPool* pool = host_beside_devices_->threads_for(std::ssize(rows));
        if (pool != nullptr) awake.emplace(*pool);
    }
    try {
        const auto n_wanted =
            std::count_if(rows.begin(), rows.end(), [](const StepRow& row) { return row.wants_logits; });
        if (!output.queries.empty() && (!space.keeps_logits() || std::ssize(output.queries) != n_wanted))
            fail_internal("{} top-k queries for {} rows of logits", output.queries.size(), n_wanted);
        if (!output.queries.empty()) space.shortlists_->ask(output.queries);
        space.n_wanted_ = n_wanted;
        space.first_logits_ = 0;
        Step step = {rows, space, output, cancel, observer, n_wanted};
        std::deque<ExpertPool::Step> pool_steps;
        for (size_t s = 0; s < stages_.size(); ++s) {
            if (space.stages_[s].shared == nullptr) continue;
            space.stages_[s].shared->begin();
            pool_steps.emplace_back(*pool_of(s));
        }
        compute(step);
        space.for_each_stream([](const auto& backend, auto& scratch) { backend.synchronize(scratch); });
        for (ExpertPool::Step& pool_step : pool_steps) pool_step.end(std::ssize(rows));
    } catch (...) {
        for (const StepSpace::StageSpace& stage : space.stages_)
            if (stage.shared != nullptr) stage.shared->give_up();
        // Nothing of this step may still be running when its pages and its space are used for something else.
        space.for_each_stream([](const auto& backend, auto& scratch) {
            try {
                backend.synchronize(scratch);
            } catch (const Error&) {  // that a device is lost is what is being reported, or comes up again
            }
        });
        throw;
    }
}

}  // namespace minim::model
