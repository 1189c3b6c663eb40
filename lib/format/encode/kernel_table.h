// SPDX-License-Identifier: Apache-2.0
// The kernels of all formats for one kind of lanes.
#pragma once

#include "format/encode/blocks_of_32.h"
#include "format/encode/constrained.h"
#include "format/encode/float_codes.h"
#include "format/encode/folder_codes.h"
#include "format/encode/grids.h"
#include "format/encode/kernels.h"
#include "format/encode/signed_grids.h"
#include "format/encode/value_tables.h"
#include "format/encode/with_minima.h"

namespace minim::encoding {

template <class V>
inline constexpr FolderKernels k_folder_kernels = {encode_nvfp4_folder_row<V>, encode_mxfp4_folder_row<V>,
                                                   encode_integer_row<V>};

template <class V>
RowKernel kernel_of(Format format) noexcept {
    switch (format) {
        case Format::q4_0:
            return encode_blocks_of_32<V, Q4_0, WholeNumbers<-8, 7>>;
        case Format::q5_0:
            return encode_blocks_of_32<V, Q5_0, WholeNumbers<-16, 15>>;
        case Format::q6_0:
            return encode_blocks_of_32<V, Q6_0, WholeNumbers<-32, 31>>;
        case Format::iq4_nl:
            return encode_blocks_of_32<V, IQ4_NL, TableValues<k_nearest_iq4nl>>;
        case Format::q4_1:
            return encode_blocks_with_minimum<V, Q4_1, 15>;
        case Format::q5_1:
            return encode_blocks_with_minimum<V, Q5_1, 31>;
        case Format::q2_k:
            return encode_k_blocks<V, Q2_K, 16, 3, 15>;
        case Format::q4_k:
            return encode_k_blocks<V, Q4_K, 8, 15, 63>;
        case Format::q5_k:
            return encode_k_blocks<V, Q5_K, 8, 31, 63>;
        case Format::q3_k:
            return encode_table_blocks<V, Q3_K, OneTable<WholeNumbers<-4, 3>>, WholeScales<-32, 31>, 16>;
        case Format::q6_k:
            return encode_table_blocks<V, Q6_K, OneTable<WholeNumbers<-32, 31>>, WholeScales<-128, 127>, 16>;
        case Format::iq4_xs:
            return encode_table_blocks<V, IQ4_XS, OneTable<TableValues<k_nearest_iq4nl>>,
                                       WholeScales<-32, 31>, 32>;
        case Format::iq2_k:
            return encode_table_blocks<V, IQ2_K, Iq2kTables, WholeScales<-8, 7>, 16>;
        case Format::iq3_k:
            return encode_table_blocks<V, IQ3_K, Iq3kTables, OddScales<-31, 31>, 16>;
        case Format::iq4_k:
            return encode_table_blocks<V, IQ4_K, Iq4kTables, WholeScales<-32, 31>, 16>;
        case Format::iq5_k:
            return encode_table_blocks<V, IQ5_K, Iq5kTables, WholeScales<-32, 31>, 16>;
        case Format::iq6_k:
            return encode_table_blocks<V, IQ6_K, Iq6kTables, WholeScales<-128, 127>, 16>;
        case Format::iq2_ks:
            return encode_table_rows<V, IQ2_KS, Iq2kTables, WholeScales<-16, 15>>;
        case Format::iq3_ks:
            return encode_table_rows<V, IQ3_KS, Iq3kTables, WholeScales<-16, 15>>;
        case Format::iq4_ks:
            return encode_table_rows<V, IQ4_KS, Iq4kTables, OddScales<-127, 127>>;
        case Format::iq5_ks:
            return encode_table_rows<V, IQ5_KS, Iq5kTables, OddScales<-127, 127>>;
        case Format::iq2_xxs:
            return encode_grid_blocks<V, IQ2_XXS_Grid, 8, 31>;
        case Format::iq2_xs:
            return encode_grid_blocks<V, IQ2_XS_Grid, 8, 31>;
        case Format::iq2_s:
            return encode_grid_blocks<V, IQ2_S_Grid, 8, 31>;
        case Format::iq3_xxs:
            return encode_grid_blocks<V, IQ3_XXS_Grid, 4, 31>;
        case Format::iq3_s:
            return encode_grid_blocks<V, IQ3_S_Grid, 1, 31>;
        case Format::iq1_s:
            return encode_signed_blocks<V, IQ1_S, false>;
        case Format::iq1_m:
            return encode_signed_blocks<V, IQ1_M, true>;
        case Format::nvfp4:
            return encode_nvfp4<V>;
        case Format::mxfp4:
            return encode_mxfp4<V>;
        case Format::iq4_kss:
            return encode_iq4_kss<V>;
        case Format::iq2_kl:
            return encode_iq2_kl<V>;
        default:
            return nullptr;
    }
}

}  // namespace minim::encoding
