// SPDX-License-Identifier: Apache-2.0
// Tool calls of answers against those that are expected. Calls are equal if their names and arguments are: arguments as JSON, numbers by
// value; the order of calls is free.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "eval_answers.h"
#include "failure.h"
#include "json_lines.h"
#include "open_model.h"
#include "output.h"

namespace cli {
namespace {

using nlohmann::json;

struct Call {
    std::string name;
    json arguments;  // null: they are no JSON object

    bool operator==(const Call&) const = default;
};

struct ToolRequest {
    Conversation conversation;
    std::vector<Call> expected;
};

struct ToolFigures {
    int64_t requests = 0;
    int64_t right = 0;            // calls as expected, or none where none is
    int64_t name_right = 0;       // the expected tools, whatever their arguments
    int64_t arguments_right = 0;  // of these, with the expected arguments
    int64_t needless = 0;         // calls where none is expected
    int64_t missing = 0;          // fewer calls than expected
    int64_t malformed = 0;        // a call that is cut off, or with arguments that are no JSON object
};

std::vector<ToolRequest> read_requests(const std::string& path, int64_t most) {
    std::vector<ToolRequest> requests;
    for_each_json_line(path, [&](const json& line, const std::string& place) {
        if (most > 0 && std::ssize(requests) == most) return;
        ToolRequest request;
        request.conversation = {line.at("messages").dump(), line.at("tools").dump()};
        for (const json& call : line.at("expect")) {
            if (!call.at("arguments").is_object())
                fail(MINIM_E_INVALID, fmt::format("{}: the arguments of a call are no object", place));
            request.expected.push_back({call.at("name").get<std::string>(), call.at("arguments")});
        }
        requests.push_back(std::move(request));
    });
    if (requests.empty()) fail(MINIM_E_INVALID, fmt::format("'{}' has no requests", path));
    return requests;
}

template <typename Same>
bool are_same(const std::vector<Call>& a, const std::vector<Call>& b, const Same& same) {
    return a.size() == b.size() && std::is_permutation(a.begin(), a.end(), b.begin(), same);
}

// `call_begin`: what calls begin with. Text of an answer that has it is a call that could not be read.
void count_answer(ToolFigures& figures, const std::vector<Call>& expected, const minim::Output& output,
                  std::string_view call_begin) {
    std::vector<Call> made;
    bool is_malformed = output.content.value_or("").find(call_begin) != std::string::npos;
    for (const minim::Output::Call& call : output.calls) {
        json arguments = json::parse(call.arguments, nullptr, false);
        if (!arguments.is_object()) {
            is_malformed = true;
            arguments = nullptr;
        }
        made.push_back({call.name, std::move(arguments)});
    }
    const bool has_names =
        are_same(made, expected, [](const Call& a, const Call& b) { return a.name == b.name; });
    const bool is_right = !is_malformed && are_same(made, expected, std::equal_to());
    ++figures.requests;
    figures.right += is_right ? 1 : 0;
    if (!expected.empty()) {
        figures.name_right += has_names ? 1 : 0;
        figures.arguments_right += is_right ? 1 : 0;
        figures.missing += made.size() < expected.size() ? 1 : 0;
    } else {
        figures.needless += made.empty() ? 0 : 1;
    }
    figures.malformed += is_malformed ? 1 : 0;
}

void report_tools(const Options& options, const ToolFigures& figures) {
    if (options.prints_json) {
        const nlohmann::ordered_json all = {
            {"requests", figures.requests},     {"right", figures.right},
            {"name_right", figures.name_right}, {"arguments_right", figures.arguments_right},
            {"needless", figures.needless},     {"missing", figures.missing},
            {"malformed", figures.malformed}};
        return print(all.dump() + "\n");
    }
    const Share share = share_of(figures.right, figures.requests);
    print(fmt::format("right:           {} of {} ({:.2f}%, {:.2f}% to {:.2f}%)\n", figures.right,
                      figures.requests, 100.0 * share.value, 100.0 * share.low, 100.0 * share.high));
    print(fmt::format(
        "tools right:     {}\narguments right: {}\nneedless calls:  {}\nmissing calls:   {}\n"
        "malformed:       {}\n",
        figures.name_right, figures.arguments_right, figures.needless, figures.missing, figures.malformed));
}

}  // namespace

void eval_tools(const Options& options, const minim::Cancel& cancel) {
    const std::vector<ToolRequest> requests = read_requests(options.files.front(), options.limit);
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const minim_chat_markup markup = model.chat_markup();
    ToolFigures figures;
    for_each_answer(
        model, options, requests.size(), [&](size_t i) { return requests[i].conversation; },
        [&](size_t i, const minim::Output& output) {
            count_answer(figures, requests[i].expected, output, markup.call_begin);
        });
    report_tools(options, figures);
    flush_output();
}

}  // namespace cli
