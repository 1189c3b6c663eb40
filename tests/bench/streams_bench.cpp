// SPDX-License-Identifier: Apache-2.0
// The load of serve_bench.py without HTTP: random prompts through the C interface, a number of them at once. The
// difference between the two is what the server costs.
//
//   streams_bench MODEL [CONCURRENCY] [INPUT] [OUTPUT] [THREADS]     32, 256 words, 128 tokens and all cores unless said otherwise
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "minim/minim.hpp"

namespace {

constexpr std::array k_words = {"time",    "year",  "people",  "way",     "day",    "man",   "thing",
                                "woman",   "life",  "child",   "world",   "school", "state", "family",
                                "student", "group", "country", "problem", "hand",   "part"};

struct Load {
    const char* model = "";
    int32_t concurrency = 32;
    int32_t input = 256;   // words of a prompt, about as many tokens
    int32_t output = 128;  // tokens of an answer; its end is ignored
    int32_t n_threads = 0;
};

int32_t number(std::string_view text) {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0)
        throw std::runtime_error("'" + std::string(text) + "' is not a number");
    return value;
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run(const Load& load) {
    minim::RuntimeOptions runtime_options;
    runtime_options.n_threads = load.n_threads;
    const minim::Runtime runtime(runtime_options);
    const minim::Model model(runtime, load.model);
    std::mt19937 dice(1);
    std::vector<minim::Tokens> prompts;
    size_t longest = 0;
    for (int32_t i = 0; i < 2 * load.concurrency; ++i) {
        std::string prompt;
        for (int32_t word = 0; word < load.input; ++word)
            prompt.append(word == 0 ? "" : " ").append(k_words[dice() % k_words.size()]);
        prompts.push_back(model.tokenize(prompt));
        longest = std::max(longest, prompts.back().size());
    }
    minim::EngineOptions options;
    options.n_requests = load.concurrency;
    options.max_context = longest + static_cast<uint64_t>(load.output) + 1;
    options.kv_tokens = options.max_context * static_cast<uint64_t>(load.concurrency);
    minim::Engine engine(model, options);
    minim::Sampling sampling;
    sampling.set_recommended(model);
    sampling.set("temperature", 1.0).set("max_tokens", load.output).set("ignore_end", 1);

    const auto started = std::chrono::steady_clock::now();
    const double cpu_before = cpu_seconds();
    // The engine lets requests beyond `concurrency` wait.
    std::vector<minim::Request> requests;
    for (const minim::Tokens& prompt : prompts) requests.push_back(engine.submit(sampling, prompt));
    size_t n_tokens = 0;
    minim_token token;
    for (minim::Request& request : requests)
        while (request.next(token) == minim::Request::Next::token) ++n_tokens;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    const double cpu = cpu_seconds() - cpu_before;
    std::printf(" conc.  tokens/s  CPU us/token\n%5d %10.1f %13.1f\n", load.concurrency,
                static_cast<double>(n_tokens) / seconds, cpu * 1e6 / static_cast<double>(n_tokens));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        Load load;
        if (argc < 2) throw std::runtime_error("no model is given");
        load.model = argv[1];
        const std::array numbers = {&load.concurrency, &load.input, &load.output, &load.n_threads};
        for (size_t i = 0; i < numbers.size() && static_cast<int>(i) + 2 < argc; ++i)
            *numbers[i] = number(argv[i + 2]);
        run(load);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "streams_bench: %s\n", error.what());
        return 1;
    }
}
