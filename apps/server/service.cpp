// SPDX-License-Identifier: Apache-2.0
#include "service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "chat_page.h"
#include "http/auth.h"
#include "request_log.h"
#include "routes.h"

namespace server {

namespace {

struct Route {
    const char* method;
    const char* path;  // a path that ends in / matches all paths below it
    ApiFamily family;
    Prepared (*prepare)(const HttpRequest&, Serving&);
};

constexpr std::array k_routes = {
    Route{"POST", "/v1/chat/completions", ApiFamily::openai, chat_completions},
    Route{"POST", "/v1/completions", ApiFamily::openai, completions},
    Route{"POST", "/v1/responses", ApiFamily::openai, responses},
    Route{"POST", "/v1/messages", ApiFamily::anthropic, messages},
    Route{"POST", "/v1/messages/count_tokens", ApiFamily::anthropic, count_tokens},
    Route{"POST", "/tokenize", ApiFamily::openai, tokenize},
    Route{"POST", "/detokenize", ApiFamily::openai, detokenize},
    Route{"POST", "/apply-template", ApiFamily::openai, apply_template},
    Route{"GET", "/v1/models", ApiFamily::openai, models},
    Route{"GET", "/v1/models/", ApiFamily::openai, model_of_name},
    Route{"GET", "/props", ApiFamily::openai, props},
};

constexpr std::array<std::string_view, 4> k_direct_paths = {"/", "/health", "/slots", "/metrics"};

// Returns the path as this server has it: base addresses with "/v1" once too often or not at all have the same routes.
std::string known_path(std::string path) {
    constexpr std::string_view k_version = "/v1";
    constexpr std::array<std::string_view, 5> k_short = {"/chat/completions", "/models", "/responses",
                                                         "/messages", "/messages/count_tokens"};
    while (path.starts_with("/v1/v1/")) path.erase(0, k_version.size());
    if (path == "/v1/health") return "/health";
    if (std::ranges::find(k_short, path) != k_short.end()) path.insert(0, k_version);
    return path;
}

bool fits(const Route& route, const std::string& path) {
    const std::string_view known = route.path;
    return known.back() == '/' ? path.starts_with(known) : path == known;
}

ApiFamily family_of(const std::string& path) {
    return path.starts_with("/v1/messages") ? ApiFamily::anthropic : ApiFamily::openai;
}

HttpLimits limits_of(const Options& options) {
    HttpLimits limits;
    limits.cors_origin = options.cors_origin;
    if (options.socket_timeout_seconds > 0)
        limits.no_progress = limits.idle = std::chrono::seconds(options.socket_timeout_seconds);
    return limits;
}

// Threads that prepare requests: also with two cores, a slow request leaves some to the others.
size_t n_workers() {
    return std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 4, 16);
}

// Prepares a request on a worker's thread. Converts every failure to an answer.
Prepared prepare_safely(const Route& route, const HttpRequest& request, Serving& serving) {
    try {
        return route.prepare(request, serving);
    } catch (const ApiError& error) {
        return error_response(error, route.family, request.id);
    } catch (const minim::Exception& error) {
        const bool is_theirs = error.status() == MINIM_E_INVALID || error.status() == MINIM_E_UNSUPPORTED ||
                               error.status() == MINIM_E_CONTEXT_FULL;
        return error_response({is_theirs ? 400 : 503, error.what(), "", ""}, route.family, request.id);
    } catch (const std::bad_alloc&) {
        return error_response({503, "out of memory", "", ""}, route.family, request.id);
    } catch (const std::exception& error) {
        write_note(fmt::format("{} {} failed: {}", request.id, request.path, error.what()));
        return error_response({400, "the request cannot be understood", "", ""}, route.family, request.id);
    }
}

}  // namespace

Service::Service(EventLoop& loop, Serving& serving)
    : loop_(loop),
      serving_(serving),
      jobs_(loop, serving.engine, serving.n_slots, serving.options.n_queue),
      metrics_(serving.name),
      hosts_(serving.options.host, serving.options.cors_origin, !serving.options.api_keys.empty()),
      http_(loop, serving.options.host, serving.options.port, limits_of(serving.options),
            [this](const std::shared_ptr<Exchange>& exchange) { handle(exchange); }),
      workers_(n_workers()) {
    loop.every(std::chrono::milliseconds(100), [this] { tick(); });
    loop.on_termination([this](pid_t sender) { drain(sender); });
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
    const auto arrived = Clock::now();
    const HttpRequest& request = exchange->request;
    exchange->request.path = known_path(request.path);
    const bool is_open = request.path == "/health" || request.path == "/";
    const auto refuse = [&](const ApiError& error) {
        exchange->respond(error_response(error, family_of(request.path), request.id));
        finish(*exchange, "refused", arrived, "");
    };
    if (!hosts_.allows_host(request.host))
        return refuse(
            {403,
             fmt::format("the host '{}' is not this machine; --cors-origin http://HOST, --api-key or "
                         "another --host allow it",
                         request.host.substr(0, 100)),
             "", "host_not_allowed"});
    if (!hosts_.allows_origin(request.origin, request.host))
        return refuse({403,
                       fmt::format("pages of '{}' may not use this server; --cors-origin allows them",
                                   request.origin.substr(0, 100)),
                       "", "origin_not_allowed"});
    if (request.method == "OPTIONS") return answer_options(*exchange);
    if (!is_open && !has_key(request, serving_.options.api_keys))
        return refuse({401, "a valid API key is required", "", "invalid_api_key"});
    if (std::ranges::find(k_direct_paths, request.path) != k_direct_paths.end()) {
        if (request.method != "GET")
            return refuse({405, "only GET is possible here", "", "method_not_allowed"});
        return answer_directly(*exchange);
    }
    const auto path_fits = [&](const Route& route) { return fits(route, request.path); };
    const auto route = std::ranges::find_if(k_routes, path_fits);
    if (route == k_routes.end())
        return refuse(
            {404, fmt::format("there is no route {}", request.path.substr(0, 200)), "", "not_found"});
    if (request.method != route->method)
        return refuse(
            {405, fmt::format("only {} is possible here", route->method), "", "method_not_allowed"});
    if (!request.encoding.empty() && request.encoding != "identity")
        return refuse(
            {415,
             fmt::format("the Content-Encoding '{}' is not possible: send the body as it is, not in "
                         "gzip, deflate, br or zstd",
                         request.encoding.substr(0, 40)),
             "", "unsupported_encoding"});
    if (is_draining_)
        return refuse({503, failure_.empty() ? "the server is shutting down" : failure_, "", ""});
    prepare(exchange, route - k_routes.begin());
}

void Service::prepare(const std::shared_ptr<Exchange>& exchange, size_t route) {
    const auto arrived = Clock::now();
    ++n_pending_;
    const auto client = exchange->client();
    workers_.post(
        [this, exchange = exchange, client, route, arrived]() mutable {
            // Nothing is done for a client that is gone.
            auto prepared = std::make_shared<Prepared>(
                client->is_gone ? Prepared(HttpResponse{})
                                : prepare_safely(k_routes[route], exchange->request, serving_));
            exchange->request.body = {};
            // The exchange belongs to the loop's thread: hand it back, so that its last reference is released there.
            loop_.post(
                [this, exchange = std::move(exchange), prepared = std::move(prepared), route, arrived] {
                    --n_pending_;
                    answer(exchange, std::move(*prepared), route, arrived);
                });
        },
        client);
}

void Service::answer(const std::shared_ptr<Exchange>& exchange, Prepared prepared, size_t route,
                     Clock::time_point arrived) {
    const char* path = k_routes[route].path;
    if (const auto* response = std::get_if<HttpResponse>(&prepared)) {
        exchange->respond(*response);
        return finish(*exchange, path, arrived, "");
    }
    if (exchange->is_gone()) return finish(*exchange, path, arrived, "");
    if (!failure_.empty()) {
        exchange->respond(
            error_response({503, failure_, "", ""}, family_of(exchange->request.path), exchange->request.id));
        return finish(*exchange, path, arrived, "");
    }
    const auto reply = std::make_shared<Reply>(Reply::Tools{serving_, jobs_, workers_, metrics_}, exchange,
                                               std::move(std::get<Plan>(prepared)), arrived);
    replies_.insert(reply);
    reply->start([this, weak = std::weak_ptr(reply), exchange, path, arrived] {
        const auto ended = weak.lock();
        finish(*exchange, path, arrived, ended->summary());
        replies_.erase(ended);
    });
}

void Service::finish(const Exchange& exchange, const char* route, Clock::time_point arrived,
                     const std::string& details) {
    ++metrics_.requests[{route, exchange.status()}];
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - arrived).count();
    write_note(fmt::format("{} {} {} {} status={} ms={:.0f}{}{}{}", exchange.request.client,
                           exchange.request.id, exchange.request.method, exchange.request.path.substr(0, 200),
                           exchange.status(), ms, details.empty() ? "" : " ", details,
                           exchange.is_gone() ? " client_gone" : ""));
}

// Says which methods a route has, and answers the question of a browser whether a page may use it.
void Service::answer_options(Exchange& exchange) {
    HttpResponse response;
    response.status = 204;
    const std::string methods = "GET, HEAD, POST, OPTIONS";
    response.headers = {{"Allow", methods}};
    if (!serving_.options.cors_origin.empty()) {
        const std::string& asked = exchange.request.asked_headers;
        response.headers.emplace_back("Access-Control-Allow-Methods", methods);
        // "*" does not stand for Authorization.
        response.headers.emplace_back("Access-Control-Allow-Headers", asked.empty() ? "*" : asked);
        response.headers.emplace_back("Access-Control-Max-Age", "600");
        response.headers.emplace_back("Vary", "Access-Control-Request-Headers");
        if (exchange.request.asks_private)
            response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
    }
    exchange.respond(response);
    ++metrics_.requests[{"options", 204}];
}

// Answers routes that need the loop's own state.
void Service::answer_directly(Exchange& exchange) {
    HttpResponse response;
    const std::string& path = exchange.request.path;
    if (serving_.info.n_ranks > 1) look_for_lost_rank(Clock::now());
    if (path == "/") {
        response.content_type = "text/html; charset=utf-8";
        response.headers = {{"Content-Security-Policy", std::string(k_chat_page_policy)},
                            {"X-Content-Type-Options", "nosniff"},
                            {"Referrer-Policy", "no-referrer"},
                            {"Cache-Control", "no-cache"}};
        response.body = k_chat_page;
    } else if (path == "/health") {
        response.body = R"({"status":"ok"})";
        if (!failure_.empty())
            response = {503, "application/json", to_text(Json{{"status", "error"}, {"error", failure_}}), {}};
        else if (is_draining_)
            response = {503, "application/json", R"({"status":"shutting down"})", {}};
    } else if (path == "/slots") {
        Json slots = Json::array();
        for (const auto& job : jobs_.slots()) {
            Json slot = {
                {"id", slots.size()}, {"n_ctx", serving_.n_context}, {"is_processing", job != nullptr}};
            if (job) slot.update(Json{{"n_prompt", job->prompt->size()}, {"n_decoded", job->n_generated()}});
            slots.push_back(std::move(slot));
        }
        response.body = to_text(slots);
    } else {
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        response.body = metrics_.text(serving_.options.metrics_prefix, jobs_, serving_.engine.state());
    }
    exchange.respond(response);
}

void Service::tick() {
    const auto now = Clock::now();
    const auto interval = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(serving_.options.ping_seconds));
    for (const auto& reply : replies_) reply->ping(now, interval);
    if (serving_.info.n_ranks > 1) look_for_lost_rank(now);
    if (serving_.info.n_processes > 1) look_for_progress(now);
    // After a failure it answers a little longer, and says so (look_for_lost_rank).
    const bool is_done = replies_.empty() && n_pending_ == 0 && http_.n_connections() == 0;
    if (is_draining_ && is_done && failure_.empty()) loop_.stop();
}

// Ends the server some time after a rank is lost: nothing can be computed any more. Until then the clients that wait get their error.
void Service::look_for_lost_rank(Clock::time_point now) {
    constexpr std::chrono::milliseconds k_time_for_errors{500};
    if (!failure_.empty()) {
        if (now - failed_at_ >= k_time_for_errors) loop_.stop();
        return;
    }
    try {
        serving_.model.check();
    } catch (const minim::Exception& error) {
        end_by_failure(error.what());
    }
}

// Ends requests with an error after a signal to end, if they cannot come to their end any more: the launcher ends all processes soon,
// as it does when one of another machine is lost, or no step ends. Launchers end processes that stay for a second after the signal.
void Service::look_for_progress(Clock::time_point now) {
    constexpr std::chrono::milliseconds k_longest_drain{200};  // before the launcher's end
    constexpr std::chrono::milliseconds k_longest_pause{250};  // between steps of small models
    const uint64_t n_steps = serving_.engine.state().n_steps;
    const bool is_computing = jobs_.n_running() > 0;
    if (n_steps != n_steps_ || !is_computing) {
        if (n_steps != n_steps_ && is_computing && n_steps_ > 0)
            longest_step_ = std::max(longest_step_, now - progressed_at_);
        n_steps_ = n_steps;
        progressed_at_ = now;
    }
    if (!is_draining_ || !failure_.empty() || (replies_.empty() && n_pending_ == 0)) return;
    const bool is_ending = ended_by_launcher_ && now - *ended_by_launcher_ >= k_longest_drain;
    const bool stands_still =
        now - progressed_at_ >= std::max<Clock::duration>(k_longest_pause, 2 * longest_step_);
    if (!is_ending && !stands_still) return;
    is_cut_off_ = true;
    end_by_failure(is_ending ? "the launcher has ended the processes of the model"
                             : "the server is shutting down, and the processes of the model do not answer");
    for (const auto& reply : std::vector(replies_.begin(), replies_.end())) reply->end(failure_);
}

void Service::end_by_failure(const std::string& failure) {
    failure_ = failure;
    failed_at_ = Clock::now();
    is_draining_ = true;
    write_note(fmt::format("shutting down: {}", failure_));
}

// `sender`: the process that has sent the signal.
void Service::drain(pid_t sender) {
    if (serving_.info.n_processes > 1 && sender == getppid() && !ended_by_launcher_) {
        ended_by_launcher_ = Clock::now();
        write_note("shutting down: the launcher ends the processes of the model");
        if (is_draining_) return;
        is_draining_ = true;
        return http_.drain();
    }
    if (is_draining_) return loop_.stop();  // a second signal: at once
    write_note("shutting down: running requests finish, new ones are refused");
    is_draining_ = true;
    http_.drain();
}

}  // namespace server
