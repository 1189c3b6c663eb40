// SPDX-License-Identifier: Apache-2.0
#include "weights/choose_storage.h"

#include "base/memory_info.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace {

using minim::checkpoint::HostStorage;
using minim::weights::choose_host_storage;

TEST_CASE("weights are owned where kernels gain by it and memory allows, unless the caller says otherwise") {
    const minim::test::Lines lines;
    const uint64_t too_much = minim::available_memory_bytes();
    CHECK(choose_host_storage({}, 1 << 20, true, lines.log) == HostStorage::owned);
    CHECK(choose_host_storage({}, 1 << 20, false, lines.log) == HostStorage::mapped);
    CHECK(choose_host_storage({}, too_much, false, lines.log) == HostStorage::mapped);
    CHECK(choose_host_storage(HostStorage::mapped, 1 << 20, true, lines.log) == HostStorage::mapped);
    CHECK(choose_host_storage(HostStorage::owned, too_much, true, lines.log) == HostStorage::owned);
    CHECK(lines.all.empty());

    CHECK(choose_host_storage({}, too_much, true, lines.log) == HostStorage::mapped);
    CHECK(lines.holding(std::to_string(too_much)) == 1);
}

}  // namespace
