// SPDX-License-Identifier: Apache-2.0
// minim-server: serves a model over HTTP.
// Exit codes: 0 ended by SIGTERM or SIGINT, 1 an error, 2 a command line that cannot be understood.
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "http/event_loop.h"
#include "models.h"
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

// Writes what is served, and where.
void write_start(const server::Models& models, uint16_t port) {
    const std::string& host = models.options().host;
    if (const server::ServedModel* only = models.only()) {
        server::log_sizes(*only);
        return server::write_note(fmt::format("{} ({}), context {}, {} slots, at http://{}:{}", only->name,
                                              only->info.placement, only->n_context, only->n_slots, host,
                                              port));
    }
    std::string names;
    for (const auto& entry : models.entries())
        names.append(names.empty() ? "" : ", ").append(entry->names.front());
    server::write_note(fmt::format("{} models, loaded when they are needed, at http://{}:{}: {}",
                                   models.entries().size(), host, port, names));
}

void serve(const server::Options& options) {
    server::open_log(options.log_file);
    for (const std::string& note : options.notes) server::write_note(note);
    raise_file_limit();
    server::Serving serving(options);
    server::EventLoop loop;
    server::Models models(serving, loop);
    if (!models.are_several()) models.open_only();
    server::Service service(loop, models);
    write_start(models, service.port());
    server::never_wait_for_log();
    loop.run();
    if (service.is_cut_off()) {  // what waits for other processes would wait on
        server::write_plain(fmt::format("error: {}", service.failure()));
        std::_Exit(1);
    }
    if (!service.failure().empty()) throw std::runtime_error(service.failure());
    if (models.only() != nullptr) server::save_expert_profile(*models.only());
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
        server::write_plain(fmt::format("error: {} (minim-server --help lists the options)", error.what()));
        return 2;
    } catch (const std::exception& error) {
        server::write_plain(fmt::format("error: {}", error.what()));
        return 1;
    }
}
