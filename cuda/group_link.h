// SPDX-License-Identifier: Apache-2.0
// The GPUs of a group's ranks, connected without the host: by NCCL, and, for small sums within a process, by a kernel.
#pragma once

#include <memory>
#include <string>

#include "backend/group.h"
#include "cuda/cuda_device.h"

namespace minim::cuda {

// As backend::Device::connect(). `in_rank_order`: sums are added in rank order, also by NCCL, which may not give the same bits from
// version to version.
std::unique_ptr<backend::GroupLink> connect_devices(const CudaDevice& device, backend::GroupChannel& channel,
                                                    bool in_rank_order, std::string& remark);

}  // namespace minim::cuda
