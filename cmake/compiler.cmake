# SPDX-License-Identifier: Apache-2.0
# One interface target carries what every translation unit of the project is compiled with.
add_library(minim_compile_options INTERFACE)
target_compile_options(minim_compile_options INTERFACE
    -Wall -Wextra -Wconversion -Wshadow
    # One float result everywhere: no contraction of a*b+c unless the code says fma.
    -ffp-contract=off)
# Which GCC's -Wconversion does not include for C++: it would warn of `for (size_t n : {1, 2})`.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(minim_compile_options INTERFACE -Wno-sign-conversion)
    if(MINIM_UNITY) # It would compare a local name with those of the other files of the unit.
        target_compile_options(minim_compile_options INTERFACE -Wno-shadow)
    endif()
endif()
# GCC collects unused memory once its heap exceeds this number of kilobytes. Files that need less compile up to a sixth faster.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(minim_compile_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
if(MINIM_WERROR)
    target_compile_options(minim_compile_options INTERFACE -Werror)
endif()
if(MINIM_SANITIZE)
    target_compile_options(minim_compile_options INTERFACE -fsanitize=${MINIM_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(minim_compile_options INTERFACE -fsanitize=${MINIM_SANITIZE})
endif()
