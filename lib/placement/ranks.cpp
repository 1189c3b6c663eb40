// SPDX-License-Identifier: Apache-2.0
#include "placement/ranks.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <span>
#include <sstream>
#include <utility>

#include "base/cpu_features.h"
#include "base/format_text.h"
#include "placement/devices.h"
#include "placement/plugins.h"
#include "placement/rank_plan.h"
#include "ranks/hello.h"
#include "ranks/launcher.h"
#include "ranks/self_test.h"
#include "runtime/group_channel.h"
#include "runtime/host_group.h"
#include "runtime/rank_threads.h"
#include "runtime/thread_transport.h"

namespace minim::placement {

using runtime::Shard;

std::vector<DeviceBudget> devices_for(const ParallelRequest& request, std::vector<DeviceBudget> usable) {
    const bool is_open = request.tensor < 0 || request.experts < 0;
    if (!asks_for_ranks(request) || is_open) return usable;
    const ranks::Launch launch = ranks::find_launch();
    const int64_t n_of_stage = request.tensor > 1 ? request.tensor : std::max<int64_t>(request.experts, 1);
    const int64_t n_ranks = n_of_stage * std::max<int64_t>(request.pipeline, 1);
    const int64_t n = n_ranks / launch.size;
    if (n < 1 || n >= std::ssize(usable)) return usable;
    const int64_t first = (launch.local + 1) * n <= std::ssize(usable) ? launch.local * n : 0;
    return {usable.begin() + first, usable.begin() + first + n};
}

namespace {

// Returns the generation of each device; empty: not known. Backends on host memory have none, and compute with the same bits.
std::vector<std::string> generations_of(const RankDevices& devices) {
    std::vector<std::string> generations(devices.size());
    if (devices.front()->uses_host_memory()) return generations;
    for (const backend::DeviceInfo& info : list_devices(active_cpu_level()))
        for (size_t i = 0; i < devices.size(); ++i)
            if (info.name == devices[i]->name()) generations[i] = info.generation;
    return generations;
}

}  // namespace

RankDevices rank_devices(const Request& request, const Machine& machine) {
    RankDevices devices(machine.backends.begin(), machine.backends.begin() + machine.host_place());
    if (devices.empty()) devices.push_back(machine.backends[machine.host_place()]);
    const std::vector<std::string> generations = generations_of(devices);
    std::vector<RankDevice> ranks;
    for (size_t i = 0; i < devices.size(); ++i) ranks.push_back({devices[i]->name(), generations[i]});
    check_beside_ranks(request, ranks, text_of(request.parallel));
    return devices;
}

std::vector<Shard> shards_of(const ParallelPlan& plan, int64_t n_layer, int32_t process, int64_t n_devices,
                             const RankDevices& devices) {
    std::vector<Shard> shards;
    for (int64_t d = 0; d < n_devices; ++d) {
        shards.push_back(shard_of(plan, process * n_devices + d, n_layer));
        if (!devices.empty()) shards.back().backend = devices[d];
    }
    return shards;
}

namespace {

using model::RankNet;
using runtime::RankLinks;

std::string plan_text(const ParallelPlan& plan) {
    return format_text("tensor {}, groups of experts {}, parts of an expert {}, pipeline {}", plan.tensor,
                       plan.expert_groups, plan.expert_parts, plan.pipeline);
}

// Calls task(rank) for all ranks of this process at the same time. Throws the first rank's error after all have ended.
void for_each_rank(size_t n, const std::function<void(size_t)>& task) {
    std::vector<std::exception_ptr> errors(n);
    runtime::RankThreads threads(n);
    threads.run([&](size_t r) {
        try {
            task(r);
        } catch (...) {
            errors[r] = std::current_exception();
        }
    });
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

// Connects the devices of this process's ranks directly with those of their group, if the devices can do that.
void connect_devices(RankNet& net, const runtime::Placement& placement, const RankOptions& ranks) {
    const size_t n = net.links.size();
    if (net.links.front().group == nullptr || placement.shards().front().backend->uses_host_memory()) return;
    const bool is_one_process = !net.processes || net.links.front().pipeline != nullptr;
    for (const RankLinks& links : net.links)
        net.channels.push_back(
            std::make_unique<runtime::TransportChannel>(*links.group, is_one_process, ranks.timeout));
    net.direct.resize(n);
    std::vector<std::string> remarks(n);
    for_each_rank(n, [&](size_t r) {
        try {
            net.direct[r] = placement.shards()[r].backend->connect(*net.channels[r], remarks[r]);
        } catch (...) {
            const Error error = current_error();
            net.channels[r]->abandon(error);  // the others would wait for this rank
            throw Error(error);
        }
    });
    for (size_t r = 0; r < n; ++r) net.links[r].direct = net.direct[r].get();
    if (!remarks.front().empty()) ranks.log->warning("{}", remarks.front());
}

std::string text_of(const std::vector<ranks::SumTime>& times) {
    std::string text;
    for (const ranks::SumTime& time : times)
        text += format_text("{}{} bytes in {:.0f} us", text.empty() ? "" : ", ", time.n_bytes,
                            time.seconds * 1e6);
    return text;
}

// Sums known numbers on all ranks of this process's group, after waiting for all processes.
void test_exchange(const RankNet& net, const runtime::Placement& placement, const Logger& log) {
    if (net.processes) ranks::meet(*net.processes);
    if (net.links.front().group == nullptr) return;
    ranks::Ways ways;
    for_each_rank(net.links.size(), [&](size_t r) {
        const backend::Backend& backend = *placement.shards()[r].backend;
        const RankLinks& links = net.links[r];
        const auto stream = backend.reserve({});
        const auto group =
            runtime::make_group(backend, *links.group, links.direct, {.n_sum = ranks::k_self_test_floats});
        const ranks::Ways own =
            links.direct != nullptr
                ? ranks::choose_way(backend, *stream, *group, *links.direct, *net.channels[r])
                : ranks::Ways{{{"the host", ranks::test_sums(backend, *stream, *group)}}};
        if (r == 0) ways = own;
    });
    for (size_t i = 0; i < ways.all.size(); ++i)
        log.info("sums over {} ranks by {}: {}{}", net.links.front().group->size(), ways.all[i].name,
                 text_of(ways.all[i].times),
                 ways.all.size() > 1 && i == ways.chosen ? "; taken for up to 64 KiB" : "");
}

// Connects the ranks of a process that is alone.
RankNet net_of_threads(const RankOptions& ranks, const runtime::Placement& placement) {
    RankNet net;
    const auto n_ranks = static_cast<int32_t>(placement.shards().size());
    net.transports = runtime::connect_threads(n_ranks);
    for (int32_t r = 0; r < n_ranks; ++r) {
        const Shard& shard = placement.shards()[r];
        net.links.push_back({.name = format_text("rank {} ({})", r, shard.backend->name()),
                             .share = shard.share,
                             .group = net.transports[r].get(),
                             .compares_choices = ranks.compares_choices});
        net.names.push_back(net.links.back().name);
    }
    return net;
}

// Returns what this process compares with the others.
ranks::Hello hello_of(const RankOptions& ranks, const ParallelPlan& plan, uint64_t fingerprint) {
    ranks::Hello hello;
    hello.library_version = ranks.version;
    hello.plugin_build = ranks::k_link_build;
    hello.fingerprint = format_text("{:016x}", fingerprint);
    hello.options = ranks.options;
    hello.plan = plan_text(plan);
    hello.n_devices = std::to_string(ranks.devices.size());
    for (const auto& device : ranks.devices) {
        const std::string_view name = device->name();
        hello.device_kind = name.substr(0, name.find(':'));
        hello.device_names.append(hello.device_names.empty() ? "" : ",").append(name);
    }
    hello.compute_capability = generations_of(ranks.devices).front();
    ranks::set_cores(hello);
    return hello;
}

// Connects the ranks of all processes.
RankNet net_of_processes(const RankOptions& ranks, const ParallelPlan& plan,
                         const runtime::Placement& placement, uint64_t fingerprint,
                         std::shared_ptr<ranks::Processes> processes) {
    RankNet net;
    const auto n_devices = static_cast<int32_t>(ranks.devices.size());
    const int32_t process = processes->process();
    net.processes = std::move(processes);
    const std::vector<ranks::Hello> hellos =
        ranks::exchange(*net.processes, hello_of(ranks, plan, fingerprint), *ranks.log);
    for (int32_t p = 0; p < net.processes->size(); ++p) {
        std::istringstream devices(hellos[p].device_names);
        for (std::string device; std::getline(devices, device, ',');)
            net.names.push_back(
                format_text("rank {} ({} on {})", net.names.size(), device, net.processes->identity(p).host));
    }
    const bool is_pipeline = plan.pipeline > 1;
    if (is_pipeline) {
        net.transports = runtime::connect_threads(n_devices);
        for (int32_t d = 0; d < n_devices; ++d) net.transports.push_back(net.processes->connect(d));
    } else {
        net.transports = ranks::connect_ranks(*net.processes);
    }
    for (int32_t d = 0; d < n_devices; ++d) {
        RankLinks links = {.share = placement.shards()[d].share, .compares_choices = ranks.compares_choices};
        if (!is_pipeline || n_devices > 1) links.group = net.transports[d].get();
        if (is_pipeline) {
            const int32_t rank = process * n_devices + d;
            links.pipeline = net.transports[n_devices + d].get();
            if (process + 1 < net.processes->size()) links.before = rank + n_devices;
            if (process > 0) links.after = rank - n_devices;
        }
        net.links.push_back(std::move(links));
    }
    if (process > 0) return net;
    for (int32_t p = 1; p < net.processes->size(); ++p)
        net.other_shards.push_back(shards_of(plan, placement.n_layer(), p, n_devices));
    net.leader = std::make_shared<ranks::Leader>(*net.processes);
    return net;
}

// What placing and connecting a model share.
struct RankOpening {
    ParallelPlan plan;
    std::shared_ptr<ranks::Processes> processes;  // null: no launcher has started several
};

}  // namespace

model::Model::Place place_on_ranks(const RankOptions& ranks, model::OpenOptions& options) {
    const auto opening = std::make_shared<RankOpening>();
    const ranks::Launch launch = ranks::find_launch();
    // The processes of one machine may write to the same folder, each the weights of its own ranks.
    if (launch.size > 1 && !options.packed_file.empty())
        options.packed_file += format_text(".rank-{}-of-{}", launch.process, launch.size);
    options.connect = [ranks, opening](const model::Config&, const runtime::Placement& placement,
                                       uint64_t fingerprint) {
        RankNet net = opening->processes ? net_of_processes(ranks, opening->plan, placement, fingerprint,
                                                            std::move(opening->processes))
                                         : net_of_threads(ranks, placement);
        connect_devices(net, placement, ranks);
        net.test = [log = ranks.log](const RankNet& connected, const runtime::Placement& placed) {
            test_exchange(connected, placed, *log);
        };
        return net;
    };
    return [ranks, opening, launch](const model::Config& config,
                                    std::span<const weights::WeightSpec> weights) {
        const int64_t n_devices = std::ssize(ranks.devices);
        opening->plan = plan_parallel(with_devices(ranks.request, launch.size * n_devices), config, weights);
        check_ranks(opening->plan, launch.size, n_devices);
        if (launch.size > 1)
            opening->processes = std::make_shared<ranks::Processes>(
                load_link_plugin().open(), ranks::ProcessOptions{.n_devices = static_cast<int32_t>(n_devices),
                                                                 .timeout = ranks.timeout});
        return runtime::Placement::of_ranks(
            shards_of(opening->plan, config.n_layer, launch.process, n_devices, ranks.devices),
            config.n_layer, 0);
    };
}

}  // namespace minim::placement
