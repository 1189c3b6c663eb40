# SPDX-License-Identifier: Apache-2.0
"""What Q8_0 lost of the BF16 weights: tests/data/models/minim-tiny-bf16.lost and nvfp4_input_scales.json.

The tests make all other checkpoints from them and from the Q8_0 file (tests/support/make_test_models.cpp), so
that the repository need not have them.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from numpy.typing import NDArray
from safetensors import safe_open

BLOCK = 32
BITS_OF_CODE_0 = 16
BITS_OF_CODE = np.array([BITS_OF_CODE_0] + [1 + (128 // code).bit_length() for code in range(1, 129)])


def lost_bits(blocks: NDArray[np.uint8], weights: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """A tensor's Q8_0 bytes and BF16 bits -> the bits to add, one to an element, each number's low bit first.

    A number says how far the BF16 weight is from code times scale, cut off to BF16, counted in BF16 numbers.
    """
    blocks = blocks.reshape(-1, 2 + BLOCK)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    codes = blocks[:, 2:].copy().view(np.int8).astype(np.int64)
    cut = (codes.astype(np.float32) * scales).view(np.uint32) >> 16
    magnitudes = np.abs(codes)
    widths = BITS_OF_CODE[magnitudes]
    wanted = weights.reshape(codes.shape).astype(np.int64)
    numbers = np.where(magnitudes == 0, wanted, wanted - cut.astype(np.int64) + (1 << (widths - 1)) - 1)
    if (numbers < 0).any() or (numbers >> widths).any():
        raise SystemExit("a weight is further from its Q8_0 value than the format allows")
    places = np.arange(BITS_OF_CODE_0)
    bits = numbers.reshape(-1, 1) >> places & 1
    return bits[places < widths.reshape(-1, 1)].astype(np.uint8)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("q8_0", type=Path, help="minim-tiny-q8_0.gguf")
    parser.add_argument("bf16", type=Path, help="minim-tiny-bf16.gguf")
    parser.add_argument("nvfp4", type=Path, help="the minim-tiny-nvfp4 folder")
    parser.add_argument("output", type=Path, help="directory for the files")
    arguments = parser.parse_args()

    exact = {tensor.name: tensor for tensor in GGUFReader(arguments.bf16).tensors}
    parts = []
    for tensor in GGUFReader(arguments.q8_0).tensors:
        other = exact[tensor.name]
        if tensor.tensor_type == GGMLQuantizationType.Q8_0:
            parts.append(lost_bits(tensor.data.reshape(-1), other.data.reshape(-1).view(np.uint16)))
        elif not np.array_equal(tensor.data, other.data):
            raise SystemExit(f"{tensor.name}: neither Q8_0 nor the same in both files")
    bits = np.packbits(np.concatenate(parts), bitorder="little")
    (arguments.output / "minim-tiny-bf16.lost").write_bytes(bits.tobytes())

    scales = {}
    with safe_open(arguments.nvfp4 / "model.safetensors", framework="numpy") as tensors:
        for name in sorted(tensors.keys()):
            # w3 shares w1's.
            if name.endswith(".input_scale") and ".w3." not in name:
                scales[name.removesuffix(".input_scale")] = float(tensors.get_tensor(name))
    text = json.dumps(scales, indent=1)
    (arguments.output / "nvfp4_input_scales.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
