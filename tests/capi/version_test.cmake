# SPDX-License-Identifier: Apache-2.0
# Checks that the installed package takes itself for compatible with a version, but not with another major version.
#   cmake -DPREFIX=... -DVERSION=... -P version_test.cmake
file(GLOB_RECURSE script ${PREFIX}/*/minim-config-version.cmake)
foreach(wanted ${VERSION} 1.0.0)
    set(PACKAGE_FIND_VERSION ${wanted})
    string(REGEX MATCHALL "[0-9]+" parts ${wanted})
    list(GET parts 0 PACKAGE_FIND_VERSION_MAJOR)
    list(GET parts 1 PACKAGE_FIND_VERSION_MINOR)
    list(GET parts 2 PACKAGE_FIND_VERSION_PATCH)
    set(PACKAGE_FIND_VERSION_COUNT 3)
    set(PACKAGE_VERSION_COMPATIBLE FALSE)
    include(${script})
    if(wanted STREQUAL VERSION AND NOT PACKAGE_VERSION_COMPATIBLE)
        message(FATAL_ERROR "the package ${PACKAGE_VERSION} does not do for ${wanted}")
    elseif(NOT wanted STREQUAL VERSION AND PACKAGE_VERSION_COMPATIBLE)
        message(FATAL_ERROR "the package ${PACKAGE_VERSION} claims to do for ${wanted}")
    endif()
endforeach()
