// y = W h for weights in panels (../panel.h) and q8 inputs. A format's part is its Panel type (panels/): it
// turns a block into units of 32 columns, each eight vectors of codes with one scale for 32 columns or two
// for 16 each, and minima where the format has them:
//
//   y(row) = sum over groups of columns of
//              scale(row) a_scale (code(row) . a_code) + minimum(row) a_scale sum(a_code)
//
// The dot is a sum of integers, exact; groups are added in their order, one fused multiply-add each, so a sum
// does not depend on the width of a register or on who else is computed.
//
// One input row: unpacking and dots go together. Several: a panel is unpacked once, into scratch, and every
// tile of input rows passes over it there. Both do the same arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/kernel_inline.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"

namespace minim::cpu::generic {

// How the codes of a format are multiplied (scalar/lanes.h).
enum class Codes : uint8_t {
    small,  // 0 .. k_largest <= 127, which stand for the numbers k_offset lower
    wide,   // signed bytes
};

template <class L>
struct Unit {
    typename L::Int code[8];
    typename L::Float scale[2];
    typename L::Float minimum[2];
};

// One block of a panel, for the lanes from `lane` on; places are given as in the block of a row.
template <class L>
struct PanelBlock {
    using Int = typename L::Int;
    using Float = typename L::Float;

    const std::byte* data;
    int lane;

    Int word(int at) const { return L::load(data + k_panel_rows * at + 4 * lane); }
    Int half(int at) const { return L::load_u16(data + k_panel_rows * at + 2 * lane); }
    Int byte(int at) const { return L::load_u8(data + k_panel_rows * at + lane); }
    Float f16(int at) const { return L::load_f16(data + k_panel_rows * at + 2 * lane); }
    Float f32(int at) const {
        return L::load_f32(reinterpret_cast<const float*>(data + k_panel_rows * at) + lane);
    }
};

// What the arithmetic needs to know of a format.
template <Codes codes, int largest, int offset, int n_groups, bool has_minima>
struct PanelKind {
    static constexpr Codes k_codes = codes;
    static constexpr int k_largest = largest;
    static constexpr int k_offset = offset;
    static constexpr int k_groups = n_groups;  // of a unit: 1 or 2
    static constexpr bool k_minima = has_minima;
};

// Where the parts of the input rows of a tile lie, from the unit at hand on.
template <int n_tokens>
struct InputTile {
    const int8_t* code[n_tokens];
    const float* scale[n_tokens];
    const int16_t* sum[n_tokens];
    const float* scaled_sum[n_tokens];

    InputTile(const LinearArgs& args, int64_t t0) {
        const ActivationLayout layout = activation_layout(Activation::q8, args.cols);
        for (int t = 0; t < n_tokens; ++t) {
            const int64_t row = args.input_rows != nullptr ? args.input_rows[t0 + t] : t0 + t;
            const std::byte* input = args.input + row * args.input_row_bytes;
            code[t] = reinterpret_cast<const int8_t*>(input);
            scale[t] = reinterpret_cast<const float*>(input + layout.scale_offset);
            sum[t] = reinterpret_cast<const int16_t*>(input + layout.sum_offset);
            scaled_sum[t] = reinterpret_cast<const float*>(input + layout.scaled_sum_offset);
        }
    }
    MINIM_KERNEL_INLINE void next() {
        for (int t = 0; t < n_tokens; ++t) {
            code[t] += 32;
            scale[t] += 1;
            sum[t] += 2;
            scaled_sum[t] += 2;
        }
    }
};

template <class L, class Kind, int n_tokens>
MINIM_KERNEL_INLINE void add_unit(const Unit<L>& unit, const InputTile<n_tokens>& input,
                                  typename L::Float* sum) {
    constexpr int k_vectors = 8 / Kind::k_groups;
    constexpr int k_offset = Kind::k_codes == Codes::wide ? L::k_wide_offset : Kind::k_offset;
    for (int g = 0; g < Kind::k_groups; ++g) {
        typename L::Int dot[n_tokens];
        const int8_t* code[n_tokens];
        for (int t = 0; t < n_tokens; ++t) {
            code[t] = input.code[t] + 4 * k_vectors * g;
            int code_sum = input.sum[t][g];
            if (Kind::k_groups == 1) code_sum += input.sum[t][1];
            dot[t] = L::all(k_offset == 0 ? 0 : -k_offset * code_sum);
        }
        if constexpr (Kind::k_codes == Codes::wide) {
            L::template dot_wide<k_vectors, n_tokens>(dot, unit.code + k_vectors * g, code);
        } else {
            L::template dot_small<k_vectors, Kind::k_largest, n_tokens>(dot, unit.code + k_vectors * g, code);
        }
        for (int t = 0; t < n_tokens; ++t) {
            const auto factor = L::mul(unit.scale[g], L::all(input.scale[t][0]));
            sum[t] = L::fma(L::to_float(dot[t]), factor, sum[t]);
            if constexpr (Kind::k_minima) {
                const float scaled = Kind::k_groups == 1 ? input.scaled_sum[t][0] + input.scaled_sum[t][1]
                                                         : input.scaled_sum[t][g];
                sum[t] = L::fma(unit.minimum[g], L::all(scaled), sum[t]);
            }
        }
    }
}

// y of the panel's rows, of which the last panel may have fewer than 16.
template <class L>
MINIM_KERNEL_INLINE void put_lanes(const LinearArgs& args, int64_t panel, int lane, int64_t t,
                                   typename L::Float sum) {
    const int64_t row = panel * k_panel_rows + lane;
    const int64_t count = args.n_rows - row;
    if (count <= 0) return;
    const auto scaled = L::mul(sum, L::all(args.scale));
    float* y = args.y + t * args.y_stride + row;
    if (count >= L::k_width) {
        L::store(y, args.add ? L::add(L::load_f32(y), scaled) : scaled);
        return;
    }
    float lanes[L::k_width];
    L::store(lanes, scaled);
    for (int64_t r = 0; r < count; ++r) y[r] = args.add ? y[r] + lanes[r] : lanes[r];
}

template <class P, class Visit, int... unit>
MINIM_KERNEL_INLINE void visit_units(const P& block, const Visit& visit,
                                     std::integer_sequence<int, unit...>) {
    (visit(block, std::integral_constant<int, unit>()), ...);
}

// visit(block, unit number as a constant) for every unit of a panel, in order.
template <class L, class P, class Visit>
MINIM_KERNEL_INLINE void for_each_unit(const std::byte* panel, int64_t cols, int lane, const Visit& visit) {
    constexpr int k_block_bytes = static_cast<int>(k_panel_rows) * P::Block::block_bytes;
    const PanelBlock<L> header = {panel, lane};
    PanelBlock<L> block = {panel + k_panel_rows * P::Block::row_header_bytes, lane};
    for (int64_t b = 0; b < cols / P::Block::block_elems; ++b) {
        visit_units(P(header, block), visit, std::make_integer_sequence<int, P::Block::block_elems / 32>());
        block.data += k_block_bytes;
    }
}

// args.weight: whole panels, the bytes of row r at r * row_bytes on average; one token.
template <class L, class P>
void linear_panels_1(const LinearArgs& args) {
    for (int64_t panel = 0; panel * k_panel_rows < args.n_rows; ++panel) {
        const std::byte* data = args.weight + panel * k_panel_rows * args.row_bytes;
        for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
            InputTile<1> input(args, 0);
            typename L::Float sum = L::zero();
            for_each_unit<L, P>(data, args.cols, lane, [&](const P& block, auto number) {
                Unit<L> unit;
                block.template unpack<number>(unit);
                add_unit<L, typename P::Kind, 1>(unit, input, &sum);
                input.next();
            });
            put_lanes<L>(args, panel, lane, 0, sum);
        }
    }
}

// An unpacked panel: for each unit, codes [8][16] words, then scales [groups][16], then minima [groups][16].
template <class Kind>
inline constexpr int64_t k_unpacked_unit_bytes = 8 * 64 + Kind::k_groups * 64 * (Kind::k_minima ? 2 : 1);

template <class L, class P>
void unpack_panel_units(const std::byte* panel, int64_t cols, std::byte* out) {
    using Kind = typename P::Kind;
    for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
        std::byte* to = out + 4 * lane;
        for_each_unit<L, P>(panel, cols, lane, [&](const P& block, auto number) {
            Unit<L> unit;
            block.template unpack<number>(unit);
            for (int k = 0; k < 8; ++k) L::store(to + 64 * k, unit.code[k]);
            for (int g = 0; g < Kind::k_groups; ++g) {
                L::store(reinterpret_cast<float*>(to + 512 + 64 * g), unit.scale[g]);
                if constexpr (Kind::k_minima) {
                    L::store(reinterpret_cast<float*>(to + 512 + 64 * (Kind::k_groups + g)), unit.minimum[g]);
                }
            }
            to += k_unpacked_unit_bytes<Kind>;
        });
    }
}

template <class L, class Kind>
MINIM_KERNEL_INLINE void load_unit(const std::byte* from, Unit<L>& unit) {
    for (int k = 0; k < 8; ++k) unit.code[k] = L::load(from + 64 * k);
    for (int g = 0; g < Kind::k_groups; ++g) {
        unit.scale[g] = L::load_f32(reinterpret_cast<const float*>(from + 512 + 64 * g));
        if constexpr (Kind::k_minima) {
            unit.minimum[g] =
                L::load_f32(reinterpret_cast<const float*>(from + 512 + 64 * (Kind::k_groups + g)));
        }
    }
}

template <class L, class Kind, int n_tokens>
void linear_unpacked_tile(const LinearArgs& args, const std::byte* unpacked, int64_t panel, int64_t t0) {
    for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
        InputTile<n_tokens> input(args, t0);
        typename L::Float sum[n_tokens];
        for (auto& lanes : sum) lanes = L::zero();
        const std::byte* from = unpacked + 4 * lane;
        for (int64_t u = 0; u < args.cols / 32; ++u) {
            Unit<L> unit;
            load_unit<L, Kind>(from, unit);
            add_unit<L, Kind, n_tokens>(unit, input, sum);
            input.next();
            from += k_unpacked_unit_bytes<Kind>;
        }
        for (int t = 0; t < n_tokens; ++t) put_lanes<L>(args, panel, lane, t0 + t, sum[t]);
    }
}

template <class L, class Kind>
void linear_unpacked(const LinearArgs& args, const std::byte* unpacked, int64_t panel) {
    int64_t t = 0;
    for (; t + L::k_token_tile <= args.n_tokens; t += L::k_token_tile) {
        linear_unpacked_tile<L, Kind, L::k_token_tile>(args, unpacked, panel, t);
    }
    if constexpr (L::k_token_tile > 4) {
        if (t + 4 <= args.n_tokens) {
            linear_unpacked_tile<L, Kind, 4>(args, unpacked, panel, t);
            t += 4;
        }
    }
    if constexpr (L::k_token_tile > 2) {
        if (t + 2 <= args.n_tokens) {
            linear_unpacked_tile<L, Kind, 2>(args, unpacked, panel, t);
            t += 2;
        }
    }
    for (; t < args.n_tokens; ++t) linear_unpacked_tile<L, Kind, 1>(args, unpacked, panel, t);
}

// Any number of tokens; args.scratch holds an unpacked panel.
template <class L, class P>
void linear_panels(const LinearArgs& args) {
    if (args.n_tokens == 1) return linear_panels_1<L, P>(args);
    for (int64_t panel = 0; panel * k_panel_rows < args.n_rows; ++panel) {
        unpack_panel_units<L, P>(args.weight + panel * k_panel_rows * args.row_bytes, args.cols,
                                 args.scratch);
        linear_unpacked<L, typename P::Kind>(args, args.scratch, panel);
    }
}

template <class L, class... Panels>
constexpr LinearKernels panel_kernels() {
    LinearKernels kernels = {};
    ((kernels.by_format[static_cast<size_t>(Panels::Block::format)] = {Activation::q8,
                                                                       linear_panels<L, Panels>}),
     ...);
    return kernels;
}

}  // namespace minim::cpu::generic
