# SPDX-License-Identifier: Apache-2.0
# Backends and links between processes that are libraries of their own (lib/backend/plugin.h, lib/ranks/link.h). They lie in a folder that is called for the version of the ABI, so
# that libraries of several versions can be installed side by side.
set(MINIM_PLUGIN_FOLDER minim-${PROJECT_VERSION_MAJOR})

# Lets a plug-in export its entry point alone: the templates of the C++ library that it has copies of are its own affair.
function(minim_plugin target)
    target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
endfunction()
