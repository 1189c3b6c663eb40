// SPDX-License-Identifier: Apache-2.0
// minim-server: serves a model over HTTP.
// Exit codes: 0 ended by SIGTERM or SIGINT, 1 an error, 2 a command line that cannot be understood.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "http/auth.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "loading.h"
#include "memory_reserve.h"
#include "models.h"
#include "notify.h"
#include "options.h"
#include "options/parse.h"
#include "request_log.h"
#include "service.h"
#include "serving.h"

namespace {

// Raises the limit of open files, and so of connections, as far as is possible without privileges.
void raise_file_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// At SIGHUP, reads the files of keys again and opens the file of the log again. Without either, a terminal that goes away ends the
// server, as usual.
void catch_hangup(server::EventLoop& loop, server::Keys& keys, const server::Options& options) {
    const int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (terminal >= 0) close(terminal);
    if (terminal >= 0 && options.log_file.empty() && options.api_key_files.empty()) return;
    struct sigaction before = {};
    sigaction(SIGHUP, nullptr, &before);
    const bool is_ignored = before.sa_handler == SIG_IGN;  // nohup
    loop.on_hangup([&keys, is_ignored](pid_t sender) {
        if (sender == 0) {  // the terminal is gone
            if (!is_ignored) std::raise(SIGTERM);
            return;
        }
        try {
            server::reopen_log();
        } catch (const std::exception& error) {
            server::write_note(fmt::format("SIGHUP: {}; the log stays where it is", error.what()));
        }
        try {
            keys.read_again();
            server::write_note("SIGHUP: the log and the files of keys are opened again");
        } catch (const std::exception& error) {
            server::write_note(fmt::format("SIGHUP: {}; the keys stay as they were", error.what()));
        }
    });
}

// Writes what is served, and where.
void write_start(const server::Models& models, const std::string& address) {
    if (const server::ServedModel* only = models.only()) {
        server::log_sizes(*only);
        return server::write_note(fmt::format("{} ({}), context {}, {} slots, at {}", only->name,
                                              only->info.placement, only->n_context, only->n_slots, address));
    }
    std::string names;
    for (const auto& entry : models.entries())
        names.append(names.empty() ? "" : ", ").append(entry->names.front());
    server::write_note(fmt::format("{} models, loaded when they are needed, at {}: {}",
                                   models.entries().size(), address, names));
}

// Opens the only model. Meanwhile, `http` answers that it is being loaded; null: nothing listens yet.
void open_only(server::Models& models, server::EventLoop& loop, server::HttpServer* http,
               const server::Keys& keys) {
    std::optional<server::Loading> loading;
    if (http != nullptr) {
        loading.emplace(loop, *http, models.options(), keys);
        server::write_note(fmt::format("loading the model; {}{}/ready says when it is there", http->address(),
                                       models.options().path_prefix));
    }
    models.open_only();
}

void serve(const server::Options& options) {
    server::open_log(options.log_file, options.logs_json);
    for (const std::string& note : options.notes) server::write_note(note);
    raise_file_limit();
    program::keep_reserve();
    server::Keys keys(options.api_keys, options.api_key_files);
    server::EventLoop loop;
    loop.every(std::chrono::seconds(1), program::renew_reserve);
    catch_hangup(loop, keys, options);
    server::Serving serving(options);
    server::Models models(serving, loop);
    std::unique_ptr<server::HttpServer> http;
    // Of several processes with the same options, one listens: which one is known once the model is open.
    if (!options.parallel.is_given()) http = server::listen(loop, options);
    if (!models.are_several()) open_only(models, loop, http.get(), keys);
    if (!http) http = server::listen(loop, options);
    server::Service service(loop, *http, keys, models);
    if (models.only() != nullptr) server::load_prefixes(*models.only());
    write_start(models, http->address() + options.path_prefix);
    server::never_wait_for_log();
    server::notify_manager("READY=1");
    loop.run();
    if (service.is_cut_off()) {  // what waits for other processes would wait on
        server::write_error(service.failure());
        std::_Exit(1);
    }
    if (!service.failure().empty()) throw std::runtime_error(service.failure());
    if (server::ServedModel* only = models.only()) {
        server::save_expert_profile(*only);
        server::save_prefixes(*only);
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    try {
        std::string output;
        const auto options = program::parse(program::Command::server, {argv + 1, argv + argc}, output);
        if (options) serve(*options);
        return std::fputs(output.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
    } catch (const server::FollowedToTheEnd&) {
        return 0;
    } catch (const server::UsageError& error) {
        server::write_error(fmt::format("{} (minim-server --help lists the options)", error.what()));
        return 2;
    } catch (const std::exception& error) {
        server::write_error(error.what());
        return 1;
    }
}
