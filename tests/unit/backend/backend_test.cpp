// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include <array>

#include "support/catch.h"

using namespace minim;
using namespace minim::backend;

TEST_CASE("a matrix of an expert stack has the stack's shape and the expert's rows and scale") {
    const std::array<std::byte, 3> places{};
    ExpertStack stack;
    stack.format = Format::bf16;
    stack.rows = 4;
    stack.cols = 6;
    stack.row_bytes = 12;
    stack.expert = {&places[0], &places[1], &places[2]};
    CHECK(stack.n_expert() == 3);
    CHECK(stack.matrix(1).data == &places[1]);
    CHECK(stack.matrix(2).format == Format::bf16);
    CHECK(stack.matrix(2).rows == 4);
    CHECK(stack.matrix(2).cols == 6);
    CHECK(stack.matrix(2).row_bytes == 12);
    CHECK(stack.matrix(2).scale == 1.0F);
    stack.scale = {1.0F, 2.0F, 3.0F};
    CHECK(stack.matrix(2).scale == 3.0F);
}
