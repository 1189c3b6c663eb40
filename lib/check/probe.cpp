// SPDX-License-Identifier: Apache-2.0
#include "check/probe.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "base/hash.h"
#include "base/json.h"
#include "engine/bad_logits.h"
#include "engine/session.h"
#include "kv/sequence.h"
#include "runtime/forward_pass.h"

namespace minim::check {
namespace {

constexpr int64_t k_n_tokens = 300;
constexpr int64_t k_n_rows = 64;  // of a step
constexpr size_t k_n_positions = 64;
constexpr int32_t k_n_top = 5;
constexpr double k_usual_perplexity = 100.0;
constexpr float k_largest_residual = 32768.0F;  // half of the largest F16
constexpr double k_clear_margin = 0.5;          // between the two likeliest tokens, in log-probability
constexpr double k_allowed_difference = 0.1;    // of log-probabilities, for the same file

// Sentences that small test models predict as well as large ones.
constexpr std::string_view k_text =
    "There was once a shy cat called Anna. One day Anna found a red lamp near the garden. \"What a nice "
    "lamp!\" said Anna. Anna wanted to show the red lamp to Paul. Anna and Paul played with the lamp until "
    "the evening. Then Anna went home and slept.\n"
    "Once upon a time, a hungry mouse named Max lived near a village. One morning Max went to the forest "
    "and saw a white book. \"What a nice book!\" said Max. Max was sad and asked Clara for help. In the "
    "evening Clara came with the white book. From that day on they were best friends.\n"
    "A dog has 4 legs. A dog barks. A cat has 4 legs. A bird has 2 legs. The capital of France is Paris. "
    "The capital of Italy is Rome. The capital of Japan is Tokyo.\n"
    "There was once a lazy frog called Rosa. Rosa lost a yellow hat in the garden. Rosa was sad and asked "
    "Ben for help. In the evening Ben came with the yellow hat. Rosa was very happy and thanked Ben. Then "
    "Rosa went home and slept.\n"
    "Once upon a time, a brave duck named Leo lived near a river. One day Leo found a green box near the "
    "river. \"What a nice box!\" said Leo. Leo and Emma played with the box until the evening. From that "
    "day on they were best friends.\n"
    "There was once a proud horse called Ben. Ben lost a blue cup in the village. Ben was sad and asked "
    "Max for help. In the evening Max came with the blue cup. Ben was very happy and thanked Max. Then "
    "Ben went home and slept.\n"
    "Once upon a time, a clever fox named Eva lived near a forest. One day Eva found an old map near the "
    "forest. Eva and Paul played with the map until the evening. From that day on they were best friends.\n";

std::vector<int32_t> probe_tokens(const model::Model& model) {
    const tokenizer::Tokenizer& tokenizer = model.text().tokenizer();
    std::vector<int32_t> ids = tokenizer.encode(k_text, tokenizer::Specials::none);
    if (ids.empty()) fail_file(Reason::value, "the tokenizer makes no tokens of a text");
    while (std::ssize(ids) < k_n_tokens) tokenizer.encode_append(k_text, tokenizer::Specials::none, ids);
    ids.resize(k_n_tokens);
    return ids;
}

// Calls look(position, logits) for each position of the text.
template <typename Look>
void for_each_position(const std::shared_ptr<const model::Model>& model, std::span<const int32_t> ids,
                       int64_t n_rows, const CancelToken* cancel, const Logger& log, const Look& look) {
    engine::SessionParams params;
    params.n_context = k_n_tokens;
    params.n_ubatch = k_n_rows;
    engine::Session session(model, params, log);
    const int64_t n_vocab = model->config().n_vocab;
    std::vector<float> logits(static_cast<size_t>(n_rows * n_vocab));
    for (int64_t at = 0; at < std::ssize(ids); at += n_rows) {
        const int64_t n = std::min(n_rows, std::ssize(ids) - at);
        const std::span rows = std::span(logits).first(static_cast<size_t>(n * n_vocab));
        session.eval(ids.subspan(static_cast<size_t>(at), static_cast<size_t>(n)), true, rows, cancel);
        for (int64_t i = 0; i < n; ++i)
            look(at + i, rows.subspan(static_cast<size_t>(i * n_vocab), static_cast<size_t>(n_vocab)));
    }
}

using TopTokens = std::vector<sampling::TokenProbability>;

// Returns the layer with the largest magnitude in the residual stream, and that magnitude.
std::pair<int64_t, float> largest_residual(const model::Model& model, std::span<const int32_t> ids,
                                           const CancelToken* cancel) {
    const int64_t n = std::min<int64_t>(k_n_rows, std::ssize(ids));
    kv::Sequence cache(engine::make_pool(model, {}, {}), n);
    cache.hold(0, n);
    runtime::StepSpace space(model.forward(), n, n);
    std::vector<runtime::StepRow> rows;
    for (int64_t i = 0; i < n; ++i)
        rows.push_back({ids[static_cast<size_t>(i)], {&cache.view(), i}, i + 1 == n});
    std::vector<float> logits(static_cast<size_t>(model.config().n_vocab));
    std::pair<int64_t, float> largest = {0, 0.0F};
    const auto look = [&](int64_t layer, int64_t n_rows, const float* x, const int32_t*, const float*) {
        for (int64_t i = 0; i < n_rows * model.config().hidden; ++i)
            if (std::abs(x[i]) > largest.second) largest = {layer, std::abs(x[i])};
    };
    model.forward().step(rows, space, logits.data(), cancel, look);
    return largest;
}

// Returns whether results have the same bits whatever the rows of a step. Fast arithmetic of a GPU takes other kernels for one row than for
// many.
bool has_equal_bits(const model::Model& model) {
    return std::ranges::all_of(model.placement().stages(),
                               [](const runtime::Stage& stage) { return stage.backend->host() != nullptr; });
}

[[noreturn]] void fail_record(std::string_view what) {
    fail_file(Reason::value, "the record of answers is not one: {}", what);
}

Answers read_record(const json::Value& record, int64_t n_vocab) {
    const json::Value* positions = json::find(&record, "positions");
    if (positions == nullptr || positions->items.size() != k_n_positions)
        fail_record("it has no list of 64 positions");
    Answers answers;
    for (const json::Value& position : positions->items) {
        TopTokens top;
        for (const json::Value& token : position.items) {
            const auto id = token.items.size() == 2 ? json::to_int64(token.items[0]) : std::nullopt;
            if (!id || !token.items[1].is_number()) fail_record("a token is not [id, log-probability]");
            if (*id < 0 || *id >= n_vocab)
                fail(Status::invalid, "the record names token {}; the model has {}", *id, n_vocab);
            top.push_back({static_cast<int32_t>(*id), static_cast<float>(token.items[1].number)});
        }
        if (top.size() < 2) fail_record("a position has fewer than two tokens");
        answers.push_back(std::move(top));
    }
    return answers;
}

// Returns how far the log-probabilities of tokens that both have are apart, at most.
double largest_difference(const TopTokens& a, const TopTokens& b) {
    double largest = 0.0;
    for (const sampling::TokenProbability& one : a) {
        const auto same = std::ranges::find(b, one.token, &sampling::TokenProbability::token);
        if (same != b.end())
            largest = std::max(
                largest, std::abs(static_cast<double>(one.logprob) - static_cast<double>(same->logprob)));
    }
    return largest;
}

}  // namespace

Answers check_probe(const std::shared_ptr<const model::Model>& model, const CancelToken* cancel,
                    const Logger& log, Report& report) {
    report.stages.emplace_back("probe");
    const std::vector<int32_t> ids = probe_tokens(*model);
    std::vector<uint64_t> hashes;
    Answers tops;  // of all positions
    double loss = 0.0;
    int64_t first_bad = -1;
    for_each_position(model, ids, k_n_rows, cancel, log, [&](int64_t at, std::span<const float> logits) {
        if (first_bad < 0 && engine::has_bad_logits(logits)) first_bad = at;
        hashes.push_back(hash_bytes(std::as_bytes(logits)));
        if (first_bad >= 0) return;
        const sampling::LogNormaliser normaliser = sampling::log_normaliser(logits);
        tops.push_back(sampling::top_logprobs(logits, normaliser, k_n_top));
        if (at + 1 < k_n_tokens) loss -= static_cast<double>(normaliser.logprob(logits[ids[at + 1]]));
    });
    if (first_bad >= 0) {
        std::string detail =
            format_text("are NaN or infinity at position {} of the built-in text", first_bad);
        try {
            engine::fail_bad_logits(*model, ids);
        } catch (const Error& error) {
            detail += format_text(": {}", error.what());
        }
        report.fault(FaultClass::probe, "logits", detail);
        return {};
    }

    const double perplexity = std::exp(loss / static_cast<double>(k_n_tokens - 1));
    const std::string text = format_text("is {:.4g} on the built-in text", perplexity);
    const auto n_vocab = static_cast<double>(model->config().n_vocab);
    if (perplexity > n_vocab / 4) {
        report.fault(FaultClass::probe, "perplexity", format_text("{}; chance gives {}", text, n_vocab));
    } else if (perplexity > k_usual_perplexity) {
        report.warn(FaultClass::probe, "perplexity",
                    format_text("{}; models of the family have less than {}", text, k_usual_perplexity));
    }

    const bool needs_equal_bits = has_equal_bits(*model);
    int64_t first_other = -1;
    double largest = 0.0;
    for_each_position(model, ids, 1, cancel, log, [&](int64_t at, std::span<const float> logits) {
        if (hash_bytes(std::as_bytes(logits)) == hashes[static_cast<size_t>(at)]) return;
        if (first_other < 0) first_other = at;
        const TopTokens top = sampling::top_logprobs(logits, sampling::log_normaliser(logits), k_n_top);
        largest = std::max(largest, largest_difference(tops[at], top));
    });
    if (first_other >= 0 && (needs_equal_bits || largest > k_allowed_difference))
        report.fault(
            FaultClass::probe, "logits",
            format_text("differ between steps of {} rows and of one from position {} on, by up to {:.3g} "
                        "in log-probability",
                        k_n_rows, first_other, largest));

    const auto [layer, residual] = largest_residual(*model, ids, cancel);
    if (residual > k_largest_residual)
        report.warn(
            FaultClass::probe, format_text("layer {}", layer),
            format_text("the residual stream reaches {:.4g}; engines that keep it in F16 overflow at 65504",
                        residual));
    return {tops.end() - static_cast<std::ptrdiff_t>(k_n_positions), tops.end()};
}

std::string to_json(const Answers& answers, uint64_t fingerprint) {
    std::string out = format_text("{{\"fingerprint\": \"{:016x}\", \"positions\": [", fingerprint);
    std::string_view before_position;
    for (const TopTokens& top : answers) {
        out += before_position;
        before_position = ",";
        out += "\n[";
        for (size_t i = 0; i < top.size(); ++i)
            out += format_text("{}[{}, {:.6f}]", i == 0 ? "" : ", ", top[i].token, top[i].logprob);
        out += "]";
    }
    return out + "\n]}\n";
}

void check_answers(const Answers& answers, const model::Model& model, std::string_view record,
                   Report& report) {
    report.stages.emplace_back("answers");
    const json::Value root = json::parse(record, "the record of answers", json::Source::file);
    const Answers wanted = read_record(root, model.config().n_vocab);
    const json::Value* fingerprint = json::find(&root, "fingerprint");
    const bool is_same_file =
        fingerprint != nullptr && fingerprint->is_string(format_text("{:016x}", model.fingerprint()));
    for (size_t i = 0; i < answers.size(); ++i) {
        const std::string where = format_text(
            "position {}", k_n_tokens - static_cast<int64_t>(k_n_positions) + static_cast<int64_t>(i));
        const double margin =
            static_cast<double>(wanted[i][0].logprob) - static_cast<double>(wanted[i][1].logprob);
        if (answers[i][0].token != wanted[i][0].token && margin > k_clear_margin)
            report.fault(
                FaultClass::answers, where,
                format_text("the likeliest token is {}; the record has {}, by {:.2f} above the next one",
                            answers[i][0].token, wanted[i][0].token, margin));
        const double difference = largest_difference(wanted[i], answers[i]);
        if (is_same_file && difference > k_allowed_difference)
            report.fault(
                FaultClass::answers, where,
                format_text("log-probabilities differ by {:.3f} from those of the record", difference));
    }
}

}  // namespace minim::check
