# SPDX-License-Identifier: Apache-2.0
minim_precompiled_headers(libraries)

# A layer is one folder of lib/: an object library that uses the layers named in DEPENDS and what is below those. The
# order of the folders is drawn in lib/README.md; an include of any other layer fails to configure. Its KERNELS are a
# library of their own, as sanitized.cmake takes them without the rest. APART: see minim_unity.
#
#   minim_layer(format SOURCES formats.cpp ... DEPENDS base)
function(minim_layer name)
    cmake_parse_arguments(ARG "" "" "SOURCES;KERNELS;APART;DEPENDS;LIBRARIES" ${ARGN})
    set(layers ${name})
    if(ARG_KERNELS)
        add_library(minim_${name}_kernels OBJECT ${ARG_KERNELS})
        list(APPEND layers ${name}_kernels)
    endif()
    add_library(minim_${name} OBJECT ${ARG_SOURCES})
    minim_precompile(minim_${name} libraries)
    minim_unity(minim_${name} APART ${ARG_APART})
    foreach(part IN LISTS layers)
        target_include_directories(minim_${part} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
        target_link_libraries(minim_${part} PUBLIC Threads::Threads fmt::fmt-header-only
                                            PRIVATE minim_compile_options ${ARG_LIBRARIES})
    endforeach()
    set_property(GLOBAL APPEND PROPERTY MINIM_ALL_LAYERS ${layers})
    foreach(dependency IN LISTS ARG_DEPENDS)
        get_property(below GLOBAL PROPERTY MINIM_LAYERS_OF_${dependency})
        if(NOT below)
            message(FATAL_ERROR "layer ${name} depends on ${dependency}, which is no layer below it")
        endif()
        list(APPEND layers ${below})
    endforeach()
    list(REMOVE_DUPLICATES layers)
    minim_check_includes("layer ${name}" ${CMAKE_CURRENT_SOURCE_DIR} "${layers}")
    set_property(GLOBAL PROPERTY MINIM_LAYERS_OF_${name} ${layers})
endfunction()

# Fails to configure if a file of the folder includes a file of a folder that is not allowed.
function(minim_check_includes name folder allowed)
    set(files "")
    foreach(suffix h hpp cpp c inl cu cuh)
        file(GLOB_RECURSE found ${folder}/*.${suffix})
        list(APPEND files ${found})
    endforeach()
    foreach(file IN LISTS files)
        file(STRINGS ${file} includes REGEX "^[ \t]*#[ \t]*include[ \t]+[\"<][a-z_]+/[a-z_0-9]+\\.(h|hpp|inl|cuh)[\">]")
        foreach(include IN LISTS includes)
            string(REGEX REPLACE "^[^\"<]*[\"<]([a-z_]+)/.*" "\\1" layer "${include}")
            if(layer IN_LIST MINIM_FOLDERS AND NOT layer IN_LIST allowed)
                message(FATAL_ERROR "${file} includes ${layer}/; ${name} may use: ${allowed}")
            endif()
        endforeach()
    endforeach()
endfunction()

# Sets `result` to the libraries of the layers named and of everything below them.
function(minim_libraries_of result)
    set(layers "")
    foreach(layer IN LISTS ARGN)
        get_property(below GLOBAL PROPERTY MINIM_LAYERS_OF_${layer})
        list(APPEND layers ${below})
    endforeach()
    list(REMOVE_DUPLICATES layers)
    list(TRANSFORM layers PREPEND minim_)
    set(${result} ${layers} PARENT_SCOPE)
endfunction()

# Links a program or library with the layers named and everything below them.
function(minim_link_layers target)
    minim_libraries_of(libraries ${ARGN})
    target_link_libraries(${target} PRIVATE ${libraries})
endfunction()

# minim_unit_test(format_test LAYER format SOURCES q4_k_test.cpp ... [APART ...] [DEFINITIONS ...] [LIBRARIES ...] [COST 10])
# builds one Catch2 program linked with the layer or layers, everything below them and tests/support; each of its cases is
# a CTest test of this COST, and of the label in MINIM_TEST_LABEL. APART: see minim_unity.
function(minim_unit_test name)
    cmake_parse_arguments(ARG "" "COST" "LAYER;SOURCES;APART;DEFINITIONS;LIBRARIES" ${ARGN})
    if(NOT ARG_COST)
        set(ARG_COST 0)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    minim_link_layers(${name} ${ARG_LAYER})
    target_compile_definitions(${name} PRIVATE MINIM_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                               MINIM_TEST_MODELS="${PROJECT_BINARY_DIR}/tests/models"
                                               MINIM_EXAMPLE_MODELS="${PROJECT_SOURCE_DIR}/examples/models"
                                               ${ARG_DEFINITIONS})
    target_link_libraries(${name} PRIVATE minim_compile_options minim_test_support ${ARG_LIBRARIES})
    minim_precompile(${name} "${MINIM_TEST_HEADERS}")
    minim_unity(${name} APART ${ARG_APART})
    catch_discover_tests(${name} TEST_PREFIX "${name}: " PROPERTIES COST ${ARG_COST} LABELS "${MINIM_TEST_LABEL}")
endfunction()
