# SPDX-License-Identifier: Apache-2.0
"""Quantisers and dequantisers of safetensors layouts: FP8 blocks, NVFP4 (ModelOpt), AWQ INT4 (GEMM).

The dequantisers work on raw bits and use no library cast from 8-bit or 4-bit floats, so they check the stored
bytes independently. All matrices are [output, input] unless said otherwise.
"""

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

FP8_BLOCK = 128
NVFP4_GROUP = 16
AWQ_GROUP = 128

E4M3_MAX = 448.0
E4M3_SMALLEST = 2.0**-9
E2M1_MAX = 6.0
INT4_MAX = 15


def decode_e4m3(code: int) -> float:
    """The value of an e4m3 code: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities, 0x7f is NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent = code >> 3 & 0xF
    mantissa = code & 0x7
    if code & 0x7F == 0x7F:
        return sign * float("nan")
    if exponent == 0:
        return sign * (mantissa / 8) * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


E4M3_VALUES = torch.tensor([decode_e4m3(code) for code in range(256)])
E2M1_MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1_VALUES = torch.tensor(E2M1_MAGNITUDES + [-magnitude for magnitude in E2M1_MAGNITUDES])


def e4m3_to_float(values: Tensor) -> Tensor:
    """An e4m3 tensor as float32, decoded from its bits."""
    return E4M3_VALUES[values.view(torch.uint8).long()]


# FP8: weight = code * weight_scale_inv, one float32 scale for each 128 x 128 block.


def expand_blocks(scales: Tensor) -> Tensor:
    """One value a block -> one value an element."""
    return scales.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)


def fp8_quantise(weight: Tensor) -> Tensors:
    """FP8 codes and block scales; both dimensions must be multiples of the block."""
    rows, columns = weight.shape
    blocks = weight.view(rows // FP8_BLOCK, FP8_BLOCK, columns // FP8_BLOCK, FP8_BLOCK)
    scales = (blocks.abs().amax((1, 3)) / E4M3_MAX).clamp_min(1e-12)
    scaled = (blocks / scales[:, None, :, None]).clamp(-E4M3_MAX, E4M3_MAX)
    codes = scaled.to(torch.float8_e4m3fn).view(rows, columns)
    return {"weight": codes, "weight_scale_inv": scales.float()}


def fp8_dequantise(stored: Tensors) -> Tensor:
    """The float32 weight; the last blocks may be incomplete."""
    rows, columns = stored["weight"].shape
    scales = expand_blocks(stored["weight_scale_inv"])
    return e4m3_to_float(stored["weight"]) * scales[:rows, :columns]


# NVFP4: weight = e2m1 * e4m3 weight_scale (of 16 inputs) * weight_scale_2; the low nibble is the even column.

# Midpoints between neighbouring e2m1 magnitudes, and whether the upper code is the even one that takes a tie.
E2M1_MIDPOINTS = [
    (0.25, False),
    (0.75, True),
    (1.25, False),
    (1.75, True),
    (2.5, False),
    (3.5, True),
    (5.0, False),
]


def e2m1_codes(values: Tensor) -> Tensor:
    """The nearest e2m1 codes (bit 3 is the sign), ties to the even code."""
    magnitudes = values.abs()
    codes = torch.zeros_like(magnitudes, dtype=torch.uint8)
    for midpoint, tie_goes_up in E2M1_MIDPOINTS:
        is_above = magnitudes >= midpoint if tie_goes_up else magnitudes > midpoint
        codes += is_above.to(torch.uint8)
    return codes | ((values < 0).to(torch.uint8) << 3)


def nvfp4_quantise(weight: Tensor, tensor_scale: float, input_scale: float) -> Tensors:
    """Packed codes and group scales for a given tensor scale; `input_scale` is stored as it is."""
    rows, columns = weight.shape
    groups = weight.view(rows, columns // NVFP4_GROUP, NVFP4_GROUP)
    wanted_scales = groups.abs().amax(-1) / E2M1_MAX / tensor_scale
    scales = wanted_scales.clamp(E4M3_SMALLEST, E4M3_MAX).to(torch.float8_e4m3fn)
    scaled = groups / (e4m3_to_float(scales) * tensor_scale)[..., None]
    codes = e2m1_codes(scaled).view(rows, columns)
    return {
        "weight": codes[:, 0::2] | (codes[:, 1::2] << 4),
        "weight_scale": scales,
        "weight_scale_2": torch.tensor(tensor_scale),
        "input_scale": torch.tensor(input_scale),
    }


def nvfp4_dequantise(stored: Tensors) -> Tensor:
    """The float32 weight."""
    packed = stored["weight"].long()
    values = torch.stack([E2M1_VALUES[packed & 0xF], E2M1_VALUES[packed >> 4]], -1).view(packed.shape[0], -1)
    scales = e4m3_to_float(stored["weight_scale"]) * stored["weight_scale_2"]
    return values * scales.repeat_interleave(NVFP4_GROUP, 1)


# AWQ: weight[o, i] = (code[i, o] - zero[i / 128, o]) * scale[i / 128, o], stored transposed, eight codes a
# word: nibble k of word w belongs to output 8 w + AWQ_NIBBLE_ORDER[k].
AWQ_NIBBLE_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
NIBBLES_PER_WORD = 8


def awq_pack(codes: Tensor) -> Tensor:
    """[row, output] codes -> [row, output / 8] int32 words."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // NIBBLES_PER_WORD, dtype=torch.int64)
    for nibble, column in enumerate(AWQ_NIBBLE_ORDER):
        words |= codes[:, column::NIBBLES_PER_WORD].long() << (4 * nibble)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def awq_unpack(words: Tensor) -> Tensor:
    """[row, output / 8] int32 words -> [row, output] codes."""
    bits = words.long() & 0xFFFFFFFF
    codes = torch.empty(*words.shape, NIBBLES_PER_WORD, dtype=torch.int64)
    for nibble, column in enumerate(AWQ_NIBBLE_ORDER):
        codes[:, :, column] = bits >> (4 * nibble) & 0xF
    return codes.view(words.shape[0], -1)


def awq_quantise(weight: Tensor) -> Tensors:
    """Codes, zero points and float16 scales; the range of each group includes zero."""
    outputs, inputs = weight.shape
    groups = weight.t().reshape(inputs // AWQ_GROUP, AWQ_GROUP, outputs)
    largest = groups.amax(1).clamp_min(0)
    smallest = groups.amin(1).clamp_max(0)
    scales = ((largest - smallest) / INT4_MAX).clamp_min(1e-5).half()
    zeros = (-smallest / scales.float()).round().clamp(0, INT4_MAX)
    codes = ((groups / scales.float()[:, None]).round() + zeros[:, None]).clamp(0, INT4_MAX)
    return {
        "qweight": awq_pack(codes.reshape(inputs, outputs)),
        "qzeros": awq_pack(zeros),
        "scales": scales,
    }


def awq_dequantise(stored: Tensors) -> Tensor:
    """The float32 weight."""
    codes = awq_unpack(stored["qweight"])
    zeros = awq_unpack(stored["qzeros"]).repeat_interleave(AWQ_GROUP, 0)
    scales = stored["scales"].float().repeat_interleave(AWQ_GROUP, 0)
    return ((codes - zeros).float() * scales).t().contiguous()


def dequantise_folder(tensors: Tensors) -> Tensors:
    """The tensors of a checkpoint in any of the layouts -> float32 tensors with plain `.weight` names."""
    modules: dict[str, Tensors] = {}
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        modules.setdefault(module, {})[leaf] = tensor

    plain = {}
    for module, parts in modules.items():
        if "weight_scale_inv" in parts:
            plain[f"{module}.weight"] = fp8_dequantise(parts)
        elif "weight_scale_2" in parts:
            plain[f"{module}.weight"] = nvfp4_dequantise(parts)
        elif "qweight" in parts:
            plain[f"{module}.weight"] = awq_dequantise(parts)
        else:
            for leaf, tensor in parts.items():
                plain[f"{module}.{leaf}"] = tensor.float()
    return plain
