// A block of a panel (panel.h) as the kernels of a processor or a GPU see it: units of 32 columns, each eight words of
// codes a row with one scale for 32 columns or two for 16 each, and minima where the format has them.
//
// What one format is made of is written once, in the other headers of this folder, over a vocabulary L of lanes: a lane
// is a row of a panel, how many there are in a register is L's matter (cpu/scalar/lanes.h specifies it, cuda/lanes.h is
// that of a GPU, where each thread is one).
#pragma once

#include <cstddef>
#include <cstdint>

#include "panel/kernel_inline.h"
#include "panel/panel.h"

namespace minim::panel {

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
    typename L::Int shift[2];  // see AddsShiftsInDots
};

// Some formats have a number to add to all codes of a group of some rows. Lanes that say so are spared it code by code: Unit::shift
// is, in the group's half of every lane (in both halves where a unit is one group), what the sum of the input's codes is to be
// multiplied by and added to the dot. A panel type with such numbers has AddingShifts<Other>, itself over other lanes.
template <class L>
concept AddsShiftsInDots = L::k_adds_shifts_in_dots;

// One block of a panel, for the lanes from `lane` on; places are given as in the block of a row.
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

// What the arithmetic needs to know of a format.
template <Codes codes, int largest, int offset, int n_groups, bool has_minima, bool has_shifts = false>
struct PanelKind {
    static constexpr Codes k_codes = codes;
    static constexpr int k_largest = largest;
    static constexpr int k_offset = offset;
    static constexpr int k_groups = n_groups;  // of a unit: 1 or 2
    static constexpr bool k_minima = has_minima;
    static constexpr bool k_shifts = has_shifts;  // Unit::shift counts
};

// The formats of a family.
template <class... Panels>
struct PanelList {};

}  // namespace minim::panel
