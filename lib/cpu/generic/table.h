// The kernel table of an instruction set: V its vectors, L its lanes. A constant: nothing runs before it is
// asked for.
#pragma once

#include "cpu/generic/linear_float.h"
#include "cpu/generic/linear_panel.h"
#include "cpu/generic/panels/blocks_of_32.h"
#include "cpu/generic/panels/grids.h"
#include "cpu/generic/panels/k_quants.h"
#include "cpu/generic/panels/ternary.h"
#include "cpu/generic/panels/trellis.h"
#include "cpu/generic/panels/value_tables.h"
#include "cpu/generic/quantize.h"
#include "cpu/generic/rows.h"

namespace minim::cpu::generic {

template <class L, class... Panels>
constexpr void add_panel_kernels(KernelTable& table) {
    ((table.linear[static_cast<size_t>(Panels::Block::format)] = {Activation::q8, linear_panels<L, Panels>}),
     ...);
}

template <class V, class L>
constexpr KernelTable make_table(const char* name) {
    KernelTable table = {};
    table.name = name;
    table.linear[static_cast<size_t>(Format::f32)] = {Activation::f32, linear_float<V, F32Elements<V>>};
    table.linear[static_cast<size_t>(Format::f16)] = {Activation::f32, linear_float<V, F16Elements<V>>};
    table.linear[static_cast<size_t>(Format::bf16)] = {Activation::f32, linear_float<V, Bf16Elements<V>>};
    add_panel_kernels<
        L, Q4_0Panel<L>, Q4_1Panel<L>, Q5_0Panel<L>, Q5_1Panel<L>, Q8_0Panel<L>, Q6_0Panel<L>, Iq4NlPanel<L>,
        Mxfp4Panel<L>, Nvfp4Panel<L>, Q1_0Panel<L>, Q2_0Panel<L>, Tq1Panel<L>, Tq2Panel<L>, Q2KPanel<L>,
        Q3KPanel<L>, Q4KPanel<L>, Q5KPanel<L>, Q6KPanel<L>, Iq1SPanel<L>, Iq1MPanel<L>, Iq2XxsPanel<L>,
        Iq2XsPanel<L>, Iq2SPanel<L>, Iq3XxsPanel<L>, Iq3SPanel<L>, Iq4XsPanel<L>, Iq2KPanel<L>, Iq3KPanel<L>,
        Iq4KPanel<L>, Iq5KPanel<L>, Iq6KPanel<L>, Iq2KsPanel<L>, Iq3KsPanel<L>, Iq4KsPanel<L>, Iq5KsPanel<L>,
        Iq4KssPanel<L>, Iq2KlPanel<L>, Iq1KtPanel<L>, Iq2KtPanel<L>, Iq3KtPanel<L>, Iq4KtPanel<L>>(table);
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
