// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "gpu/nccl_of_tests.h"
#include "gpu/nccl_on_host.h"
#include "gpu/recorder.h"
#include "support/catch.h"

namespace minim::test {
namespace {

void run(void (*work)(void*), void (*drop)(void*), void* data) {
    const std::shared_ptr<void> kept(data, drop);
    do_outside([work, kept] { work(kept.get()); });
}

}  // namespace

bool prepare_nccl(int /*n_ranks*/) {
    ::setenv("MINIM_NCCL_LIBRARY", MINIM_NCCL_ON_HOST, 1);
    void* const library = ::dlopen(MINIM_NCCL_ON_HOST, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    REQUIRE(library != nullptr);
    const auto run_with = reinterpret_cast<void (*)(NcclRun)>(::dlsym(library, k_nccl_run_with));
    REQUIRE(run_with != nullptr);
    run_with(run);
    return true;
}

}  // namespace minim::test
