// SPDX-License-Identifier: Apache-2.0
// Lists and opens devices, and says in words which layers they have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device_memory.h"
#include "backend/plugin.h"
#include "base/cpu_features.h"
#include "base/log.h"
#include "model/model.h"
#include "placement/backends.h"
#include "placement/facts.h"
#include "placement/request.h"

namespace minim::placement {

// Returns the CPU first, then the devices of the plug-ins. A plug-in that cannot be loaded is listed as a device of
// its kind that is not usable.
std::vector<backend::DeviceInfo> list_devices(CpuLevel level);

// Opens "cpu", "reference" or "cuda:0". At most `budget` bytes of the device's memory are allocated. Throws invalid
// for a bad name and for a budget of the CPU, not_found or unsupported, with the reason, for a device that does not
// exist or is not usable.
std::shared_ptr<const backend::Backend> open_device(
    std::string_view name, const Threads& threads, CpuLevel level,
    backend::Arithmetic arithmetic = backend::Arithmetic::fast, uint64_t budget_bytes = backend::k_no_budget);

// Returns the names and budgets of devices in a text: "cuda:0,CUDA1=20GiB,cuda:2=0.9". "auto" stands for all usable devices,
// and there may be none. Throws invalid if the text is malformed or names a device twice.
std::vector<DeviceBudget> wanted_devices(std::string_view text, CpuLevel level);

// Opens the host's backend, the devices and those that only overrides name. Devices compute in exact arithmetic if the host's backend is
// the reference. Takes out of the request what is for devices that are missing. `log` must outlive the machine, whose warnings it gets.
// Throws as open_device(), and invalid for impossible numbers and for options of devices if no device is named.
Machine open_machine(Request& request, Threads threads, CpuLevel level, const Logger& log);

// Returns to_string() of the model's placement with the sizes of its caches.
std::string placement_text(const model::Model& model);

}  // namespace minim::placement
