// SPDX-License-Identifier: Apache-2.0
// All block layouts, as a list that templates can walk: one kernel written against a layout becomes one for
// each format.
#pragma once

#include "format/fp8_e4m3_b128.h"
#include "format/int4.h"
#include "format/int8.h"
#include "format/iq1_m.h"
#include "format/iq1_s.h"
#include "format/iq2_k.h"
#include "format/iq2_kl.h"
#include "format/iq2_s.h"
#include "format/iq2_xs.h"
#include "format/iq2_xxs.h"
#include "format/iq3_k.h"
#include "format/iq3_s.h"
#include "format/iq3_xxs.h"
#include "format/iq4_k.h"
#include "format/iq4_ks.h"
#include "format/iq4_nl.h"
#include "format/iq4_xs.h"
#include "format/iq5_k.h"
#include "format/iq6_k.h"
#include "format/mxfp4.h"
#include "format/mxfp8.h"
#include "format/nvfp4.h"
#include "format/plain.h"
#include "format/q1_0.h"
#include "format/q2_k.h"
#include "format/q3_k.h"
#include "format/q4_0.h"
#include "format/q4_k.h"
#include "format/q5_0.h"
#include "format/q5_k.h"
#include "format/q6_0.h"
#include "format/q6_k.h"
#include "format/q8_0.h"
#include "format/tq1_0.h"
#include "format/tq2_0.h"
#include "format/trellis.h"
#include "format/x1.h"
#include "format/x2.h"
#include "format/x3.h"

namespace minim {

template <typename... Blocks>
struct BlockList {};

// Every format of files that has a decoder.
using AllBlocks = BlockList<F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q6_0, IQ4_NL, MXFP4, NVFP4, Q1_0,
                            Q2_0, TQ1_0, TQ2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS,
                            IQ2_S, IQ3_XXS, IQ3_S, IQ4_XS, IQ2_K, IQ3_K, IQ4_K, IQ5_K, IQ6_K, IQ2_KS, IQ3_KS,
                            IQ4_KS, IQ5_KS, IQ4_KSS, IQ2_KL, IQ1_KT, IQ2_KT, IQ3_KT, IQ4_KT, FP8_E4M3_B128,
                            MXFP8, INT4_S64, INT4_S128, INT4_Z32, INT4_Z64, INT4_Z128, INT4_ROW, INT4_W32,
                            INT8_S64, INT8_S128, INT8_Z32, INT8_Z64, INT8_Z128, INT8_ROW, INT8_W32>;
using UnpackedBlocks = BlockList<X1_S, X1_M, X2_XXS, X2_XS, X2_S, X3_XXS, X3_S>;

// Calls visit(Block{}) for each block of the list.
template <typename Visit, typename... Blocks>
void for_each_block(BlockList<Blocks...>, Visit&& visit) {
    (visit(Blocks{}), ...);
}

// Calls visit(Block{}) for the block of `format`. Returns false, without a call, if the list does not have it.
template <typename Visit, typename... Blocks>
bool with_block(BlockList<Blocks...>, Format format, Visit&& visit) {
    return ((Blocks::format == format && (visit(Blocks{}), true)) || ...);
}

}  // namespace minim
