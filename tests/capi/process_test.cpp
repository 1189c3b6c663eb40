// SPDX-License-Identifier: Apache-2.0
// The library in its host's process: the effects of fork(), signals and limits on it, and its effects on them.
//
// usage: process_test fork|signals|threads|notify MODEL
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "minim/minim.h"

namespace {

const char* g_model_path = nullptr;

[[noreturn]] void give_up(const std::string& what) {
    std::fprintf(stderr, "process_test: %s\n", what.c_str());
    std::_Exit(1);
}

void require(bool is_so, const std::string& what) {
    if (!is_so) give_up(what);
}

void require_ok(minim_status status, const minim_error& err, const std::string& what) {
    if (status != MINIM_OK) give_up(what + ": " + err.message);
}

struct Host {
    minim_runtime* runtime = nullptr;
    minim_model* model = nullptr;
    minim_session* session = nullptr;
    minim_engine* engine = nullptr;
    minim_request* request = nullptr;

    explicit Host(int32_t n_threads, bool has_engine = true) {
        minim_error err = MINIM_ERROR_INIT;
        minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
        params.n_threads = n_threads;
        require_ok(minim_runtime_create(&params, &runtime, &err), err, "runtime");
        require_ok(minim_model_open(runtime, g_model_path, nullptr, nullptr, &model, &err), err, "model");
        minim_session_params session_params = MINIM_SESSION_PARAMS_INIT;
        session_params.max_context = 256;
        require_ok(minim_session_create(model, &session_params, &session, &err), err, "session");
        if (!has_engine) return;
        minim_engine_params engine_params = MINIM_ENGINE_PARAMS_INIT;
        engine_params.kv_tokens = 4096;
        require_ok(minim_engine_create(model, &engine_params, &engine, &err), err, "engine");
    }
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    // Releases all handles, children before their parents.
    void free() {
        minim_request_free(request);
        minim_engine_free(engine);
        minim_session_free(session);
        minim_model_close(model);
        minim_runtime_free(runtime);
    }
};

minim_status eval(minim_session* session, minim_error* err) {
    const int32_t ids[] = {5, 6, 7, 8};
    return minim_session_eval(session, ids, 4, 0, nullptr, 0, nullptr, err);
}

minim_status submit(Host& host, int64_t max_tokens, minim_error* err) {
    const int32_t ids[] = {5, 6, 7, 8};
    minim_sampling* sampling = nullptr;
    minim_status status = minim_sampling_create(&sampling, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "max_tokens", max_tokens, err);
    if (status == MINIM_OK) status = minim_sampling_set_i64(sampling, "ignore_end", 1, err);
    if (status == MINIM_OK)
        status = minim_engine_submit(host.engine, sampling, ids, 4, nullptr, &host.request, err);
    minim_sampling_free(sampling);
    return status;
}

// Checks that a child of fork() that runs `body` exits with 0 within 20 s.
void in_child(const std::string& name, const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        body();
        ::_exit(0);
    }
    require(child > 0, "fork");
    int status = 0;
    require(::waitpid(child, &status, 0) == child, "waitpid");
    if (WIFSIGNALED(status))
        give_up(name + ": killed by signal " + std::to_string(WTERMSIG(status)) +
                (WTERMSIG(status) == SIGALRM ? ", as it hung" : ""));
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, name + " failed");
}

void require_refused(const std::string& name, const std::function<minim_status(minim_error*)>& call) {
    minim_error err = MINIM_ERROR_INIT;
    const minim_status status = call(&err);
    require(status == MINIM_E_INVALID, name + " in a child gives status " + std::to_string(status));
    require(std::string_view(err.message).find("made before fork()") != std::string_view::npos,
            name + " in a child says: " + err.message);
}

void refuse_all(Host& host) {
    require_refused("eval", [&](minim_error* err) { return eval(host.session, err); });
    require_refused("generate", [&](minim_error* err) {
        const int32_t ids[] = {5};
        return minim_generate(host.session, nullptr, ids, 1, nullptr, nullptr, nullptr, nullptr, err);
    });
    require_refused("session_create", [&](minim_error* err) {
        minim_session* session = nullptr;
        return minim_session_create(host.model, nullptr, &session, err);
    });
    require_refused("model_open", [&](minim_error* err) {
        minim_model* model = nullptr;
        return minim_model_open(host.runtime, g_model_path, nullptr, nullptr, &model, err);
    });
    require_refused("engine_create", [&](minim_error* err) {
        minim_engine* engine = nullptr;
        return minim_engine_create(host.model, nullptr, &engine, err);
    });
}

void refuse_engine(Host& host) {
    require_refused("submit", [&](minim_error* err) {
        minim_request* request = nullptr;
        const int32_t ids[] = {5};
        return minim_engine_submit(host.engine, nullptr, ids, 1, nullptr, &request, err);
    });
    require_refused("drain", [&](minim_error* err) {
        int32_t done = 0;
        return minim_engine_drain(host.engine, -1, &done, err);
    });
    require_refused("state", [&](minim_error* err) {
        minim_engine_state state = MINIM_ENGINE_STATE_INIT;
        return minim_engine_get_state(host.engine, &state, err);
    });
    require_refused("save_prefixes", [&](minim_error* err) {
        return minim_engine_save_prefixes(host.engine, "/tmp/never", nullptr, err);
    });
    require_refused("next", [&](minim_error* err) {
        minim_token token = MINIM_TOKEN_INIT;
        int32_t next = 0;
        return minim_request_next(host.request, -1, &token, &next, err);
    });
    minim_request_cancel(host.request);
}

void fork_a_host() {
    minim_error err = MINIM_ERROR_INIT;
    Host host(4);
    require_ok(eval(host.session, &err), err, "eval");
    require_ok(submit(host, 2000, &err), err, "submit");
    in_child("a child that frees everything", [&] { host.free(); });
    in_child("a child that exits", [] { std::exit(0); });
    in_child("a child that goes on with what the parent made", [&] {
        refuse_all(host);
        refuse_engine(host);
        host.free();
    });
#if !defined(__SANITIZE_THREAD__)  // its runtime starts no threads in a child
    in_child("a child with a runtime of its own", [&] {
        minim_error in_child = MINIM_ERROR_INIT;
        Host own(2);
        require_ok(eval(own.session, &in_child), in_child, "eval in a child");
        require_ok(submit(own, 3, &in_child), in_child, "submit in a child");
        int32_t done = 0;
        require_ok(minim_engine_drain(own.engine, -1, &done, &in_child), in_child, "drain in a child");
        own.free();
        host.free();
    });
#endif
    // fork() while a thread waits for the request.
    std::thread waiting([&] {
        minim_error in_thread = MINIM_ERROR_INIT;
        for (int32_t next = MINIM_NEXT_PENDING; next != MINIM_NEXT_END;) {
            minim_token token = MINIM_TOKEN_INIT;
            require_ok(minim_request_next(host.request, -1, &token, &next, &in_thread), in_thread, "next");
        }
    });
    for (int i = 0; i < 20; ++i) in_child("a child that frees what is in use", [&] { host.free(); });
    minim_request_cancel(host.request);
    waiting.join();
    require_ok(eval(host.session, &err), err, "eval after all that");
    host.free();

    Host alone(1);
    require_ok(submit(alone, 2000, &err), err, "submit");
    in_child("a child of a host without threads", [&] {
        minim_error in_child = MINIM_ERROR_INIT;
        require_ok(eval(alone.session, &in_child), in_child, "eval in a child");
        refuse_engine(alone);
        alone.free();
    });
    alone.free();
}

// A signal reaches the thread that waits for it, even if the host blocks it only after the library has started its threads.
void wait_for_signals() {
    Host host(4);
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) ::sigaddset(&wanted, signal);
    require(::pthread_sigmask(SIG_BLOCK, &wanted, nullptr) == 0, "pthread_sigmask");
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        require(::kill(::getpid(), signal) == 0, "kill");
        const timespec patience = {20, 0};
        require(::sigtimedwait(&wanted, nullptr, &patience) == signal, "a signal did not come to the host");
    }
    host.free();
}

std::vector<std::string> thread_names() {
    std::vector<std::string> names;
    DIR* folder = ::opendir("/proc/self/task");
    require(folder != nullptr, "/proc/self/task");
    while (const dirent* entry = ::readdir(folder)) {
        if (entry->d_name[0] == '.') continue;
        std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
        std::string name;
        std::getline(file, name);
        if (name.starts_with("minim")) names.push_back(name);
    }
    ::closedir(folder);
    std::ranges::sort(names);
    return names;
}

void name_threads() {
    Host host(3);
    const std::vector<std::string> expected = {"minim-1", "minim-2", "minim-engine"};
    // Threads name themselves.
    for (int i = 0; i < 2000 && thread_names() != expected; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    require(thread_names() == expected, "the threads' names are others");
    host.free();
}

// The state that a host's notify callback shares with the test.
struct Notified {
    minim_request* request = nullptr;
    std::atomic<bool> is_handed_over{false};  // `request` is set
    std::atomic<bool> is_done{false};
};

void wait_for(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

minim_request* submit_with(const Host& host, minim_notify_fn notify, Notified& notified) {
    minim_error err = MINIM_ERROR_INIT;
    minim_sampling* sampling = nullptr;
    require_ok(minim_sampling_create(&sampling, &err), err, "sampling");
    require_ok(minim_sampling_set_i64(sampling, "max_tokens", 5, &err), err, "max_tokens");
    require_ok(minim_sampling_set_i64(sampling, "ignore_end", 1, &err), err, "ignore_end");
    minim_request_params params = MINIM_REQUEST_PARAMS_INIT;
    params.notify = notify;
    params.notify_user_data = &notified;
    const int32_t ids[] = {5, 6, 7, 8};
    require_ok(minim_engine_submit(host.engine, sampling, ids, 4, &params, &notified.request, &err), err,
               "submit");
    minim_sampling_free(sampling);
    notified.is_handed_over = true;
    return notified.request;
}

// The engine goes on if a host's notify callback misuses its own request, and if it throws.
void misuse_notify() {
    ::alarm(120);
    Host host(2);
    minim_error err = MINIM_ERROR_INIT;

    Notified throwing;
    minim_request* request = submit_with(
        host, [](void*) { throw std::runtime_error("notify"); }, throwing);
    int32_t n_tokens = 0;
    for (int32_t next = MINIM_NEXT_PENDING; next != MINIM_NEXT_END;) {
        minim_token token = MINIM_TOKEN_INIT;
        require_ok(minim_request_next(request, -1, &token, &next, &err), err, "next");
        if (next == MINIM_NEXT_TOKEN) ++n_tokens;
    }
    require(n_tokens == 5, "a request whose notify throws loses tokens");
    minim_request_free(request);

    Notified cancelling;
    request = submit_with(
        host,
        [](void* user_data) {
            auto& notified = *static_cast<Notified*>(user_data);
            wait_for(notified.is_handed_over);
            minim_request_cancel(notified.request);
            notified.is_done = true;
        },
        cancelling);
    wait_for(cancelling.is_done);
    minim_request_state state = MINIM_REQUEST_STATE_INIT;
    require_ok(minim_request_get_state(request, &state, &err), err, "state");
    require(state.n_generated <= 5, "a cancelled request goes on");
    minim_request_free(request);

    Notified freeing;
    submit_with(
        host,
        [](void* user_data) {
            auto& notified = *static_cast<Notified*>(user_data);
            wait_for(notified.is_handed_over);
            minim_request_free(notified.request);
            notified.is_done = true;
        },
        freeing);
    wait_for(freeing.is_done);

    int32_t done = 0;
    require_ok(minim_engine_drain(host.engine, -1, &done, &err), err, "drain");
    host.free();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) give_up("usage: process_test fork|signals|threads|notify MODEL");
    ::pthread_setname_np(::pthread_self(), "main");
    const std::string_view what = argv[1];
    g_model_path = argv[2];
    if (what == "fork")
        fork_a_host();
    else if (what == "signals")
        wait_for_signals();
    else if (what == "threads")
        name_threads();
    else if (what == "notify")
        misuse_notify();
    else
        give_up("usage: process_test fork|signals|threads|notify MODEL");
    return 0;
}
