# SPDX-License-Identifier: Apache-2.0
# Headers of the C++ library, fmt, nlohmann/json and Catch2 are most of what a compiler reads here. They are read once for each set
# of compiler options. ccache keeps nothing that was compiled so: a build with a launcher reads them in every file, which also finds
# the files that forgot an include.
set(MINIM_PRECOMPILED OFF)
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(MINIM_PRECOMPILED ON)
endif()

# With precompiled headers GCC 12 warns of sums of strings in the library's own code (its bugs 105329 and 105651), which is no
# error then; builds with a launcher still refuse real ones.
set(MINIM_PRECOMPILED_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=restrict>
                              $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=stringop-overflow> $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=stringop-overread>)

# minim_precompiled_headers(tests PIE HEADERS <catch2/catch.hpp> LIBRARIES Catch2::Catch2 OPTIONS -O1)
# makes the headers that targets with these options reuse. PIE: for the files of programs, not of libraries.
function(minim_precompiled_headers group)
    cmake_parse_arguments(ARG "PIE" "" "HEADERS;LIBRARIES;OPTIONS" ${ARGN})
    if(NOT MINIM_PRECOMPILED)
        return()
    endif()
    set(owner minim_headers_${group})
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp CONTENT "")
    add_library(${owner} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp)
    if(ARG_PIE)
        set_target_properties(${owner} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
        target_compile_options(${owner} PRIVATE -fPIE)
    endif()
    target_compile_options(${owner} PRIVATE ${ARG_OPTIONS} ${MINIM_PRECOMPILED_OPTIONS})
    target_link_libraries(${owner} PRIVATE fmt::fmt-header-only minim_compile_options ${ARG_LIBRARIES})
    target_precompile_headers(${owner} PRIVATE
        <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <filesystem> <fstream>
        <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view>
        <thread> <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h> ${ARG_HEADERS})
endfunction()

# Compiles a target with the headers of a group, whose options it shares.
function(minim_precompile target group)
    if(TARGET minim_headers_${group})
        target_compile_options(${target} PRIVATE ${MINIM_PRECOMPILED_OPTIONS})
        target_precompile_headers(${target} REUSE_FROM minim_headers_${group})
    endif()
endfunction()
