// The kernel table of a vocabulary. A constant: nothing runs before it is asked for.
#pragma once

#include "cpu/generic/linear_256.h"
#include "cpu/generic/linear_32.h"
#include "cpu/generic/linear_float.h"
#include "cpu/generic/quantize.h"
#include "cpu/generic/rows.h"

namespace minim::cpu::generic {

template <class V>
constexpr KernelTable make_table(const char* name) {
    KernelTable table = {};
    table.name = name;
    table.linear_f32 = {Activation::f32, linear_float<V, F32Elements<V>>};
    table.linear_f16 = {Activation::f32, linear_float<V, F16Elements<V>>};
    table.linear_bf16 = {Activation::f32, linear_float<V, Bf16Elements<V>>};
    table.linear_q8_0 = {Activation::q8, linear_32<V, Q8_0Blocks<V>>};
    table.linear_iq4_nl = {Activation::q8, linear_32<V, Iq4NlBlocks<V>>};
    table.linear_q4_k = {Activation::q8, linear_256<V, Q4KBlocks<V>>};
    table.linear_q6_k = {Activation::q8, linear_256<V, Q6KBlocks<V>>};
    table.linear_iq4_xs = {Activation::q8, linear_256<V, Iq4XsBlocks<V>>};
    table.quantize_q8 = quantize_q8<V>;
    table.rms_norm = rms_norm<V>;
    table.sigmoid = sigmoid<V>;
    table.silu_mul = silu_mul<V>;
    table.add_scaled = add_scaled<V>;
    table.softmax_exp = softmax_exp<V>;
    table.weighted_sum_f32 = weighted_sum<V, F32Elements<V>>;
    table.weighted_sum_f16 = weighted_sum<V, F16Elements<V>>;
    table.narrow_f16 = narrow_f16<V>;
    return table;
}

}  // namespace minim::cpu::generic
