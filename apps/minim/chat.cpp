// SPDX-License-Identifier: Apache-2.0
// A conversation in the terminal: a line is a message, and the answer is printed as it is generated.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "interrupt.h"
#include "open_model.h"
#include "output.h"
#include "sampling.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t k_usual_context = 32768;
constexpr const char* k_help =
    "/reset begins a new conversation, /exit or Ctrl-D ends the program, Ctrl-C ends an answer.\n"
    "A line that ends with \\ goes on with the next one.\n";

// Waits for a line of standard input or for an interrupt.
class LineReader {
  public:
    enum class Event { line, interrupted, end };

    Event read(std::string& line, SurviveInterrupts& interrupts) {
        for (;;) {
            if (const size_t newline = pending_.find('\n'); newline != std::string::npos) {
                line = pending_.substr(0, newline);
                pending_.erase(0, newline + 1);
                if (line.ends_with('\r')) line.pop_back();
                return Event::line;
            }
            std::array<pollfd, 2> sources = {{{STDIN_FILENO, POLLIN, 0}, {interrupts.fd(), POLLIN, 0}}};
            if (poll(sources.data(), sources.size(), -1) < 0) continue;  // a signal
            if (sources[1].revents != 0) {
                interrupts.clear();
                pending_.clear();
                return Event::interrupted;
            }
            std::array<char, 4096> block;
            const ssize_t length = ::read(STDIN_FILENO, block.data(), block.size());
            if (length > 0) {
                pending_.append(block.data(), length);
                continue;
            }
            if (pending_.empty()) return Event::end;
            line = std::exchange(pending_, {});
            return Event::line;
        }
    }

  private:
    std::string pending_;
};

// Prints an answer as it is generated. On a terminal, reasoning is dim.
class AnswerView {
  public:
    AnswerView(bool hides_reasoning, bool is_terminal)
        : hides_reasoning_(hides_reasoning), is_terminal_(is_terminal) {}

    void show(const minim_output_delta& delta) {
        const std::string_view text(delta.text, delta.length);
        const bool is_reasoning = delta.kind == MINIM_DELTA_REASONING;
        (is_reasoning ? reasoning : content) += text;
        if (text.empty() || (is_reasoning && hides_reasoning_)) return;
        if (is_reasoning && !is_in_reasoning_ && is_terminal_) print("\x1b[2m");
        if (!is_reasoning) end_reasoning();
        is_in_reasoning_ = is_reasoning;
        print(text);
        flush_output();
        has_text_ = true;
    }
    void end() {
        end_reasoning();
        if (has_text_) print("\n");
        flush_output();
    }

    std::string reasoning;
    std::string content;

  private:
    void end_reasoning() {
        if (!is_in_reasoning_) return;
        is_in_reasoning_ = false;
        print(is_terminal_ ? "\x1b[0m\n\n" : "\n\n");
    }

    bool hides_reasoning_;
    bool is_terminal_;
    bool is_in_reasoning_ = false;
    bool has_text_ = false;
};

class Chat {
  public:
    Chat(const minim::Model& model, const Options& options)
        : model_(model),
          options_(options),
          sampling_(make_sampling(model, options, usual_beginning(model, options))),
          session_(model, session_options(options, context_size(model, options))) {
        reset();
    }

    void reset() {
        messages_ = Json::array();
        if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
    }

    void answer(const std::string& text) {
        messages_.push_back({{"role", "user"}, {"content", text}});
        const ChatPrompt made = chat_prompt(model_, options_, messages_.dump(), MINIM_SPECIALS_TEMPLATE);
        const std::vector<int32_t>& prompt = made.ids;
        if (prompt.size() >= session_.context_size()) {
            print_note(
                fmt::format("minim: the conversation has {} tokens and the context {}: /reset begins a "
                            "new one, -c makes the context larger\n",
                            prompt.size(), session_.context_size()));
            messages_.erase(messages_.end() - 1);
            return;
        }
        minim::OutputParserOptions format;
        format.starts_in_content = made.beginning != Beginning::reasoning;
        format.format = model_.chat_markup().format;
        minim::OutputParser parser(format);
        AnswerView view(options_.hides_reasoning, isatty(STDOUT_FILENO) != 0);
        const auto show = [&](const minim_output_delta& delta) { view.show(delta); };
        const minim_generate_result result = generate(prompt, [&](const minim_token& token) {
            parser.feed({token.text, token.text_length}, show);
        });
        parser.finish(result.finish == MINIM_FINISH_END ? MINIM_FINISH_END : MINIM_FINISH_LENGTH, show);
        view.end();
        print_rate(result);
        Json message = {{"role", "assistant"}, {"content", view.content}};
        if (!view.reasoning.empty()) message["reasoning_content"] = view.reasoning;
        messages_.push_back(std::move(message));
    }

  private:
    static uint64_t context_size(const minim::Model& model, const Options& options) {
        return static_cast<uint64_t>(options.n_context > 0
                                         ? options.n_context
                                         : std::min(k_usual_context, model.info().n_context_train));
    }

    // Returns what answers begin with: the template says so of any conversation.
    static Beginning usual_beginning(const minim::Model& model, const Options& options) {
        return chat_prompt(model, options, R"([{"role": "user", "content": "."}])", MINIM_SPECIALS_TEMPLATE)
            .beginning;
    }

    // Generates an answer. The leading tokens of the prompt that the session already has are not evaluated again. Ctrl-C ends the
    // answer.
    template <typename OnToken>
    minim_generate_result generate(const std::vector<int32_t>& prompt, OnToken on_token) {
        const minim::Tokens kept = session_.tokens();
        const auto differs = std::mismatch(kept.begin(), kept.end(), prompt.begin(), prompt.end()).second;
        const auto n_known = std::min(static_cast<size_t>(differs - prompt.begin()), prompt.size() - 1);
        session_.truncate(n_known);
        const minim::Cancel cancel;
        const CancelOnInterrupt cancel_on_interrupt(cancel);
        try {
            return session_.generate(sampling_, {prompt.data() + n_known, prompt.size() - n_known}, on_token,
                                     &cancel);
        } catch (const minim::Exception& error) {
            if (error.status() != MINIM_E_CANCELLED) throw;
            minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
            if (session_.token_count() > n_known) result = session_.state();
            result.finish = MINIM_FINISH_STOPPED;
            return result;
        }
    }

    static void print_rate(const minim_generate_result& result) {
        const char* why = "";
        if (result.finish == MINIM_FINISH_STOPPED) why = ", stopped";
        if (result.finish == MINIM_FINISH_LENGTH) why = ", -n reached";
        if (result.finish == MINIM_FINISH_CONTEXT_FULL) why = ", context full";
        const double seconds = static_cast<double>(result.generate_us) * 1e-6;
        const double rate = seconds > 0 ? static_cast<double>(result.n_generated) / seconds : 0.0;
        print_note(fmt::format("[{} tokens, {:.1f} tokens/s{}]\n", result.n_generated, rate, why));
    }

    const minim::Model& model_;
    const Options& options_;
    minim::Sampling sampling_;
    minim::Session session_;
    Json messages_;
};

// Reads the next message. Returns nothing at the end of the input. `is_terminal`: standard input is a terminal.
std::optional<std::string> read_message(LineReader& lines, SurviveInterrupts& interrupts, bool is_terminal) {
    std::string message;
    bool was_interrupted = false;
    for (;;) {
        if (is_terminal) {
            print(message.empty() ? "> " : ". ");
            flush_output();
        }
        std::string line;
        const LineReader::Event event = lines.read(line, interrupts);
        if (event == LineReader::Event::end) {
            if (is_terminal) print("\n");
            if (message.empty()) return std::nullopt;
            return message;
        }
        if (event == LineReader::Event::interrupted) {
            if (was_interrupted && message.empty()) return std::nullopt;
            was_interrupted = true;
            message.clear();
            print_note("\n(/exit, Ctrl-D or Ctrl-C once more ends the program)\n");
            continue;
        }
        was_interrupted = false;
        const bool goes_on = line.ends_with('\\');
        if (goes_on) line.back() = '\n';
        message += line;
        if (!goes_on) return message;
    }
}

// Executes a command or answers a message. Returns false if the conversation ends.
bool follow(const std::string& message, Chat& chat) {
    if (message == "/exit" || message == "/quit") return false;
    if (message == "/reset") {
        chat.reset();
        print_note("[a new conversation]\n");
    } else if (message == "/help") {
        print_note(k_help);
    } else if (message.starts_with('/') && message.find(' ') == std::string::npos) {
        print_note(
            fmt::format("minim: the command {} is not known; /help lists them\n", printable(message, 80)));
    } else if (message.find_first_not_of(" \t\n") != std::string::npos) {
        chat.answer(utf8_text(message, "the message"));
    }
    return true;
}

}  // namespace

void chat(const Options& options, const minim::Cancel& cancel) {
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    Chat chat(model, options);
    SurviveInterrupts interrupts;
    LineReader lines;
    const bool is_terminal = isatty(STDIN_FILENO) != 0;
    if (is_terminal) print_note(k_help);
    while (const auto message = read_message(lines, interrupts, is_terminal)) {
        try {
            if (!follow(*message, chat)) return;
        } catch (const minim::Exception& error) {
            // A message that cannot be answered does not end the conversation. A failed write to the output does.
            if (error.status() == MINIM_E_IO) throw;
            print_note(fmt::format("minim: {}\n", printable(error.what())));
        }
        interrupts.clear();  // the user may have pressed Ctrl-C several times to end the answer
    }
}

}  // namespace cli
