// SPDX-License-Identifier: Apache-2.0
// A block of a panel (panel.h) as CPU and GPU kernels read it: units of 32 columns. A unit has eight words of codes for each row, one
// scale for 32 columns or two for 16 each, and minima if the format has them.
//
// Each format is decoded in one place, in the other headers of this folder, as a template over lanes L. A lane is a row of a panel;
// L decides how many are in a register (cpu/scalar/lanes.h is its specification; in cuda/lanes.h each thread is a
// lane).
#pragma once

#include <cstddef>
#include <cstdint>

#include "panel/kernel_inline.h"
#include "panel/panel.h"

namespace minim::panel {

// The way in which the codes of a format are multiplied (scalar/lanes.h).
enum class Codes : uint8_t {
    small,  // 0 .. k_largest <= 127: the number plus k_offset
    wide,   // signed bytes
};

template <class L>
struct Unit {
    typename L::Int code[8];
    typename L::Float scale[2];
    typename L::Float minimum[2];
    typename L::Int shift[2];  // see AddsShiftsInDots
};

// In some formats, a shift is added to all codes of a group in some rows. Lanes that declare it add the shift to the dot instead of to
// each code: Unit::shift has, in the group's half of every lane (in both halves if a unit is one group), the factor of the sum of
// the input's codes. A panel type with shifts has AddingShifts<Other>, the same type over other lanes.
template <class L>
concept AddsShiftsInDots = L::k_adds_shifts_in_dots;

// One block of a panel, for the lanes from `lane` on. A position `at` is a byte position in the block of a row.
template <class L>
struct PanelBlock {
    using Int = typename L::Int;
    using Float = typename L::Float;

    const std::byte* data;
    int lane;

    MINIM_KERNEL_FUNCTION Int word(int at) const { return L::load(data + k_panel_rows * at + 4 * lane); }
    MINIM_KERNEL_FUNCTION Int half(int at) const { return L::load_u16(data + k_panel_rows * at + 2 * lane); }
    MINIM_KERNEL_FUNCTION Int byte(int at) const { return L::load_u8(data + k_panel_rows * at + lane); }
    MINIM_KERNEL_FUNCTION Float f16(int at) const { return L::load_f16(data + k_panel_rows * at + 2 * lane); }
    MINIM_KERNEL_FUNCTION Float f32(int at) const {
        return L::load_f32(reinterpret_cast<const float*>(data + k_panel_rows * at) + lane);
    }
};

// The properties of a format that the arithmetic needs.
template <Codes codes, int largest, int offset, int n_groups, bool has_minima, bool has_shifts = false>
struct PanelKind {
    static constexpr Codes k_codes = codes;
    static constexpr int k_largest = largest;
    static constexpr int k_offset = offset;
    static constexpr int k_groups = n_groups;  // of a unit: 1 or 2
    static constexpr bool k_minima = has_minima;
    static constexpr bool k_shifts = has_shifts;  // Unit::shift is used
};

// The formats of a family.
template <class... Panels>
struct PanelList {};

// Makes the list of the formats of two lists, for decltype.
template <class... A, class... B>
PanelList<A..., B...> joined(PanelList<A...>, PanelList<B...>);

}  // namespace minim::panel
