// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_memory.h"
#include "engine/session.h"
#include "handles.h"
#include "kv_format.h"
#include "model/bind.h"
#include "model/expert_profile.h"
#include "placement/devices.h"
#include "placement/follow.h"
#include "placement/place.h"
#include "placement/ranks.h"
#include "runtime/expert_pool.h"
#include "runtime/step_space.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

std::optional<checkpoint::HostStorage> residence_of(int32_t residence) {
    if (residence == MINIM_RESIDENCE_AUTO) return std::nullopt;
    if (residence == MINIM_RESIDENCE_MAPPED) return checkpoint::HostStorage::mapped;
    if (residence == MINIM_RESIDENCE_OWNED) return checkpoint::HostStorage::owned;
    fail(Status::invalid, "`residence` is {}; auto (0), mapped (1) and owned (2) are known", residence);
}

uint64_t weight_bytes(const checkpoint::Checkpoint& checkpoint) {
    uint64_t total = 0;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) total += tensor.bytes;
    return total;
}

// Returns the index of a device in `devices`, or -1. A device with another arithmetic has it behind its name: "cuda:0 (exact)".
int32_t place_among(std::span<const placement::DeviceBudget> devices, std::string_view device) noexcept {
    const std::string_view name = device.substr(0, device.find(' '));
    const auto found = std::ranges::find(devices, name, &placement::DeviceBudget::name);
    return found == devices.end() ? -1 : static_cast<int32_t>(found - devices.begin());
}

weights::Expand expand_of(int32_t expand) {
    if (expand == MINIM_EXPAND_AUTO) return weights::Expand::automatic;
    if (expand == MINIM_EXPAND_OFF) return weights::Expand::off;
    if (expand == MINIM_EXPAND_ON) return weights::Expand::on;
    fail(Status::invalid, "expand is {}; auto (0), off (1) and on (2) are known", expand);
}

// Returns a text that may be left out, but not be empty.
std::string given_text(const char* text, const char* name) {
    if (text == nullptr) return {};
    if (*text == '\0') fail(Status::invalid, "{} is empty", name);
    return text;
}

// Returns how experts move between host and devices; without a wish reproducibly, or not at all if the model is deterministic.
runtime::ExpertMoves moves_of(int32_t moves, bool is_deterministic) {
    using runtime::ExpertMoves;
    if (moves == MINIM_EXPERT_MOVES_AUTO)
        return is_deterministic ? ExpertMoves::fixed : ExpertMoves::reproducible;
    if (moves == MINIM_EXPERT_MOVES_FIXED) return ExpertMoves::fixed;
    if (moves != MINIM_EXPERT_MOVES_REPRODUCIBLE && moves != MINIM_EXPERT_MOVES_EAGER)
        fail(Status::invalid,
             "expert_moves is {}; auto (0), fixed (1), reproducible (2) and eager (3) are known", moves);
    const bool is_eager = moves == MINIM_EXPERT_MOVES_EAGER;
    if (is_deterministic)
        fail(Status::invalid,
             "expert_moves is {}, but the model is deterministic, which needs fixed: if experts move, the "
             "result for a text depends on earlier texts",
             is_eager ? "eager" : "reproducible");
    return is_eager ? ExpertMoves::eager : ExpertMoves::reproducible;
}

static_assert(MINIM_EXPERT_CACHE_ROOM == placement::k_cache_all_room);

placement::ParallelRequest parallel_of(const minim_model_params& p) {
    return {p.tensor_parallel, p.expert_parallel, p.pipeline_parallel};
}

// Returns the request for the placement of a model. `wanted`: the devices that the caller names; may be empty.
placement::Request request_of(const minim_model_params& p, std::span<const placement::DeviceBudget> wanted) {
    if (p.n_device_layers < 0) fail(Status::invalid, "n_device_layers is {}", p.n_device_layers);
    if (p.split == nullptr && p.n_split > 0) fail(Status::invalid, "argument split is NULL");
    if (p.budgets == nullptr && p.n_budgets > 0) fail(Status::invalid, "argument budgets is NULL");
    if (p.fit_context < 0) fail(Status::invalid, "fit_context is {}", p.fit_context);
    if (p.fit_n_ubatch < 0) fail(Status::invalid, "fit_n_ubatch is {}", p.fit_n_ubatch);
    constexpr int64_t k_max_requests = 65536;
    if (p.fit_requests < 0 || p.fit_requests > k_max_requests)
        fail(Status::invalid, "fit_requests is {}; 0 to {} are possible", p.fit_requests, k_max_requests);
    placement::Request request;
    request.host = optional_text(p.backend);
    request.locks_memory = flag(p.lock, "lock");
    request.is_deterministic = flag(p.deterministic, "deterministic");
    request.may_be_missing = flag(p.allow_cpu, "allow_cpu");
    request.cache_bytes = p.expert_cache_bytes;
    request.caches_host_experts = p.expert_cache_bytes > 0;
    request.budgets = {p.budgets, p.budgets + p.n_budgets};
    request.shares = {p.split, p.split + p.n_split};
    if (p.n_device_layers > 0) request.n_device_layers = p.n_device_layers;
    if (p.overrides != nullptr) request.overrides = p.overrides;
    request.n_host_experts = p.n_host_experts;
    request.n_context = p.fit_context;
    request.n_rows = std::min<int64_t>(p.fit_n_ubatch, runtime::k_max_step_rows);
    request.n_sequences = std::max<int64_t>(p.fit_requests, 1);
    request.for_engine = p.fit_requests > 0;
    request.parallel = parallel_of(p);
    if (p.devices == nullptr) return request;
    request.devices.emplace(wanted.begin(), wanted.end());
    request.k_format = kv_format(p.fit_k_format, "fit_k_format").value_or(backend::k_default_kv_format);
    request.v_format = kv_format(p.fit_v_format, "fit_v_format").value_or(backend::k_default_kv_format);
    const bool places_experts =
        p.overrides != nullptr || p.n_host_experts != 0 || p.fit_context > 0 || p.expert_cache_bytes > 0;
    if (!places_experts) request.cache_bytes = placement::k_cache_all_room;
    return request;
}

// Returns how the ranks of a model are opened.
placement::RankOptions rank_options(const minim_model_params& p, const placement::Request& request,
                                    const placement::Machine& machine, const Logger& log) {
    if (p.rank_timeout_ms < 0) fail(Status::invalid, "rank_timeout_ms is {}", p.rank_timeout_ms);
    placement::RankOptions ranks = {
        .request = request.parallel, .devices = placement::rank_devices(request, machine), .log = &log};
    if (p.rank_timeout_ms > 0) ranks.timeout = std::chrono::milliseconds(p.rank_timeout_ms);
    ranks.version = minim_version();
    ranks.options = format_text("deterministic {}, expand {}, backend {}", p.deterministic, p.expand,
                                optional_text(p.backend));
    return ranks;
}

constexpr uint32_t k_first_params = offsetof(minim_model_params, devices);
constexpr uint32_t k_first_memory = offsetof(minim_device_memory, n_expert_layers);
constexpr uint32_t k_first_info = offsetof(minim_model_info, placement);

// Opens path(). Calls path() only after it has checked the other arguments.
template <typename Path>
minim_status open_model(minim_runtime* runtime, const Path& path, const minim_model_params* params,
                        minim_cancel* cancel, minim_model** out, minim_error* err) {
    std::vector<placement::DeviceBudget> wanted;
    const auto index_of = [&](std::string_view device) { return place_among(wanted, device); };
    return guard(err, index_of, [&] {
        required(out, "out") = nullptr;
        const std::shared_ptr<Runtime> shared = required(runtime, "runtime").runtime;
        shared->require_threads();
        const minim_model_params p = params_of(params, "minim_model_params", k_first_params);
        if (p.devices != nullptr) wanted = placement::wanted_devices(p.devices, shared->cpu_level);
        if (optional_text(p.devices) == "auto")
            wanted = placement::devices_for(parallel_of(p), std::move(wanted));
        model::OpenOptions options;
        options.residence = residence_of(p.residence);
        options.cancel = token_of(cancel);
        options.text.engine_tokenizer = flag(p.engine_tokenizer, "engine_tokenizer");
        options.prefault = flag(p.prefault, "prefault");
        options.expand = expand_of(p.expand);
        options.packed_file = given_text(p.packed_file, "packed_file");
        if (p.progress != nullptr) {
            options.progress = [&p](uint64_t done, uint64_t total) {
                return p.progress(p.progress_user_data, done, total) == 0;
            };
        }
        options.expert_moves = moves_of(p.expert_moves, p.deterministic != 0);
        options.expert_profile = optional_text(p.expert_profile);
        options.text.chat_template = given_text(p.chat_template, "chat_template");
        // The runtime outlives its models (OpenModel), and so does its log.
        placement::Request request = request_of(p, wanted);
        placement::Machine machine =
            placement::open_machine(request, shared->threads, shared->cpu_level, shared->log);
        const auto& host = machine.backends[machine.host_place()];
        options.loader = {host, host->host()};
        const std::string file = path();
        const model::Model::Place place =
            placement::asks_for_ranks(request.parallel)
                ? placement::place_on_ranks(rank_options(p, request, machine, shared->log), options)
                : placement::place_on(std::move(machine), std::move(request), &shared->log);
        auto model = std::make_shared<const model::Model>(file, place, options, shared->log);
        std::string text = placement::placement_text(*model);
        shared->log.info("{}: {}", file, text);
        *out = new minim_model{.open = {shared, std::move(model)}, .placement = std::move(text)};
    });
}

}  // namespace

minim_status minim_model_open(minim_runtime* runtime, const char* path, const minim_model_params* params,
                              minim_cancel* cancel, minim_model** out, minim_error* err) {
    const auto given = [&] { return std::string(&required(path, "path")); };
    return open_model(runtime, given, params, cancel, out, err);
}

minim_status minim_model_open_fd(minim_runtime* runtime, int32_t descriptor, const minim_model_params* params,
                                 minim_cancel* cancel, minim_model** out, minim_error* err) {
    const auto given = [&] { return descriptor_argument(descriptor); };
    return open_model(runtime, given, params, cancel, out, err);
}

void minim_model_close(minim_model* model) {
    delete model;
}

minim_status minim_model_follow(minim_model* model, minim_error* err) {
    return guard(err, [&] {
        const OpenModel open = required(model, "model").open;  // another thread may close the model meanwhile
        open.runtime->require_threads();
        open.model->net().require();
        if (open.model->process() > 0 && model->has_followed.exchange(true))
            fail(Status::invalid, "minim_model_follow has been called before: a model follows once");
        placement::follow(*open.model);
    });
}

minim_status minim_model_check(const minim_model* model, minim_error* err) {
    return guard(err, [&] { required(model, "model").model().net().require(); });
}

minim_status minim_model_get_info(const minim_model* model, minim_model_info* out, minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        const model::Config& config = m.config();
        minim_model_info info{};
        info.n_layer = static_cast<int32_t>(config.n_layer);
        info.hidden = config.hidden;
        info.n_head = static_cast<int32_t>(config.n_head);
        info.n_head_kv = static_cast<int32_t>(config.n_head_kv);
        info.head_dim = static_cast<int32_t>(config.head_dim);
        info.rotary_dim = static_cast<int32_t>(config.rotary_dim);
        info.n_expert = static_cast<int32_t>(config.n_expert);
        info.n_expert_used = static_cast<int32_t>(config.n_expert_used);
        info.expert_ff = config.expert_ff;
        info.n_vocab = config.n_vocab;
        info.n_context_train = config.n_context_train;
        info.n_parameters = model::parameter_count(m.weight_specs());
        info.weight_bytes = weight_bytes(m.checkpoint());
        const backend::KvLayout layout = engine::kv_layout(config, Format::f16, Format::f16);
        info.kv_token_bytes_f16 = static_cast<uint64_t>(layout.page_bytes() / backend::k_kv_page_tokens);
        info.rope_theta = config.rope_theta;
        info.name = config.name.c_str();
        info.backend = m.backend().name().data();
        info.placement = model->placement.c_str();
        info.process = m.process();
        info.n_processes = m.net().processes ? m.net().processes->size() : 1;
        info.n_ranks = info.n_processes * std::max<int32_t>(1, static_cast<int32_t>(m.net().links.size()));
        result_to(out, "minim_model_info", info, k_first_info);
    });
}

size_t minim_model_device_count(const minim_model* model) {
    return model == nullptr ? 0 : model->model().placement().shards().size();
}

minim_status minim_model_device_memory(const minim_model* model, size_t index, minim_device_memory* out,
                                       minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        const std::span<const runtime::Shard> shards = m.placement().shards();
        if (index >= shards.size()) fail(Status::invalid, "device {} of {}", index, shards.size());
        const runtime::Shard& shard = shards[index];
        const backend::Backend& backend = *shard.backend;
        const weights::WeightBytes& weights = m.weight_bytes()[index];
        const backend::MemoryState memory = backend.memory();
        const model::Config& config = m.config();
        minim_device_memory info{};
        info.first_layer = static_cast<int32_t>(shard.first_layer);
        info.n_layer = static_cast<int32_t>(shard.n_layer);
        info.weights_mapped = weights.is_mapped ? 1 : 0;
        info.weight_bytes = weights.total;
        info.expert_bytes = weights.experts;
        info.kv_bytes = memory.used(backend::MemoryUse::kv);
        info.work_bytes = memory.used(backend::MemoryUse::work);
        info.free_bytes = memory.free_bytes;
        info.name = backend.name().data();
        info.kept_bytes = memory.kept_bytes;
        if (weights.is_locked) info.locked_bytes = info.weight_bytes + info.kv_bytes;
        if (memory.budget_bytes != backend::k_no_budget) info.budget_bytes = memory.budget_bytes;
        info.n_expert_layers = static_cast<int64_t>(shard.expert_layers.size());
        info.token_in_bytes = shard.in.bytes(config.hidden, config.n_expert_used);
        info.token_out_bytes = shard.out.bytes(config.hidden, config.n_expert_used);
        result_to(out, "minim_device_memory", info, k_first_memory);
    });
}

minim_status minim_model_expert_cache(const minim_model* model, size_t index, minim_expert_cache* out,
                                      minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        const size_t n = m.placement().shards().size();
        if (index >= n) fail(Status::invalid, "device {} of {}", index, n);
        minim_expert_cache info{};
        // The shards of the stages come first, in the same order as their caches.
        const bool has_cache = index < m.expert_pools().size() && m.expert_pools()[index] != nullptr;
        if (has_cache) {
            const runtime::ExpertPoolState state = m.expert_pools()[index]->state();
            info.n_places = state.n_places;
            info.n_hits = state.n_hits;
            info.n_misses = state.n_misses;
            info.n_moves = state.n_moves;
            info.bytes = state.bytes;
            info.moved_bytes = state.moved_bytes;
        }
        result_to(out, "minim_expert_cache", info);
    });
}

minim_status minim_model_save_expert_profile(const minim_model* model, const char* path, minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        model::write_expert_profile(&required(path, "path"), m);
    });
}

namespace {

minim_node_memory& entry_of(std::vector<minim_node_memory>& nodes, int32_t number) {
    const auto found = std::ranges::find(nodes, number, &minim_node_memory::node);
    if (found != nodes.end()) return *found;
    minim_node_memory& added = nodes.emplace_back();
    added.node = number;
    return added;
}

// Adds the bytes of a block to the node on which it was placed. The bytes of an interleaved block are divided among all nodes.
void add_wanted(const model::WeightBlock& block, const NumaPlan& plan,
                std::vector<minim_node_memory>& nodes) {
    const std::vector<int32_t> numbers = plan.node_numbers();
    for (size_t i = 0; i < numbers.size(); ++i) {
        minim_node_memory& node = entry_of(nodes, numbers[i]);
        if (block.node < 0) node.wanted_bytes += block.bytes.size() / numbers.size();
        if (block.node == static_cast<int32_t>(i)) node.wanted_bytes += block.bytes.size();
    }
}

std::vector<minim_node_memory> nodes_of(const model::Model& model, const placement::Threads& threads) {
    std::vector<minim_node_memory> nodes;
    const NumaPlan& plan = *threads.memory.plan();
    const std::vector<int32_t> numbers = plan.node_numbers();
    for (size_t i = 0; i < numbers.size(); ++i) {
        minim_node_memory& node = entry_of(nodes, numbers[i]);
        if (plan.mode == Numa::off || threads.prompt->is_hosts()) continue;
        node.n_threads = threads.prompt->n_threads_of(static_cast<int32_t>(i));
        node.n_threads_decode = threads.decode->n_threads_of(static_cast<int32_t>(i));
    }
    const backend::HostDevice* host = model.host_backend();
    if (host == nullptr) return nodes;
    std::vector<std::span<const std::byte>> blocks;
    for (const model::WeightBlock& block : model.host_blocks()) {
        blocks.push_back(block.bytes);
        if (block.is_placed && host->host_memory().is_placed()) add_wanted(block, plan, nodes);
    }
    for (const auto& [number, bytes] : host->host_memory().bytes_on_nodes(blocks))
        entry_of(nodes, number).weight_bytes += bytes;
    return nodes;
}

}  // namespace

minim_status minim_model_nodes(const minim_model* model, minim_node_memory* out, size_t capacity,
                               size_t* count, minim_error* err) {
    return guard(err, [&] {
        const OpenModel& open = required(model, "model").open;
        if (out == nullptr && capacity > 0) fail(Status::invalid, "argument out is NULL");
        const std::vector<minim_node_memory> nodes = nodes_of(*open.model, open.runtime->threads);
        for (size_t i = 0; i < std::min(capacity, nodes.size()); ++i)
            result_to(out + i, "minim_node_memory", nodes[i]);
        required(count, "count") = nodes.size();
    });
}

minim_status minim_model_layer_devices(const minim_model* model, int32_t layer, minim_layer_devices* out,
                                       minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        if (layer < 0 || layer >= m.config().n_layer)
            fail(Status::invalid, "layer {} of {}", layer, m.config().n_layer);
        minim_layer_devices info{};
        info.device = static_cast<int32_t>(m.placement().device_of(layer));
        info.experts = static_cast<int32_t>(m.placement().experts_of(layer));
        result_to(out, "minim_layer_devices", info);
    });
}

minim_status minim_model_checkpoint(const minim_model* model, minim_checkpoint** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const OpenModel& open = required(model, "model").open;
        // The checkpoint lives inside the model: share the model's ownership.
        *out = new minim_checkpoint{open.runtime, {open.model, &open.model->checkpoint()}};
    });
}
