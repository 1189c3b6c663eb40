// SPDX-License-Identifier: Apache-2.0
// Includes Catch2: version 2 is one header, version 3 has many.
#pragma once

#ifdef MINIM_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
