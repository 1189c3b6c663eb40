// SPDX-License-Identifier: Apache-2.0
// Runs every decoder in CUDA device code and on the host and compares the bits. Compiling it is half of the
// test: the layouts, the tables and the conversions must be usable from both. Exits 77 (skipped) where no
// device answers.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "format/blocks.h"

namespace {

constexpr int k_blocks = 64;
constexpr int k_skipped = 77;
constexpr float k_row_scale = 0.0078125F;

template <typename Block>
__global__ void decode_blocks(const uint8_t* blocks, float row_scale, float* out) {
    const int b = static_cast<int>(threadIdx.x);
    Block::decode_block(blocks + b * Block::block_bytes, row_scale, out + b * Block::block_elems);
}

// Equal bits, or NaN on both sides.
bool same_values(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = a[i] != a[i] && b[i] != b[i];
        if (!both_nan && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
    }
    return true;
}

template <typename Block>
bool decodes_alike(std::mt19937& random) {
    std::vector<uint8_t> blocks(k_blocks * Block::block_bytes);
    for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random() & 0xFFU);
    std::vector<float> expect(k_blocks * Block::block_elems);
    std::vector<float> out(expect.size());
    for (int b = 0; b < k_blocks; ++b) {
        Block::decode_block(blocks.data() + b * Block::block_bytes, k_row_scale,
                            expect.data() + b * Block::block_elems);
    }
    uint8_t* device_blocks = nullptr;
    float* device_out = nullptr;
    bool ok = cudaMalloc(&device_blocks, blocks.size()) == cudaSuccess &&
              cudaMalloc(&device_out, out.size() * sizeof(float)) == cudaSuccess &&
              cudaMemcpy(device_blocks, blocks.data(), blocks.size(), cudaMemcpyHostToDevice) == cudaSuccess;
    if (ok) {
        decode_blocks<Block><<<1, k_blocks>>>(device_blocks, k_row_scale, device_out);
        ok = cudaMemcpy(out.data(), device_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost) ==
                 cudaSuccess &&
             same_values(out, expect);
    }
    cudaFree(device_blocks);
    cudaFree(device_out);
    return ok;
}

}  // namespace

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("no CUDA device");
        return k_skipped;
    }
    std::mt19937 random(11);
    int failures = 0;
    minim::for_each_block(minim::AllBlocks{}, [&](auto block) {
        using Block = decltype(block);
        if (decodes_alike<Block>(random)) return;
        std::printf("format %d differs on the device\n", static_cast<int>(Block::format));
        ++failures;
    });
    return failures == 0 ? 0 : 1;
}
