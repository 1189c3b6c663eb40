// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_link.h"
#include "ranks/link.h"

extern "C" __attribute__((visibility("default"))) const minim::ranks::LinkPlugin* minim_link_plugin() {
    static const minim::ranks::LinkPlugin plugin = {minim::ranks::k_link_interface,
                                                    minim::ranks::k_link_build, minim::mpi::open_link};
    return &plugin;
}
