// SPDX-License-Identifier: Apache-2.0
// The reference for a device with its own memory: how fast it copies there when it does nothing else.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace minim::bench {

class DeviceBandwidth {
  public:
    // Takes twice 256 MiB, more than any device's cache. Throws out_of_device_memory. The device must outlive it.
    explicit DeviceBandwidth(const backend::Backend& device);

    // Returns the bytes a second, read and written together; about 20 ms. Throws device_lost.
    double measure() const;

  private:
    const backend::Backend& device_;
    std::unique_ptr<backend::Memory> from_;
    std::unique_ptr<backend::Memory> to_;
    std::unique_ptr<backend::Scratch> stream_;
};

}  // namespace minim::bench
