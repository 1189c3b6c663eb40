// SPDX-License-Identifier: Apache-2.0
// minim.h from C++: the same as from C.
#include "minim_h.c"
