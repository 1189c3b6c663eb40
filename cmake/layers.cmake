# A layer is one folder of lib/: an object library that sees the layers named in DEPENDS and nothing else.
# The order of the folders is drawn in lib/README.md; a cycle or an upward include fails to configure or compile.
#
#   minim_layer(format SOURCES gguf_types.cpp ... DEPENDS base)
function(minim_layer name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
    add_library(minim_${name} OBJECT ${ARG_SOURCES})
    target_include_directories(minim_${name} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
    target_link_libraries(minim_${name} PUBLIC Threads::Threads fmt::fmt-header-only
                                        PRIVATE minim_compile_options ${ARG_LIBRARIES})
    set(layers ${name})
    foreach(dependency IN LISTS ARG_DEPENDS)
        get_property(below GLOBAL PROPERTY MINIM_LAYERS_OF_${dependency})
        list(APPEND layers ${below})
    endforeach()
    list(REMOVE_DUPLICATES layers)
    set_property(GLOBAL PROPERTY MINIM_LAYERS_OF_${name} ${layers})
    set_property(GLOBAL APPEND PROPERTY MINIM_ALL_LAYERS ${name})
endfunction()

# minim_unit_test(format_test LAYER format SOURCES q4_k_test.cpp ... [DEFINITIONS ...] [LIBRARIES ...])
# builds one Catch2 program linked with the layer or layers, everything below them and tests/support; each of its cases is
# a CTest test.
function(minim_unit_test name)
    cmake_parse_arguments(ARG "" "" "LAYER;SOURCES;DEFINITIONS;LIBRARIES" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    set(layers "")
    foreach(layer IN LISTS ARG_LAYER)
        get_property(below GLOBAL PROPERTY MINIM_LAYERS_OF_${layer})
        list(APPEND layers ${below})
    endforeach()
    list(REMOVE_DUPLICATES layers)
    foreach(layer IN LISTS layers)
        target_link_libraries(${name} PRIVATE minim_${layer})
    endforeach()
    target_compile_definitions(${name} PRIVATE MINIM_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                               MINIM_EXAMPLE_MODELS="${PROJECT_SOURCE_DIR}/examples/models"
                                               ${ARG_DEFINITIONS})
    target_link_libraries(${name} PRIVATE minim_compile_options minim_test_support ${ARG_LIBRARIES})
    catch_discover_tests(${name} TEST_PREFIX "${name}: ")
endfunction()
