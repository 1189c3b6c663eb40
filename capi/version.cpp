// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "minim/minim.h"

const char* minim_version(void) {
    return MINIM_VERSION;
}

uint32_t minim_version_number(void) {
    return MINIM_VERSION_NUMBER;
}

const char* minim_build_info(void) {
    return "minim " MINIM_VERSION ", compiler " __VERSION__
           ", cpu kernels scalar"
#if defined(__x86_64__)
           " avx2 avx512"
#elif defined(__aarch64__)
           " neon_dotprod neon_i8mm"
#endif
        ;
}

int32_t minim_has_feature(const char* name) {
    if (name == nullptr) return 0;
    const std::string_view feature = name;
    if (feature == "gguf" || feature == "safetensors" || feature == "cpu" || feature == "reference") return 1;
#if defined(MINIM_HAS_CUDA)
    if (feature == "cuda") return 1;
#endif
#if defined(__x86_64__)
    if (feature == "avx2" || feature == "avx512") return 1;
#elif defined(__aarch64__)
    if (feature == "neon_dotprod" || feature == "neon_i8mm") return 1;
#endif
    return 0;
}
