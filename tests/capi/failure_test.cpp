// SPDX-License-Identifier: Apache-2.0
// Disasters, the SQLite way: the n-th allocation, read, mapping or thread start fails, for n = 1, 2, ...
// until the work succeeds. Each failure must come back as an error and leave nothing behind: no memory,
// mapping or descriptor.
//
// The thread sanitizer's runtime calls the C library's functions before a program's own replacements work,
// and makes every load thirty times slower. With that sanitizer only allocations are made to fail, and only
// one in a few of them.
//
// usage: failure_test load MODEL        opening a checkpoint of any kind
//        failure_test converse MODEL    a session, a prompt and sampled tokens on every backend
//        failure_test save MODEL        a session forked, saved and restored
//        failure_test serve MODEL       an engine with two requests
//        failure_test convert MODEL     a model quantised to a file and verified
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "minim/minim.h"

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool k_replaces_libc = false;
constexpr long k_step = 61;
#else
constexpr bool k_replaces_libc = true;
constexpr long k_step = 1;
#endif

enum class Kind { allocation, read, write, name, map, open, thread };

// The kind of call that fails, and how many such calls are still to come, the failing one included.
std::atomic<bool> g_armed{false};
std::atomic<Kind> g_kind{Kind::allocation};
std::atomic<long> g_countdown{0};
std::atomic<long> g_live_blocks{0};
std::atomic<long> g_live_mapped{0};
std::atomic<long> g_live_files{0};

bool fails_now(Kind kind) {
    if (!g_armed.load() || g_kind.load() != kind) return false;
    return g_countdown.fetch_sub(1) == 1;
}

template <typename Function>
Function real(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (fails_now(Kind::allocation)) return nullptr;
    void* block = alignment == 0
                      ? std::malloc(bytes == 0 ? 1 : bytes)
                      : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (block != nullptr) g_live_blocks.fetch_add(1);
    return block;
}

void release(void* block) noexcept {
    if (block == nullptr) return;
    g_live_blocks.fetch_sub(1);
    std::free(block);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    void* block = allocate(bytes, alignment);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

}  // namespace

void* operator new(std::size_t bytes) {
    return allocate_or_throw(bytes, 0);
}
void* operator new[](std::size_t bytes) {
    return allocate_or_throw(bytes, 0);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes, 0);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t a) {
    return allocate_or_throw(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* block) noexcept {
    release(block);
}
void operator delete[](void* block) noexcept {
    release(block);
}
void operator delete(void* block, std::size_t) noexcept {
    release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
    release(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
    release(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
    release(block);
}

#if !defined(__SANITIZE_THREAD__)
// The program is built with hidden visibility; these must be seen by the library.
#pragma GCC visibility push(default)
extern "C" {

ssize_t pread(int descriptor, void* out, size_t count, off_t offset) {
    if (fails_now(Kind::read)) {
        errno = EIO;
        return -1;
    }
    static const auto next = real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
    return next(descriptor, out, count, offset);
}

ssize_t pread64(int descriptor, void* out, size_t count, off_t offset) {
    return pread(descriptor, out, count, offset);
}

ssize_t pwrite(int descriptor, const void* data, size_t count, off_t offset) {
    if (fails_now(Kind::write)) {
        errno = ENOSPC;
        return -1;
    }
    static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
    return next(descriptor, data, count, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t count, off_t offset) {
    return pwrite(descriptor, data, count, offset);
}

// fsync() stands for the calls that make a file's name permanent. No test needs that it is.
int fsync(int) {
    if (!fails_now(Kind::name)) return 0;
    errno = EIO;
    return -1;
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
    if (fails_now(Kind::name)) {
        errno = EDQUOT;
        return -1;
    }
    static const auto next = real<int (*)(int, const char*, int, const char*, int)>("linkat");
    return next(from_folder, from, to_folder, to, flags);
}

int rename(const char* from, const char* to) noexcept {
    if (fails_now(Kind::name)) {
        errno = EACCES;
        return -1;
    }
    static const auto next = real<int (*)(const char*, const char*)>("rename");
    return next(from, to);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
    if (fails_now(Kind::map)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    static const auto next = real<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
    void* block = next(address, bytes, protection, flags, descriptor, offset);
    if (block != MAP_FAILED) g_live_mapped.fetch_add(1);
    return block;
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
    return mmap(address, bytes, protection, flags, descriptor, offset);
}

int munmap(void* address, size_t bytes) noexcept {
    static const auto next = real<int (*)(void*, size_t)>("munmap");
    const int result = next(address, bytes);
    if (result == 0) g_live_mapped.fetch_sub(1);
    return result;
}

int open(const char* path, int flags, ...) {
    if (fails_now(Kind::open)) {
        errno = EMFILE;
        return -1;
    }
    va_list arguments;
    va_start(arguments, flags);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is just above
    const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
    va_end(arguments);
    static const auto next = real<int (*)(const char*, int, ...)>("open");
    const int descriptor = next(path, flags, mode);
    if (descriptor >= 0) g_live_files.fetch_add(1);
    return descriptor;
}

int close(int descriptor) {
    static const auto next = real<int (*)(int)>("close");
    const int result = next(descriptor);
    if (result == 0) g_live_files.fetch_sub(1);
    return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
    if (fails_now(Kind::thread)) return EAGAIN;
    static const auto next =
        real<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    return next(thread, attributes, start, argument);
}

}  // extern "C"
#pragma GCC visibility pop
#endif

namespace {

// Of a model that is opened again and again: some workers already run when a later one cannot be started.
constexpr int32_t k_n_opening_threads = 4;
// Of one that stays open: jobs are divided, and two cores are enough.
constexpr int32_t k_n_threads = 2;

const char* g_model_path = nullptr;
constexpr const char* k_messages = R"([{"role": "user", "content": "What is 2 + 2?"}])";

int32_t ignore_token(void*, const minim_token*) {
    return 0;
}
void ignore_line(void*, int32_t, const char*) {}
int32_t go_on(void*, uint64_t, uint64_t) {
    return 0;
}

[[noreturn]] void give_up(const std::string& what) {
    std::fprintf(stderr, "failure_test: %s\n", what.c_str());
    std::exit(1);
}

minim_runtime* make_runtime(int32_t n_threads, minim_error* err) {
    minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
    params.n_threads = n_threads;
    params.log = ignore_line;
    params.log_level = MINIM_LOG_DEBUG;
    minim_runtime* runtime = nullptr;
    return minim_runtime_create(&params, &runtime, err) == MINIM_OK ? runtime : nullptr;
}

minim_model* open_model(minim_runtime* runtime, int32_t residence, const char* backend, minim_error* err,
                        const char* packed_file = nullptr) {
    minim_model_params params = MINIM_MODEL_PARAMS_INIT;
    params.residence = residence;
    params.backend = backend;
    params.packed_file = packed_file;
    params.progress = go_on;
    minim_model* model = nullptr;
    return minim_model_open(runtime, g_model_path, &params, nullptr, &model, err) == MINIM_OK ? model
                                                                                              : nullptr;
}

// Generates a few sampled tokens, one for each call.
minim_status converse_by_steps(minim_session* session, const minim_sampling* sampling,
                               const minim_tokens* prompt, minim_error* err) {
    const size_t before = minim_session_token_count(session);
    const size_t n_prompt = minim_tokens_count(prompt);
    minim_status status =
        minim_generate_begin(session, sampling, minim_tokens_data(prompt), n_prompt, nullptr, err);
    const bool begun = status == MINIM_OK;
    size_t n_reported = 0;
    for (int32_t has_token = 1; status == MINIM_OK && has_token != 0;) {
        minim_token token = MINIM_TOKEN_INIT;
        status = minim_generate_next(session, &token, &has_token, nullptr, err);
        if (status == MINIM_OK && has_token != 0) ++n_reported;
    }
    if (status == MINIM_OK && n_reported == 0) give_up("a generation by steps reported no token");
    // After a failed prompt the session has none of its tokens; else it has the prompt and every token that was reported.
    const size_t kept = minim_session_token_count(session) - before;
    if (kept != n_prompt + n_reported && (kept != 0 || status == MINIM_OK || n_reported != 0))
        give_up("a generation by steps lost count of its tokens");
    if (!begun && kept != 0) give_up("a generation that did not begin changed the session");
    return status;
}

// Everything after loading: a session, a rendered prompt, evaluation, a few sampled tokens.
minim_status converse(minim_model* model, minim_error* err) {
    minim_session* session = nullptr;
    minim_sampling* sampling = nullptr;
    minim_tokens* prompt = nullptr;
    minim_text* text = nullptr;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    params.max_context = 128;
    minim_status status = minim_session_create(model, &params, &session, err);
    if (status == MINIM_OK) status = minim_sampling_create(&sampling, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "max_tokens", 3, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "seed", 1, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "top_logprobs", 2, err);
    if (status == MINIM_OK) status = minim_sampling_set_f64(sampling, "temperature", 0.8, err);
    if (status == MINIM_OK) status = minim_sampling_set_f64(sampling, "top_p", 0.9, err);
    if (status == MINIM_OK) status = minim_sampling_set_f64(sampling, "repetition_penalty", 1.1, err);
    if (status == MINIM_OK) status = minim_sampling_add_stop(sampling, "never to be seen", SIZE_MAX, err);
    if (status == MINIM_OK) status = minim_sampling_add_logit_bias(sampling, 5, -1.0F, err);
    if (status == MINIM_OK) {
        status = minim_chat_tokenize(model, k_messages, nullptr, nullptr, MINIM_SPECIALS_SAFE, &prompt, err);
    }
    if (status == MINIM_OK) {
        const size_t before = minim_session_token_count(session);
        status = minim_session_eval(session, minim_tokens_data(prompt), 4, 0, nullptr, 0, nullptr, err);
        if (status != MINIM_OK && minim_session_token_count(session) != before)
            give_up("a failed eval changed the session");
    }
    if (status == MINIM_OK) {
        minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
        const size_t before = minim_session_token_count(session);
        status = minim_generate(session, sampling, minim_tokens_data(prompt) + 4,
                                minim_tokens_count(prompt) - 4, ignore_token, nullptr, nullptr, &result, err);
        const size_t kept =
            status == MINIM_OK || result.n_prompt > 0 ? result.n_prompt + result.n_generated : 0;
        if (minim_session_token_count(session) != before + kept)
            give_up("a failed generation lost count of its tokens");
    }
    if (status == MINIM_OK) status = converse_by_steps(session, sampling, prompt, err);
    if (status == MINIM_OK)
        status =
            minim_detokenize(model, minim_tokens_data(prompt), minim_tokens_count(prompt), 0, &text, err);
    minim_text_free(text);
    minim_tokens_free(prompt);
    minim_sampling_free(sampling);
    minim_session_free(session);
    return status;
}

size_t count_files(const std::string& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Forks a session of a few tokens, saves the fork and restores what was saved.
minim_status save(minim_model* model, const std::string& path, minim_error* err) {
    minim_session* session = nullptr;
    minim_session* fork = nullptr;
    minim_session* restored = nullptr;
    const int32_t ids[] = {5, 6, 7, 8};
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    params.max_context = 128;
    minim_status status = minim_session_create(model, &params, &session, err);
    if (status == MINIM_OK) status = minim_session_eval(session, ids, 4, 0, nullptr, 0, nullptr, err);
    if (status == MINIM_OK) status = minim_session_fork(session, &fork, err);
    if (status == MINIM_OK) status = minim_session_save(fork, path.c_str(), nullptr, err);
    if (status == MINIM_OK)
        status = minim_session_restore(model, path.c_str(), nullptr, nullptr, &restored, err);
    if (status == MINIM_OK && minim_session_token_count(restored) != 4)
        give_up("a restored session lost tokens");
    minim_session_free(restored);
    restored = nullptr;
    static std::array<unsigned char, size_t{1} << 20> memory;
    size_t size = 0;
    if (status == MINIM_OK)
        status = minim_session_save_memory(fork, memory.data(), memory.size(), &size, nullptr, err);
    if (status == MINIM_OK)
        status = minim_session_restore_memory(model, memory.data(), size, nullptr, nullptr, &restored, err);
    minim_session_free(restored);
    minim_session_free(fork);
    minim_session_free(session);
    return status;
}

// Reads an answer to its end.
minim_status read_answer(minim_request* request, minim_error* err) {
    for (int32_t next = MINIM_NEXT_PENDING; next != MINIM_NEXT_END;) {
        minim_token token = MINIM_TOKEN_INIT;
        const minim_status status = minim_request_next(request, -1, &token, &next, err);
        if (status != MINIM_OK) return status;
    }
    return MINIM_OK;
}

minim_status constrain(minim_model* model, minim_error* err) {
    constexpr const char* k_schema =
        R"({"properties": {"a": {"type": ["string", "null"]}, "b": {"minimum": 3},
        "c": {"items": {"$ref": "#"}}}, "required": ["a"], "additionalProperties": {"pattern": "^x"}})";
    minim_constraint* constraint = nullptr;
    const minim_status status = minim_constraint_from_schema(model, k_schema, nullptr, &constraint, err);
    minim_constraint_free(constraint);
    return status;
}

// An engine, requests that begin alike, some of which must have a form, and its prefixes saved and loaded.
minim_status serve(minim_model* model, const std::string& path, minim_error* err) {
    minim_engine* engine = nullptr;
    minim_sampling* sampling = nullptr;
    minim_constraint* constraint = nullptr;
    minim_request* requests[4] = {};
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    params.kv_tokens = 192;
    params.n_requests = 2;
    params.host_cache_bytes = UINT64_MAX;
    int32_t ids[200];
    for (int32_t i = 0; i < 200; ++i) ids[i] = 5 + i;
    minim_status status = minim_engine_create(model, &params, &engine, err);
    if (status == MINIM_OK) status = minim_sampling_create(&sampling, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "max_tokens", 3, err);
    if (status == MINIM_OK)
        status = minim_engine_submit(engine, sampling, ids, 66, nullptr, &requests[0], err);
    if (status == MINIM_OK)
        status = minim_constraint_from_regex(model, "[a-f]{3}", nullptr, &constraint, err);
    if (status == MINIM_OK) status = minim_sampling_set_constraint(sampling, constraint, err);
    if (status == MINIM_OK)
        status = minim_engine_submit(engine, sampling, ids, 68, nullptr, &requests[1], err);
    for (size_t i = 0; i < 2 && status == MINIM_OK; ++i) status = read_answer(requests[i], err);
    // The pages of one prompt move to host memory for the other, and come back.
    for (size_t i = 2; i < 4 && status == MINIM_OK; ++i) {
        status =
            minim_engine_submit(engine, sampling, i == 2 ? ids + 100 : ids, 66, nullptr, &requests[i], err);
        if (status == MINIM_OK) status = read_answer(requests[i], err);
    }
    if (status == MINIM_OK) status = minim_engine_save_prefixes(engine, path.c_str(), nullptr, err);
    if (status == MINIM_OK) status = minim_engine_load_prefixes(engine, path.c_str(), nullptr, nullptr, err);
    if (status == MINIM_OK)
        status = minim_engine_save_prefix(engine, ids, 66, path.c_str(), nullptr, nullptr, err);
    if (status == MINIM_OK) status = minim_engine_erase_prefix(engine, ids, 66, nullptr, err);
    minim_tokens* prefix = nullptr;
    if (status == MINIM_OK) status = minim_engine_load_prefix(engine, path.c_str(), nullptr, &prefix, err);
    minim_tokens_free(prefix);
    for (minim_request* request : requests) minim_request_free(request);
    minim_engine_free(engine);
    minim_sampling_free(sampling);
    minim_constraint_free(constraint);
    return status;
}

// Quantises the model, and replaces an earlier output or goes on with an unfinished one.
minim_status convert(const std::string& output, minim_error* err) {
    minim_runtime* runtime = make_runtime(k_n_threads, err);
    if (runtime == nullptr) return err->status;
    minim_convert_params params = MINIM_CONVERT_PARAMS_INIT;
    params.recipe = "Q8_0";
    params.overwrite = 1;
    minim_text* report = nullptr;
    const minim_status status =
        minim_convert(runtime, g_model_path, output.c_str(), &params, nullptr, &report, err);
    minim_text_free(report);
    minim_runtime_free(runtime);
    return status;
}

minim_status load(int32_t residence, minim_error* err, const char* packed_file = nullptr) {
    minim_runtime* runtime = make_runtime(k_n_opening_threads, err);
    if (runtime == nullptr) return err->status;
    minim_model* model = open_model(runtime, residence, nullptr, err, packed_file);
    minim_runtime_free(runtime);
    const minim_status status = model == nullptr ? err->status : MINIM_OK;
    minim_model_close(model);
    return status;
}

bool status_fits(Kind kind, minim_status status) {
    if (kind == Kind::read || kind == Kind::open || kind == Kind::write || kind == Kind::name)
        return status == MINIM_E_IO;
    if (kind == Kind::map) return status == MINIM_E_IO || status == MINIM_E_OUT_OF_MEMORY;
    return status == MINIM_E_OUT_OF_MEMORY;
}

// Runs `work` with the n-th call of the kind failing, for each `step`-th n, until `work` makes fewer than n such calls.
// Returns the number of failures.
template <typename Work>
long exhaust(const char* name, Kind kind, const Work& work, long step = k_step) {
    minim_error warm = MINIM_ERROR_INIT;
    if (work(&warm) != MINIM_OK) give_up(std::string(name) + " fails by itself: " + warm.message);
    long n_failures = 0;
    for (long n = 1;; n += step) {
        const long blocks = g_live_blocks.load();
        const long mapped = g_live_mapped.load();
        const long files = g_live_files.load();
        minim_error err = MINIM_ERROR_INIT;
        g_kind = kind;
        g_countdown = n;
        g_armed = true;
        const minim_status status = work(&err);
        g_armed = false;
        const long leaked_blocks = g_live_blocks.load() - blocks;
        const std::string where = std::string(name) + ", failure " + std::to_string(n) + ": ";
        if (leaked_blocks != 0) give_up(where + "leaks " + std::to_string(leaked_blocks) + " blocks");
        if (g_live_mapped.load() > mapped) give_up(where + "leaks a mapping");
        if (g_live_files.load() != files) give_up(where + "leaks a descriptor");
        if (g_countdown.load() > 0) {
            if (status != MINIM_OK) give_up(where + "fails without a failure: " + err.message);
            std::printf("%s: %ld failures came back as errors\n", name, n_failures);
            return n_failures;
        }
        ++n_failures;
        // The work may survive a failure (of an optional request), but must not report another error instead.
        if (status != MINIM_OK && !status_fits(kind, status)) {
            give_up(where + "gives " + minim_status_name(status) + ": " + err.message);
        }
    }
}

// Calls exhaust() for each of the kinds, with its name. Kinds of libc calls are skipped if these calls are not replaced; each
// kind that is not skipped must fail at least once.
template <typename Work>
void exhaust_each(std::initializer_list<std::pair<const char*, Kind>> kinds, const Work& work) {
    for (const auto& [name, kind] : kinds) {
        if (kind != Kind::allocation && !k_replaces_libc) continue;
        if (exhaust(name, kind, work) == 0) give_up(std::string(name) + " never failed");
    }
}

}  // namespace

namespace {

void fail_loads() {
    const auto load_mapped = [](minim_error* err) { return load(MINIM_RESIDENCE_MAPPED, err); };
    const auto load_owned = [](minim_error* err) { return load(MINIM_RESIDENCE_OWNED, err); };
    long allocations = exhaust("allocations of a mapped load", Kind::allocation, load_mapped);
    // Headers, tokenizer and template are read as for a mapped load.
    allocations += exhaust("allocations of an owned load", Kind::allocation, load_owned, 5 * k_step);
    if (allocations == 0) give_up("no allocation failed");
    if (!k_replaces_libc) return;
    long reads = exhaust("reads of a mapped load", Kind::read, load_mapped);
    reads += exhaust("reads of an owned load", Kind::read, load_owned);
    const long opens = exhaust("file opens of a mapped load", Kind::open, load_mapped);
    const long maps = exhaust("mappings of a mapped load", Kind::map, load_mapped) +
                      exhaust("mappings of an owned load", Kind::map, load_owned);
    const auto load_with_threads = [&](minim_error* err) {
        const minim_status status = load_mapped(err);
        if (status != MINIM_OK &&
            (err->os_code != EAGAIN || std::strstr(err->message, "cannot start worker thread ") == nullptr))
            give_up(std::string("a thread that was not started gives: ") + err->message);
        // A joined thread may still be listed for a moment.
        for (int i = 0; count_files("/proc/self/task") != 1; ++i) {
            if (i == 1000) give_up("a load leaves threads behind");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return status;
    };
    const long threads = exhaust("thread starts", Kind::thread, load_with_threads);
    if (threads != k_n_opening_threads - 1) give_up("not each worker's start failed");
    if (reads == 0 || opens == 0 || maps == 0 || threads == 0) give_up("a kind of failure never came");
}

void fail_packing() {
    char folder[] = "/tmp/minim-failure-XXXXXX";
    if (mkdtemp(folder) == nullptr) give_up("cannot make a folder");
    const std::string path = std::string(folder) + "/packed";
    // Whatever fails, the packed file is either complete or absent.
    const auto make = [&path, &folder](minim_error* e) {
        const minim_status status = load(MINIM_RESIDENCE_MAPPED, e, path.c_str());
        g_armed = false;
        const size_t n_files = count_files(folder);
        if (n_files > 1) give_up("packing left more than its file");
        if (status == MINIM_OK && n_files == 0) give_up("packing made no file");
        minim_error after = MINIM_ERROR_INIT;
        if (n_files == 1 && load(MINIM_RESIDENCE_MAPPED, &after, path.c_str()) != MINIM_OK)
            give_up(std::string("packing left: ") + after.message);
        std::filesystem::remove(path);
        return status;
    };
    const auto map = [&path](minim_error* e) { return load(MINIM_RESIDENCE_MAPPED, e, path.c_str()); };
    exhaust_each({{"allocations of packing to a file", Kind::allocation},
                  {"reads of packing to a file", Kind::read},
                  {"writes of packing to a file", Kind::write},
                  {"naming a packed file", Kind::name},
                  {"file opens of packing to a file", Kind::open},
                  {"mappings of packing to a file", Kind::map}},
                 make);
    exhaust_each({{"allocations of a packed load", Kind::allocation},
                  {"reads of a packed load", Kind::read},
                  {"file opens of a packed load", Kind::open},
                  {"mappings of a packed load", Kind::map}},
                 map);
    std::filesystem::remove_all(folder);
}

// The model, opened while nothing fails.
struct OpenModel {
    minim_runtime* runtime = nullptr;
    minim_model* model = nullptr;

    explicit OpenModel(const char* backend = nullptr) {
        minim_error err = MINIM_ERROR_INIT;
        runtime = make_runtime(k_n_threads, &err);
        if (runtime != nullptr) model = open_model(runtime, MINIM_RESIDENCE_MAPPED, backend, &err);
        if (model == nullptr) give_up(err.message);
    }
    ~OpenModel() {
        minim_model_close(model);
        minim_runtime_free(runtime);
    }
    OpenModel(const OpenModel&) = delete;
    OpenModel& operator=(const OpenModel&) = delete;
};

void fail_conversations() {
    for (const char* backend : {"cpu", "reference"}) {
        const OpenModel open(backend);
        const auto work = [&open](minim_error* e) { return converse(open.model, e); };
        if (exhaust("allocations of a conversation", Kind::allocation, work) == 0)
            give_up("no allocation failed");
        exhaust("mappings of a conversation", Kind::map, work);
    }
}

void fail_saves() {
    char folder[] = "/tmp/minim-failure-XXXXXX";
    if (mkdtemp(folder) == nullptr) give_up("cannot make a folder");
    const std::string path = std::string(folder) + "/state";
    const OpenModel open;
    // Whatever fails, a complete state file can be restored, and the folder has no other file.
    const auto work = [&open, &path, &folder](minim_error* e) {
        const minim_status status = save(open.model, path, e);
        g_armed = false;
        minim_session* restored = nullptr;
        minim_error after = MINIM_ERROR_INIT;
        if (minim_session_restore(open.model, path.c_str(), nullptr, nullptr, &restored, &after) != MINIM_OK)
            give_up(std::string("a failed save left: ") + after.message);
        minim_session_free(restored);
        if (count_files(folder) != 1) give_up("a failed save left more than its file");
        return status;
    };
    exhaust_each({{"allocations of a save", Kind::allocation},
                  {"reads of a restore", Kind::read},
                  {"writes of a save", Kind::write},
                  {"naming a saved file", Kind::name},
                  {"file opens of a save", Kind::open},
                  {"mappings of a save", Kind::map}},
                 work);
    std::filesystem::remove_all(folder);
}

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void fail_conversions() {
    char folder[] = "/tmp/minim-failure-XXXXXX";
    if (mkdtemp(folder) == nullptr) give_up("cannot make a folder");
    const std::string path = std::string(folder) + "/model.gguf";
    minim_error first = MINIM_ERROR_INIT;
    if (convert(path, &first) != MINIM_OK) give_up(first.message);
    const std::string wanted = content(path);
    // Whatever fails, the file is whole or absent, and the same call makes it.
    const auto work = [&path, &wanted, &folder](minim_error* e) {
        unlink(path.c_str());
        const minim_status status = convert(path, e);
        g_armed = false;
        if (const std::string made = content(path); !made.empty() && made != wanted)
            give_up("a conversion left another file");
        minim_error after = MINIM_ERROR_INIT;
        if (status != MINIM_OK && convert(path, &after) != MINIM_OK)
            give_up(std::string("a conversion does not go on: ") + after.message);
        if (content(path) != wanted) give_up("a conversion that went on made another file");
        if (count_files(folder) != 1) give_up("a conversion left more than its file");
        return status;
    };
    if (exhaust("allocations of a conversion", Kind::allocation, work, 3 * k_step) == 0)
        give_up("no allocation failed");
    exhaust_each({{"reads of a conversion", Kind::read},
                  {"writes of a conversion", Kind::write},
                  {"naming a converted file", Kind::name},
                  {"file opens of a conversion", Kind::open},
                  {"thread starts of a conversion", Kind::thread}},
                 work);
    std::filesystem::remove_all(folder);
}

void fail_serving() {
    char folder[] = "/tmp/minim-failure-XXXXXX";
    if (mkdtemp(folder) == nullptr) give_up("cannot make a folder");
    const std::string path = std::string(folder) + "/prefixes";
    const OpenModel open;
    const auto work = [&open, &path](minim_error* e) { return serve(open.model, path, e); };
    if (exhaust("allocations of an engine", Kind::allocation, work) == 0) give_up("no allocation failed");
    const auto make_constraint = [&open](minim_error* e) { return constrain(open.model, e); };
    if (exhaust("allocations of a constraint", Kind::allocation, make_constraint) == 0)
        give_up("no allocation failed");
    if (k_replaces_libc) {
        exhaust("mappings of an engine", Kind::map, work);
        exhaust("thread starts of an engine", Kind::thread, work);
        exhaust("writes of prefixes", Kind::write, work);
        exhaust("reads of prefixes", Kind::read, work);
    }
    std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) give_up("usage: failure_test load|pack|converse|save|serve|convert MODEL");
    const std::string_view what = argv[1];
    g_model_path = argv[2];
    if (what == "load")
        fail_loads();
    else if (what == "pack")
        fail_packing();
    else if (what == "converse")
        fail_conversations();
    else if (what == "save")
        fail_saves();
    else if (what == "serve")
        fail_serving();
    else if (what == "convert")
        fail_conversions();
    else
        give_up("usage: failure_test load|pack|converse|save|serve|convert MODEL");
    return 0;
}
