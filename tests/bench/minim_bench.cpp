// Prompt and decode speed of a model file or of a synthetic model, over repetitions, context depths, batch
// sizes and thread counts, beside the memory bandwidth that the same threads reach in the same run.
//
//   minim-bench -m model.gguf -p 512 -n 64 -t 1,2 -r 5 -o table
//   minim-bench --synthetic --layers 2 --experts-format IQ4_XS -n 64
//   minim-bench --synthetic --layers 2 --experts-format IQ4_XS -n 32 --parallel 1,8,32
//
// A speed is the median of the repetitions. Its bandwidth is the bytes a token has to read (weights once,
// keys and values once) times tokens a second; the share is of the median bandwidth measured around the
// repetitions. Several texts at once share the weights of a step: of the experts they read, on average, those
// that at least one of their tokens chooses by chance. Two limits stand beside their speed: the bandwidth
// over those bytes, and the speed of the prompt test of the same run, which shares as much as can be.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bandwidth.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "kv/sequence.h"
#include "model/model.h"
#include "model/pack_weights.h"
#include "synthetic.h"
#include "timed_backend.h"

namespace minim::bench {
namespace {

struct Options {
    std::string model;
    bool synthetic = false;
    SyntheticShape shape;
    std::string experts_format = "IQ4_XS";
    std::string dense_format = "Q8_0";
    bool mapped = false;
    std::vector<int64_t> n_prompt = {512};
    std::vector<int64_t> n_generate = {64};
    std::vector<int64_t> depths = {0};
    std::vector<int64_t> n_parallel = {1};
    std::vector<int64_t> n_ubatch = {512};
    std::vector<int32_t> n_threads;
    int repetitions = 5;
    std::string output = "table";
    std::string kv = "F16";
    bool operations = false;
};

struct Result {
    std::string test;
    int32_t n_threads = 0;
    int64_t depth = 0;
    int64_t n_ubatch = 0;
    int64_t n_parallel = 1;
    std::optional<double> prompt_rate;  // tokens a second of the prompt test, where it was made
    std::vector<double> tokens_per_second;
    std::vector<double> read_bandwidth;  // bytes a second
    double bytes_per_token = 0.0;
    std::array<double, k_operation_count> seconds{};  // of all repetitions
    double total_seconds = 0.0;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

double spread(const std::vector<double>& values) {
    const double centre = median(values);
    std::vector<double> deviation;
    for (const double value : values) deviation.push_back(std::abs(value - centre));
    return median(deviation);
}

// Experts of a layer that at least one of n_rows tokens chooses, on average, where chance chooses.
double experts_read(const model::Config& config, int64_t n_rows) {
    const auto n_expert = static_cast<double>(config.n_expert);
    const double spared = 1.0 - static_cast<double>(config.n_expert_used) / n_expert;
    return n_expert * (1.0 - std::pow(spared, static_cast<double>(n_rows)));
}

// Bytes of weights that a step of n_rows tokens reads, which all want logits.
double active_bytes(const model::Config& config, const model::Weights& weights, int64_t n_rows) {
    const double n_experts = experts_read(config, n_rows);
    const auto bytes = [](const backend::Matrix& m) { return static_cast<double>(m.rows * m.row_bytes); };
    const auto of_stack = [&](const backend::ExpertStack& s) {
        return n_experts * static_cast<double>(s.rows * s.row_bytes);
    };
    double total = bytes(weights.output) + static_cast<double>(n_rows * weights.embedding.row_bytes);
    for (const model::LayerWeights& w : weights.layers) {
        total += bytes(w.wq) + bytes(w.wk) + bytes(w.wv) + bytes(w.wo) + bytes(w.router);
        total += of_stack(w.experts.gate) + of_stack(w.experts.up) + of_stack(w.experts.down);
    }
    return total;
}

double weight_bytes(const model::Weights& weights) {
    const auto bytes = [](const backend::Matrix& m) { return static_cast<double>(m.rows * m.row_bytes); };
    double total = bytes(weights.output) + bytes(weights.embedding);
    for (const model::LayerWeights& w : weights.layers) {
        total += bytes(w.wq) + bytes(w.wk) + bytes(w.wv) + bytes(w.wo) + bytes(w.router);
        for (const backend::ExpertStack* s : {&w.experts.gate, &w.experts.up, &w.experts.down}) {
            total += static_cast<double>(s->n_expert() * s->rows * s->row_bytes);
        }
    }
    return total;
}

// One thread count: a backend, the model on it, and what the tests need.
class Bench {
  public:
    Bench(const Options& options, int32_t n_threads)
        : options_(options), pool_(n_threads), bandwidth_(pool_) {
        const CpuLevel level = active_cpu_level();
        backend_ = std::make_shared<TimedBackend>(cpu::make_cpu_backend(pool_, level));
        const auto start = std::chrono::steady_clock::now();
        if (options.synthetic) {
            synthetic_.emplace(make_synthetic(options.shape));
            if (!options.mapped) pack();
            config_ = &synthetic_->config;
            weights_ = &synthetic_->weights;
            forward_.emplace(*backend_, *config_, *weights_);
        } else {
            model::OpenOptions open;
            open.residence = options.mapped ? checkpoint::Residence::mapped : checkpoint::Residence::owned;
            model_.emplace(options.model, backend_, open, Logger());
            config_ = &model_->config();
            weights_ = &model_->weights();
            forward_.emplace(*backend_, *config_, *weights_);
        }
        load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    const model::Config& config() const { return *config_; }
    const model::Weights& weights() const { return *weights_; }
    double load_seconds() const { return load_seconds_; }

    Result prompt(int64_t n, int64_t depth, int64_t n_ubatch) {
        Result result = new_result(fmt::format("pp{}", n), depth, n_ubatch);
        const double steps = std::ceil(static_cast<double>(n) / static_cast<double>(n_ubatch));
        result.bytes_per_token = weight_bytes(*weights_) * steps / static_cast<double>(n);
        const kv::Sequence text = kv::Sequence::alone(kv_layout(), depth + n);
        model::StepSpace space(*backend_, *config_, n_ubatch, depth + n);
        read(text, space, 0, depth, n_ubatch);
        read(text, space, depth, n, n_ubatch);  // not measured
        repeat(result, n, [&] { read(text, space, depth, n, n_ubatch); });
        return result;
    }

    // n tokens of each of n_parallel texts.
    Result generation(int64_t n, int64_t depth, int64_t n_ubatch, int64_t n_parallel) {
        Result result = new_result(fmt::format("tg{}", n), depth, n_ubatch);
        result.n_parallel = n_parallel;
        if (n_parallel > 1) result.test += fmt::format(" x{}", n_parallel);
        const backend::KvLayout layout = kv_layout();
        const double kv_bytes =
            static_cast<double>(layout.page_bytes()) / static_cast<double>(backend::k_kv_page_tokens);
        result.bytes_per_token =
            active_bytes(*config_, *weights_, n_parallel) / static_cast<double>(n_parallel) +
            kv_bytes * static_cast<double>(depth + n / 2);
        std::vector<kv::Sequence> texts;
        for (int64_t i = 0; i < n_parallel; ++i) texts.push_back(kv::Sequence::alone(layout, depth + n));
        model::StepSpace space(*backend_, *config_, std::max(n_ubatch, n_parallel), depth + n);
        for (const kv::Sequence& text : texts) read(text, space, 0, depth, n_ubatch);
        generate(texts, space, depth, std::min<int64_t>(n, 2));  // not measured
        repeat(result, n * n_parallel, [&] { generate(texts, space, depth, n); });
        return result;
    }

  private:
    void pack() {
        const auto writable = [this](const std::byte* place) -> std::byte* {
            for (const Buffer& buffer : synthetic_->memory) {
                if (place >= buffer.data() && place < buffer.data() + buffer.size()) {
                    return buffer.data() + (place - buffer.data());
                }
            }
            return nullptr;
        };
        model::pack_weights(*backend_, writable, synthetic_->weights, nullptr);
    }

    backend::KvLayout kv_layout() const {
        const Format format = *format_from_name(options_.kv);
        return {config_->n_layer, config_->n_head_kv, config_->head_dim, format, format};
    }

    Result new_result(const std::string& test, int64_t depth, int64_t n_ubatch) const {
        Result result;
        result.test = depth > 0 ? fmt::format("{} @ d{}", test, depth) : test;
        result.n_threads = pool_.n_threads();
        result.depth = depth;
        result.n_ubatch = n_ubatch;
        return result;
    }

    model::StepRow row_of(const kv::Sequence& text, int64_t number, int64_t position,
                          bool wants_logits) const {
        const int64_t token = (position * 7919 + number * 104729 + 13) % config_->n_vocab;
        return {static_cast<int32_t>(token), {&text.view(), position}, wants_logits};
    }

    // Tokens first .. first + count of the text, in steps of at most n_step rows.
    void read(const kv::Sequence& text, model::StepSpace& space, int64_t first, int64_t count,
              int64_t n_step) {
        logits_.resize(static_cast<size_t>(config_->n_vocab));
        std::vector<model::StepRow> rows;
        for (int64_t done = 0; done < count; done += static_cast<int64_t>(rows.size())) {
            rows.resize(static_cast<size_t>(std::min(n_step, count - done)));
            for (size_t i = 0; i < rows.size(); ++i) {
                const int64_t position = first + done + static_cast<int64_t>(i);
                rows[i] = row_of(text, 0, position, i + 1 == rows.size());
            }
            forward_->step(rows, space, logits_.data(), nullptr);
        }
    }

    // The same tokens of every text, one of each a step.
    void generate(const std::vector<kv::Sequence>& texts, model::StepSpace& space, int64_t first,
                  int64_t count) {
        logits_.resize(texts.size() * static_cast<size_t>(config_->n_vocab));
        std::vector<model::StepRow> rows(texts.size());
        for (int64_t position = first; position < first + count; ++position) {
            for (size_t i = 0; i < texts.size(); ++i)
                rows[i] = row_of(texts[i], static_cast<int64_t>(i), position, true);
            forward_->step(rows, space, logits_.data(), nullptr);
        }
    }

    // Times `work`, which makes n_tokens.
    template <typename Work>
    void repeat(Result& result, int64_t n_tokens, const Work& work) {
        for (int i = 0; i < options_.repetitions; ++i) {
            result.read_bandwidth.push_back(bandwidth_.measure());
            backend_->seconds().fill(0.0);
            const auto start = std::chrono::steady_clock::now();
            work();
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            result.read_bandwidth.push_back(bandwidth_.measure());
            result.tokens_per_second.push_back(static_cast<double>(n_tokens) / taken.count());
            result.total_seconds += taken.count();
            for (size_t k = 0; k < k_operation_count; ++k) result.seconds[k] += backend_->seconds()[k];
        }
    }

    const Options& options_;
    ThreadPool pool_;
    Bandwidth bandwidth_;
    std::shared_ptr<TimedBackend> backend_;
    std::optional<SyntheticModel> synthetic_;
    std::optional<model::Model> model_;
    const model::Config* config_ = nullptr;
    const model::Weights* weights_ = nullptr;
    std::optional<model::ForwardPass> forward_;
    std::vector<float> logits_;
    double load_seconds_ = 0.0;
};

double achieved(const Result& result) {
    return result.bytes_per_token * median(result.tokens_per_second);
}

// Tokens a second that the bytes of several texts at once allow.
double bytes_limit(const Result& result) {
    return median(result.read_bandwidth) / result.bytes_per_token;
}

nlohmann::ordered_json json_of(const Result& result, const std::string& model) {
    nlohmann::ordered_json json = {
        {"model", model},
        {"cpu", to_string(active_cpu_level())},
        {"test", result.test},
        {"n_threads", result.n_threads},
        {"n_ubatch", result.n_ubatch},
        {"depth", result.depth},
        {"tokens_per_second", median(result.tokens_per_second)},
        {"tokens_per_second_deviation", spread(result.tokens_per_second)},
        {"bytes_per_token", result.bytes_per_token},
        {"bandwidth_gbps", achieved(result) / 1e9},
        {"read_bandwidth_gbps", median(result.read_bandwidth) / 1e9},
        {"bandwidth_share", achieved(result) / median(result.read_bandwidth)},
        {"repetitions", result.tokens_per_second},
    };
    if (result.n_parallel > 1) {
        json["n_parallel"] = result.n_parallel;
        json["limit_bytes"] = bytes_limit(result);
        if (result.prompt_rate) json["limit_arithmetic"] = *result.prompt_rate;
    }
    for (size_t k = 0; k < k_operation_count; ++k) {
        json["share_of_time"][k_operation_names[k]] = result.seconds[k] / result.total_seconds;
    }
    return json;
}

void print_table(const std::vector<Result>& results, bool operations) {
    fmt::print("{:<16} {:>7} {:>6} {:>18} {:>8} {:>10} {:>6}\n", "test", "threads", "ubatch", "tokens/s",
               "GB/s", "read GB/s", "share");
    for (const Result& r : results) {
        fmt::print("{:<16} {:>7} {:>6} {:>10.2f} +- {:>4.2f} {:>8.2f} {:>10.2f} {:>6.2f}\n", r.test,
                   r.n_threads, r.n_ubatch, median(r.tokens_per_second), spread(r.tokens_per_second),
                   achieved(r) / 1e9, median(r.read_bandwidth) / 1e9, achieved(r) / median(r.read_bandwidth));
        if (r.n_parallel > 1) {
            fmt::print("    limits: {:.1f} tokens/s by bytes", bytes_limit(r));
            if (r.prompt_rate) fmt::print(", {:.1f} by arithmetic (the prompt test)", *r.prompt_rate);
            fmt::print("\n");
        }
        if (!operations) continue;
        for (size_t k = 0; k < k_operation_count; ++k) {
            fmt::print("    {:<10} {:>5.1f} %\n", k_operation_names[k],
                       100.0 * r.seconds[k] / r.total_seconds);
        }
    }
}

void print_csv(const std::vector<Result>& results) {
    fmt::print(
        "test,n_threads,n_ubatch,depth,tokens_per_second,deviation,bandwidth_gbps,read_gbps,bandwidth_"
        "share\n");
    for (const Result& r : results) {
        fmt::print("{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f}\n", r.test, r.n_threads, r.n_ubatch,
                   r.depth, median(r.tokens_per_second), spread(r.tokens_per_second), achieved(r) / 1e9,
                   median(r.read_bandwidth) / 1e9, achieved(r) / median(r.read_bandwidth));
    }
}

Format format_named(const std::string& name) {
    const auto format = format_from_name(name);
    if (!format) fail(Status::invalid, "unknown format {}", name);
    return *format;
}

void parse(int argc, char** argv, CLI::App& app, Options& options) {
    app.add_option("-m,--model", options.model, "model file or folder");
    app.add_flag("--synthetic", options.synthetic, "random weights of the shape given below, no file");
    app.add_option("--layers", options.shape.n_layer, "synthetic: layers")->capture_default_str();
    app.add_option("--experts", options.shape.n_expert, "synthetic: experts a layer")->capture_default_str();
    app.add_option("--vocab", options.shape.n_vocab, "synthetic: tokens")->capture_default_str();
    app.add_option("--hidden", options.shape.hidden, "synthetic: hidden size")->capture_default_str();
    app.add_option("--expert-ff", options.shape.expert_ff, "synthetic: width of an expert")
        ->capture_default_str();
    app.add_option("--experts-format", options.experts_format, "synthetic")->capture_default_str();
    app.add_option("--dense-format", options.dense_format, "synthetic")->capture_default_str();
    app.add_flag("--mmap", options.mapped, "weights as the file has them, not copied and packed");
    app.add_option("-p,--n-prompt", options.n_prompt, "prompt lengths")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-n,--n-gen", options.n_generate, "tokens to generate")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-d,--depth", options.depths, "tokens in the context before the test")->delimiter(',');
    app.add_option("--parallel", options.n_parallel, "texts that are generated at once")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    app.add_option("-u,--ubatch-size", options.n_ubatch, "rows of a prompt step")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-t,--threads", options.n_threads, "thread counts; default: all cores")->delimiter(',');
    app.add_option("-r,--repetitions", options.repetitions)
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("-k,--kv", options.kv, "format of keys and values")->capture_default_str();
    app.add_option("-o,--output", options.output)
        ->check(CLI::IsMember({"table", "json", "csv"}))
        ->capture_default_str();
    app.add_flag("--operations", options.operations, "table: share of the time by operation");
    app.parse(argc, argv);
    if (options.synthetic == !options.model.empty())
        throw CLI::ValidationError("either --model or --synthetic");
    options.shape.experts_format = format_named(options.experts_format);
    options.shape.dense_format = format_named(options.dense_format);
    format_named(options.kv);
    if (options.n_threads.empty()) options.n_threads = {usable_core_count()};
}

std::string description(const Options& options) {
    if (!options.synthetic) return options.model;
    return fmt::format("synthetic, {} layers, experts {}, dense {}", options.shape.n_layer,
                       options.experts_format, options.dense_format);
}

int run(const Options& options) {
    std::vector<Result> results;
    for (const int32_t n_threads : options.n_threads) {
        Bench bench(options, n_threads);
        if (options.output == "table") {
            fmt::print("{}; {}; {:.0f} MB a token; ready after {:.2f} s\n", description(options),
                       to_string(active_cpu_level()), active_bytes(bench.config(), bench.weights(), 1) / 1e6,
                       bench.load_seconds());
        }
        for (const int64_t n_ubatch : options.n_ubatch) {
            for (const int64_t depth : options.depths) {
                std::optional<double> prompt_rate;
                for (const int64_t n : options.n_prompt) {
                    if (n == 0) continue;
                    results.push_back(bench.prompt(n, depth, n_ubatch));
                    prompt_rate = median(results.back().tokens_per_second);
                }
                for (const int64_t n : options.n_generate) {
                    for (const int64_t n_parallel : options.n_parallel) {
                        if (n == 0) continue;
                        results.push_back(bench.generation(n, depth, n_ubatch, n_parallel));
                        results.back().prompt_rate = prompt_rate;
                    }
                }
            }
        }
    }
    if (options.output == "table") {
        print_table(results, options.operations);
    } else if (options.output == "csv") {
        print_csv(results);
    } else {
        nlohmann::ordered_json all = nlohmann::ordered_json::array();
        for (const Result& result : results) all.push_back(json_of(result, description(options)));
        std::cout << all.dump(2) << '\n';
    }
    return 0;
}

}  // namespace
}  // namespace minim::bench

int main(int argc, char** argv) {
    CLI::App app("Speed of prompts and of decoding");
    minim::bench::Options options;
    try {
        minim::bench::parse(argc, argv, app, options);
        return minim::bench::run(options);
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    } catch (const minim::Error& error) {
        std::cerr << "minim-bench: " << error.what() << '\n';
        return 1;
    }
}
