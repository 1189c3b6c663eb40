#include "interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace cli {
namespace {

// A signal handler has no other way to its data.
std::atomic<minim_cancel*> interrupt_cancel{nullptr};

void on_interrupt(int) {
    minim_cancel* cancel = interrupt_cancel.exchange(nullptr);
    if (cancel == nullptr) _exit(k_exit_interrupted);
    minim_cancel_trigger(cancel);
}

}  // namespace

CancelOnInterrupt::CancelOnInterrupt(const minim::Cancel& cancel) {
    interrupt_cancel = cancel.get();
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags =
        SA_RESTART;  // a write in progress is completed; the library looks at the switch afterwards
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
}

CancelOnInterrupt::~CancelOnInterrupt() {
    interrupt_cancel = nullptr;
}

}  // namespace cli
