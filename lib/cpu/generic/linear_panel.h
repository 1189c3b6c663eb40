// SPDX-License-Identifier: Apache-2.0
// y = W h for weights in panels (panel/panel.h) and q8 inputs. What differs between formats is the Panel type (lib/panel/),
// which unpacks a block into units of 32 columns (panel_units.h):
//
//   y(row) = sum over groups of columns of
//              scale(row) a_scale (code(row) . a_code) + minimum(row) a_scale sum(a_code)
//
// The dot is an exact sum of integers. Groups are added in order, one fused multiply-add each, so a sum does not depend on the
// width of a register or on batch composition.
//
// With few input rows, weights are multiplied as they are unpacked. With more, a panel is unpacked into scratch, 256 columns at a
// time, and multiplied there, in the first-level cache, with every tile of input rows; the sums stay in scratch meanwhile.
// 8-bit codes need no unpacking and are read in place. All these paths do the same arithmetic, and prefetch the next weights
// while they compute. They are in one long file because they share their loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/generic/panel_units.h"
#include "cpu/kernels.h"
#include "panel/kernel_inline.h"
#include "panel/panel.h"

namespace minim::cpu::generic {

// The input rows of a tile, from the current unit on.
template <int n_tokens>
struct InputTile {
    const Q8Block* block[n_tokens];

    // Takes tokens t0 .. t0 + n_tokens - 1.
    InputTile(const LinearArgs& args, int64_t t0, int64_t unit) {
        for (int t = 0; t < n_tokens; ++t) block[t] = row(args, t0 + t) + unit;
    }
    // Takes all tokens; if there are fewer than n_tokens, repeats the last one.
    InputTile(const LinearArgs& args, int64_t unit) {
        for (int t = 0; t < n_tokens; ++t)
            block[t] = row(args, t < args.n_tokens ? t : args.n_tokens - 1) + unit;
    }
    static const Q8Block* row(const LinearArgs& args, int64_t token) {
        const int64_t row = args.input_rows != nullptr ? args.input_rows[token] : token;
        return reinterpret_cast<const Q8Block*>(args.input + row * args.input_row_bytes);
    }
    // Takes tokens t0 .. t0 + n_tokens - 1; repeats the last one behind the end.
    static MINIM_KERNEL_INLINE InputTile clamped(const LinearArgs& args, int64_t t0, int64_t unit) {
        InputTile tile;
        for (int t = 0; t < n_tokens; ++t)
            tile.block[t] = row(args, t0 + t < args.n_tokens ? t0 + t : args.n_tokens - 1) + unit;
        return tile;
    }
    MINIM_KERNEL_INLINE void next() {
        for (int t = 0; t < n_tokens; ++t) ++block[t];
    }

  private:
    InputTile() = default;
};

// The number of strips of L::k_width rows in a panel.
template <class L>
inline constexpr int k_panel_strips = static_cast<int>(k_panel_rows) / L::k_width;

// The number of vectors of codes in a group of a unit's columns.
template <class Kind>
inline constexpr int k_group_vectors = 8 / Kind::k_groups;

// Lanes whose dots begin with a number of their own, so that they can be converted to floats in another way (neon_dotprod/lanes.h).
template <class L>
concept StartsDots = requires(typename L::Int dot) {
    L::first_dot(dot);
    L::float_of_dot(dot);
};

// Returns the offset of the weights' codes times the sum of the block's codes, subtracted from 0.
template <class Kind, int offset>
MINIM_KERNEL_INLINE int32_t minus_offset(const Q8Block& block, int group) {
    if constexpr (offset == 0) return 0;
    return -offset * (Kind::k_groups == 1 ? block.sum[0] + block.sum[1] : block.sum[group]);
}

// Returns the start value of a dot with group `group` of a block: the offset and the shift of the weights' codes, times the sum
// of the block's codes.
template <class L, class Kind>
MINIM_KERNEL_INLINE typename L::Int first_dot(const Q8Block& block, int group, const typename L::Int* shift) {
    constexpr int k_offset = Kind::k_codes == Codes::wide ? L::k_wide_offset : Kind::k_offset;
    constexpr uint32_t k_half = -k_offset & 0xFFFF;
    const uint32_t halves = Kind::k_groups == 1 ? k_half * 0x00010001 : k_half << (16 * group);
    const auto offset = L::all(static_cast<int32_t>(halves));
    if constexpr (Kind::k_shifts) {
        // A shift is below 128, so its bits do not overlap those of -128.
        static_assert(k_offset == 0 || k_offset == 128);
        if constexpr (StartsDots<L>) {
            return L::first_dot(L::dot_halves(L::bit_or(shift[group], offset), block.sum));
        } else {
            return L::dot_halves(L::bit_or(shift[group], offset), block.sum);
        }
    } else if constexpr (StartsDots<L>) {
        return L::first_dot(minus_offset<Kind, k_offset>(block, group));
    } else if constexpr (k_offset == 0) {
        return L::all(0);
    } else if constexpr (Kind::k_groups == 1 && k_offset == k_unsigned_offset) {
        return L::all(block.unsigned_offset);
    } else {
        return L::dot_halves(offset, block.sum);
    }
}

// Returns sum + scale a_scale dot + minimum a_scale sum(a_code) of a group.
template <class L, class Kind>
MINIM_KERNEL_INLINE typename L::Float add_dot(typename L::Float sum, typename L::Int dot,
                                              typename L::Float scale, const typename L::Float* minimum,
                                              const Q8Block& block, int group) {
    if constexpr (StartsDots<L>) {
        sum = L::fma(L::float_of_dot(dot), L::mul(scale, L::all(block.scale)), sum);
    } else {
        sum = L::fma(L::to_float(dot), L::mul(scale, L::all(block.scale)), sum);
    }
    if constexpr (Kind::k_minima) {
        const float scaled = Kind::k_groups == 1 ? block.scaled_total : block.scaled_sum[group];
        sum = L::fma(*minimum, L::all(scaled), sum);
    }
    return sum;
}

template <class L, class Kind, int n_tokens>
MINIM_KERNEL_INLINE void add_unit(const Unit<L>& unit, const InputTile<n_tokens>& input,
                                  typename L::Float* sum) {
    constexpr int k_vectors = k_group_vectors<Kind>;
    for (int g = 0; g < Kind::k_groups; ++g) {
        typename L::Int dot[n_tokens];
        const int8_t* code[n_tokens];
        for (int t = 0; t < n_tokens; ++t) {
            code[t] = input.block[t]->code + 4 * k_vectors * g;
            dot[t] = first_dot<L, Kind>(*input.block[t], g, unit.shift);
        }
        if constexpr (Kind::k_codes == Codes::wide) {
            L::template dot_wide<k_vectors, n_tokens>(dot, unit.code + k_vectors * g, code);
        } else {
            L::template dot_small<k_vectors, Kind::k_largest, n_tokens>(dot, unit.code + k_vectors * g, code);
        }
        for (int t = 0; t < n_tokens; ++t)
            sum[t] = add_dot<L, Kind>(sum[t], dot[t], unit.scale[g], &unit.minimum[g], *input.block[t], g);
    }
}

// Writes y of the panel's rows; the last panel may have fewer than 16.
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

// True for formats whose units take few instructions.
template <class L, class P>
inline constexpr bool k_is_simple = P::Kind::k_groups == 1 && !UnpacksInLoop<L, P>;

// The lanes for one token: its sums leave registers free for the words that units share.
template <class L>
struct LanesForOne : L {
    static constexpr bool k_keeps_words = true;
};

// Formats whose units share words, on lanes that can keep them.
template <class L, class P>
concept KeepsForOne = requires(typename L::Int word) {
    L::keep_in_register(word);
    typename P::template With<LanesForOne<L>>;
};

// The lanes for a few tokens: their dots include the shift of the codes.
template <class L>
struct LanesAddingShifts : L {
    static constexpr bool k_adds_shifts_in_dots = true;
};

// Panels and lanes for a few tokens.
template <class L, class P>
struct ForFew {
    using Lanes = L;
    using Panel = P;
};
template <class L, class P>
requires requires {
    typename P::template AddingShifts<LanesAddingShifts<L>>;
}
struct ForFew<L, P> {
    using Lanes = LanesAddingShifts<L>;
    using Panel = typename P::template AddingShifts<Lanes>;
};

// True for formats whose kernels do little more than load memory for one token.
template <class P>
inline constexpr bool k_has_eight_bits = P::Block::block_bytes >= P::Block::block_elems;

// True for formats for which the hardware prefetcher suffices with one token: their units take few instructions, and they are
// read in sequence (a byte per weight; or, in a single pass over a block, four bits per weight, or with shared words kept in
// registers). Software prefetches would only disturb the hardware prefetcher.
template <class L, class P>
inline constexpr bool k_needs_no_requests = [] {
    using Block = typename P::Block;
    constexpr int k_bits = 8 * Block::block_bytes;
    constexpr bool k_has_four_bits = k_bits > 4 * Block::block_elems && k_bits <= 5 * Block::block_elems;
    constexpr bool k_keeps_words = panel::KeepsWords<L> && KeepsForOne<L, P>;
    constexpr bool k_is_one_pass = L::k_width == k_panel_rows;
    return !UnpacksInLoop<L, P> &&
           (k_has_eight_bits<P> || (k_is_one_pass && (k_has_four_bits || k_keeps_words)));
}();

// Whether to prefetch a whole block at a time for n_tokens: worth it if one pass decodes it and at most 4 tokens are
// multiplied. With two passes it is worth it if they do little more than load, which hides the sequence from the CPU's own
// prefetcher.
template <class L, class P, int n_tokens>
inline constexpr bool k_may_come_by_blocks = [] {
    if (UnpacksInLoop<L, P>) return false;
    if (L::k_width < k_panel_rows) return k_has_eight_bits<P> && n_tokens <= 2;
    return n_tokens <= 4 && !(k_has_eight_bits<P> && n_tokens == 1);
}();

// How far ahead to prefetch weights for a few tokens on CPUs whose own prefetcher helps.
template <class L, class P, int n_tokens>
inline constexpr ReadAheadDistance k_few_distance = [] {
    constexpr bool k_is_one_pass = L::k_width == k_panel_rows;
    if (n_tokens > 1) return k_much_work;
    if (k_is_simple<L, P>) return k_is_one_pass ? k_little_work : k_two_passes;
    return k_is_one_pass ? k_much_work_for_one : k_much_work;
}();

// Multiplies at most n_tokens tokens with each unit as soon as it is unpacked.
template <class L, class P, int n_tokens, class AnyReadAhead>
void linear_panels_of_few(const LinearArgs& args, AnyReadAhead read_ahead) {
    constexpr int k_parts = k_panel_strips<L>;
    using Float = typename L::Float;
    for (int64_t panel = 0; panel * k_panel_rows < args.n_rows; ++panel) {
        Float sums[k_parts][n_tokens];
        for (auto& part : sums) {
            for (Float& sum : part) sum = L::zero();
        }
        for_each_blocks<P>(args, panel, [&](const PanelBlocks<typename P::Block>& blocks) {
            for (int part = 0; part < k_parts; ++part) {
                InputTile<n_tokens> input(args, blocks.first_unit());
                Float sum[n_tokens];
                for (int t = 0; t < n_tokens; ++t) sum[t] = sums[part][t];
                for_each_unit<L, P>(blocks, part * L::k_width, read_ahead,
                                    [&](const Unit<L>& unit) MINIM_KERNEL_INLINE_LAMBDA {
                                        add_unit<L, typename P::Kind, n_tokens>(unit, input, sum);
                                        input.next();
                                    });
                for (int t = 0; t < n_tokens; ++t) sums[part][t] = sum[t];
            }
        });
        for (int part = 0; part < k_parts; ++part) {
            for (int t = 0; t < n_tokens && t < args.n_tokens; ++t)
                put_lanes<L>(args, panel, part * L::k_width, t, sums[part][t]);
        }
    }
}

template <class L, class P, int n_tokens>
void linear_panels_of_few(const LinearArgs& args) {
    constexpr bool k_by_blocks = k_may_come_by_blocks<L, P, n_tokens>;
    if constexpr (k_by_blocks) {
        if (args.needs_requests)
            return linear_panels_of_few<L, P, n_tokens>(args, ReadAheadByBlocks<typename P::Block>(args));
    }
    if constexpr (n_tokens == 1 && k_needs_no_requests<L, P>) {
        linear_panels_of_few<L, P, 1>(args, NoReadAhead());
    } else {
        constexpr ReadAheadDistance k_helped = k_few_distance<L, P, n_tokens>;
        const bool alone = !k_by_blocks && n_tokens > 1 && args.needs_requests;
        linear_panels_of_few<L, P, n_tokens>(args, ReadAhead(args, alone ? k_alone : k_helped));
    }
}

template <class L, class P>
void linear_panels_of_one(const LinearArgs& args) {
    linear_panels_of_few<L, P, 1>(args);
}

template <class L, class P>
requires KeepsForOne<L, P>
void linear_panels_of_one(const LinearArgs& args) {
    using One = LanesForOne<L>;
    linear_panels_of_few<One, typename P::template With<One>, 1>(args);
}

// An unpacked unit: codes [8][16] words, then scales [groups][16], then minima [groups][16].
template <class Kind>
inline constexpr int64_t k_unpacked_unit_bytes = 8 * 64 + Kind::k_groups * 64 * (Kind::k_minima ? 2 : 1);

// Lanes that multiply pairs of rows with pairs of tokens (neon_i8mm/lanes.h). Their unpacked units have the codes in pairs of rows.
template <class L>
concept MultipliesPairs = requires {
    L::k_tile_pairs;
};

// Kinds that such lanes multiply in pairs. With a scale for 16 columns, making the pairs costs what they save.
template <class L, class Kind>
inline constexpr bool k_in_pairs = MultipliesPairs<L>&& Kind::k_groups == 1;

template <class L, class P>
void unpack_blocks(const PanelBlocks<typename P::Block>& blocks, std::byte* out) {
    using Kind = typename P::Kind;
    static_assert(k_panel_cols / 32 * k_unpacked_unit_bytes<Kind> <=
                  static_cast<int64_t>(sizeof(PanelScratch::Panel::units)));
    for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
        std::byte* to = out + 4 * lane;
        for_each_unit<L, P>(blocks, lane, NoReadAhead(), [&](const Unit<L>& unit) MINIM_KERNEL_INLINE_LAMBDA {
            if constexpr (k_in_pairs<L, Kind>) {
                L::store_pairs(to + 4 * lane, unit.code);  // a strip has two pairs of 16 bytes
            } else {
                for (int k = 0; k < 8; ++k) L::store(to + 64 * k, unit.code[k]);
            }
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

// Some lanes of an unpacked unit.
template <class L, class UnitKind>
class UnpackedUnit {
  public:
    using Kind = UnitKind;
    using Float = typename L::Float;
    static constexpr bool k_signed_codes = false;

    UnpackedUnit() = default;
    UnpackedUnit(const std::byte* units, int lane) : data_(units + 4 * lane) {}
    MINIM_KERNEL_INLINE void next() { data_ += k_unpacked_unit_bytes<Kind>; }

    MINIM_KERNEL_INLINE const std::byte* codes(int group) const {
        return data_ + 64 * k_group_vectors<Kind> * group;
    }
    MINIM_KERNEL_INLINE Float scale(int group) const { return float_at(512 + 64 * group); }
    MINIM_KERNEL_INLINE Float minimum(int group) const {
        return float_at(512 + 64 * (Kind::k_groups + group));
    }
    MINIM_KERNEL_INLINE Unit<L> all() const {
        Unit<L> unit;
        for (int k = 0; k < 8; ++k) unit.code[k] = L::load(data_ + 64 * k);
        for (int g = 0; g < Kind::k_groups; ++g) {
            unit.scale[g] = scale(g);
            if constexpr (Kind::k_minima) unit.minimum[g] = minimum(g);
        }
        return unit;
    }

  private:
    MINIM_KERNEL_INLINE Float float_at(int at) const {
        return L::load_f32(reinterpret_cast<const float*>(data_ + at));
    }

    const std::byte* data_ = nullptr;
};

// Formats whose stored words are already a unit's codes, as signed bytes. Lanes that load weights from memory need no unpacking.
template <class P>
concept HoldsCodes = requires {
    P::k_codes_at;
};

// Some lanes of a unit of such a format, read in place.
template <class L, class P>
class PackedUnit {
  public:
    using Kind = typename P::Kind;
    using Float = typename L::Float;
    static constexpr bool k_signed_codes = true;

    PackedUnit() = default;
    PackedUnit(const std::byte* blocks, int lane) : block_{blocks, lane} {}
    MINIM_KERNEL_INLINE void next() { block_.data += k_panel_rows * P::Block::block_bytes; }

    MINIM_KERNEL_INLINE const std::byte* codes(int /*group*/) const {
        return block_.data + k_panel_rows * P::k_codes_at + 4 * block_.lane;
    }
    MINIM_KERNEL_INLINE Float scale(int /*group*/) const { return P(block_, block_).scale(); }

  private:
    PanelBlock<L> block_ = {};
};

// Multiplies units of the same columns of several strips with the input: each loaded code of the input is multiplied with all of
// these units.
template <class L, class AnyUnit, int n_strips, int n_tokens>
MINIM_KERNEL_INLINE void add_unit_of_strips(const AnyUnit (&unit)[n_strips], const InputTile<n_tokens>& input,
                                            typename L::Float (&sum)[n_strips][n_tokens]) {
    using Kind = typename AnyUnit::Kind;
    static_assert(!Kind::k_shifts);
    constexpr int k_vectors = k_group_vectors<Kind>;
    constexpr int k_largest = Kind::k_codes == Codes::wide ? 255 : Kind::k_largest;
    for (int g = 0; g < Kind::k_groups; ++g) {
        typename L::Int dot[n_strips][n_tokens];
        const int8_t* code[n_tokens];
        const std::byte* weight[n_strips];
        for (int s = 0; s < n_strips; ++s) weight[s] = unit[s].codes(g);
        for (int t = 0; t < n_tokens; ++t) {
            code[t] = input.block[t]->code + 4 * k_vectors * g;
            const auto first = first_dot<L, Kind>(*input.block[t], g, nullptr);
            for (int s = 0; s < n_strips; ++s) dot[s][t] = first;
        }
        L::template dot_strips<k_vectors, k_largest, AnyUnit::k_signed_codes>(dot, weight, code);
        for (int s = 0; s < n_strips; ++s) {
            const auto scale = unit[s].scale(g);
            typename L::Float minimum = {};
            if constexpr (Kind::k_minima) minimum = unit[s].minimum(g);
            for (int t = 0; t < n_tokens; ++t)
                sum[s][t] = add_dot<L, Kind>(sum[s][t], dot[s][t], scale, &minimum, *input.block[t], g);
        }
    }
}

// Units first .. first + count of some panels, in scratch or in place, and the sums of some tokens.
template <int n_panels>
struct UnitsOfPanels {
    const std::byte* data[n_panels];
    float* sums[n_panels];
    int64_t first;
    int64_t count;
};

// The number of panels in a tile; 1 also if a tile is less than a panel.
template <class L>
inline constexpr int k_tile_panels =
    L::k_tile_strips > k_panel_strips<L> ? L::k_tile_strips / k_panel_strips<L> : 1;

// The number of strips of n_panels panels that are multiplied with a tile of tokens together.
template <class L, int n_panels>
inline constexpr int k_strips_at_once =
    L::k_tile_strips < n_panels* k_panel_strips<L> ? L::k_tile_strips : n_panels* k_panel_strips<L>;

// Prefetches what follows a range of blocks of some panels: n_bytes for each panel, in equal steps, one step with each unit of
// each tile.
template <int n_panels>
struct RangesAhead {
    Ahead panel[n_panels];
    int64_t n_bytes;
    int64_t step_lines;
    int64_t n_fetched = 0;

    void spread(int64_t n_steps) { step_lines = (n_bytes + 64 * n_steps - 1) / (64 * n_steps); }
    MINIM_KERNEL_INLINE void step() {
        if (n_fetched >= n_bytes) return;
        for (int64_t i = 0; i < step_lines; ++i, n_fetched += 64) {
            for (const Ahead& ahead : panel) ahead.fetch(n_fetched);
        }
    }
};

// Multiplies these units with the inputs of tokens t0 .. t0 + n_tokens - 1 and adds the products to the panels' sums, in which
// the first of these tokens has number t.
template <class L, class AnyUnit, int n_panels, int n_tokens>
void add_units(const LinearArgs& args, const UnitsOfPanels<n_panels>& units, int64_t t0, int64_t t,
               RangesAhead<n_panels>& ahead) {
    constexpr int k_strips = k_strips_at_once<L, n_panels>;
    for (int first = 0; first < n_panels * k_panel_strips<L>; first += k_strips) {
        InputTile<n_tokens> input(args, t0, units.first);
        typename L::Float sum[k_strips][n_tokens];
        AnyUnit unit[k_strips];
        const auto panel_of = [&](int s) { return (first + s) / k_panel_strips<L>; };
        const auto lane_of = [&](int s) { return (first + s) % k_panel_strips<L> * L::k_width; };
        const auto sum_at = [&](int s, int n) {
            return units.sums[panel_of(s)] + k_panel_rows * (t + n) + lane_of(s);
        };
        for (int s = 0; s < k_strips; ++s) {
            unit[s] = AnyUnit(units.data[panel_of(s)], lane_of(s));
            for (int n = 0; n < n_tokens; ++n) sum[s][n] = L::load_f32(sum_at(s, n));
        }
        for (int64_t u = 0; u < units.count; ++u) {
            ahead.step();
            if constexpr (L::k_tile_strips == 1) {
                add_unit<L, typename AnyUnit::Kind, n_tokens>(unit[0].all(), input, sum[0]);
            } else {
                add_unit_of_strips<L, AnyUnit, k_strips, n_tokens>(unit, input, sum);
            }
            input.next();
            for (AnyUnit& one : unit) one.next();
        }
        for (int s = 0; s < k_strips; ++s) {
            for (int n = 0; n < n_tokens; ++n) L::store(sum_at(s, n), sum[s][n]);
        }
    }
}

// Multiplies tokens t0 .. t0 + n_tokens.
template <class L, class AnyUnit, int n_panels>
void add_units_of_tokens(const LinearArgs& args, const UnitsOfPanels<n_panels>& units, int64_t t0,
                         int64_t n_tokens, RangesAhead<n_panels> ahead) {
    constexpr int64_t k_passes = n_panels * k_panel_strips<L> / k_strips_at_once<L, n_panels>;
    constexpr int64_t k_tile = L::k_token_tile;
    ahead.spread((n_tokens + k_tile - 1) / k_tile * k_passes * units.count);
    int64_t t = 0;
    // Multiplies the next n tokens; returns the first token after them.
    const auto add_tile = [&](auto n) {
        add_units<L, AnyUnit, n_panels, n>(args, units, t0 + t, t, ahead);
        return t + n;
    };
    while (t + L::k_token_tile <= n_tokens) t = add_tile(std::integral_constant<int, L::k_token_tile>());
    if constexpr (L::k_token_tile > 3) {
        if (t + 3 == n_tokens) t = add_tile(std::integral_constant<int, 3>());
    }
    if constexpr (L::k_token_tile > 2) {
        if (t + 2 <= n_tokens) t = add_tile(std::integral_constant<int, 2>());
    }
    while (t < n_tokens) t = add_tile(std::integral_constant<int, 1>());
}

// ---- pairs of rows and tokens ----
//
// A register has two rows and two tokens (neon_i8mm/lanes.h). The sums of a panel with two tokens are eight registers, pair after pair
// of rows; they stay in that order until all columns are done.

// Multiplies a unit of n_pairs pairs of rows with 2 * n_token_pairs tokens. `codes` and `floats`: the first pair's codes, and its
// first row's scale.
template <class L, class Kind, int n_pairs, int n_token_pairs>
MINIM_KERNEL_INLINE void add_unit_of_pairs(const std::byte* codes, const std::byte* floats,
                                           const InputTile<2 * n_token_pairs>& input,
                                           typename L::Float (&sum)[n_pairs][n_token_pairs]) {
    static_assert(k_in_pairs<L, Kind> && !Kind::k_shifts && n_pairs % 2 == 0);
    using Float = typename L::Float;
    constexpr int k_offset = Kind::k_codes == Codes::wide ? L::k_wide_offset : Kind::k_offset;
    const auto spread = [&](int number, Float(&of_pair)[n_pairs]) MINIM_KERNEL_INLINE_LAMBDA {
        const auto* of_rows = reinterpret_cast<const float*>(floats + 64 * number);
        for (int p = 0; p < n_pairs; p += 2)
            L::spread_rows(L::load_f32(of_rows + 2 * p), of_pair[p], of_pair[p + 1]);
    };
    typename L::Int dot[n_pairs][n_token_pairs];
    const int8_t* code[2 * n_token_pairs];
    Float input_scale[n_token_pairs];
    for (int q = 0; q < n_token_pairs; ++q) {
        const Q8Block& even = *input.block[2 * q];
        const Q8Block& odd = *input.block[2 * q + 1];
        code[2 * q] = even.code;
        code[2 * q + 1] = odd.code;
        input_scale[q] = L::of_tokens(even.scale, odd.scale);
        const auto first = L::first_dot(
            L::of_tokens(minus_offset<Kind, k_offset>(even, 0), minus_offset<Kind, k_offset>(odd, 0)));
        for (int p = 0; p < n_pairs; ++p) dot[p][q] = first;
    }
    L::template dot_pairs<4>(dot, codes, code);
    Float scale[n_pairs];
    spread(0, scale);
    for (int p = 0; p < n_pairs; ++p) {
        for (int q = 0; q < n_token_pairs; ++q)
            sum[p][q] = L::fma(L::float_of_dot(dot[p][q]), L::mul(scale[p], input_scale[q]), sum[p][q]);
    }
    if constexpr (Kind::k_minima) {
        Float minimum[n_pairs];
        spread(1, minimum);
        for (int q = 0; q < n_token_pairs; ++q) {
            const Float scaled =
                L::of_tokens(input.block[2 * q]->scaled_total, input.block[2 * q + 1]->scaled_total);
            for (int p = 0; p < n_pairs; ++p) sum[p][q] = L::fma(minimum[p], scaled, sum[p][q]);
        }
    }
}

// Multiplies unpacked units of a panel with tokens t0 .. t0 + 2 * n_token_pairs - 1, of which the first has number t in the sums. Behind
// the last token, the last one is repeated.
template <class L, class Kind, int n_token_pairs>
void add_units_of_pairs(const LinearArgs& args, const UnitsOfPanels<1>& units, int64_t t0, int64_t t,
                        RangesAhead<1>& ahead) {
    constexpr int k_pairs = L::k_tile_pairs;
    for (int first = 0; first < k_panel_rows / 2; first += k_pairs) {
        auto input = InputTile<2 * n_token_pairs>::clamped(args, t0, units.first);
        typename L::Float sum[k_pairs][n_token_pairs];
        const auto sum_at = [&](int p, int q) {
            return units.sums[0] + k_panel_rows * (t + 2 * q) + 4 * (first + p);
        };
        for (int p = 0; p < k_pairs; ++p) {
            for (int q = 0; q < n_token_pairs; ++q) sum[p][q] = L::load_f32(sum_at(p, q));
        }
        const std::byte* unit = units.data[0];
        for (int64_t u = 0; u < units.count; ++u) {
            ahead.step();
            add_unit_of_pairs<L, Kind>(unit + 16 * first, unit + 512 + 8 * first, input, sum);
            input.next();
            unit += k_unpacked_unit_bytes<Kind>;
        }
        for (int p = 0; p < k_pairs; ++p) {
            for (int q = 0; q < n_token_pairs; ++q) L::store(sum_at(p, q), sum[p][q]);
        }
    }
}

// Multiplies tokens t0 .. t0 + n_tokens.
template <class L, class Kind>
void add_pairs_of_tokens(const LinearArgs& args, const UnitsOfPanels<1>& units, int64_t t0, int64_t n_tokens,
                         RangesAhead<1> ahead) {
    constexpr int64_t k_passes = k_panel_rows / 2 / L::k_tile_pairs;
    ahead.spread((n_tokens + 3) / 4 * k_passes * units.count);
    int64_t t = 0;
    for (; t + 2 < n_tokens; t += 4) add_units_of_pairs<L, Kind, 2>(args, units, t0 + t, t, ahead);
    if (t < n_tokens) add_units_of_pairs<L, Kind, 1>(args, units, t0 + t, t, ahead);
}

// Writes y of a panel from the sums of pairs.
template <class L>
void put_pairs(const LinearArgs& args, int64_t panel, int64_t t0, int64_t n_tokens, const float* sums) {
    for (int64_t t = 0; t < n_tokens; t += 2) {
        for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
            const float* pairs = sums + k_panel_rows * t + 2 * lane;
            typename L::Float even, odd;
            L::part_tokens(L::load_f32(pairs), L::load_f32(pairs + 4), even, odd);
            put_lanes<L>(args, panel, lane, t0 + t, even);
            if (t + 1 < n_tokens) put_lanes<L>(args, panel, lane, t0 + t + 1, odd);
        }
    }
}

// Multiplies panels first .. first + n_panels with tokens t0 .. t0 + n_tokens, at most k_panel_tokens.
template <class L, class P, int n_panels>
void linear_of_panels(const LinearArgs& args, int64_t first, int64_t t0, int64_t n_tokens) {
    using Blocks = PanelBlocks<typename P::Block>;
    constexpr bool k_pairs = k_in_pairs<L, typename P::Kind>;
    constexpr bool k_in_place = HoldsCodes<P> && L::k_tile_strips > 1 && !k_pairs;
    using AnyUnit = std::conditional_t<k_in_place, PackedUnit<L, P>, UnpackedUnit<L, typename P::Kind>>;
    constexpr int64_t k_range_bytes = k_panel_cols / P::Block::block_elems * Blocks::k_block_bytes;
    const ReadAheadOfPanels<n_panels> read_ahead(args, {k_much_work.far, n_panels * k_range_bytes});
    PanelScratch::Panel* panels = args.scratch->panels;
    const int64_t n_columns = k_pairs ? (n_tokens + 1) / 2 * 2 : n_tokens;  // of sums
    for (int p = 0; p < n_panels; ++p)
        for (int64_t i = 0; i < k_panel_rows * n_columns; ++i) panels[p].sums[i] = 0.0F;
    for_each_blocks<P>(args, first, [&](const Blocks& blocks) {
        UnitsOfPanels<n_panels> units;
        units.first = blocks.first_unit();
        units.count = blocks.n_units();
        RangesAhead<n_panels> ahead;
        ahead.n_bytes = blocks.count * Blocks::k_block_bytes;
        for (int p = 0; p < n_panels; ++p) {
            const Blocks of_panel = blocks.of_panel(p, args.row_bytes);
            ahead.panel[p] = read_ahead.begin_block(of_panel.data(), of_panel.data() - of_panel.panel);
            units.sums[p] = panels[p].sums;
            if constexpr (k_in_place) {
                units.data[p] = of_panel.data();
            } else {
                unpack_blocks<L, P>(of_panel, panels[p].units);
                units.data[p] = panels[p].units;
            }
        }
        if constexpr (k_pairs) {
            add_pairs_of_tokens<L, typename P::Kind>(args, units, t0, n_tokens, ahead);
        } else {
            add_units_of_tokens<L, AnyUnit, n_panels>(args, units, t0, n_tokens, ahead);
        }
    });
    if constexpr (k_pairs) return put_pairs<L>(args, first, t0, n_tokens, panels[0].sums);
    for (int p = 0; p < n_panels; ++p) {
        for (int64_t t = 0; t < n_tokens; ++t) {
            for (int lane = 0; lane < k_panel_rows; lane += L::k_width) {
                put_lanes<L>(args, first + p, lane, t0 + t,
                             L::load_f32(panels[p].sums + k_panel_rows * t + lane));
            }
        }
    }
}

// The maximum number of tokens that are multiplied while unpacking: at most four for formats whose unpacking uses many registers.
template <class L, class P>
inline constexpr int k_few_tokens =
    [] { return k_is_simple<L, P> || L::k_few_tokens < 4 ? L::k_few_tokens : 4; }();

// Multiplies whole panels with all tokens. The panel of rows r .. r + 15 begins at args.weight + r * args.row_bytes.
template <class L, class P>
void linear_panels(const LinearArgs& args) {
    constexpr int k_few = k_few_tokens<L, P>;
    using Few = ForFew<L, P>;
    using FewL = typename Few::Lanes;
    using FewP = typename Few::Panel;
    if (args.n_tokens == 1) return linear_panels_of_one<FewL, FewP>(args);
    if constexpr (k_few >= 2) {
        if (args.n_tokens == 2) return linear_panels_of_few<FewL, FewP, 2>(args);
    }
    if constexpr (k_few >= 4) {
        if (args.n_tokens == 3) return linear_panels_of_few<FewL, FewP, 3>(args);
        if (args.n_tokens == 4) return linear_panels_of_few<FewL, FewP, 4>(args);
    }
    if constexpr (k_few >= 8) {
        if (args.n_tokens <= 6) return linear_panels_of_few<FewL, FewP, 6>(args);
        if (args.n_tokens <= 8) return linear_panels_of_few<FewL, FewP, 8>(args);
    }
    static_assert(k_tile_panels<L> <= k_panels_together);
    const int64_t n_panels = (args.n_rows + k_panel_rows - 1) / k_panel_rows;
    for (int64_t panel = 0; panel < n_panels;) {
        const bool together = n_panels - panel >= k_tile_panels<L>;
        for (int64_t t = 0; t < args.n_tokens; t += k_panel_tokens) {
            const int64_t n_tokens = args.n_tokens - t < k_panel_tokens ? args.n_tokens - t : k_panel_tokens;
            if (together) {
                linear_of_panels<L, P, k_tile_panels<L>>(args, panel, t, n_tokens);
            } else {
                linear_of_panels<L, P, 1>(args, panel, t, n_tokens);
            }
        }
        panel += together ? k_tile_panels<L> : 1;
    }
}

template <class L, class... Panels>
constexpr LinearKernels panel_kernels(panel::PanelList<Panels...>) {
    LinearKernels kernels = {};
    ((kernels.by_format[static_cast<size_t>(Panels::Block::format)] = {Activation::q8,
                                                                       linear_panels<L, Panels>}),
     ...);
    return kernels;
}

}  // namespace minim::cpu::generic
