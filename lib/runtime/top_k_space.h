// SPDX-License-Identifier: Apache-2.0
// Buffers for the top-k queries and answers of a step, on the device for some rows at a time, on the host for all rows of the
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/top_k.h"

namespace minim::runtime {

class TopKSpace {
  public:
    // Allocates buffers for steps of at most n_rows rows. Throws out_of_memory or out_of_device_memory.
    TopKSpace(const backend::Backend& backend, int64_t n_rows);
    // Returns the bytes that it allocates on the device.
    static uint64_t device_bytes(int64_t n_rows);

    // Sets the queries of a step, one for each row. Transfers of earlier steps must be complete.
    void ask(std::span<const TopKQuery> queries);

    // Upload the queries of the part of the rows that begins with `first`, return its task, and download its answers.
    // `first` is a multiple of k_max_top_k_rows; every part but the last has as many rows. Queries must be
    // uploaded before the operation that answers them.
    void upload(backend::Scratch& scratch, int64_t first);
    backend::TopKTask task(int64_t first) const;
    void download(backend::Scratch& scratch, int64_t first);

    // Returns the answer for a row. It is valid after the stream is synchronised, until the next ask().
    TopK answer(int64_t row) const;

  private:
    // Rows that are on the device together.
    struct Part {
        int64_t n_rows;
        uint64_t asked_at, asked_bytes;  // on the host
        uint64_t answers_at, answers_bytes;
    };
    const Part& part_of(int64_t row) const;

    const backend::Backend& backend_;
    std::unique_ptr<backend::Memory> device_;
    std::byte* device_answers_;
    std::unique_ptr<backend::Memory> host_;
    std::byte* host_answers_;
    std::vector<Part> parts_;
};

}  // namespace minim::runtime
