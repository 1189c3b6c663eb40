// SPDX-License-Identifier: Apache-2.0
// minim: asks a MiniMax-M2 model one question from the command line, and looks into checkpoints.
// Exit codes: 0 done, 1 an error, 2 a command line that cannot be understood, 3 `check` has found faults,
// 130 ended by Ctrl-C. SIGPIPE ends it (141 in a shell) if nobody reads its standard output any more.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "memory_reserve.h"
#include "open_model.h"
#include "options.h"
#include "options/help.h"
#include "options/parse.h"
#include "output.h"

namespace {

constexpr int k_exit_error = 1;
constexpr int k_exit_usage = 2;
constexpr int k_exit_faults = 3;  // of `minim check`

// Opens closed standard descriptors. If the caller closed standard input, output or error, the next file that is opened would get
// its number. They are opened for the wrong direction, so that using them is an error.
void fill_standard_descriptors() {
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
        if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
        if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor)
            std::_Exit(k_exit_error);
    }
}

// minim: error: MESSAGE (MINIM_E_FORMAT, truncated)
int report(const minim::Exception& error) {
    const char* status = minim_status_name(error.status());
    const char* reason = error.reason() == MINIM_REASON_NONE ? nullptr : minim_reason_name(error.reason());
    std::string names = status == nullptr ? std::to_string(error.status()) : status;
    if (reason != nullptr) names += fmt::format(", {}", reason);
    cli::print_note(fmt::format("minim: error: {} ({})\n", cli::printable(error.what()), names));
    return error.status() == MINIM_E_CANCELLED ? cli::k_exit_interrupted : k_exit_error;
}

// Returns the options with texts that are UTF-8 without a byte order mark.
cli::Options with_texts_checked(cli::Options options) {
    options.system = cli::utf8_text(std::move(options.system), "--system");
    options.json_schema = cli::utf8_text(std::move(options.json_schema), "--json-schema");
    options.grammar = cli::utf8_text(std::move(options.grammar), "--grammar");
    options.chat_template = cli::utf8_text(std::move(options.chat_template), "--chat-template");
    return options;
}

// Sums of importance data may be written over one of the files that they are read from.
void check_files(const cli::Options& options) {
    std::vector<std::string> inputs = options.files;
    for (const std::string* path :
         {&options.model, &options.text_file, &options.samples_file, &options.shots_file, &options.imatrix,
          &options.reused_file, &options.reference_logits, &options.reference_model, &options.output})
        if (!path->empty()) inputs.push_back(*path);
    cli::check_outputs({options.output_file, options.report_file, options.saved_logits, options.sums_output,
                        options.record_output},
                       inputs);
}

int run(const cli::Options& options) {
    check_files(options);
    if (options.command == cli::Command::inspect) {  // so short that Ctrl-C may simply end the process
        cli::inspect(options);
        return 0;
    }
    if (options.command == cli::Command::devices) {
        cli::devices(options);
        return 0;
    }
    if (options.command == cli::Command::plan) {
        cli::plan(options);
        cli::flush_output();
        return 0;
    }
    if (options.command == cli::Command::eval_compare) {
        cli::eval_compare(options);
        cli::flush_output();
        return 0;
    }
    if (options.command == cli::Command::options) {
        cli::print(program::options_json());
        cli::flush_output();
        return 0;
    }
    const minim::Cancel cancel;
    const cli::CancelOnInterrupt cancel_on_interrupt(cancel);
    if (options.command == cli::Command::generate) {
        return cli::generate(options, cancel) ? 0 : cli::k_exit_interrupted;
    }
    if (options.command == cli::Command::convert || options.command == cli::Command::quantize)
        cli::convert(options, cancel);
    if (options.command == cli::Command::check) return cli::check(options, cancel) ? 0 : k_exit_faults;
    if (options.command == cli::Command::chat) cli::chat(options, cancel);
    if (options.command == cli::Command::tokenize) cli::tokenize(options, cancel);
    if (options.command == cli::Command::perplexity) cli::perplexity(options, cancel);
    if (options.command == cli::Command::imatrix)
        return cli::imatrix(options, cancel) ? 0 : cli::k_exit_interrupted;
    if (options.command == cli::Command::eval_kl) cli::eval_kl(options, cancel);
    if (options.command == cli::Command::eval_choice) cli::eval_choice(options, cancel);
    if (options.command == cli::Command::eval_needle) cli::eval_needle(options, cancel);
    if (options.command == cli::Command::eval_tools) cli::eval_tools(options, cancel);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_descriptors();
    // A closed pipe is an error of the write, so that handles are released before the program ends.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // so is a file that becomes larger than the process may write
    try {
        program::keep_reserve();
        std::string output;
        const auto options =
            program::parse(cli::Command::generate, {argv + std::min(argc, 1), argv + argc}, output);
        if (!options) {
            cli::print(output);
            cli::flush_output();
            return 0;
        }
        cli::open_log(options->log_file);
        for (const std::string& note : options->notes)
            cli::print_note(fmt::format("minim: note: {}\n", cli::printable(note)));
        return run(with_texts_checked(*options));
    } catch (const cli::FollowedToTheEnd&) {
        return 0;
    } catch (const cli::OutputClosed&) {
        std::signal(SIGPIPE, SIG_DFL);
        std::raise(SIGPIPE);
        return k_exit_error;  // the caller blocks the signal
    } catch (const cli::UsageError& error) {
        cli::print_note(
            fmt::format("minim: error: {} (minim --help lists the options)\n", cli::printable(error.what())));
        return k_exit_usage;
    } catch (const minim::Exception& error) {
        return report(error);
    } catch (const std::exception& error) {
        cli::print_note(fmt::format("minim: error: {}\n", cli::printable(error.what())));
        return k_exit_error;
    }
}
