/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for LD_PRELOAD that lets the n-th call of a kind fail, and moves the wall clock. Another process controls it through the file
 * that MINIM_FAULTS names, which both map; soak.py has the same struct. While no call is to fail, it writes down where each is made.
 * Calls count from the program's main() on: before it, a failure is one of the C library's own start.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum kind { kind_none, kind_allocation, kind_read, kind_map, kind_thread, kind_open, kind_write };

enum { most_stacks = 1 << 20, stack_depth = 12 };

struct control {
    int32_t kind;
    int32_t unused;
    int64_t at;                   /* the number of the call that fails, from 1; 0: none */
    int64_t n_calls;              /* of the kind, so far */
    int64_t n_failures;           /* so far: 0 or 1 */
    int64_t clock_seconds;        /* added to the wall clock */
    uint64_t stacks[most_stacks]; /* a hash of the callers of each call of the kind, if `at` is 0 */
};

static struct control* g_control = NULL;
static int (*g_main)(int, char**, char**) = NULL;

static void* real(const char* name) {
    return dlsym(RTLD_NEXT, name);
}

/* Set while this thread loads a library or looks at its callers. The constructors of the CUDA runtime, which register each kernel, do
 * not look at what malloc() returns: they are no calls of ours. */
static __thread int g_does_not_count __attribute__((tls_model("initial-exec"))) = 0;

static uint64_t hash_of_callers(void) {
    void* callers[stack_depth];
    const int n = backtrace(callers, stack_depth);
    uint64_t hash = 14695981039346656037U; /* FNV-1a, a caller instead of a byte at a time */
    for (int i = 0; i < n; ++i) hash = (hash ^ (uint64_t)callers[i]) * 1099511628211U;
    return hash;
}

static int fails_now(enum kind kind) {
    if (g_does_not_count) return 0;
    struct control* control = __atomic_load_n(&g_control, __ATOMIC_ACQUIRE);
    if (control == NULL || control->kind != (int32_t)kind) return 0;
    const int64_t n = __atomic_add_fetch(&control->n_calls, 1, __ATOMIC_RELAXED);
    if (control->at == 0 && n <= most_stacks) {
        g_does_not_count = 1; /* calls of backtrace() itself do not count */
        control->stacks[n - 1] = hash_of_callers();
        g_does_not_count = 0;
    }
    if (n != control->at) return 0;
    __atomic_add_fetch(&control->n_failures, 1, __ATOMIC_RELAXED);
    return 1;
}

static int start_main(int argc, char** argv, char** environment) {
    const char* path = getenv("MINIM_FAULTS");
    if (path != NULL) {
        const int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        void* block = (void*)syscall(SYS_mmap, NULL, sizeof(struct control), PROT_READ | PROT_WRITE,
                                     MAP_SHARED, descriptor, 0);
        syscall(SYS_close, descriptor);
        if (block == MAP_FAILED) abort();
        hash_of_callers(); /* the first call loads a library */
        __atomic_store_n(&g_control, (struct control*)block, __ATOMIC_RELEASE);
    }
    return g_main(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void* stack) {
    int (*next)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void),
                void*) = real("__libc_start_main");
    g_main = main;
    return next(start_main, argc, argv, init, fini, end, stack);
}

void* dlopen(const char* file, int mode) {
    void* (*next)(const char*, int) = real("dlopen");
    const int did_not_count = g_does_not_count;
    g_does_not_count = 1;
    void* library = next(file, mode);
    g_does_not_count = did_not_count;
    return library;
}

/* glibc's own names of its allocator: dlsym() allocates. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static void* refuse(void) {
    errno = ENOMEM;
    return NULL;
}

void* malloc(size_t bytes) {
    return fails_now(kind_allocation) ? refuse() : __libc_malloc(bytes);
}

void* calloc(size_t count, size_t bytes) {
    return fails_now(kind_allocation) ? refuse() : __libc_calloc(count, bytes);
}

void* realloc(void* block, size_t bytes) {
    return fails_now(kind_allocation) ? refuse() : __libc_realloc(block, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
    return fails_now(kind_allocation) ? refuse() : __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
    if (fails_now(kind_allocation)) return ENOMEM;
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? ENOMEM : 0;
}

ssize_t pread(int descriptor, void* out, size_t count, off_t offset) {
    if (fails_now(kind_read)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, descriptor, out, count, offset);
}

ssize_t pread64(int descriptor, void* out, size_t count, off64_t offset) {
    return pread(descriptor, out, count, offset);
}

ssize_t pwrite(int descriptor, const void* data, size_t count, off_t offset) {
    if (fails_now(kind_write)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, descriptor, data, count, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t count, off64_t offset) {
    return pwrite(descriptor, data, count, offset);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
    if (fails_now(kind_map)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void*)syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int descriptor, off64_t offset) {
    return mmap(address, bytes, protection, flags, descriptor, offset);
}

static int open_file(int folder, const char* path, int flags, int mode) {
    if (fails_now(kind_open)) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static int needs_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = needs_mode(flags) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const int mode = needs_mode(flags) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return open_file(AT_FDCWD, path, flags, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
    if (fails_now(kind_thread)) return EAGAIN;
    int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = real("pthread_create");
    return next(thread, attributes, start, argument);
}

static int64_t clock_step(void) {
    struct control* control = __atomic_load_n(&g_control, __ATOMIC_ACQUIRE);
    return control == NULL ? 0 : control->clock_seconds;
}

int clock_gettime(clockid_t id, struct timespec* out) {
    const int result = (int)syscall(SYS_clock_gettime, id, out);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += clock_step();
    return result;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
    const int result = (int)syscall(SYS_gettimeofday, out, zone);
    if (result == 0) out->tv_sec += clock_step();
    return result;
}

time_t time(time_t* out) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
