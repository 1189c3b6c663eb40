// SPDX-License-Identifier: Apache-2.0
// minim-server: serves a model over HTTP.
// Exit codes: 0 ended by SIGTERM or SIGINT, 1 an error, 2 a command line that cannot be understood.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "http/event_loop.h"
#include "options.h"
#include "options/find_model.h"
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

void serve(const server::Options& options) {
    server::open_log(options.log_file);
    for (const std::string& note : options.notes) server::write_note(note);
    raise_file_limit();
    server::Serving serving(options);
    server::EventLoop loop;
    const auto served = std::make_shared<server::ServedModel>(
        serving, loop, program::find_model(options.model), options.names);
    served->metrics = std::make_shared<server::Metrics>(served->name);
    server::Service service(loop, serving, served);
    server::log_sizes(*served);
    server::write_note(fmt::format("{} ({}), context {}, {} slots, at http://{}:{}", served->name,
                                   served->info.placement, served->n_context, served->n_slots, options.host,
                                   service.port()));
    server::never_wait_for_log();
    loop.run();
    if (service.is_cut_off()) {  // what waits for other processes would wait on
        server::write_plain(fmt::format("error: {}", service.failure()));
        std::_Exit(1);
    }
    if (!service.failure().empty()) throw std::runtime_error(service.failure());
    server::save_expert_profile(*served);
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
