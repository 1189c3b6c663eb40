// SPDX-License-Identifier: Apache-2.0
// Prints the answer to one prompt as it is generated.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat_prompt.h"
#include "commands.h"
#include "input.h"
#include "memory_text.h"
#include "open_model.h"
#include "output.h"
#include "prediction.h"
#include "sampling.h"

namespace cli {
namespace {

constexpr int64_t k_default_context = 4096;
constexpr int64_t k_default_answer = 2048;  // room beside a prompt that fills the default context

std::string chat_messages(const std::string& system, const std::string& prompt) {
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return messages.dump();
}

ChatPrompt prompt_tokens(const minim::Model& model, const Options& options, std::string prompt) {
    if (options.raw) {
        const minim::Tokens tokens = model.tokenize(prompt);
        return {{tokens.begin(), tokens.end()}};
    }
    const bool from_file = !options.text;
    if (from_file && !prompt.empty() && prompt.back() == '\n')
        prompt.pop_back();  // the editor added this newline, not the user
    return chat_prompt(model, options, chat_messages(options.system, prompt), MINIM_SPECIALS_SAFE);
}

uint64_t context_size(const Options& options, int64_t n_prompt, int64_t n_context_train) {
    if (options.n_context > 0) return static_cast<uint64_t>(options.n_context);
    const int64_t n_answer = options.n_predict > 0 ? options.n_predict : k_default_answer;
    const int64_t needed = n_answer > n_context_train ? n_context_train : n_prompt + n_answer;
    return static_cast<uint64_t>(std::min(std::max(k_default_context, needed), n_context_train));
}

// Opens a session. If the options do not give the context and there is no memory for it, halves it, but keeps room for the
// prompt.
minim::Session open_session(const minim::Model& model, minim::SessionOptions session, const Options& options,
                            size_t n_prompt) {
    while (true) {
        try {
            return minim::Session(model, session);
        } catch (const minim::Exception& error) {
            const bool is_memory =
                error.status() == MINIM_E_OUT_OF_MEMORY || error.status() == MINIM_E_OUT_OF_DEVICE_MEMORY;
            if (!is_memory || options.n_context != 0 || session.max_context / 2 <= n_prompt) throw;
            session.max_context /= 2;
            print_note(
                fmt::format("minim: memory for a context of {} tokens at most\n", session.max_context));
        }
    }
}

const char* finish_text(int32_t finish) {
    switch (finish) {
        case MINIM_FINISH_END:
            return "end of turn";
        case MINIM_FINISH_LENGTH:
            return "-n reached";
        case MINIM_FINISH_CONTEXT_FULL:
            return "context full";
        default:
            return "interrupted";
    }
}

std::string rate(uint64_t n_tokens, uint64_t microseconds) {
    const double seconds = static_cast<double>(microseconds) * 1e-6;
    const double per_second = microseconds == 0 ? 0.0 : static_cast<double>(n_tokens) / seconds;
    return fmt::format("{:6} tokens in {:8.3f} s, {:9.2f} tokens/s", n_tokens, seconds, per_second);
}

void print_memory(const minim::Model& model) {
    const char* label = "memory:    ";
    for (const minim_device_memory& device : model.memory()) {
        print_note(fmt::format("{} {}\n", label, program::memory_text(device)));
        label = "           ";
    }
}

// Prints the planned and the actual bytes of each NUMA node, if memory is placed by node.
void print_nodes(const minim::Runtime& runtime, const minim::Model& model) {
    if (std::string_view(runtime.numa()) == "off") return;
    const char* label = "nodes:     ";
    for (const minim_node_memory& node : model.nodes()) {
        print_note(fmt::format("{} node {}: {} threads, weights {} of {} wanted ({})\n", label, node.node,
                               node.n_threads, program::size_text(node.weight_bytes),
                               program::size_text(node.wanted_bytes), runtime.numa()));
        label = "           ";
    }
}

// Returns a line about draft tokens, or "" if there were none.
std::string draft_text(const minim_generate_result& result) {
    if (result.n_drafted == 0) return "";
    return fmt::format("drafts:     {} of {} tokens accepted\n", result.n_drafts_accepted, result.n_drafted);
}

void print_summary(const minim::Session& session, const minim_generate_result& result, double load_seconds) {
    print_note(
        fmt::format("\nload:       {:.3f} s\nprompt:     {}\ngeneration: {}\n{}"
                    "finish:     {}, seed {}, context {} of {}\n",
                    load_seconds, rate(result.n_prompt, result.prompt_us),
                    rate(result.n_generated, result.generate_us), draft_text(result),
                    finish_text(result.finish), result.seed, session.token_count(), session.context_size()));
}

// Returns the result so far, or nothing if the prompt was not completely evaluated.
std::optional<minim_generate_result> partial_result(const minim::Session& session) {
    try {
        return session.state();
    } catch (const minim::Exception&) {
        return std::nullopt;
    }
}

}  // namespace

bool generate(const Options& options, const minim::Cancel& cancel) {
    // Reads the text first, so that an unreadable text is reported before a model of many gigabytes is loaded.
    std::string text = prompt_text(options);
    const auto start = std::chrono::steady_clock::now();
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const double load_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    const ChatPrompt made = prompt_tokens(model, options, std::move(text));
    const std::vector<int32_t>& prompt = made.ids;
    const uint64_t n_context =
        context_size(options, static_cast<int64_t>(prompt.size()), model.info().n_context_train);
    minim::Session session = open_session(model, session_options(options, n_context), options, prompt.size());

    bool line_is_open = false;
    const auto on_token = [&](const minim_token& token) {
        if (token.text_length == 0) return;
        print({token.text, token.text_length});
        flush_output();
        line_is_open = token.text[token.text_length - 1] != '\n';
    };
    bool finished = true;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    try {
        result = session.generate(make_sampling(model, options, made.beginning),
                                  {prompt.data(), prompt.size()}, on_token, &cancel);
    } catch (const minim::Exception& error) {
        if (error.status() != MINIM_E_CANCELLED) throw;
        const auto so_far = partial_result(session);
        if (!so_far) throw;
        result = *so_far;
        finished = false;
    }
    if (line_is_open) print("\n");
    flush_output();
    print_summary(session, result, load_seconds);
    if (finished) print_prediction(runtime, model, options, session, result);
    print_memory(model);
    print_expert_caches(model);
    print_nodes(runtime, model);
    save_expert_profile(model, options);
    return finished;
}

}  // namespace cli
