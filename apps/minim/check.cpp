// SPDX-License-Identifier: Apache-2.0
// minim check: whether a checkpoint is whole, is a model of the family, and is computed right on this machine.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "eval_kl.h"
#include "open_model.h"
#include "options/find_model.h"
#include "options/open_model.h"
#include "output.h"
#include "progress_bar.h"

namespace cli {
namespace {

using nlohmann::json;

void print_findings(std::string_view what, const json& findings) {
    for (const json& finding : findings)
        print(fmt::format("{} [{}] {}: {}\n", what, finding["class"].get<std::string>(),
                          printable(finding["tensor"].get<std::string>()),
                          printable(finding["detail"].get<std::string>())));
}

void print_report(const json& report) {
    std::vector<std::string> stages;
    for (const json& stage : report["stages"]) stages.push_back(stage.get<std::string>());
    print(fmt::format("checked: {}\n", fmt::join(stages, ", ")));
    print_findings("warning", report["warnings"]);
    print_findings("fault", report["faults"]);
    if (report.contains("kl")) {
        const json& kl = report["kl"];
        print(
            fmt::format("KL divergence from the reference over {} tokens: mean {:.6f}, 99 % {:.6f}; same top "
                        "token {:.2f} %\n",
                        kl["tokens"].get<int64_t>(), kl["kl_mean"].get<double>(), kl["kl_99"].get<double>(),
                        100.0 * kl["same_top"].get<double>()));
    }
    const size_t n_faults = report["faults"].size();
    print(n_faults == 0 ? "no faults\n" : fmt::format("{} fault{}\n", n_faults, n_faults == 1 ? "" : "s"));
}

}  // namespace

bool check(const Options& options, const minim::Cancel& cancel) {
    const minim::Runtime runtime = open_runtime(options);
    const std::string path = program::find_model_or_keep(options.model);
    std::vector<std::string> notes;
    minim::CheckOptions check;
    if (!options.is_quick) check.model = program::model_options(runtime, options, path, {0, 0}, notes);
    for (const std::string& note : notes) print_note(fmt::format("minim: note: {}\n", printable(note)));
    check.quick = options.is_quick;
    check.machine = options.checks_machine;
    check.wants_sums = !options.sums_output.empty();
    check.wants_answers = !options.record_output.empty();
    check.sums = options.sums;
    check.answers = options.known_answers;
    check.reference =
        options.reference_model.empty() ? "" : program::find_model_or_keep(options.reference_model);
    ProgressBar bar;
    check.progress = [&bar](uint64_t done_bytes, uint64_t total_bytes) {
        bar.show(done_bytes, total_bytes);
        return true;
    };
    json report = json::parse(minim::check(runtime, path, check, &cancel));
    if (check.wants_sums && report.contains("sums"))
        write_file(options.sums_output, report["sums"].get<std::string>());
    if (check.wants_answers && report.contains("answers"))
        write_file(options.record_output, report["answers"].get<std::string>());
    report.erase("sums");
    report.erase("answers");
    if (options.reference_text)
        report["kl"] = divergence_from_reference(runtime, options, *options.reference_text, cancel);
    if (options.prints_json) {
        print(report.dump() + "\n");
    } else {
        print_report(report);
    }
    flush_output();
    return report["faults"].empty();
}

}  // namespace cli
