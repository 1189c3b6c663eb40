// SPDX-License-Identifier: Apache-2.0
// Perplexity of a text: exp of the mean of -log p(token | the chunk before it). Chunks do not overlap and
// nothing is put before them; every position but a chunk's first counts.
#include <unistd.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "failure.h"
#include "input.h"
#include "open_model.h"
#include "output.h"
#include "token_logits.h"

namespace cli {
namespace {

// Returns the sum of the losses of all positions of the chunk but the first.
double chunk_loss(minim::Session& session, std::span<const int32_t> chunk, size_t n_vocab,
                  std::vector<float>& logits, const minim::Cancel& cancel) {
    double loss = 0.0;
    session.truncate(0);
    for_each_logits(session, chunk.first(chunk.size() - 1), 0, n_vocab, logits, cancel,
                    [&](size_t i, std::span<const float> row) {
                        loss += log_sum_exp(row) - static_cast<double>(row[chunk[i + 1]]);
                    });
    return loss;
}

}  // namespace

void perplexity(const Options& options, const minim::Cancel& cancel) {
    const std::string text = prompt_text(options);
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const minim::Tokens tokens = model.tokenize(text);
    const int64_t chunk_tokens = options.chunk_tokens;
    const size_t n_chunks = tokens.size() / chunk_tokens;
    if (n_chunks == 0) {
        fail(MINIM_E_INVALID,
             fmt::format("the text has {} tokens, fewer than a chunk of {}", tokens.size(), chunk_tokens));
    }

    minim::Session session(model, session_options(options, chunk_tokens));
    const int64_t n_vocab = model.info().n_vocab;
    const bool show_progress = isatty(STDERR_FILENO) == 1;
    std::vector<float> logits;
    double loss = 0.0;
    size_t n_counted = 0;
    for (size_t chunk = 0; chunk < n_chunks; ++chunk) {
        const std::span<const int32_t> ids(tokens.data() + chunk * chunk_tokens, chunk_tokens);
        loss += chunk_loss(session, ids, n_vocab, logits, cancel);
        n_counted += chunk_tokens - 1;
        if (show_progress) {
            const double so_far = std::exp(loss / static_cast<double>(n_counted));
            print_note(fmt::format("\rchunk {} of {}: {:.4f}\x1b[K", chunk + 1, n_chunks, so_far));
        }
    }
    if (show_progress) print_note("\r\x1b[K");
    print(fmt::format("perplexity: {:.4f} over {} tokens\n", std::exp(loss / static_cast<double>(n_counted)),
                      n_counted));
    flush_output();
    save_expert_profile(model, options);
}

}  // namespace cli
