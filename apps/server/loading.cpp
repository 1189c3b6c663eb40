// SPDX-License-Identifier: Apache-2.0
#include "loading.h"

#include <memory>
#include <string>

#include "http/path_prefix.h"
#include "state_metrics.h"

namespace server {

namespace {

// What llama.cpp answers: its clients look for this code.
constexpr const char* k_loading_body =
    R"({"error":{"message":"Loading model","type":"unavailable_error","param":null,"code":503}})";

constexpr const char* k_loading_page =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>minim</title>"
    "<p>The model is being loaded. This page appears once it is there.</p></html>\n";

HttpResponse loading_answer(const HttpRequest& request, const Keys& keys, const std::string& metrics_prefix) {
    const std::string& path = request.path;
    HttpResponse response;
    response.status = 503;
    response.body = k_loading_body;
    response.headers = {{"Retry-After", "5"}};
    if (path == "/live") {
        response = {200, "application/json", R"({"status":"ok"})", {}};
    } else if (path == "/ready") {
        response.body = R"({"state":"loading"})";
    } else if (path == "/" && request.method == "GET") {
        response.content_type = "text/html; charset=utf-8";
        response.body = k_loading_page;
        response.headers.emplace_back("Refresh", "2");
    } else if (path == "/metrics" && keys.allows(request)) {
        response = {200, k_metrics_type, process_metrics(metrics_prefix), {}};
    }
    return response;
}

}  // namespace

Loading::Loading(EventLoop& loop, HttpServer& http, const Options& options, const Keys& keys) : loop_(loop) {
    http.set_handler([&options, &keys](const std::shared_ptr<Exchange>& exchange) {
        if (take_prefix(*exchange, options.path_prefix))
            exchange->respond(loading_answer(exchange->request, keys, options.metrics_prefix));
    });
    thread_ = std::thread([this] { loop_.run(); });
}

Loading::~Loading() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
}

}  // namespace server
