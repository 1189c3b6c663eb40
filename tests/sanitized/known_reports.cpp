// SPDX-License-Identifier: Apache-2.0
// Reports of the thread sanitizer that are not faults.

// The sanitizer's library calls this function.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

// libstdc++ counts the references of an exception in its own code, which is not instrumented: the sanitizer does not see that the last
// thread to release an exception does so after every thread that has read it.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
    return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
