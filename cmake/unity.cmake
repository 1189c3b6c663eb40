# SPDX-License-Identifier: Apache-2.0
# Most of the time of compiling a small file is that of its headers. With MINIM_UNITY they are read once for a whole layer or program.

# minim_unity(engine_test APART support.cpp) compiles the target's files as one, if MINIM_UNITY is set. Files of APART stay alone: they
# define a name that another file of the target defines too.
function(minim_unity target)
    cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
    set_target_properties(${target} PROPERTIES MINIM_APART "${ARG_APART}")
    if(MINIM_UNITY)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
        set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
endfunction()
