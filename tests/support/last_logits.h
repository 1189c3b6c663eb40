// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/session.h"

namespace minim::test {

// Returns the logits after the last token, which is evaluated first if needed.
inline std::span<const float> last_logits_of(engine::Session& session) {
    session.eval_last(nullptr);
    return session.known_logits();
}

}  // namespace minim::test
