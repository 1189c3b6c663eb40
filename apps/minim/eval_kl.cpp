// SPDX-License-Identifier: Apache-2.0
// KL divergence of a model from another one, whose log-probabilities are in a file. Chunks do not overlap; positions of the second half
// of a chunk count, or all. The figures have the names that llama-perplexity prints.
#include "eval_kl.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "input.h"
#include "kl_file.h"
#include "open_model.h"
#include "output.h"
#include "token_logits.h"

namespace cli {
namespace {

// Tokens that the reference gives a smaller log-probability are left out: codes do not tell them apart.
constexpr float k_min_log_p = -16.0F;

struct Mean {
    double value = 0.0;
    double error = 0.0;  // standard error
};

// Sums of numbers, of their squares, and of the products of two series.
Mean mean_of(double sum, double sum_of_squares, double count) {
    const double mean = sum / count;
    const double variance = std::max(sum_of_squares / count - mean * mean, 0.0);
    return {mean, count > 1.0 ? std::sqrt(variance / (count - 1.0)) : 0.0};
}

Mean mean_of(std::span<const double> values) {
    double sum = 0.0;
    double squares = 0.0;
    for (const double value : values) {
        sum += value;
        squares += value * value;
    }
    return mean_of(sum, squares, static_cast<double>(values.size()));
}

// Returns the value below which a share of the sorted values lies, between two of them in proportion.
double quantile(std::span<const double> sorted, double share) {
    const double at = share * static_cast<double>(sorted.size() - 1);
    const auto i = static_cast<size_t>(at);
    if (i + 1 >= sorted.size()) return sorted.back();
    const double part = at - static_cast<double>(i);
    return (1.0 - part) * sorted[i] + part * sorted[i + 1];
}

struct KlFigures {
    std::vector<double> kl;       // of each position
    std::vector<double> delta_p;  // p of the token that follows, less the reference's
    std::vector<double> loss, reference_loss;
    int64_t n_same_top = 0;

    double count() const { return static_cast<double>(kl.size()); }
};

// Returns the divergence of a position. `log_sum`: of the row of logits. With tokens left out, it is a lower bound.
double divergence(const KlRow& reference, std::span<const float> logits, double log_sum) {
    double kl = 0.0;
    double rest = 1.0;  // probability of the tokens without an entry, by the model
    for (size_t i = 0; i < reference.log_p.size(); ++i) {
        const size_t id = reference.ids.empty() ? i : static_cast<size_t>(reference.ids[i]);
        const double log_q = static_cast<double>(logits[id]) - log_sum;
        if (!reference.ids.empty()) rest -= std::exp(log_q);
        const auto log_p = static_cast<double>(reference.log_p[i]);
        if (reference.log_p[i] > k_min_log_p) kl += std::exp(log_p) * (log_p - log_q);
    }
    constexpr double k_smallest = 1e-12;  // of a rest that rounding leaves
    if (reference.rest > k_smallest)
        kl += reference.rest * std::log(reference.rest / std::max(rest, k_smallest));
    return kl;
}

void add_position(KlFigures& figures, const KlRow& reference, std::span<const float> logits, int32_t next) {
    const double log_sum = log_sum_exp(logits);
    const double log_q = static_cast<double>(logits[next]) - log_sum;
    figures.kl.push_back(divergence(reference, logits, log_sum));
    figures.delta_p.push_back(std::exp(log_q) - std::exp(reference.next_log_p));
    figures.loss.push_back(-log_q);
    figures.reference_loss.push_back(-reference.next_log_p);
    const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (top == reference.likeliest) ++figures.n_same_top;
}

// Calls use(row, next) for the positions of all chunks.
template <typename Use>
void for_each_position(const minim::Model& model, const Options& options, const KlHeader& header,
                       int64_t n_chunks, const minim::Cancel& cancel, const Use& use) {
    minim::Session session(model, session_options(options, static_cast<uint64_t>(header.chunk_tokens)));
    const bool show_progress = isatty(STDERR_FILENO) == 1;
    const auto n_vocab = static_cast<size_t>(header.n_vocab);
    std::vector<float> buffer;
    for (int64_t c = 0; c < n_chunks; ++c) {
        const std::span<const int32_t> chunk = header.chunk(c);
        session.truncate(0);
        for_each_logits(session, chunk.first(chunk.size() - 1), static_cast<size_t>(header.first()), n_vocab,
                        buffer, cancel,
                        [&](size_t i, std::span<const float> row) { use(row, chunk[i + 1]); });
        if (show_progress) print_note(fmt::format("\rchunk {} of {}\x1b[K", c + 1, n_chunks));
    }
    if (show_progress) print_note("\r\x1b[K");
}

// Returns the chunks of the text to save.
KlHeader header_of(const minim::Model& model, const Options& options, const std::string& text) {
    const minim::Tokens tokens = model.tokenize(text);
    KlHeader header;
    header.chunk_tokens = options.chunk_tokens;
    header.n_vocab = model.info().n_vocab;
    header.n_chunks = std::ssize(tokens) / options.chunk_tokens;
    if (header.n_chunks == 0)
        fail(MINIM_E_INVALID, fmt::format("the text has {} tokens, fewer than a chunk of {}", tokens.size(),
                                          options.chunk_tokens));
    if (options.n_chunks > 0) header.n_chunks = std::min(header.n_chunks, options.n_chunks);
    header.has_all_positions = options.all_positions;
    if (header.n_positions() < 1)
        fail(MINIM_E_INVALID,
             fmt::format("a chunk of {} tokens has no position to compare in its second half",
                         options.chunk_tokens));
    header.is_compact = options.compact;
    header.tokens.assign(tokens.begin(), tokens.begin() + header.n_chunks * header.chunk_tokens);
    return header;
}

// Returns the number of positions that it has saved, and their perplexity.
std::pair<int64_t, double> save_logits(const minim::Model& model, const Options& options,
                                       const std::string& text, const minim::Cancel& cancel) {
    const KlHeader header = header_of(model, options, text);
    KlWriter file(options.saved_logits, header);
    double loss = 0.0;
    int64_t count = 0;
    for_each_position(model, options, header, header.n_chunks, cancel,
                      [&](std::span<const float> row, int32_t next) {
                          file.add(row, next);
                          loss += log_sum_exp(row) - static_cast<double>(row[next]);
                          ++count;
                      });
    file.commit();
    return {count, std::exp(loss / static_cast<double>(count))};
}

void print_perplexities(const KlFigures& figures) {
    const double n = figures.count();
    const Mean log_q = mean_of(figures.loss);
    const Mean log_p = mean_of(figures.reference_loss);
    double products = 0.0;
    for (size_t i = 0; i < figures.loss.size(); ++i) products += figures.loss[i] * figures.reference_loss[i];
    const double covariance = n > 1.0 ? (products / n - log_q.value * log_p.value) / (n - 1.0) : 0.0;
    const double q = std::exp(log_q.value);
    const double p = std::exp(log_p.value);
    const double errors = log_q.error * log_p.error;
    const auto root = [](double value) { return std::sqrt(std::max(value, 0.0)); };
    const double log_ratio = log_q.value - log_p.value;
    const double log_ratio_error =
        root(log_q.error * log_q.error + log_p.error * log_p.error - 2.0 * covariance);
    const double difference_error =
        root(std::pow(q * log_q.error, 2) + std::pow(p * log_p.error, 2) - 2.0 * covariance * q * p);
    print("====== Perplexity statistics ======\n");
    print(fmt::format("Mean PPL(Q)                   : {:10.6f} ± {:10.6f}\n", q, q * log_q.error));
    print(fmt::format("Mean PPL(base)                : {:10.6f} ± {:10.6f}\n", p, p * log_p.error));
    print(fmt::format("Cor(ln(PPL(Q)), ln(PPL(base))): {:6.2f}%\n",
                      errors > 0.0 ? 100.0 * covariance / errors : 100.0));
    print(fmt::format("Mean ln(PPL(Q)/PPL(base))     : {:10.6f} ± {:10.6f}\n", log_ratio, log_ratio_error));
    print(fmt::format("Mean PPL(Q)/PPL(base)         : {:10.6f} ± {:10.6f}\n", std::exp(log_ratio),
                      std::exp(log_ratio) * log_ratio_error));
    print(fmt::format("Mean PPL(Q)-PPL(base)         : {:10.6f} ± {:10.6f}\n\n", q - p, difference_error));
}

// Returns the root of the mean square with its standard error.
Mean rms_of(std::span<const double> values) {
    std::vector<double> squares;
    for (const double value : values) squares.push_back(value * value);
    const Mean mean = mean_of(squares);
    const double rms = std::sqrt(mean.value);
    return {rms, rms > 0.0 ? 0.5 * mean.error / rms : 0.0};
}

// The standard error of a share.
double share_error(double share, double count) {
    return count > 1.0 ? std::sqrt(share * (1.0 - share) / (count - 1.0)) : 0.0;
}

void print_figures(const KlFigures& figures) {
    print_perplexities(figures);
    std::vector<double> kl = figures.kl;
    std::vector<double> delta = figures.delta_p;
    for (double& value : delta) value *= 100.0;
    const Mean kl_mean = mean_of(kl);
    const Mean delta_mean = mean_of(delta);
    const Mean delta_rms = rms_of(delta);
    std::ranges::sort(kl);
    std::ranges::sort(delta);
    constexpr double k_upper[] = {0.999, 0.99, 0.95, 0.90};
    constexpr double k_kl_lower[] = {0.10, 0.05, 0.01, 0.001};
    constexpr double k_upper_delta[] = {0.999, 0.99, 0.95, 0.90, 0.75};
    constexpr double k_lower_delta[] = {0.25, 0.10, 0.05, 0.01, 0.001};
    print("====== KL divergence statistics ======\n");
    print(fmt::format("Mean    KLD: {:10.6f} ± {:10.6f}\n", kl_mean.value, kl_mean.error));
    print(fmt::format("Maximum KLD: {:10.6f}\n", kl.back()));
    for (const double share : k_upper)
        print(fmt::format("{:4.1f}%   KLD: {:10.6f}\n", 100.0 * share, quantile(kl, share)));
    print(fmt::format("Median  KLD: {:10.6f}\n", quantile(kl, 0.5)));
    for (const double share : k_kl_lower)
        print(fmt::format("{:4.1f}%   KLD: {:10.6f}\n", 100.0 * share, quantile(kl, share)));
    print(fmt::format("Minimum KLD: {:10.6f}\n\n", kl.front()));
    print("====== Token probability statistics ======\n");
    print(fmt::format("Mean    Δp: {:6.3f} ± {:5.3f} %\n", delta_mean.value, delta_mean.error));
    print(fmt::format("Maximum Δp: {:6.3f}%\n", delta.back()));
    for (const double share : k_upper_delta)
        print(fmt::format("{:4.1f}%   Δp: {:6.3f}%\n", 100.0 * share, quantile(delta, share)));
    print(fmt::format("Median  Δp: {:6.3f}%\n", quantile(delta, 0.5)));
    for (const double share : k_lower_delta)
        print(fmt::format("{:4.1f}%   Δp: {:6.3f}%\n", 100.0 * share, quantile(delta, share)));
    print(fmt::format("Minimum Δp: {:6.3f}%\n", delta.front()));
    print(fmt::format("RMS Δp    : {:6.3f} ± {:5.3f} %\n", delta_rms.value, delta_rms.error));
    const double same = static_cast<double>(figures.n_same_top) / figures.count();
    print(fmt::format("Same top p: {:6.3f} ± {:5.3f} %\n", 100.0 * same,
                      100.0 * share_error(same, figures.count())));
}

nlohmann::ordered_json figures_json(const KlFigures& figures) {
    std::vector<double> kl = figures.kl;
    const Mean mean = mean_of(kl);
    std::ranges::sort(kl);
    return {{"tokens", kl.size()},
            {"ppl", std::exp(mean_of(figures.loss).value)},
            {"ppl_reference", std::exp(mean_of(figures.reference_loss).value)},
            {"kl_mean", mean.value},
            {"kl_error", mean.error},
            {"kl_median", quantile(kl, 0.5)},
            {"kl_99", quantile(kl, 0.99)},
            {"kl_max", kl.back()},
            {"same_top", static_cast<double>(figures.n_same_top) / figures.count()},
            {"delta_p_rms", rms_of(figures.delta_p).value}};
}

KlFigures compare_logits(const minim::Model& model, const Options& options, KlReader& file,
                         const minim::Cancel& cancel) {
    const KlHeader& header = file.header();
    if (header.n_vocab != model.info().n_vocab)
        fail(MINIM_E_INVALID, fmt::format("'{}' is of a model with {} tokens, this one has {}",
                                          options.reference_logits, header.n_vocab, model.info().n_vocab));
    const int64_t n_chunks =
        options.n_chunks > 0 ? std::min(header.n_chunks, options.n_chunks) : header.n_chunks;
    KlFigures figures;
    KlRow reference;
    for_each_position(model, options, header, n_chunks, cancel,
                      [&](std::span<const float> row, int32_t next) {
                          file.read(next, reference);
                          add_position(figures, reference, row, next);
                      });
    return figures;
}

// A folder that only this user may enter, which ends with this object.
struct TemporaryFolder {
    std::string path = (std::filesystem::temp_directory_path() / "minim-XXXXXX").string();
    TemporaryFolder() {
        if (mkdtemp(path.data()) == nullptr)
            fail(MINIM_E_IO, fmt::format("{}: cannot make a folder", path), errno);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

}  // namespace

nlohmann::ordered_json divergence_from_reference(const minim::Runtime& runtime, const Options& options,
                                                 const std::string& text, const minim::Cancel& cancel) {
    const TemporaryFolder folder;
    Options kl = options;
    kl.compact = true;
    kl.saved_logits = folder.path + "/reference.kl";
    kl.model = options.reference_model;
    save_logits(open_model(runtime, kl, cancel), kl, text, cancel);
    kl.model = options.model;
    kl.reference_logits = kl.saved_logits;
    KlReader reference(kl.reference_logits);
    return figures_json(compare_logits(open_model(runtime, kl, cancel), kl, reference, cancel));
}

void eval_kl(const Options& options, const minim::Cancel& cancel) {
    const bool saves = !options.saved_logits.empty();
    const std::string text = saves ? prompt_text(options) : "";
    std::optional<KlReader> reference;
    if (!saves) reference.emplace(options.reference_logits);
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    if (saves) {
        const auto [count, perplexity] = save_logits(model, options, text, cancel);
        print(options.prints_json
                  ? nlohmann::ordered_json({{"tokens", count}, {"ppl", perplexity}}).dump() + "\n"
                  : fmt::format("perplexity: {:.4f} over {} tokens\n", perplexity, count));
    } else {
        const KlFigures figures = compare_logits(model, options, *reference, cancel);
        if (options.prints_json) {
            print(figures_json(figures).dump() + "\n");
        } else {
            print_figures(figures);
        }
    }
    flush_output();
}

}  // namespace cli
