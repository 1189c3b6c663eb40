// SPDX-License-Identifier: Apache-2.0
#include "placement/devices.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/memory_info.h"
#include "placement/measure.h"
#include "placement/measure_kernels.h"
#include "placement/plugins.h"
#include "placement/rules.h"

namespace minim::placement {
namespace {

// Returns the 3 of "cuda:3"; -1 if the name does not have that form.
int32_t index_of(std::string_view name) {
    const size_t colon = name.find(':');
    if (colon == std::string_view::npos || colon == 0) return -1;
    const std::string_view digits = name.substr(colon + 1);
    int32_t index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    return is_number && index >= 0 ? index : -1;
}

// Returns whether a name has only letters and digits: the name of a kind becomes part of a file name.
bool is_kind(std::string_view kind) {
    return std::ranges::all_of(kind, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

backend::DeviceInfo cpu(CpuLevel level) {
    backend::DeviceInfo info;
    info.name = "cpu";
    info.description = format_text("{} cores, {} kernels", usable_core_count(), to_string(level));
    info.memory_bytes = total_memory_bytes();
    info.free_bytes = std::min(available_memory_bytes(), info.memory_bytes);
    return info;
}

backend::Arithmetic arithmetic_of(const Request& request, const backend::Backend& host) {
    if (host.name() == "reference") return backend::Arithmetic::exact;
    return request.is_deterministic ? backend::Arithmetic::deterministic : backend::Arithmetic::fast;
}

void check_without_devices(const Request& request) {
    if (request.n_device_layers >= 0 || !request.shares.empty() || !request.budgets.empty())
        fail(Status::invalid, "n_device_layers, split and budgets are for devices, and none is named");
    if (request.overrides || request.n_host_experts != 0 || request.n_context > 0)
        fail(Status::invalid, "overrides, n_host_experts and fit_context are for devices, and none is named");
    if (request.cache_bytes > 0)
        fail(Status::invalid, "expert_cache_bytes is for devices, and none is named");
}

// Says which fields have no effect, because there is no device. Then all layers are on the host.
void note_ignored(const Request& request, const Logger& log) {
    std::string ignored;
    const auto note = [&](bool is_given, std::string_view name) {
        if (is_given) ignored.append(ignored.empty() ? "" : ", ").append(name);
    };
    note(request.n_device_layers >= 0, "n_device_layers");
    note(!request.shares.empty(), "split");
    note(!request.budgets.empty(), "budgets");
    note(request.overrides.has_value(), "overrides");
    note(request.n_host_experts != 0, "n_host_experts");
    note(request.cache_bytes > 0 && request.cache_bytes != k_cache_all_room, "expert_cache_bytes");
    if (ignored.empty()) return log.info("no usable device: all layers are on the CPU");
    log.warning("no usable device: all layers are on the CPU, and these options have no effect: {}", ignored);
}

void check_devices(const Request& request) {
    const size_t n_devices = request.devices->size();
    if (!request.shares.empty() && request.shares.size() != n_devices)
        fail(Status::invalid, "{} shares of the layers for {} devices", request.shares.size(), n_devices);
    if (!request.budgets.empty() && request.budgets.size() != n_devices)
        fail(Status::invalid, "{} budgets for {} devices", request.budgets.size(), n_devices);
}

class MachineOpening {
  public:
    MachineOpening(Request& request, Threads threads, CpuLevel level, const Logger& log)
        : request_(request), threads_(std::move(threads)), level_(level), log_(log) {
        threads_.memory = threads_.memory.locked(request.locks_memory);
    }

    Machine open() {
        const auto host = make_backend(request_.host, threads_, level_);
        arithmetic_ = arithmetic_of(request_, *host);
        if (!request_.devices) {
            check_without_devices(request_);
        } else if (request_.devices->empty()) {
            note_ignored(request_, log_);  // "auto" has found none
        } else {
            check_devices(request_);
            open_devices();
        }
        machine_.backends.push_back(host);
        if (machine_.devices.empty()) {
            const ParallelRequest parallel = request_.parallel;
            request_ = {};
            request_.parallel = parallel;
            return std::move(machine_);
        }
        if (request_.overrides) open_others();
        // A deterministic model copies no experts: which ones a step copies depends on all its rows, and a row's result must not
        // depend on the other rows.
        if (arithmetic_ != backend::Arithmetic::deterministic)
            machine_.measure = [n_threads = threads_.decode->n_threads(), level = level_,
                                is_fast = arithmetic_ == backend::Arithmetic::fast,
                                &log = log_](Machine& machine, std::span<const weights::WeightSpec> weights) {
                if (!measure_machine(machine, n_threads, level, log)) return false;
                if (is_fast) measure_kernels(machine, weights, level, log);
                return true;
            };
        return std::move(machine_);
    }

  private:
    std::shared_ptr<const backend::Backend> open_named(std::string_view name, uint64_t budget_bytes) const {
        auto device = open_device(name, threads_, level_, arithmetic_, budget_bytes);
        if (!device->remark().empty()) log_.info("{}: {}", name, device->remark());
        device->on_warning([&log = log_, name = std::string(name)](std::string_view text) {
            log.warning("{}: {}", name, text);
        });
        return device;
    }

    // Opens a device. Returns null if it is missing and the request allows that.
    std::shared_ptr<const backend::Backend> open_if_there(std::string_view name,
                                                          uint64_t budget_bytes) const {
        try {
            return open_named(name, budget_bytes);
        } catch (const Error& error) {
            const bool is_missing =
                error.status() == Status::not_found || error.status() == Status::unsupported;
            if (!request_.may_be_missing || !is_missing) throw;
            log_.warning("{}; going on without it", error.what());
            return nullptr;
        }
    }

    uint64_t budget_of(size_t i) const {
        const DeviceBudget& item = (*request_.devices)[i];
        const uint64_t listed = request_.budgets.empty() ? 0 : request_.budgets[i];
        if (listed > 0 && (item.bytes > 0 || item.part > 0.0))
            fail(Status::invalid, "{} has two budgets: {} bytes in budgets, another one behind its name",
                 item.name, listed);
        const uint64_t bytes = std::max(listed, item.bytes);
        return bytes > 0 ? bytes : backend::k_no_budget;
    }

    void open_devices() {
        std::vector<double> shares;
        for (size_t i = 0; i < request_.devices->size(); ++i) {
            const std::string& name = (*request_.devices)[i].name;
            auto device = open_if_there(name, budget_of(i));
            if (device == nullptr) continue;
            machine_.devices.push_back({.name = name});
            machine_.backends.push_back(std::move(device));
            if (!request_.shares.empty()) shares.push_back(request_.shares[i]);
        }
        request_.shares = std::move(shares);
    }

    // Opens the devices that only overrides name. The host takes the place of a missing one.
    void open_others() {
        for (const Override& item : parse_overrides(*request_.overrides)) {
            if (machine_.place_of(item.device)) continue;
            const std::string name = device_name(item.device);
            auto device = open_if_there(name, backend::k_no_budget);
            machine_.others[name] = device == nullptr ? machine_.host_place() : std::ssize(machine_.backends);
            if (device != nullptr) machine_.backends.push_back(std::move(device));
        }
    }

    Request& request_;
    Threads threads_;
    const CpuLevel level_;
    const Logger& log_;
    backend::Arithmetic arithmetic_ = backend::Arithmetic::fast;
    Machine machine_;
};

}  // namespace

std::vector<backend::DeviceInfo> list_devices(CpuLevel level) {
    std::vector<backend::DeviceInfo> devices = {cpu(level)};
    for (const std::string& kind : plugin_kinds()) {
        try {
            for (backend::DeviceInfo& device : load_plugin(kind).devices())
                devices.push_back(std::move(device));
        } catch (const Error& error) {
            backend::DeviceInfo info;
            info.name = kind;
            info.why_not = error.what();
            devices.push_back(std::move(info));
        }
    }
    return devices;
}

std::vector<DeviceBudget> wanted_devices(std::string_view text, CpuLevel level) {
    if (text == "auto") {
        std::vector<DeviceBudget> usable;
        for (const backend::DeviceInfo& device : list_devices(level))
            if (device.name != "cpu" && device.why_not.empty()) usable.push_back({.name = device.name});
        return usable;
    }
    std::vector<DeviceBudget> wanted = parse_device_budgets(text);
    if (std::ranges::none_of(wanted, [](const DeviceBudget& device) { return device.part > 0.0; }))
        return wanted;
    const std::vector<backend::DeviceInfo> known = list_devices(level);
    for (DeviceBudget& device : wanted) {
        const auto info = std::ranges::find(known, device.name, &backend::DeviceInfo::name);
        if (info != known.end())
            device.bytes = static_cast<uint64_t>(device.part * static_cast<double>(info->memory_bytes));
    }
    return wanted;
}

std::shared_ptr<const backend::Backend> open_device(std::string_view name, const Threads& threads,
                                                    CpuLevel level, backend::Arithmetic arithmetic,
                                                    uint64_t budget_bytes) {
    if (name == "cpu" || name == "reference") {
        if (budget_bytes != backend::k_no_budget)
            fail(Status::invalid, "a budget is for a device with memory of its own; {} has none", name);
        return make_backend(name, threads, level);
    }
    const std::string_view kind = name.substr(0, name.find(':'));
    const int32_t index = index_of(name);
    if (index < 0 || !is_kind(kind))
        fail(Status::invalid, "'{}' is not a device name; examples: cpu, cuda:0", name);
    try {
        return load_plugin(kind).open(index, arithmetic, budget_bytes);
    } catch (const Error& error) {
        ErrorFacts facts = error.facts();
        facts.device = DeviceName(name);
        throw Error(error.status(), error.reason(), format_text("device {}: {}", name, error.what()), facts);
    }
}

Machine open_machine(Request& request, Threads threads, CpuLevel level, const Logger& log) {
    return MachineOpening(request, std::move(threads), level, log).open();
}

std::string placement_text(const model::Model& model) {
    const std::vector<std::string>& ranks = model.net().names;
    if (!ranks.empty()) {
        const runtime::RankShare& share = model.placement().shards().front().share;
        std::string text = format_text("{} ranks that share layers: ", ranks.size());
        if (share.shares_heads()) text += format_text("heads in {} parts, ", share.tensor);
        text += format_text("experts in {} groups of {} parts", share.expert_groups, share.expert_parts);
        for (const std::string& rank : ranks) text += (&rank == ranks.data() ? ": " : ", ") + rank;
        return text;
    }
    std::vector<int64_t> n_cached;
    for (const auto& pool : model.expert_pools())
        n_cached.push_back(pool == nullptr ? 0 : pool->state().n_places);
    return to_string(model.placement(), n_cached);
}

}  // namespace minim::placement
