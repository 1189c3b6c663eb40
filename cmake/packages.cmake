# SPDX-License-Identifier: Apache-2.0
# Debian packages, one a component: `cpack -G DEB` in a build folder with CMAKE_INSTALL_PREFIX=/usr writes
#
#   libminim0         the library                     minim             the programs minim and minim-server
#   libminim-dev      headers, CMake and pkg-config   python3-minim     the Python package
#   libminim0-cuda    the CUDA plug-in, where it is built
#   minim-mpi         the plug-in for ranks in several processes, where it is built
set(soversion ${PROJECT_VERSION_MAJOR})
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME minim)
set(CPACK_PACKAGE_VENDOR minim)
set(CPACK_PACKAGE_CONTACT "the authors of minim <minim@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development python)
if(MINIM_BUILD_PROGRAMS)
    list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
if(MINIM_CUDA)
    list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
if(MINIM_MPI)
    list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The packages that programs depend on; ours stand beside one another in exactly one version.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
# The tools that find them know this machine's libraries alone.
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
    set(libraries "libc6 (>= 2.36), libstdc++6 (>= 12)")
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "${libraries}")
    if(MINIM_HWLOC)
        string(APPEND CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS ", libhwloc15")
    endif()
endif()
set(same "(= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libminim${soversion})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libminim-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libminim${soversion} ${same}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libhwloc-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers for C and C++, the static library, and files for CMake and pkg-config.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME minim)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libminim${soversion} ${same}")
if(libraries)
    string(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS ", ${libraries}")
endif()
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The command-line program, and the server with the APIs of OpenAI and Anthropic.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-minim)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.9), python3-numpy, libminim${soversion} ${same}")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "The package minim for Python.")

set(CPACK_DEBIAN_CUDA_PACKAGE_NAME libminim${soversion}-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libminim${soversion} ${same}")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "The plug-in for NVIDIA GPUs.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME minim-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "libminim${soversion} ${same}")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_COMPONENT_MPI_DESCRIPTION "The plug-in for ranks in several processes, on Open MPI.")
include(CPack)
