# SPDX-License-Identifier: Apache-2.0
# One interface target carries what every translation unit of the project is compiled with.
add_library(minim_compile_options INTERFACE)
target_compile_options(minim_compile_options INTERFACE
    -Wall -Wextra -Wconversion -Wshadow
    # One float result everywhere: no contraction of a*b+c unless the code says fma.
    -ffp-contract=off)
if(MINIM_WERROR)
    target_compile_options(minim_compile_options INTERFACE -Werror)
endif()
if(MINIM_SANITIZE)
    target_compile_options(minim_compile_options INTERFACE -fsanitize=${MINIM_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(minim_compile_options INTERFACE -fsanitize=${MINIM_SANITIZE})
endif()
