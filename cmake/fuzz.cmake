# SPDX-License-Identifier: Apache-2.0
# Fuzz targets: one file a parser, tests/fuzz/<name>.cpp, which defines LLVMFuzzerTestOneInput.
option(MINIM_FUZZ "Build the fuzz targets with libFuzzer (clang)" OFF)
if(MINIM_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "MINIM_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}")
    endif()
    # Coverage counters in every layer: lib/ gets the option too, it is read when the build files are written.
    target_compile_options(minim_compile_options INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(minim_compile_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The program that runs a target over files, compiled once for all targets.
add_library(minim_run_corpus OBJECT ${PROJECT_SOURCE_DIR}/tests/fuzz/run_corpus.cpp)
target_link_libraries(minim_run_corpus PRIVATE minim_compile_options)

# minim_fuzz_target(fuzz_gguf LAYER checkpoint [CORPUS folder ...] [LIBRARIES ...])
# builds <name>_corpus and a CTest that runs it over the seeds: tests/fuzz/corpus/<name> and the
# folders of CORPUS. With MINIM_FUZZ the fuzzer itself as well:
#   ./fuzz_gguf -max_total_time=120 NEW_CORPUS CORPUS...
function(minim_fuzz_target name)
    cmake_parse_arguments(ARG "" "LAYER" "CORPUS;LIBRARIES" ${ARGN})
    set(programs ${name}_corpus)
    add_executable(${name}_corpus ${name}.cpp)
    target_link_libraries(${name}_corpus PRIVATE minim_run_corpus)
    minim_precompile(${name}_corpus "${MINIM_TEST_HEADERS}")
    if(MINIM_FUZZ)
        list(APPEND programs ${name})
        add_executable(${name} ${name}.cpp)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        target_compile_definitions(${name} PRIVATE MINIM_LIBFUZZER)
    endif()
    foreach(program IN LISTS programs)
        minim_link_layers(${program} ${ARG_LAYER})
        target_link_libraries(${program} PRIVATE minim_compile_options ${ARG_LIBRARIES})
        target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
        target_compile_definitions(${program} PRIVATE MINIM_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    endforeach()
    add_test(NAME "${name}: corpus"
             COMMAND ${name}_corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name} ${ARG_CORPUS})
endfunction()
