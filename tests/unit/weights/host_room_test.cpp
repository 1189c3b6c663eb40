// SPDX-License-Identifier: Apache-2.0
#include "weights/host_room.h"

#include <deque>
#include <memory>

#include "layouts/layout.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::weights {
namespace {

using test::expect_error;

// Two layers of two experts with 1,000 bytes each, and 500 bytes that are no expert's.
struct Weights {
    std::deque<WeightSpec> specs;
    DeviceWeights part{nullptr, {}};

    Weights() {
        add(-1, -1, 500);
        for (const int32_t layer : {3, 4})
            for (const int32_t expert : {0, 1}) add(layer, expert, 1000);
    }
    void add(int32_t layer, int32_t expert, int64_t bytes) {
        WeightSpec& spec = specs.emplace_back();
        spec.layer = layer;
        spec.expert = expert;
        spec.rows = 1;
        spec.row_bytes = bytes;
        part.weights.push_back(&spec);
    }
};

}  // namespace

TEST_CASE("weights that fit in host memory are not refused") {
    const Weights weights;
    check_host_room(weights.part, 4500, 4500);
    check_host_room(weights.part, 4500, UINT64_MAX);
}

TEST_CASE("weights that do not fit in host memory are refused with what would fit") {
    Weights weights;
    const auto refusal_with = [&](uint64_t available, std::string_view part) {
        expect_error(Status::out_of_memory, part, [&] { check_host_room(weights.part, 4500, available); });
    };
    refusal_with(
        4499,
        "4500 bytes needed, 4499 bytes available; they fit with the experts of 1 of 2 layers on devices");
    refusal_with(2500, "experts of 1 of 2 layers");
    refusal_with(2499, "experts of 2 of 2 layers");
    refusal_with(499, "499 bytes available; mapped from their file they need no memory of the process");
    weights.specs.back().source.assembled = std::make_shared<const layouts::AssembledRows>();
    refusal_with(499, "mapped from a packed file");
    weights.specs.back().source.assembled = nullptr;
    weights.specs.back().source.columns = ColumnCut{.first_byte = 0, .row_bytes = 2000};
    refusal_with(499, "mapped from a packed file");
}

TEST_CASE("the refusal of weights has the bytes as facts") {
    const Weights weights;
    const auto error = test::error_of([&] { check_host_room(weights.part, 4500, 7); });
    REQUIRE(error.has_value());
    CHECK(error->facts().requested == 4500);
    CHECK(error->facts().available == 7);
}

}  // namespace minim::weights
