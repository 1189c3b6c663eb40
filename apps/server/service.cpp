// SPDX-License-Identifier: Apache-2.0
#include "service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "chat_page.h"
#include "http/path_prefix.h"
#include "llama/slot.h"
#include "memory_reserve.h"
#include "notify.h"
#include "routes.h"
#include "state_metrics.h"

namespace server {

namespace {

struct Route {
    const char* method;
    const char* path;  // a path that ends in / matches all paths below it
    ApiFamily family;
    Prepared (*prepare)(const HttpRequest&, ServedModel&);  // null: `answer` does all
    std::optional<HttpResponse> (*answer)(const HttpRequest&, Models&) = nullptr;
    bool can_stream = false;
};

constexpr std::array k_routes = {
    Route{"POST", "/v1/chat/completions", ApiFamily::openai, chat_completions, nullptr, true},
    Route{"POST", "/v1/completions", ApiFamily::openai, completions, nullptr, true},
    Route{"POST", "/v1/responses", ApiFamily::openai, responses, nullptr, true},
    Route{"POST", "/v1/messages", ApiFamily::anthropic, messages, nullptr, true},
    Route{"POST", "/v1/messages/count_tokens", ApiFamily::anthropic, count_tokens},
    Route{"POST", "/tokenize", ApiFamily::openai, tokenize},
    Route{"POST", "/detokenize", ApiFamily::openai, detokenize},
    Route{"POST", "/apply-template", ApiFamily::openai, apply_template},
    Route{"GET", "/v1/models", ApiFamily::openai, nullptr, list_of_models},
    Route{"GET", "/v1/models/", ApiFamily::openai, nullptr, model_of_name},
    Route{"POST", "/models/load", ApiFamily::openai, nullptr, load_model},
    Route{"POST", "/models/unload", ApiFamily::openai, nullptr, unload_model},
    Route{"GET", "/props", ApiFamily::openai, props, router_props},
    Route{"POST", "/slots/", ApiFamily::openai, slot_action},
    Route{"POST", "/completion", ApiFamily::openai, llama_completion, nullptr, true},
    Route{"POST", "/completions", ApiFamily::openai, llama_completion, nullptr, true},
    Route{"POST", "/infill", ApiFamily::openai, llama_infill, nullptr, true},
    Route{"GET", "/tokenizer_info", ApiFamily::openai, tokenizer_info},
    Route{"POST", "/embedding", ApiFamily::openai, no_embeddings},
    Route{"POST", "/v1/embeddings", ApiFamily::openai, no_embeddings},
    Route{"POST", "/rerank", ApiFamily::openai, no_embeddings},
    Route{"POST", "/v1/rerank", ApiFamily::openai, no_embeddings},
};

constexpr std::array<std::string_view, 6> k_direct_paths = {"/",      "/health", "/live",
                                                            "/ready", "/slots",  "/metrics"};

// They need no key: probes of service managers have none.
constexpr std::array<std::string_view, 4> k_open_paths = {"/", "/health", "/live", "/ready"};

// Connections have so long to take their last bytes when the time of --drain-timeout is over.
constexpr std::chrono::seconds k_time_for_last_bytes{2};

// Returns the path as this server has it: base addresses with "/v1" once too often or not at all have the same routes.
std::string known_path(std::string path) {
    constexpr std::string_view k_version = "/v1";
    constexpr std::array<std::string_view, 6> k_short = {
        "/chat/completions", "/models", "/responses", "/messages", "/messages/count_tokens", "/embeddings"};
    while (path.starts_with("/v1/v1/")) path.erase(0, k_version.size());
    if (path == "/v1/health") return "/health";
    if (path == "/reranking" || path == "/v1/reranking") return "/rerank";
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

// Calls `make`. Converts every failure to an answer.
template <typename Make>
auto make_safely(const Route& route, const HttpRequest& request, Make make) -> decltype(make()) {
    try {
        return make();
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

// `loads`: whether a request loads its model if it does not say, as llama.cpp's clients do by `autoload`.
Wanted wanted_of(const Route& route, const HttpRequest& request, bool loads) {
    const std::string autoload = query_value(request.query, "autoload");
    Wanted wanted = {query_value(request.query, "model"),
                     autoload.empty() ? loads : autoload == "true" || autoload == "1", false};
    if (request.method == "GET") return wanted;
    const Json members = parse_members(request.body, {"model", "stream"});
    const Fields fields(members);
    wanted.model = fields.text("model").value_or(wanted.model);
    wanted.is_stream = route.can_stream && fields.boolean("stream").value_or(false);
    return wanted;
}

// `only`: of this model alone; null: of all that are loaded.
Json slots_of_models(const Models& models, const ModelEntry* only) {
    Json slots = Json::array();
    for (const auto& entry : models.entries()) {
        if (entry->state != ModelEntry::State::loaded || (only != nullptr && entry.get() != only)) continue;
        const auto jobs = entry->served->jobs.slots();
        for (size_t i = 0; i < jobs.size(); ++i) {
            Json slot = slot_json(i, entry->served->n_context, jobs[i].get());
            if (models.are_several()) slot["model"] = entry->served->name;
            slots.push_back(std::move(slot));
        }
    }
    return slots;
}

// Returns an answer as the last event of a stream that has begun.
std::string last_event(const HttpResponse& response, ApiFamily family) {
    const char* type = family == ApiFamily::anthropic ? "event: error\n" : "";
    return fmt::format("{}data: {}\n\n", type, response.body);
}

}  // namespace

std::unique_ptr<HttpServer> listen(EventLoop& loop, const Options& options) {
    return std::make_unique<HttpServer>(loop, options.host, options.port, limits_of(options));
}

Service::Service(EventLoop& loop, HttpServer& http, const Keys& keys, Models& models)
    : loop_(loop),
      options_(models.options()),
      models_(models),
      keys_(keys),
      hosts_(options_.host, options_.cors_origin, !keys.is_empty()),
      http_(http),
      workers_(n_workers()) {
    http_.set_handler([this](const std::shared_ptr<Exchange>& exchange) { handle(exchange); });
    loop.every(std::chrono::milliseconds(100), [this] { tick(); });
    loop.on_termination([this](pid_t sender) { drain(sender); });
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
    program::renew_reserve();
    Pending pending = {exchange, 0, Clock::now(), nullptr};
    const HttpRequest& request = exchange->request;
    if (!take_prefix(*exchange, options_.path_prefix)) return finish(pending, "refused");
    exchange->request.path = known_path(request.path);
    const bool is_open = std::ranges::find(k_open_paths, request.path) != k_open_paths.end();
    const auto refuse = [&](const ApiError& error) {
        exchange->respond(error_response(error, family_of(request.path), request.id));
        finish(pending, "refused");
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
    if (!is_open && !keys_.allows(request))
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
    if (is_draining_) return refuse({503, end_reason(), "", ""});
    pending.route = static_cast<size_t>(route - k_routes.begin());
    if (!answer_briefly(pending)) choose_model(std::move(pending));
}

// Answers requests that need no open model. Returns whether this is one.
bool Service::answer_briefly(const Pending& pending) {
    const Route& route = k_routes[pending.route];
    if (route.answer == nullptr) return false;
    const HttpRequest& request = pending.exchange->request;
    const std::optional<HttpResponse> response = make_safely(
        route, request, [&]() -> std::optional<HttpResponse> { return route.answer(request, models_); });
    if (response) respond(pending, *response);
    return response.has_value();
}

// If there is one model and it is open, the request need not be read to find it.
void Service::choose_model(Pending pending) {
    ModelEntry& first = *models_.find("");
    ++n_pending_;
    if (!models_.are_several() && Models::is_ready(first)) return use_model(std::move(pending), first, {});
    const auto client = pending.exchange->client();
    workers_.post(
        [this, pending = std::move(pending), client,
         loads = !models_.are_several() || options_.models_autoload]() mutable {
            using Result = std::variant<Wanted, HttpResponse>;
            const Route& route = k_routes[pending.route];
            const HttpRequest& request = pending.exchange->request;
            Result result =
                client->is_gone ? Result(HttpResponse{}) : make_safely(route, request, [&]() -> Result {
                    return wanted_of(route, request, loads);
                });
            loop_.post([this, pending = std::move(pending), result = std::move(result)] {
                const Wanted* wanted = std::get_if<Wanted>(&result);
                ModelEntry* entry = wanted != nullptr ? models_.find(wanted->model) : nullptr;
                if (entry != nullptr) return use_model(pending, *entry, *wanted);
                --n_pending_;
                const ApiFamily family = k_routes[pending.route].family;
                respond(pending, wanted != nullptr ? error_response(no_model(wanted->model), family,
                                                                    pending.exchange->request.id)
                                                   : std::get<HttpResponse>(result));
            });
        },
        client);
}

void Service::use_model(Pending pending, ModelEntry& entry, const Wanted& wanted) {
    pending.metrics = entry.metrics;
    if (drain_is_over_) {
        --n_pending_;
        return respond(pending, error_response({503, end_reason(), "", ""}, k_routes[pending.route].family,
                                               pending.exchange->request.id));
    }
    const std::shared_ptr<Exchange> exchange = pending.exchange;
    const auto then = [this, pending = std::move(pending)](WaitingRequest::Result result) {
        if (auto* served = std::get_if<std::shared_ptr<ServedModel>>(&result))
            return prepare(pending, std::move(*served));
        --n_pending_;
        const ApiError& error = std::get<ApiError>(result);
        HttpResponse response =
            error_response(error, k_routes[pending.route].family, pending.exchange->request.id);
        if (error.status == 429) response.headers.emplace_back("Retry-After", "1");
        respond(pending, response);
    };
    models_.use(entry, {exchange, wanted, then, {}});
}

void Service::prepare(Pending pending, std::shared_ptr<ServedModel> served) {
    const auto client = pending.exchange->client();
    workers_.post(
        [this, pending = std::move(pending), served = std::move(served), client]() mutable {
            // Nothing is done for a client that is gone.
            const Route& route = k_routes[pending.route];
            const HttpRequest& request = pending.exchange->request;
            auto prepared = std::make_shared<Prepared>(
                client->is_gone ? Prepared(HttpResponse{}) : make_safely(route, request, [&]() -> Prepared {
                    return route.prepare(request, *served);
                }));
            pending.exchange->request.body = {};
            // The exchange belongs to the loop's thread: hand it back, so that its last reference is released there.
            loop_.post([this, pending = std::move(pending), served = std::move(served),
                        prepared = std::move(prepared)] {
                --n_pending_;
                answer(pending, served, std::move(*prepared));
            });
        },
        client);
}

void Service::answer(const Pending& pending, std::shared_ptr<ServedModel> served, Prepared prepared) {
    const char* path = k_routes[pending.route].path;
    if (const auto* response = std::get_if<HttpResponse>(&prepared)) return respond(pending, *response);
    if (pending.exchange->is_gone()) return finish(pending, path);
    if (!failure_.empty() || drain_is_over_)
        return respond(pending, error_response({503, end_reason(), "", ""}, k_routes[pending.route].family,
                                               pending.exchange->request.id));
    const auto reply = std::make_shared<Reply>(Reply::Tools{std::move(served), workers_}, pending.exchange,
                                               std::move(std::get<Plan>(prepared)), pending.arrived);
    replies_.insert(reply);
    reply->start([this, weak = std::weak_ptr(reply), pending, path] {
        const auto ended = weak.lock();
        finish(pending, path, ended->figures());
        replies_.erase(ended);
    });
}

// Answers at once, or ends a stream that began while the request waited for its model.
void Service::respond(const Pending& pending, const HttpResponse& response) {
    Exchange& exchange = *pending.exchange;
    if (exchange.is_stream()) {
        exchange.send(last_event(response, k_routes[pending.route].family));
        exchange.end_stream();
    } else {
        exchange.respond(response);
    }
    finish(pending, k_routes[pending.route].path);
}

void Service::finish(const Pending& pending, const char* route, std::optional<AnswerFigures> answer) {
    const Exchange& exchange = *pending.exchange;
    ++(pending.metrics ? *pending.metrics : models_.metrics()).requests[{route, exchange.status()}];
    const HttpRequest& request = exchange.request;
    write_request({request.client, request.id, request.method, request.path.substr(0, 200), exchange.status(),
                   std::chrono::duration<double, std::milli>(Clock::now() - pending.arrived).count(),
                   exchange.is_gone(), std::move(answer)});
}

// Returns why requests are refused while the server shuts down.
std::string Service::end_reason() const {
    if (!failure_.empty()) return failure_;
    if (drain_is_over_)
        return fmt::format("the server is shutting down, and the {} s of --drain-timeout are over",
                           options_.drain_seconds);
    return "the server is shutting down";
}

// Says which methods a route has, and answers the question of a browser whether a page may use it.
void Service::answer_options(Exchange& exchange) {
    HttpResponse response;
    response.status = 204;
    const std::string methods = "GET, HEAD, POST, OPTIONS";
    response.headers = {{"Allow", methods}};
    if (!options_.cors_origin.empty()) {
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
    ++models_.metrics().requests[{"options", 204}];
}

// Answers routes that need the loop's own state.
void Service::answer_directly(Exchange& exchange) {
    HttpResponse response;
    const std::string& path = exchange.request.path;
    look_for_lost_rank(Clock::now());
    if (path == "/") {
        response.content_type = "text/html; charset=utf-8";
        response.headers = {{"Content-Security-Policy", std::string(k_chat_page_policy)},
                            {"X-Content-Type-Options", "nosniff"},
                            {"Referrer-Policy", "no-referrer"},
                            {"Cache-Control", "no-cache"}};
        response.body = k_chat_page;
    } else if (path == "/live") {
        response.body = R"({"status":"ok"})";
    } else if (path == "/health" || path == "/ready") {
        const bool is_ready = failure_.empty() && !is_draining_;
        const char* state = is_ready ? "ready" : failure_.empty() ? "draining" : "failed";
        const char* status = is_ready ? "ok" : failure_.empty() ? "shutting down" : "error";
        Json body = path == "/ready" ? Json{{"state", state}} : Json{{"status", status}};
        if (!failure_.empty()) body["error"] = failure_;
        response.status = is_ready ? 200 : 503;
        response.body = to_text(body);
    } else {
        const std::string name = query_value(exchange.request.query, "model");
        ModelEntry* only = name.empty() ? nullptr : models_.find(name);
        if (!name.empty() && only == nullptr) {
            response = error_response(no_model(name), ApiFamily::openai, exchange.request.id);
        } else if (path == "/slots") {
            response.body = to_text(slots_of_models(models_, only));
        } else {
            response.content_type = k_metrics_type;
            response.body = models_.metrics_text(only) + process_metrics(options_.metrics_prefix);
        }
    }
    exchange.respond(response);
}

void Service::tick() {
    const auto now = Clock::now();
    const auto interval =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.ping_seconds));
    for (const auto& reply : replies_) reply->ping(now, interval);
    models_.tick(now, interval);
    look_for_lost_rank(now);
    look_for_progress(now);
    // After a failure it answers a little longer, and says so (look_for_lost_rank).
    if (is_draining_ && failure_.empty()) look_for_end_of_drain(now);
}

// Stops the loop when the last request has its answer, or the time for that is over.
void Service::look_for_end_of_drain(Clock::time_point now) {
    const auto limit = std::chrono::seconds(options_.drain_seconds);
    if (options_.drain_seconds >= 0 && !drain_is_over_ && now - drained_at_ >= limit) {
        drain_is_over_ = true;
        if (!replies_.empty() || n_pending_ > 0)
            write_note(
                fmt::format("{}: {} requests end with an error", end_reason(), replies_.size() + n_pending_));
        for (const auto& reply : std::vector(replies_.begin(), replies_.end())) reply->end(end_reason());
        models_.refuse_waiting({503, end_reason(), "", ""});
    }
    if (replies_.empty() && n_pending_ == 0) {
        http_.stop_listening();
        http_.drain();  // connections that have come meanwhile
        if (http_.n_connections() == 0) return loop_.stop();
    }
    if (drain_is_over_ && now - drained_at_ >= limit + k_time_for_last_bytes) loop_.stop();
}

// Ends the server some time after a rank is lost: nothing can be computed any more. Until then the clients that wait get their error.
void Service::look_for_lost_rank(Clock::time_point now) {
    const ServedModel* served = models_.only();
    if (served == nullptr || served->info.n_ranks <= 1) return;
    constexpr std::chrono::milliseconds k_time_for_errors{500};
    if (!failure_.empty()) {
        if (now - failed_at_ >= k_time_for_errors) loop_.stop();
        return;
    }
    try {
        served->model.check();
    } catch (const minim::Exception& error) {
        end_by_failure(error.what());
    }
}

// Ends requests with an error after a signal to end, if they cannot come to their end any more: the launcher ends all processes soon,
// as it does when one of another machine is lost, or no step ends. Launchers end processes that stay for a second after the signal.
void Service::look_for_progress(Clock::time_point now) {
    const ServedModel* served = models_.only();
    if (served == nullptr || served->info.n_processes <= 1) return;
    constexpr std::chrono::milliseconds k_longest_drain{200};  // before the launcher's end
    constexpr std::chrono::milliseconds k_longest_pause{250};  // between steps of small models
    const uint64_t n_steps = served->engine.state().n_steps;
    const bool is_computing = served->jobs.n_running() > 0;
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
    const ServedModel* served = models_.only();
    if (served != nullptr && served->info.n_processes > 1 && sender == getppid() && !ended_by_launcher_) {
        ended_by_launcher_ = Clock::now();
        write_note("shutting down: the launcher ends the processes of the model");
        if (is_draining_) return;
        http_.stop_listening();
        return begin_drain();
    }
    if (is_draining_) return loop_.stop();  // a second signal: at once
    write_note("shutting down: running requests finish, new ones are refused");
    begin_drain();
}

void Service::begin_drain() {
    notify_manager("STOPPING=1");
    is_draining_ = true;
    drained_at_ = Clock::now();
    http_.drain();
}

}  // namespace server
