// SPDX-License-Identifier: Apache-2.0
/* Checks for the C tests: a failed check prints its place and ends the program with status 1. */
#ifndef MINIM_TESTS_CHECK_H
#define MINIM_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "minim/minim.h"

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* The call fails with this status, and says so in `err`. */
#define CHECK_FAILS(call, wanted)                                                                \
    do {                                                                                         \
        minim_status status_ = (call);                                                           \
        if (status_ != (wanted) || err.status != (wanted) || err.message[0] == '\0') {           \
            fprintf(stderr, "%s:%d: status %d (%s), expected %s\n", __FILE__, __LINE__, status_, \
                    err.message, minim_status_name(wanted));                                     \
            exit(1);                                                                             \
        }                                                                                        \
        reset_error(&err);                                                                       \
    } while (0)

#define CHECK_OK(call)                                                                                       \
    do {                                                                                                     \
        minim_status status_ = (call);                                                                       \
        if (status_ != MINIM_OK) {                                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, minim_status_name(status_), err.message); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void reset_error(minim_error* err) {
    const minim_error fresh = MINIM_ERROR_INIT;
    *err = fresh;
}

#endif
