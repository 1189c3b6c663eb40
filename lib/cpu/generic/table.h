// SPDX-License-Identifier: Apache-2.0
// The kernel table of an instruction set, whose vectors are V. The table is a constant: no code runs at start-up.
#pragma once

#include "cpu/generic/attention.h"
#include "cpu/generic/code_scores.h"
#include "cpu/generic/exp.h"
#include "cpu/generic/linear_float.h"
#include "cpu/generic/quantize.h"
#include "cpu/generic/rows.h"

namespace minim::cpu::generic {

template <class V, class Elements>
constexpr KvKernels kv_kernels(Format format) {
    return {format, scores<V, Elements>, nullptr, weighted_sum<V, Elements>};
}

template <class V, class Elements, class Codes>
constexpr KvKernels kv_kernels_of_codes(Format format) {
    return {format, scores_of_codes<V, Codes>, quantize_query<V>, weighted_sum<V, Elements>};
}

template <class V>
constexpr KernelTable make_table(const char* name, const LinearKernelFamilies& linear) {
    KernelTable table = {};
    table.name = name;
    table.linear = linear;
    table.quantize_q8 = quantize_q8<V>;
    table.rms_norm = rms_norm<V>;
    table.sum_squares = sum_squares<V>;
    table.normalise = normalise<V>;
    table.sigmoid = sigmoid<V>;
    table.silu_mul = silu_mul<V>;
    table.clamped_silu_mul = clamped_silu_mul<V>;
    table.add_scaled = add_scaled<V>;
    table.softmax_exp = softmax_exp<V>;
    table.kv[0] = kv_kernels<V, F32Elements<V>>(Format::f32);
    table.kv[1] = kv_kernels<V, F16Elements<V>>(Format::f16);
    table.kv[2] = kv_kernels<V, Bf16Elements<V>>(Format::bf16);
    table.kv[3] = kv_kernels_of_codes<V, Q8_0Elements<V>, Q8_0Codes<V>>(Format::q8_0);
    table.kv[4] = kv_kernels_of_codes<V, Q4_0Elements<V>, Q4_0Codes<V>>(Format::q4_0);
    table.narrow_f16 = narrow_f16<V>;
    return table;
}

}  // namespace minim::cpu::generic
