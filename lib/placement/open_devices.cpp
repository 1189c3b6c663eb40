// SPDX-License-Identifier: Apache-2.0
#include "placement/open_devices.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "placement/measure_device.h"

namespace minim::placement {
namespace {

using runtime::ExpertMoves;

backend::Arithmetic arithmetic_of(const OpenRequest& request, const backend::Backend& host) {
    if (host.name() == "reference") return backend::Arithmetic::exact;
    return request.is_deterministic ? backend::Arithmetic::deterministic : backend::Arithmetic::fast;
}

void check_without_devices(const OpenRequest& request) {
    if (request.n_device_layers > 0 || !request.split.empty() || !request.budgets.empty())
        fail(Status::invalid, "n_device_layers, split and budgets are for devices, and none is named");
    if (request.overrides || request.n_host_experts != 0 || request.fit_context > 0)
        fail(Status::invalid, "overrides, n_host_experts and fit_context are for devices, and none is named");
    if (request.expert_cache_bytes > 0)
        fail(Status::invalid, "expert_cache_bytes is for devices, and none is named");
}

// Says which fields have no effect, because there is no device. Then all layers are on the host.
void note_ignored(const OpenRequest& request, const Logger& log) {
    std::string ignored;
    const auto note = [&](bool is_given, std::string_view name) {
        if (is_given) ignored.append(ignored.empty() ? "" : ", ").append(name);
    };
    note(request.n_device_layers > 0, "n_device_layers");
    note(!request.split.empty(), "split");
    note(!request.budgets.empty(), "budgets");
    note(request.overrides.has_value(), "overrides");
    note(request.n_host_experts != 0, "n_host_experts");
    note(request.expert_cache_bytes > 0 && request.expert_cache_bytes != k_cache_all_room,
         "expert_cache_bytes");
    if (ignored.empty()) return log.info("no usable device: all layers are on the CPU");
    log.warning("no usable device: all layers are on the CPU, and these options have no effect: {}", ignored);
}

void check_devices(const OpenRequest& request) {
    const size_t n_devices = request.devices->size();
    if (!request.split.empty() && request.split.size() != n_devices)
        fail(Status::invalid, "{} shares of the layers for {} devices", request.split.size(), n_devices);
    if (!request.budgets.empty() && request.budgets.size() != n_devices)
        fail(Status::invalid, "{} budgets for {} devices", request.budgets.size(), n_devices);
}

class Opening {
  public:
    Opening(const OpenRequest& request, Threads threads, CpuLevel level, const Logger& log)
        : request_(request), threads_(std::move(threads)), level_(level), log_(log) {
        threads_.memory = threads_.memory.locked(request.locks_memory);
    }

    OpenedDevices open() {
        const auto host = make_backend(request_.host, threads_, level_);
        spread_.host = host;
        arithmetic_ = arithmetic_of(request_, *host);
        if (request_.devices && request_.devices->empty()) {
            note_ignored(request_, log_);  // "auto" has found none
        } else if (request_.devices) {
            check_devices(request_);
            for (size_t i = 0; i < request_.devices->size(); ++i) open_nth(i);
        } else {
            check_without_devices(request_);
        }
        if (spread_.devices.empty()) return {{.devices = {host}, .host = host}, host};
        if (request_.n_device_layers > 0) spread_.n_device_layers = request_.n_device_layers;
        place_experts();
        return {std::move(spread_), host};
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

    void open_nth(size_t i) {
        const DeviceBudget& item = (*request_.devices)[i];
        const uint64_t listed = request_.budgets.empty() ? 0 : request_.budgets[i];
        if (listed > 0 && (item.bytes > 0 || item.part > 0.0))
            fail(Status::invalid, "{} has two budgets: {} bytes in budgets, another one behind its name",
                 item.name, listed);
        const uint64_t bytes = std::max(listed, item.bytes);
        auto device = open_if_there(item.name, bytes > 0 ? bytes : backend::k_no_budget);
        if (device == nullptr) return;
        spread_.devices.push_back(std::move(device));
        if (!request_.split.empty()) spread_.shares.push_back(request_.split[i]);
    }

    void place_experts() {
        const OpenRequest& r = request_;
        spread_.experts.host = spread_.host;
        spread_.experts.n_host_layers = r.n_host_experts;
        if (r.overrides)
            spread_.experts.overrides =
                make_overrides(*r.overrides, spread_.host, spread_.devices,
                               [this](const std::string& name) -> std::shared_ptr<const backend::Backend> {
                                   if (auto device = open_if_there(name, backend::k_no_budget)) return device;
                                   return spread_.host;
                               });
        spread_.fit_context = r.fit_context;
        spread_.fit_rows = r.fit_rows;
        spread_.fit_requests = r.fit_requests;
        spread_.k_format = r.k_format.value_or(backend::k_default_kv_format);
        spread_.v_format = r.v_format.value_or(backend::k_default_kv_format);
        const bool says_nothing =
            !r.overrides && r.n_host_experts == 0 && r.fit_context == 0 && r.expert_cache_bytes == 0;
        spread_.expert_cache_bytes = says_nothing ? k_cache_all_room : r.expert_cache_bytes;
        // A deterministic model copies no experts: which ones a step copies depends on all its rows, and a row's result must not
        // depend on the other rows.
        if (arithmetic_ == backend::Arithmetic::deterministic) return;
        spread_.rates = [n_threads = threads_.decode->n_threads(), level = level_,
                         &log = log_](std::span<const std::shared_ptr<const backend::Backend>> devices) {
            return measured_rates(devices, n_threads, level, log);
        };
    }

    const OpenRequest& request_;
    Threads threads_;
    const CpuLevel level_;
    const Logger& log_;
    backend::Arithmetic arithmetic_ = backend::Arithmetic::fast;
    Spread spread_;
};

}  // namespace

OpenedDevices open_devices(const OpenRequest& request, Threads threads, CpuLevel level, const Logger& log) {
    return Opening(request, std::move(threads), level, log).open();
}

ExpertMoves choose_moves(std::optional<ExpertMoves> wanted, bool is_deterministic) {
    if (!wanted) return is_deterministic ? ExpertMoves::fixed : ExpertMoves::reproducible;
    if (is_deterministic && *wanted != ExpertMoves::fixed)
        fail(Status::invalid,
             "expert_moves is {}, but the model is deterministic, which needs fixed: if experts move, the "
             "result for a text depends on earlier texts",
             *wanted == ExpertMoves::eager ? "eager" : "reproducible");
    return *wanted;
}

}  // namespace minim::placement
