// SPDX-License-Identifier: Apache-2.0
// Lists the devices, one per line.
#include <string>

#include <fmt/format.h>

#include "commands.h"
#include "open_model.h"
#include "output.h"

namespace cli {
namespace {

std::string gibibytes(uint64_t bytes) {
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

void devices(const Options& options) {
    const minim::Runtime runtime = open_runtime(options);
    const minim::Devices all(runtime);
    for (size_t i = 0; i < all.count(); ++i) {
        const minim_device_info device = all.get(i);
        std::string line = fmt::format("{:<8} ", printable(device.name));
        if (device.usable != 0) {
            line += fmt::format("{}, {}{}, {} free", printable(device.description),
                                gibibytes(device.memory_bytes), device.unified != 0 ? " (the host's)" : "",
                                gibibytes(device.free_bytes));
        } else {
            if (device.description[0] != '\0') line += printable(device.description) + ", ";
            line += "not usable: " + printable(device.reason);
        }
        print(line + "\n");
    }
    flush_output();
}

}  // namespace cli
