// SPDX-License-Identifier: Apache-2.0
// The simulated devices as a plug-in, libminim-sim.so. MINIM_SIM says what they are like, in any order:
// "devices=4 memory=64 bytes_per_second=1000000 exchange_us=20 experts_us=100 failing_operation=100 failing_device=1".
// memory is in MiB; unified=1: it is the host's; wrong_products=1: linear() computes wrong numbers; exchange_us is added to each post() and
// collect(), experts_us to the experts of a layer that is shared with the host; failing_device: the others never fail. Without MINIM_SIM: two devices of 1 GiB that never fail.
#include "backend/plugin.h"

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "sim/sim_backend.h"

namespace {

using minim::backend::DeviceInfo;
using minim::backend::Plugin;

struct Settings {
    int32_t n_devices = 2;
    int32_t failing_device = -1;  // the only one that fails; -1: all do
    minim::sim::Options options;
};

Settings settings() {
    Settings settings;
    const char* text = std::getenv("MINIM_SIM");
    std::istringstream words(text == nullptr ? "" : text);
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const int64_t value = equals == std::string::npos ? 0 : std::atoll(word.c_str() + equals + 1);
        if (name == "devices") settings.n_devices = static_cast<int32_t>(value);
        if (name == "memory") settings.options.memory_bytes = static_cast<uint64_t>(value) << 20;
        if (name == "failing_allocation") settings.options.failing_allocation = value;
        if (name == "failing_transfer") settings.options.failing_transfer = value;
        if (name == "failing_operation") settings.options.failing_operation = value;
        if (name == "failing_exchange") settings.options.failing_exchange = value;
        if (name == "bytes_per_second") settings.options.bytes_per_second = static_cast<double>(value);
        if (name == "exchange_us") settings.options.exchange_seconds = static_cast<double>(value) * 1e-6;
        if (name == "experts_us") settings.options.experts_seconds = static_cast<double>(value) * 1e-6;
        if (name == "wrong_products") settings.options.computes_wrong_products = value != 0;
        if (name == "unified") settings.options.shares_host_memory = value != 0;
        if (name == "failing_device") settings.failing_device = static_cast<int32_t>(value);
    }
    return settings;
}

// Adds a device that cannot be used, so that the list has one with a reason.
std::vector<DeviceInfo> devices() {
    const Settings s = settings();
    std::vector<DeviceInfo> all;
    for (int32_t i = 0; i <= s.n_devices; ++i) {
        DeviceInfo device;
        device.name = minim::format_text("sim:{}", i);
        device.description = "simulated accelerator";
        device.memory_bytes = device.free_bytes = s.options.memory_bytes;
        device.multiprocessor_hz = 50 * 2e9;
        device.shares_host_memory = s.options.shares_host_memory;
        if (i == s.n_devices) device.why_not = "it is simulated to be too old";
        all.push_back(device);
    }
    return all;
}

std::shared_ptr<const minim::backend::Backend> open(int32_t index, minim::backend::Arithmetic,
                                                    uint64_t budget_bytes) {
    Settings s = settings();
    if (index > s.n_devices) minim::fail(minim::Status::not_found, "there are {} devices", s.n_devices + 1);
    if (index == s.n_devices) minim::fail(minim::Status::unsupported, "it is simulated to be too old");
    s.options.budget_bytes = budget_bytes;
    if (s.failing_device >= 0 && index != s.failing_device)
        s.options.failing_allocation = s.options.failing_transfer = s.options.failing_operation =
            s.options.failing_exchange = 0;
    return std::make_shared<const minim::sim::SimBackend>(index, s.options);
}

constexpr Plugin k_plugin = {minim::backend::k_plugin_interface, minim::backend::k_plugin_build, devices,
                             open};

}  // namespace

extern "C" __attribute__((visibility("default"))) const Plugin* minim_backend_plugin() {
    return &k_plugin;
}
