// SPDX-License-Identifier: Apache-2.0
#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/buffer.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "bytes_read.h"
#include "cpu/cpu_backend.h"
#include "model/minimax_m2.h"
#include "placement/devices.h"
#include "placement/measure.h"
#include "placement/rules.h"
#include "random_bytes.h"
#include "runtime/forward_pass.h"
#include "runtime/placement.h"
#include "runtime/step_space.h"

namespace minim::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The bytes that a measurement of the bandwidth reads, in about 50 ms.
constexpr uint64_t k_measured_bytes = uint64_t{512} << 20;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

placement::Threads make_threads(const Options& options, int32_t n_threads) {
    const Numa numa = options.numa == "split"        ? Numa::split
                      : options.numa == "interleave" ? Numa::interleave
                                                     : Numa::off;
    const Affinity affinity = options.pinned ? Affinity::pinned : Affinity::free;
    placement::Threads threads = placement::make_threads(
        {.n_threads = n_threads, .affinity = affinity, .numa = numa}, find_topology(), Logger());
    threads.memory = threads.memory.locked(options.locked);
    return threads;
}

weights::Expand expand_of(const Options& options) {
    if (options.expand == "off") return weights::Expand::off;
    return options.expand == "on" ? weights::Expand::on : weights::Expand::automatic;
}

}  // namespace

Bench::Bench(const Options& options, int32_t n_threads)
    : options_(options), threads_(make_threads(options, n_threads)), pool_(threads_.prompt) {
    const Clock::time_point start = Clock::now();
    open_model();
    load_seconds_ = seconds_since(start);
    open_references();
}

std::shared_ptr<const backend::Backend> Bench::open_device(const std::string& name) const {
    const auto arithmetic =
        options_.deterministic ? backend::Arithmetic::deterministic : backend::Arithmetic::fast;
    if (name == "cpu" && options_.prefetch != "auto")
        return cpu::make_cpu_backend(*threads_.prompt, *threads_.decode, active_cpu_level(), threads_.memory,
                                     options_.prefetch == "on" ? cpu::Prefetch::on : cpu::Prefetch::off);
    return placement::open_device(name, threads_, active_cpu_level(), arithmetic);
}

// On the host an operation is done when its call returns: timing it costs nothing.
placement::Machine Bench::open_devices(const placement::Request& request) {
    placement::Machine machine;
    for (const std::string& name : options_.devices) {
        machine.devices.push_back({.name = name});
        machine.backends.push_back(open_device(name));
    }
    const bool all_on_host =
        std::ranges::all_of(machine.backends, [](const auto& device) { return device->uses_host_memory(); });
    const auto timed = [&](std::shared_ptr<const backend::Backend> device) {
        if (!all_on_host && !options_.operations) return device;
        timed_.push_back(std::make_shared<TimedBackend>(std::move(device)));
        return std::shared_ptr<const backend::Backend>(timed_.back());
    };
    for (auto& device : machine.backends) device = timed(device);
    machine.backends.push_back(timed(open_device("cpu")));
    // Only steps of prompts copy experts, and the areas for that take room of the cache.
    if (std::ranges::any_of(options_.n_prompt, [](int64_t n) { return n > 0; }))
        machine.measure = [n_threads = threads_.decode->n_threads()](placement::Machine& measured,
                                                                     std::span<const weights::WeightSpec>) {
            return placement::measure_machine(measured, n_threads, active_cpu_level(), Logger());
        };
    if (!request.overrides) return machine;
    for (const placement::Override& item : placement::parse_overrides(*request.overrides)) {
        if (machine.place_of(item.device)) continue;
        machine.others[item.device] = std::ssize(machine.backends);
        machine.backends.push_back(timed(open_device(item.device)));
    }
    return machine;
}

model::Model::Place Bench::place() {
    placement::Request request = {.n_host_experts = options_.n_cpu_moe,
                                  .cache_bytes = options_.expert_cache,
                                  .caches_host_experts = options_.expert_cache > 0};
    for (const std::string& rules : options_.overrides)
        request.overrides = request.overrides ? *request.overrides + "," + rules : rules;
    return placement::place_on(open_devices(request), request);
}

void Bench::open_model() {
    const model::Model::Place place_model = place();
    if (options_.synthetic) {
        synthetic_ = make_synthetic(
            options_.shape, place_model,
            {.packs = !options_.mapped, .expand = expand_of(options_), .moves = options_.expert_moves});
        if (options_.routing) router_.emplace(*options_.routing, *synthetic_);
        placement_ = &synthetic_->placement;
        config_ = &synthetic_->config;
        weights_ = &synthetic_->weights;
        pools_ = synthetic_->pools;
    } else {
        model::OpenOptions open;
        open.prefault = options_.prefault;
        open.expand = expand_of(options_);
        open.packed_file = options_.packed_file;
        open.expert_moves = options_.expert_moves;
        const bool maps = options_.mapped || !options_.packed_file.empty();
        open.residence = maps ? checkpoint::HostStorage::mapped : checkpoint::HostStorage::owned;
        model_.emplace(options_.model, place_model, open, Logger());
        placement_ = &model_->placement();
        config_ = &model_->config();
        weights_ = &model_->weights();
        pools_ = model_->expert_pools();
    }
    forward_.emplace(placement_->stages(), model::architecture_of(*config_, *weights_), pools_);
}

void Bench::open_references() {
    for (const runtime::Shard& shard : placement_->shards()) {
        auto& own = device_bandwidth_.emplace_back();
        if (!shard.backend->uses_host_memory()) {
            own = std::make_unique<DeviceBandwidth>(*shard.backend);
        } else if (!host_bandwidth_) {
            host_bandwidth_.emplace(*pool_, k_measured_bytes);
        }
    }
}

// Returns the bandwidth of all devices together: they work one after another, each on its part of the bytes.
double Bench::measure_bandwidth() const {
    double seconds_a_byte = 0.0;
    const double all_bytes = active_bytes(*config_, *weights_, 1);
    for (size_t i = 0; i < placement_->shards().size(); ++i) {
        const double part = active_bytes(*config_, *weights_, 1, placement_->shards()[i]) / all_bytes;
        const auto& own = device_bandwidth_[i];
        seconds_a_byte += part / (own ? own->measure() : host_bandwidth_->measure());
    }
    return 1.0 / seconds_a_byte;
}

Result Bench::prompt(int64_t n, int64_t depth, int64_t n_ubatch) {
    Result result = new_result(fmt::format("pp{}", n), depth, n_ubatch);
    const double steps = std::ceil(static_cast<double>(n) / static_cast<double>(n_ubatch));
    result.bytes_per_token = weight_bytes(*weights_) * steps / static_cast<double>(n);
    const std::vector<kv::Sequence> texts = make_texts(1, depth + n);
    runtime::StepSpace space(placement_->stages(), model::shape_of(*config_), n_ubatch, depth + n);
    fill_depth(texts, space, depth, n_ubatch);
    read(texts[0], space, depth, n, n_ubatch);  // not measured
    repeat(result, n, [&] { read(texts[0], space, depth, n, n_ubatch); });
    return result;
}

Result Bench::generation(int64_t n, int64_t depth, int64_t n_ubatch, int64_t n_parallel) {
    Result result = new_result(fmt::format("tg{}", n), depth, n_ubatch);
    result.n_parallel = n_parallel;
    if (n_parallel > 1) result.test += fmt::format(" x{}", n_parallel);
    const int64_t middle = depth + n / 2;  // of the positions
    result.bytes_per_token = active_bytes(*config_, *weights_, n_parallel) / static_cast<double>(n_parallel) +
                             kv_bytes(kv_layout(), config_->sparse_attention, config_->n_layer, middle);
    const std::vector<kv::Sequence> texts = make_texts(n_parallel, depth + n);
    runtime::StepSpace space(placement_->stages(), model::shape_of(*config_), std::max(n_ubatch, n_parallel),
                             depth + n);
    fill_depth(texts, space, depth, n_ubatch);
    generate(texts, space, depth, std::min<int64_t>(n, 2));  // not measured
    repeat(result, n * n_parallel, [&] { generate(texts, space, depth, n); });
    return result;
}

std::vector<KernelTime> Bench::kernels(int64_t depth, int64_t n_parallel) {
    if (placement_->shards().size() > 1)
        fail(Status::unsupported, "--kernels with layers or experts on several devices");
    const std::vector<kv::Sequence> texts = make_texts(n_parallel, depth + 1);
    runtime::StepSpace space(placement_->stages(), model::shape_of(*config_), options_.n_ubatch.front(),
                             depth + 1);
    fill_depth(texts, space, depth, options_.n_ubatch.front());
    return time_kernels(*placement_->shards()[0].backend, *config_, *weights_, texts, depth);
}

std::optional<runtime::ExpertPoolState> Bench::cache_state() const {
    std::optional<runtime::ExpertPoolState> sum;
    for (const auto& pool : pools_) {
        if (pool == nullptr) continue;
        if (!sum) sum.emplace();
        const runtime::ExpertPoolState state = pool->state();
        sum->n_places += state.n_places;
        sum->n_hits += state.n_hits;
        sum->n_misses += state.n_misses;
        sum->n_moves += state.n_moves;
        sum->bytes += state.bytes;
        sum->moved_bytes += state.moved_bytes;
        sum->n_streamed += state.n_streamed;
        sum->streamed_bytes += state.streamed_bytes;
    }
    return sum;
}

backend::StepCounts Bench::step_counts() const {
    backend::StepCounts sum;
    for (const runtime::Shard& shard : placement_->shards()) {
        const backend::StepCounts counts = shard.backend->step_counts();
        sum.computed += counts.computed;
        sum.recorded += counts.recorded;
        sum.repeated += counts.repeated;
        sum.failed += counts.failed;
        if (counts.why_failed != nullptr) sum.why_failed = counts.why_failed;
    }
    return sum;
}

backend::KvLayout Bench::kv_layout() const {
    const Format format = *format_from_name(options_.kv);
    return backend::kv_layout_of(model::shape_of(*config_), config_->n_layer, format, format);
}

std::vector<kv::Sequence> Bench::make_texts(int64_t n, int64_t n_context) const {
    std::vector<kv::DeviceLayers> parts;
    for (const runtime::Stage& stage : placement_->stages()) parts.push_back({stage.backend, stage.n_layer});
    const auto pool = std::make_shared<kv::PagePool>(kv_layout(), std::move(parts));
    pool->keep_pages(n * kv::page_count(n_context));
    std::vector<kv::Sequence> texts;
    texts.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) texts.emplace_back(pool, n_context).hold(0, n_context);
    return texts;
}

// Fills the first `depth` positions of every sequence: evaluates tokens, or writes random K and V.
void Bench::fill_depth(const std::vector<kv::Sequence>& texts, runtime::StepSpace& space, int64_t depth,
                       int64_t n_ubatch) {
    if (depth == 0) return;
    if (!options_.synthetic_depth) {
        for (const kv::Sequence& text : texts) read(text, space, 0, depth, n_ubatch);
        return;
    }
    const kv::PagePool& pool = texts[0].pool();
    const Buffer page(static_cast<uint64_t>(pool.layout().page_bytes()), "a page of random K and V");
    RandomBytes().fill({page.data(), page.size()});
    const kv::Page& first = texts[0].page(0);
    pool.write(first, page.data());
    for (const kv::Sequence& text : texts)
        for (int64_t i = 0; i < text.n_pages(); ++i)
            if (&text.page(i) != &first) pool.copy(first, text.page(i));
}

Result Bench::new_result(const std::string& test, int64_t depth, int64_t n_ubatch) const {
    Result result;
    result.test = depth > 0 ? fmt::format("{} @ d{}", test, depth) : test;
    result.n_threads = pool_->n_threads();
    result.depth = depth;
    result.n_ubatch = n_ubatch;
    return result;
}

runtime::StepRow Bench::next_row(const kv::Sequence& text, int64_t position, bool wants_logits) {
    const int64_t token = (n_drawn_++ * 7919 + 13) % config_->n_vocab;
    return {static_cast<int32_t>(token), {&text.view(), position}, wants_logits};
}

// Evaluates tokens first .. first + count - 1 of the text, in steps of at most n_step rows.
void Bench::read(const kv::Sequence& text, runtime::StepSpace& space, int64_t first, int64_t count,
                 int64_t n_step) {
    std::vector<runtime::StepRow> rows;
    for (int64_t done = 0; done < count; done += static_cast<int64_t>(rows.size())) {
        rows.resize(static_cast<size_t>(std::min(n_step, count - done)));
        for (size_t i = 0; i < rows.size(); ++i) {
            const int64_t position = first + done + static_cast<int64_t>(i);
            rows[i] = next_row(text, position, i + 1 == rows.size());
        }
        step(rows, space, 1);
    }
}

// Evaluates one token of every text in each step.
void Bench::generate(const std::vector<kv::Sequence>& texts, runtime::StepSpace& space, int64_t first,
                     int64_t count) {
    std::vector<runtime::StepRow> rows(texts.size());
    for (int64_t position = first; position < first + count; ++position) {
        for (size_t i = 0; i < texts.size(); ++i) rows[i] = next_row(texts[i], position, true);
        step(rows, space, std::ssize(texts));
    }
}

// Takes the likeliest token of each row that wants logits, as the engine does: if the device can report it, the rows
// stay on the device.
void Bench::step(std::span<const runtime::StepRow> rows, runtime::StepSpace& space, int64_t n_wanted) {
    if (router_) router_->advance(std::ssize(rows));
    queries_.clear();
    if (space.keeps_logits()) {
        queries_.resize(static_cast<size_t>(n_wanted));
        for (TopKQuery& query : queries_) query.n_candidates = 1;
    } else {
        logits_.resize(static_cast<size_t>(n_wanted * config_->n_vocab));
    }
    forward_->step(rows, space, {queries_.empty() ? logits_.data() : nullptr, queries_}, nullptr);
}

// Times `work`, which evaluates n_tokens tokens.
template <typename Work>
void Bench::repeat(Result& result, int64_t n_tokens, const Work& work) {
    if (!timed_.empty()) result.seconds.emplace().fill(0.0);
    const std::optional<runtime::ExpertPoolState> before = cache_state();
    for (int i = 0; i < options_.repetitions; ++i) {
        result.bandwidth.push_back(measure_bandwidth());
        for (const auto& timed : timed_) timed->seconds().fill(0.0);
        const Clock::time_point start = Clock::now();
        work();
        const double seconds = seconds_since(start);
        result.bandwidth.push_back(measure_bandwidth());
        result.tokens_per_second.push_back(static_cast<double>(n_tokens) / seconds);
        result.total_seconds += seconds;
        for (const auto& timed : timed_)
            for (size_t k = 0; k < k_operation_count; ++k) (*result.seconds)[k] += timed->seconds()[k];
    }
    result.cache = cache_state();
    if (!before) return;
    result.cache->n_hits -= before->n_hits;
    result.cache->n_misses -= before->n_misses;
    result.cache->n_moves -= before->n_moves;
    result.cache->moved_bytes -= before->moved_bytes;
    result.cache->n_streamed -= before->n_streamed;
    result.cache->streamed_bytes -= before->streamed_bytes;
}

}  // namespace minim::bench
