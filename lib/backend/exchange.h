// SPDX-License-Identifier: Apache-2.0
// The exchange between the host and a device in the middle of a step: the device posts the inputs of a layer's experts and the choices, the
// host computes the experts that are not on the device, and the device collects the outputs. A turn is one layer; turns of a
// step are answered in order, each once. One stream and one answering thread.
//
//     device's stream              answering thread
//     post(turn)  ---------------> wait(turn)
//     experts that are here        experts that are not
//     collect(turn) <------------- answer(turn)
#pragma once

#include <cstdint>

#include "base/cancel.h"

namespace minim::backend {

class Exchange {
  public:
    virtual ~Exchange() = default;

    // The data of the turn that wait() has returned for. They are in host memory.
    struct Turn {
        const float* h = nullptr;      // [n, hidden]
        const int32_t* ids = nullptr;  // [n, n_used]
        float* out = nullptr;          // [n * n_used, hidden]: the answer
    };

    // Begins a step. Call it before the stream gets the step's operations. All turns of the previous step must have been
    // collected or given up, and the stream must have been synchronised.
    virtual void begin() = 0;
    // Waits until the device has posted the turn. Returns false once the step is given up; gives it up if `cancel` is triggered. Throws device_lost.
    virtual bool wait(int64_t turn, const CancelToken* cancel) = 0;
    virtual Turn turn() const noexcept = 0;
    // Lets the device continue. The caller has written the host's slots of `out`.
    virtual void answer(int64_t turn) noexcept = 0;
    // Lets the device continue through all turns of the step. The results that it computes from then on are garbage. Any thread.
    virtual void give_up() noexcept = 0;
};

}  // namespace minim::backend
