// SPDX-License-Identifier: Apache-2.0
// Counters and histograms in the text form of Prometheus. The names after the prefix are vLLM's, so dashboards made for vLLM work
// with --metrics-prefix vllm: . Used on the loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "job_queue.h"
#include "reply_parts.h"

namespace server {

constexpr const char* k_metrics_type = "text/plain; version=0.0.4; charset=utf-8";

// Appends the lines that say what the samples behind them are. `type`: "counter", "gauge", "histogram".
void write_head(const std::string& name, const char* type, const char* help, std::string& out);

// Returns a value for a label, in quotes.
std::string quoted_label(std::string_view text);

class Histogram {
  public:
    explicit Histogram(std::vector<double> bounds)
        : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
    void add(double value, uint64_t times = 1);
    // `label`: of every sample, model_name="...".
    void write(const std::string& name, const char* help, const std::string& label, std::string& out) const;

  private:
    std::vector<double> bounds_;  // upper ones, rising
    std::vector<uint64_t> counts_;
    double sum_ = 0;
    uint64_t count_ = 0;
};

struct Metrics {
    explicit Metrics(const std::string& model_name);
    std::string text(const std::string& prefix, size_t n_running, size_t n_waiting,
                     const minim_engine_state& engine) const;
    // Returns the counts of HTTP requests alone.
    std::string requests_text(const std::string& prefix) const;

    const std::string label;  // of every sample: model_name="..."

    std::map<std::pair<std::string, int>, uint64_t> requests;  // by route and status
    std::map<std::string, uint64_t> finished;                  // by reason
    uint64_t n_aborted = 0;                                    // clients that went away
    uint64_t n_rejected = 0;                                   // the queue was full
    uint64_t n_prompt = 0;
    uint64_t n_cached = 0;
    uint64_t n_generated = 0;
    uint64_t n_drafted = 0;
    uint64_t n_drafts_accepted = 0;
    Histogram queue;  // seconds
    Histogram first_token;
    Histogram inter_token;
    Histogram whole;
    Histogram prompt_tokens;
    Histogram generated_tokens;
};

// Joins the texts of several models: the head of each metric is written once, before the samples of all models.
std::string joined_metrics(const std::vector<std::string>& texts);

}  // namespace server
