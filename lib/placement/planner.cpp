// SPDX-License-Identifier: Apache-2.0
// One long file: each decision (layers, experts, caches, rows, context) depends on the bytes that the earlier ones have left.
#include "placement/planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "backend/experts.h"
#include "backend/kv_view.h"
#include "base/error.h"
#include "kv/page_pool.h"
#include "placement/predict.h"
#include "placement/unified.h"
#include "runtime/step_space.h"
#include "runtime/stream_rule.h"

namespace minim::placement {
namespace {

// Limits for the rows of a prompt step if the plan chooses their number. More rows share each copy of an expert but need more
// work space. They must leave decoding at least k_min_decode_part of its speed, and make prompts k_min_prompt_gain times as
// fast.
constexpr int64_t k_max_ubatch = 8192;
constexpr double k_min_decode_part = 0.99;
constexpr double k_min_prompt_gain = 1.05;

bool has_all_rates(const Machine& machine) {
    return machine.host.bytes_per_second > 0.0 &&
           std::ranges::all_of(machine.devices,
                               [](const DeviceFacts& device) { return device.bytes_per_second > 0.0; });
}

// Returns 768 for 512, 1,024 for 768, 1,536 for 1,024, and so on.
int64_t next_ubatch(int64_t n_ubatch) {
    const bool is_power_of_2 = (n_ubatch & (n_ubatch - 1)) == 0;
    return is_power_of_2 ? n_ubatch / 2 * 3 : n_ubatch / 3 * 4;
}

}  // namespace

std::vector<int64_t> split_layers(int64_t n_layer, std::span<const double> shares) {
    double total = 0.0;
    for (const double share : shares) {
        if (!(share >= 0.0) || !std::isfinite(share))
            fail(Status::invalid, "a device's share of the layers is {}; shares are numbers from 0 on",
                 share);
        total += share;
    }
    if (!(total > 0.0) || !std::isfinite(total))
        fail(Status::invalid, "the devices' shares of the layers add up to {}", total);
    // Each device ends with the layer whose end is nearest to the exact end of its share. The exact end is computed
    // from the sum of all shares up to its own, so that rounding errors do not add up.
    std::vector<int64_t> counts;
    double sum = 0.0;
    int64_t end = 0;
    for (const double share : shares) {
        sum += share;
        const double wanted = sum / total * static_cast<double>(n_layer);
        const int64_t first = end;
        while (end < n_layer && static_cast<double>(end + 1) - wanted <= wanted - static_cast<double>(end))
            ++end;
        counts.push_back(end - first);
    }
    return counts;
}

bool has_cache(const Plan& plan) {
    return std::ranges::any_of(plan.cached_part, [](double part) { return part > 0.0; });
}

Planner::Planner(Request request, const Machine& machine, const ModelBytes& bytes, const Rules& rules)
    : request_(std::move(request)),
      machine_(machine),
      bytes_(bytes),
      rules_(rules),
      n_layer_(bytes.config.n_layer),
      n_step_rows_(request_.n_rows > 0 ? request_.n_rows : runtime::k_default_step_rows),
      rates_are_known_(has_all_rates(machine)),
      is_unified_(machine.is_unified()) {
    for (int64_t place = 0; place <= machine.host_place(); ++place) {
        const bool is_unchecked = machine.is_open() && !request_.needs_room();
        work_.push_back(
            is_unchecked ? 0 : work_bytes(bytes, machine, place, may_cache(), n_rows(), request_.n_context));
    }
    const int64_t n_pages = request_.n_kv_tokens > 0
                                ? kv::page_count(request_.n_kv_tokens)
                                : kv::page_count(request_.n_context) * request_.n_sequences;
    n_kv_tokens_ = n_pages * backend::k_kv_page_tokens;
    for (int64_t layer = 0; layer < n_layer_; ++layer)
        layer_kv_.push_back(kv_bytes(bytes.config, request_, layer, n_kv_tokens_));
    kv_reads_ = kv_read_bytes(bytes.config, request_, request_.n_context);
}

int64_t Planner::n_rows() const {
    return std::min(n_step_rows_, request_.n_context);
}

// ---- room ----

bool Planner::may_cache() const {
    return request_.cache_bytes > 0 && !is_unified_;
}

uint64_t Planner::capacity(int64_t device) const {
    const uint64_t memory = machine_.devices[device].memory_bytes;
    uint64_t taken = work_[device];
    if (is_unified_) taken += work_[machine_.host_place()];
    if (!machine_.is_open()) taken += is_unified_ ? unified_reserve_of(memory) : reserve_of(memory);
    return memory > taken ? memory - taken : 0;
}

uint64_t Planner::used_beside(const Plan& plan, int64_t device) const {
    return used(plan.places[device]) + (is_unified_ ? used(plan.host()) : 0);
}

uint64_t Planner::room_on(const Plan& plan, int64_t device) const {
    const uint64_t all = used_beside(plan, device);
    return capacity(device) > all ? capacity(device) - all : 0;
}

uint64_t Planner::overflow(const Plan& plan) const {
    uint64_t over = 0;
    for (int64_t d = 0; d < machine_.host_place(); ++d)
        if (used_beside(plan, d) > capacity(d)) over += used_beside(plan, d) - capacity(d);
    return over;
}

uint64_t Planner::host_overflow(const Plan& plan) const {
    if (is_unified_) return 0;  // a part of overflow()
    const uint64_t room = machine_.host.memory_bytes - reserve_of(machine_.host.memory_bytes);
    const uint64_t all = used(plan.host()) + plan.host().work_bytes;
    return all > room ? all - room : 0;
}

kv::Fit Planner::fit(const Plan& plan) const {
    using kv::Fit;
    const uint64_t memory = machine_.host.memory_bytes;
    const PlannedPlace& host = plan.host();
    if (overflow(plan) > 0) return Fit::no;
    if (!is_unified_ && host.kv_bytes + host.work_bytes > memory - reserve_of(memory)) return Fit::no;
    if (host.kv_bytes > 0 && host_overflow(plan) > 0) return Fit::yes;  // weights are mapped
    const bool gives_up_layers =
        request_.n_device_layers < 0 && !machine_.devices.empty() && host.n_layers > 0;
    bool is_whole = !gives_up_layers && !has_cache(plan);
    for (int64_t l = 0; l < n_layer_; ++l)
        if (!ruled(l) && plan.expert_place[l] != plan.layer_place[l]) is_whole = false;
    if (is_whole) return Fit::nothing;
    uint64_t kv = 0;
    uint64_t experts = 0;
    for (const PlannedPlace& device : plan.devices()) {
        kv += device.kv_bytes;
        experts += device.expert_bytes;
    }
    return experts >= kv && !gives_up_layers ? Fit::beside : Fit::yes;
}

// ---- layers ----

Planner::Counts Planner::counts_of_shares() const {
    const double sum = std::accumulate(request_.shares.begin(), request_.shares.end(), 0.0);
    const bool are_counts = sum == static_cast<double>(n_layer_) &&
                            std::ranges::all_of(request_.shares, [](double s) { return s == std::floor(s); });
    const bool is_part = request_.n_device_layers >= 0 && request_.n_device_layers < n_layer_;
    if (!are_counts || is_part)
        return split_layers(is_part ? request_.n_device_layers : n_layer_, request_.shares);
    Counts counts;
    for (const double share : request_.shares) counts.push_back(static_cast<int64_t>(share));
    return counts;
}

// Returns layers in proportion to the free memory.
Planner::Counts Planner::proportional(int64_t n_on_devices) const {
    std::vector<double> room;
    for (int64_t d = 0; d < machine_.host_place(); ++d)
        room.push_back(static_cast<double>(std::max<uint64_t>(capacity(d), 1)));
    return split_layers(n_on_devices, room);
}

// The order of plans: those that fit, then those without caches, then by decode speed, then by even use of devices.
auto Planner::rank(const Plan& plan) const {
    double imbalance = 0.0;
    for (int64_t d = 0; d < machine_.host_place(); ++d) {
        // Least where each device's part is in proportion to its room.
        const auto bytes = static_cast<double>(used(plan.places[d]));
        imbalance += bytes * (bytes / static_cast<double>(std::max<uint64_t>(capacity(d), 1)));
    }
    // Handing over costs a few microseconds, for which no device stays empty.
    const double seconds = plan.decode_seconds.total() - plan.decode_seconds.hand_over;
    // In picoseconds: rounding errors of sums must not move a layer.
    return std::tuple(overflow(plan), host_overflow(plan), has_cache(plan), std::llround(seconds * 1e9),
                      imbalance);
}

// Moves layers from one device to another as long as that improves the plan.
Plan Planner::improved(Plan best, Counts counts) const {
    for (bool moved = true; moved;) {
        moved = false;
        for (const int64_t step : {int64_t{8}, int64_t{2}, int64_t{1}}) {
            for (size_t from = 0; from < counts.size(); ++from) {
                for (size_t to = 0; to < counts.size(); ++to) {
                    if (from == to || counts[from] < step) continue;
                    Counts other = counts;
                    other[from] -= step;
                    other[to] += step;
                    Plan plan = filled(other);
                    if (rank(plan) >= rank(best)) continue;
                    best = std::move(plan);
                    counts = std::move(other);
                    moved = true;
                }
            }
        }
    }
    return best;
}

// Puts all layers on devices if there is room for attention and KV cache, else as many as fit. A model that is opened has the layers on
// devices that the request says.
Plan Planner::search() const {
    if (machine_.devices.empty()) return filled({});
    const int64_t wanted = request_.n_device_layers;
    // Fewer layers on a device that shares the host's memory would leave no more room.
    const bool is_fixed = machine_.is_open() || wanted >= 0 || request_.overrides || is_unified_;
    int64_t n_on_devices = wanted >= 0 ? std::min(wanted, n_layer_) : n_layer_;
    while (true) {
        const Counts counts = proportional(n_on_devices);
        Plan plan = improved(filled(counts), counts);
        if (overflow(plan) == 0 || n_on_devices == 0 || is_fixed) return plan;
        --n_on_devices;
    }
}

Plan Planner::place() const {
    return request_.shares.empty() ? search() : filled(counts_of_shares());
}

Plan Planner::place_with_best_rows() const {
    Plan best = place();
    if (request_.n_rows > 0 || !has_cache(best) || !best.fits || !rates_are_known_) return best;
    const double least_decode = k_min_decode_part * best.decode_tokens_per_second;
    Request larger = request_;
    larger.n_rows = n_step_rows_;
    while (larger.n_rows < std::min(k_max_ubatch, request_.n_context)) {
        larger.n_rows = next_ubatch(larger.n_rows);
        Plan plan = with(larger).place();
        if (!plan.fits || plan.decode_tokens_per_second < least_decode) break;
        if (plan.prompt_tokens_per_second < k_min_prompt_gain * best.prompt_tokens_per_second) continue;
        best = std::move(plan);
    }
    return best;
}

// ---- experts and caches ----

// Returns where a rule places the experts of a layer, or the size of a cache for which no room is checked: it is for all experts.
std::optional<int64_t> Planner::ruled(int64_t layer) const {
    if (!rules_.experts[layer] && may_cache() && !request_.needs_room()) return machine_.host_place();
    return rules_.experts[layer];
}

// Places the experts as the rules say, the others as the request says. If the host has no room for all of a device that has a cache, the
// experts of the last layers are only on the device.
Plan Planner::filled(const Counts& counts) const {
    Plan plan = filled(counts, may_cache());
    if (!may_cache() || !request_.needs_room() || host_overflow(plan) == 0) return plan;
    return filled(counts, false);
}

Plan Planner::filled(const Counts& counts, bool may_cache) const {
    const int64_t host = machine_.host_place();
    Plan plan;
    plan.layer_place.assign(n_layer_, host);
    plan.expert_place.assign(n_layer_, host);
    plan.cached_part.assign(n_layer_, 0.0);
    int64_t layer = n_layer_ - std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (int64_t d = 0; d < std::ssize(counts); ++d)
        for (int64_t i = 0; i < counts[d]; ++i) plan.layer_place[layer++] = d;
    for (const DeviceFacts& device : machine_.devices) plan.places.push_back({.name = device.name});
    plan.places.push_back({.name = "cpu"});
    for (int64_t place = 0; place <= host; ++place) plan.places[place].work_bytes = work_[place];
    add_dense(plan);
    for (int64_t l = 0; l < n_layer_; ++l) {
        if (!has_experts(l)) {
            plan.expert_place[l] = plan.layer_place[l];
        } else if (const auto place = ruled(l)) {
            add_experts(plan, l, *place);
        }
    }
    std::vector<std::vector<int64_t>> sharing;  // by device: the layers whose experts a cache is for
    for (int64_t place = 0; place <= host; ++place)
        sharing.push_back(add_free_experts(plan, place, may_cache && place != host));
    if (may_cache) add_caches(plan, sharing);
    finish(plan);
    return plan;
}

void Planner::add_dense(Plan& plan) const {
    for (int64_t l = 0; l < n_layer_; ++l) {
        PlannedPlace& there = plan.places[plan.layer_place[l]];
        there.dense_bytes += bytes_.layers[l].dense;
        there.kv_bytes += layer_kv_[l];
        ++there.n_layers;
    }
    plan.places[plan.layer_place.front()].dense_bytes += bytes_.embedding;
    plan.places[plan.layer_place.back()].dense_bytes += bytes_.head;
}

// A device that only rules name is not in the plan.
void Planner::add_experts(Plan& plan, int64_t layer, int64_t place) const {
    plan.expert_place[layer] = place;
    if (place >= std::ssize(plan.places)) return;
    plan.places[place].expert_bytes += bytes_.layers[layer].experts;
    plan.places[place].n_experts += bytes_.layers[layer].n_experts;
}

// Places the experts that no rule places, of the layers of a place. Returns the layers whose experts its cache is for.
std::vector<int64_t> Planner::add_free_experts(Plan& plan, int64_t place, bool may_cache) const {
    const int64_t host = machine_.host_place();
    std::vector<int64_t> layers;
    std::vector<int64_t> sharing;
    uint64_t bytes = 0;
    for (int64_t l = n_layer_ - 1; l >= 0; --l) {
        if (plan.layer_place[l] != place || !has_experts(l)) continue;
        if (ruled(l) == host && request_.caches_host_experts) sharing.push_back(l);
        if (ruled(l)) continue;
        layers.push_back(l);
        bytes += bytes_.layers[l].experts;
    }
    if (may_cache && bytes > room_on(plan, place)) {
        for (const int64_t l : layers) add_experts(plan, l, host);
        sharing.insert(sharing.end(), layers.begin(), layers.end());
        return sharing;
    }
    for (const int64_t l : layers) {
        const bool stays = place == host || is_unified_ || !request_.needs_room() ||
                           bytes_.layers[l].experts <= room_on(plan, place);
        add_experts(plan, l, stays ? place : host);
    }
    return may_cache ? sharing : std::vector<int64_t>();
}

// Gives each device a cache for the layers that share their experts: the room that it has, or its part of the size that the caller wants,
// in proportion to the layers.
void Planner::add_caches(Plan& plan, const std::vector<std::vector<int64_t>>& sharing) const {
    int64_t n_all = 0;
    for (int64_t d = 0; d < machine_.host_place(); ++d)
        if (!machine_.is_host(d)) n_all += std::ssize(sharing[d]);
    for (int64_t d = 0; d < machine_.host_place(); ++d) {
        if (sharing[d].empty()) continue;
        const bool is_host = machine_.is_host(d);  // the CPU as a device caches nothing
        uint64_t limit = k_cache_all_room;
        if (request_.cache_bytes != k_cache_all_room && !is_host) {
            const double part = static_cast<double>(sharing[d].size()) / static_cast<double>(n_all);
            limit = static_cast<uint64_t>(static_cast<double>(request_.cache_bytes) * part);
            limit = std::max<uint64_t>(limit, 1);
        }
        if (request_.needs_room()) {
            add_cache(plan, d, sharing[d], limit);
        } else {
            plan.places[d].cache_bytes = limit;
        }
        if (is_host) plan.places[d].cache_bytes = 0;
    }
}

// Gives a device a cache in its room, for the same part of the experts of every layer. Layers whose experts have one size share
// their room.
void Planner::add_cache(Plan& plan, int64_t device, const std::vector<int64_t>& layers,
                        uint64_t limit) const {
    std::map<uint64_t, std::vector<int64_t>> classes;  // by bytes of an expert
    LayerBytes all;
    for (const int64_t l : layers) {
        const LayerBytes& layer = bytes_.layers[l];
        if (layer.n_experts == 0) continue;
        classes[layer.one_expert()].push_back(l);
        all.experts += layer.experts;
        all.n_experts += layer.n_experts;
        all.experts_on_host += layer.experts_on_host;
        for (const FormatPart& one : layer.expert_parts) add_part(all.expert_parts, one);
    }
    const DeviceFacts& facts = machine_.devices[device];
    const uint64_t tables = static_cast<uint64_t>(all.n_experts) * sizeof(backend::ExpertPlace);
    const uint64_t outputs = output_bytes(bytes_.config, machine_, n_rows());
    uint64_t room = room_on(plan, device);
    // The work space and the tables of an open device are not part of the size that the caller wants.
    if (!machine_.is_open()) room = std::min(room, limit);
    if (all.experts == 0 || room <= tables + outputs) return;
    room -= outputs;
    const uint64_t whole_room = room - tables;
    const uint64_t staging = staging_bytes(facts, classes.rbegin()->first, all.experts, room);
    room -= staging;
    PlannedPlace& there = plan.places[device];
    there.work_bytes += outputs + staging;
    if (room <= tables) return;
    const auto all_bytes = static_cast<double>(all.experts);
    const double of_room = static_cast<double>(room - tables) / all_bytes;
    const double balanced = rates_are_known_ ? balanced_part(experts_rate(facts, all.expert_parts),
                                                             all_bytes / all.experts_on_host)
                                             : 1.0;
    const double part = std::min(of_room, balanced);
    const uint64_t before = there.expert_bytes;
    for (const auto& [bytes, of] : classes) {
        int64_t n_all = 0;
        for (const int64_t l : of) n_all += bytes_.layers[l].n_experts;
        const auto n = static_cast<int64_t>(part * static_cast<double>(n_all));
        there.n_experts += n;
        there.expert_bytes += static_cast<uint64_t>(n) * bytes;
        for (const int64_t l : of) plan.cached_part[l] = static_cast<double>(n) / static_cast<double>(n_all);
    }
    // A cache that is not limited by its room gets what it needs.
    there.cache_bytes = std::min(limit, part < of_room ? staging + there.expert_bytes - before : whole_room);
}

// Returns the bytes, out of the room for a cache, of the areas for experts that steps copy (runtime/expert_stream.h).
// Returns 0 if steps copy none.
uint64_t Planner::staging_bytes(const DeviceFacts& device, uint64_t expert_bytes, uint64_t all,
                                uint64_t room) const {
    if (room >= all) return 0;
    const runtime::StreamRule rule =
        stream_rule(device, machine_.host, bytes_.config, static_cast<double>(expert_bytes), n_rows());
    return runtime::stream_space(rule, expert_bytes, bytes_.config.n_expert, room).device_bytes();
}

void Planner::finish(Plan& plan) const {
    for (int64_t p = 0; p <= machine_.host_place(); ++p) {
        PlannedPlace& place = plan.places[p];
        const bool is_host = p == machine_.host_place();
        place.is_measured = is_host ? machine_.host.is_measured : machine_.devices[p].has_measured_kernels;
        const uint64_t memory = is_host ? machine_.host.memory_bytes : machine_.devices[p].memory_bytes;
        const uint64_t taken =
            used(place) + place.work_bytes + (machine_.is_open() && !is_host ? 0 : reserve_of(memory));
        place.free_bytes = memory > taken ? memory - taken : 0;
    }
    plan.is_unified = is_unified_;
    if (is_unified_) {
        const uint64_t memory = machine_.host.memory_bytes;
        const uint64_t taken = plan.used_bytes() + (machine_.is_open() ? 0 : unified_reserve_of(memory));
        for (PlannedPlace& place : plan.places) place.free_bytes = memory > taken ? memory - taken : 0;
    }
    plan.fits = overflow(plan) == 0 && host_overflow(plan) == 0;
    plan.n_ubatch = n_step_rows_;
    plan.n_context = request_.n_context;
    plan.n_kv_tokens = n_kv_tokens_;
    plan.n_sequences = request_.n_sequences;
    plan.token_dense_bytes = bytes_.head;
    for (const LayerBytes& layer : bytes_.layers) {
        plan.token_dense_bytes += layer.dense;
        plan.token_expert_bytes += layer.one_expert() * static_cast<uint64_t>(bytes_.config.n_expert_used);
    }
    plan.token_kv_bytes = std::accumulate(kv_reads_.begin(), kv_reads_.end(), uint64_t{0});
    if (rates_are_known_) predict(machine_, bytes_, kv_reads_, plan);
}

// ---- KV cache ----

int64_t choose_kv(Request& request, const Machine& machine, const ModelBytes& bytes, const Rules& rules) {
    return choose_kv(request, bytes.config.n_context_train, [&](const Request& other) {
        const Planner planner(other, machine, bytes, rules);
        return planner.fit(planner.place());
    });
}

int64_t choose_kv(Request& request, int64_t n_context_train,
                  const std::function<kv::Fit(const Request&)>& fit) {
    if (!std::exchange(request.for_engine, false)) return 0;
    const int64_t trained = n_context_train;
    const kv::EngineWish wish = {
        .n_context = request.n_context,
        .longest = trained > 0 ? trained : kv::k_usual_kv_tokens,
        .n_requests = request.n_sequences,
        .fewer_requests = true,
        .n_rows = request.n_rows > 0 ? request.n_rows : runtime::k_default_step_rows};
    const kv::FitOf fit_of = [&](const kv::EngineSizes& sizes) {
        Request other = request;
        other.n_context = sizes.n_context;
        other.n_kv_tokens = sizes.n_kv_tokens;
        return fit(other);
    };
    const kv::EngineSizes sizes = kv::choose_sizes(wish, fit_of);
    if (sizes.n_context > 0) {
        request.n_context = sizes.n_context;
        request.n_kv_tokens = sizes.n_kv_tokens;
        request.n_sequences = sizes.n_requests;
        return 0;
    }
    // The plan says what one context needs.
    const int64_t longest = wish.n_context > 0 ? kv::longest_context(wish, fit_of) : 0;
    request.n_context = wish.n_context > 0 ? wish.n_context : backend::k_kv_page_tokens;
    request.n_kv_tokens = request.n_context;
    return longest;
}

}  // namespace minim::placement
