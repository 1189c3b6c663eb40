# SPDX-License-Identifier: Apache-2.0
# Sanitized copies of layers and of programs inside a release build, so that one run of CTest has both. Kernels are taken as
# the release build compiles them: they are most of the time of compiling and of running, and work on plain memory that
# others own. `tests/run.sh asan` and `tests/run.sh tsan` build everything with a sanitizer, kernels too.

# minim_sanitized_layers(asan SANITIZERS address,undefined LAYERS check convert)
# makes minim_layers_asan: the layers named and everything below them, a layer's files compiled as one, but for those that are apart
# with MINIM_UNITY too.
function(minim_sanitized_layers kind)
    cmake_parse_arguments(ARG "" "SANITIZERS" "LAYERS" ${ARGN})
    set(target minim_layers_${kind})
    add_library(${target} OBJECT)
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
    # Compiled for longer than they run, with the programs that test them: -Og takes as long as -O0, half of the time of -O1, and
    # runs at 0.93 of the speed of -O1.
    target_compile_options(${target} PUBLIC -Og -g1 -UNDEBUG -fsanitize=${ARG_SANITIZERS} -fno-omit-frame-pointer
                                            -fno-sanitize-recover=all)
    # -Og does not inline all that xxhash.h marks to be inlined always.
    target_compile_definitions(${target} PRIVATE XXH_NO_INLINE_HINTS=1)
    target_link_options(${target} INTERFACE -fsanitize=${ARG_SANITIZERS})
    target_link_libraries(${target} PUBLIC Threads::Threads fmt::fmt-header-only PRIVATE minim_compile_options)
    minim_libraries_of(layers ${ARG_LAYERS})
    set(kernels ${layers})
    list(FILTER kernels INCLUDE REGEX "_kernels$")
    list(FILTER layers EXCLUDE REGEX "_kernels$")
    set_property(GLOBAL PROPERTY MINIM_KERNELS_OF_${target} ${kernels})
    foreach(layer IN LISTS layers)
        get_target_property(folder ${layer} SOURCE_DIR)
        get_target_property(sources ${layer} SOURCES)
        list(TRANSFORM sources PREPEND ${folder}/)
        set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${layer})
        target_sources(${target} PRIVATE ${sources})
        get_target_property(apart ${layer} MINIM_APART)
        list(TRANSFORM apart PREPEND ${folder}/)
        set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        target_include_directories(${target} PRIVATE $<TARGET_PROPERTY:${layer},INCLUDE_DIRECTORIES>)
        target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:${layer},COMPILE_DEFINITIONS>)
        get_target_property(libraries ${layer} INTERFACE_LINK_LIBRARIES)
        list(FILTER libraries EXCLUDE REGEX "LINK_ONLY")
        target_link_libraries(${target} INTERFACE ${libraries})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Links a program or module with minim_layers_asan, to be compiled as that is.
function(minim_link_sanitized_layers target kind)
    get_property(kernels GLOBAL PROPERTY MINIM_KERNELS_OF_minim_layers_${kind})
    target_link_libraries(${target} PRIVATE minim_layers_${kind} ${kernels} minim_compile_options ${CMAKE_DL_LIBS})
endfunction()
