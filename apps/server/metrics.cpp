// SPDX-License-Identifier: Apache-2.0
#include "metrics.h"

#include <algorithm>

#include <fmt/format.h>

namespace server {

namespace {

std::vector<double> seconds() {
    return {0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28,
            2.56,  5,     10,   20,   40,   80,   160,  640,  2560};
}

std::vector<double> short_times() {
    return {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05,
            0.075,  0.1,   0.15,   0.2,   0.3,  0.5,   1,    2.5,  10};
}

std::vector<double> tokens() {
    return {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144};
}

}  // namespace

void write_head(const std::string& name, const char* type, const char* help, std::string& out) {
    out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string quoted_label(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '\n') {
            out += "\\n";
        } else {
            out += c;
        }
    }
    return out + '"';
}

void Histogram::add(double value, uint64_t times) {
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    counts_[bound - bounds_.begin()] += times;
    sum_ += value * static_cast<double>(times);
    count_ += times;
}

void Histogram::write(const std::string& name, const char* help, const std::string& label,
                      std::string& out) const {
    write_head(name, "histogram", help, out);
    uint64_t n_below = 0;
    for (size_t i = 0; i < bounds_.size(); ++i) {
        n_below += counts_[i];
        out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, label, bounds_[i], n_below);
    }
    out += fmt::format("{0}_bucket{{{3},le=\"+Inf\"}} {1}\n{0}_sum{{{3}}} {2}\n{0}_count{{{3}}} {1}\n", name,
                       count_, sum_, label);
}

Metrics::Metrics(const std::string& model_name)
    : label("model_name=" + quoted_label(model_name)),
      queue(seconds()),
      first_token(seconds()),
      inter_token(short_times()),
      whole(seconds()),
      prompt_tokens(tokens()),
      generated_tokens(tokens()) {}

std::string Metrics::requests_text(const std::string& prefix) const {
    std::string out;
    write_head(prefix + "http_requests_total", "counter", "HTTP requests by route and status", out);
    for (const auto& [key, count] : requests)
        out += fmt::format("{}http_requests_total{{{},route=\"{}\",status=\"{}\"}} {}\n", prefix, label,
                           key.first, key.second, count);
    return out;
}

std::string Metrics::text(const std::string& prefix, size_t n_running, size_t n_waiting,
                          const minim_engine_state& engine) const {
    std::string out;
    const auto write_value = [&](const std::string& name, const char* type, const char* help, double value) {
        write_head(name, type, help, out);
        out += fmt::format("{}{{{}}} {}\n", name, label, value);
    };
    const auto write_count = [&](const std::string& name, const char* help, uint64_t value) {
        write_head(name, "counter", help, out);
        out += fmt::format("{}{{{}}} {}\n", name, label, value);
    };
    const double n_pages = static_cast<double>(std::max<uint64_t>(engine.n_pages, 1));
    write_value(prefix + "num_requests_running", "gauge", "Answers under way",
                static_cast<double>(n_running));
    write_value(prefix + "num_requests_waiting", "gauge", "Answers that wait for a slot",
                static_cast<double>(n_waiting));
    write_value(
        prefix + "kv_cache_usage_perc", "gauge", "Share of the KV cache in use by requests, 0 to 1",
        static_cast<double>(engine.n_pages_held - std::min(engine.n_pages_cached, engine.n_pages_held)) /
            n_pages);
    write_value(prefix + "prefix_cache_usage_perc", "gauge",
                "Share of the KV cache kept for prefixes, 0 to 1",
                static_cast<double>(engine.n_pages_cached) / n_pages);
    write_value(prefix + "host_cache_bytes", "gauge", "Host memory in use for prompt states",
                static_cast<double>(engine.host_cache_bytes));
    write_count(prefix + "host_cache_pages_stored_total",
                "Pages of prompt states moved from the KV cache to host memory", engine.n_host_stored);
    write_count(prefix + "host_cache_pages_restored_total",
                "Pages of prompt states that came back from there", engine.n_host_restored);
    write_count(prefix + "num_preemptions_total", "Times that an answer was preempted for memory",
                engine.n_preempted);
    write_count(prefix + "engine_steps_total", "Forward passes", engine.n_steps);
    write_count(prefix + "prompt_tokens_total", "Tokens of prompts", n_prompt);
    write_count(prefix + "prompt_tokens_cached_total", "Of them, found in the prefix cache", n_cached);
    write_count(prefix + "generation_tokens_total", "Tokens generated", n_generated);
    write_count(prefix + "spec_decode_num_draft_tokens_total", "Draft tokens that were checked", n_drafted);
    write_count(prefix + "spec_decode_num_accepted_tokens_total", "Of them, those that became text",
                n_drafts_accepted);
    write_count(prefix + "requests_aborted_total", "Requests whose client went away", n_aborted);
    write_count(prefix + "requests_rejected_total", "Requests refused because the queue was full",
                n_rejected);
    write_head(prefix + "request_success_total", "counter", "Answers by how they ended", out);
    for (const auto& [reason, count] : finished)
        out += fmt::format("{}request_success_total{{{},finished_reason=\"{}\"}} {}\n", prefix, label, reason,
                           count);
    out += requests_text(prefix);
    queue.write(prefix + "request_queue_time_seconds", "Time until a request was first worked on", label,
                out);
    first_token.write(prefix + "time_to_first_token_seconds", "Time from arrival to the first token", label,
                      out);
    inter_token.write(prefix + "inter_token_latency_seconds", "Time between tokens", label, out);
    whole.write(prefix + "e2e_request_latency_seconds", "Time from arrival to the last token", label, out);
    prompt_tokens.write(prefix + "request_prompt_tokens", "Tokens of a prompt", label, out);
    generated_tokens.write(prefix + "request_generation_tokens", "Tokens of an answer", label, out);
    return out;
}

std::string joined_metrics(const std::vector<std::string>& texts) {
    std::vector<std::string> names;              // in the order of the first text that has them
    std::map<std::string, std::string> metrics;  // by name: the head, then samples
    for (const std::string& text : texts) {
        std::string* metric = nullptr;
        bool is_new = false;
        for (size_t begin = 0; begin < text.size();) {
            const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
            const std::string line = text.substr(begin, end - begin);
            begin = end;
            const bool is_head = line.starts_with("# ");
            if (line.starts_with("# HELP ")) {
                const std::string name = line.substr(7, line.find(' ', 7) - 7);
                is_new = !metrics.contains(name);
                if (is_new) names.push_back(name);
                metric = &metrics[name];
            }
            if (metric != nullptr && (is_new || !is_head)) *metric += line;
        }
    }
    std::string out;
    for (const std::string& name : names) out += metrics[name];
    return out;
}

}  // namespace server
