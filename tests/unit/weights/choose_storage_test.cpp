// SPDX-License-Identifier: Apache-2.0
#include "weights/choose_storage.h"

#include "base/memory_info.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace {

using minim::checkpoint::Residence;
using minim::weights::choose_residence;

TEST_CASE("weights are owned where kernels gain by it and memory allows, unless the caller says otherwise") {
    const minim::test::Lines lines;
    const uint64_t too_much = minim::available_memory_bytes();
    CHECK(choose_residence({}, 1 << 20, true, lines.log) == Residence::owned);
    CHECK(choose_residence({}, 1 << 20, false, lines.log) == Residence::mapped);
    CHECK(choose_residence({}, too_much, false, lines.log) == Residence::mapped);
    CHECK(choose_residence(Residence::mapped, 1 << 20, true, lines.log) == Residence::mapped);
    CHECK(choose_residence(Residence::owned, too_much, true, lines.log) == Residence::owned);
    CHECK(lines.all.empty());

    CHECK(choose_residence({}, too_much, true, lines.log) == Residence::mapped);
    CHECK(lines.holding(std::to_string(too_much)) == 1);
}

}  // namespace
