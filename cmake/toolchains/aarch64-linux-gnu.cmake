# SPDX-License-Identifier: Apache-2.0
# Compiles for Linux on aarch64 on another machine, with Debian's g++-aarch64-linux-gnu, and runs programs there with qemu-user.
# The environment variable MINIM_ARM64_ROOT names the folder that tools/make_arm64_root.sh made.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(root "$ENV{MINIM_ARM64_ROOT}")
if(NOT IS_DIRECTORY "${root}")
    message(FATAL_ERROR "MINIM_ARM64_ROOT names no folder of arm64 packages ('${root}'): make one with tools/make_arm64_root.sh")
endif()
set(CMAKE_SYSROOT "${root}")
# The compiler's folder of headers for one architecture is not below the sysroot. hwloc's configuration is there.
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES "${root}/usr/include/aarch64-linux-gnu")
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES "${root}/usr/include/aarch64-linux-gnu")
# A CUDA toolkit with the libraries of aarch64 may be anywhere.
if(DEFINED ENV{CUDAToolkit_ROOT})
    list(APPEND CMAKE_FIND_ROOT_PATH "$ENV{CUDAToolkit_ROOT}")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Otherwise pkg-config finds the libraries of the machine that compiles.
set(ENV{PKG_CONFIG_LIBDIR} "${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${root}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L "${root}")
