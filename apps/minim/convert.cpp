// SPDX-License-Identifier: Apache-2.0
// minim convert and minim quantize: write a checkpoint as a GGUF file or a safetensors folder.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "open_model.h"
#include "options/find_model.h"
#include "output.h"

namespace cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double k_mb = 1e-6;
constexpr double k_gb = 1e-9;

minim::ConvertOptions convert_options(const Options& options) {
    minim::ConvertOptions convert;
    convert.recipe = options.recipe;
    convert.type = options.type;
    convert.rules = options.type_rules;
    convert.output_type = options.output_type;
    convert.embedding_type = options.embedding_type;
    convert.keep_output = options.keeps_output;
    convert.pure = options.is_pure;
    convert.allow_requantize = options.allows_requantize;
    convert.without_importance = options.goes_without_importance;
    convert.imatrix = options.imatrix;
    convert.include_weights = options.include_weights;
    convert.exclude_weights = options.exclude_weights;
    convert.effort = options.is_fast ? MINIM_CONVERT_EFFORT_FAST : MINIM_CONVERT_EFFORT_FULL;
    convert.hashes = !options.writes_no_hashes;
    convert.name = options.general_name;
    convert.unset = options.removed_metadata;
    convert.set = options.metadata;
    convert.set_text = options.metadata_texts;
    convert.part_bytes = options.part_bytes;
    convert.part_tensors = options.part_tensors;
    convert.first_part_empty = options.first_part_empty;
    convert.keep_parts = options.keeps_parts;
    convert.dry_run = options.is_dry_run;
    convert.overwrite = options.overwrites;
    convert.restart = options.restarts;
    convert.verify = !options.skips_verification;
    convert.memory_bytes = options.conversion_memory;
    convert.layout = options.layout;
    convert.keep_experts = options.kept_experts;
    convert.reuse = options.reused_file;
    convert.container = options.container;
    return convert;
}

// [412/809] blk.31.ffn_down_exps.weight  F8_E4M3 → IQ2_S  1208 → 387 MB  rmse 0.261 weighted 0.188  14.2 s
std::string tensor_line(const json& tensor) {
    const double from = tensor["source_bytes"].get<double>() * k_mb;
    const double to = tensor["bytes"].get<double>() * k_mb;
    std::string line =
        fmt::format("[{}/{}] {}  {} → {}  {:.{}f} → {:.{}f} MB", tensor["number"].get<int64_t>(),
                    tensor["of"].get<int64_t>(), printable(tensor["name"].get<std::string>()),
                    tensor["from"].get<std::string>(), tensor["to"].get<std::string>(), from,
                    from < 10 ? 2 : 0, to, to < 10 ? 2 : 0);
    if (tensor.contains("rmse"))
        line += fmt::format("  rmse {:.3g} weighted {:.3g}", tensor["rmse"].get<double>(),
                            tensor["weighted"].get<double>());
    return line + fmt::format("  {:.1f} s\n", tensor["seconds"].get<double>());
}

// Shows the progress as --progress says.
class ConvertDisplay {
  public:
    explicit ConvertDisplay(const std::string& mode)
        : is_json_(mode == "json"),
          is_off_(mode == "none"),
          is_line_(mode == "auto" && isatty(STDERR_FILENO) == 1) {}
    ~ConvertDisplay() {
        if (has_line_) print_note("\r\x1b[K");
    }
    ConvertDisplay(const ConvertDisplay&) = delete;
    ConvertDisplay& operator=(const ConvertDisplay&) = delete;

    void show(const minim_convert_progress& progress) {
        if (is_off_) return;
        if (is_line_) return show_line(progress);
        if (progress.result == nullptr) return;
        print_note(is_json_ ? std::string(progress.result) + "\n"
                            : tensor_line(json::parse(progress.result)));
    }

  private:
    void show_line(const minim_convert_progress& progress) {
        const auto now = Clock::now();
        if (!has_line_) first_bytes_ = progress.done_bytes;
        constexpr auto k_interval = std::chrono::milliseconds(200);
        if (has_line_ && now - shown_ < k_interval && progress.done_bytes < progress.total_bytes) return;
        shown_ = now;
        has_line_ = true;
        const double seconds = std::chrono::duration<double>(now - begin_).count();
        const auto done = static_cast<double>(progress.done_bytes - first_bytes_);
        const auto left = static_cast<double>(progress.total_bytes - progress.done_bytes);
        const double rate = seconds > 0 ? done / seconds : 0;
        const std::string rest =
            rate > 0 ? fmt::format("{:.0f} s left", left / rate) : std::string("starting");
        print_note(fmt::format("\r\x1b[K{}/{} tensors, {:.2f} of {:.2f} GB, {:.2f} GB/s, {}", progress.n_done,
                               progress.n_tensors, static_cast<double>(progress.done_bytes) * k_gb,
                               static_cast<double>(progress.total_bytes) * k_gb, rate * k_gb, rest));
    }

    bool is_json_;
    bool is_off_;
    bool is_line_;
    bool has_line_ = false;
    uint64_t first_bytes_ = 0;  // that an earlier run did
    Clock::time_point begin_ = Clock::now();
    Clock::time_point shown_;
};

void print_names(const json& names, std::string_view what) {
    for (const json& name : names) print(fmt::format("{}: {}\n", what, printable(name.get<std::string>())));
}

void print_summary(const json& report, bool is_plan) {
    if (is_plan) {
        for (const json& tensor : report["tensors"])
            print(fmt::format("{}  {} → {}  {} bytes\n", printable(tensor["name"].get<std::string>()),
                              tensor["from"].get<std::string>(), tensor["to"].get<std::string>(),
                              tensor["bytes"].get<uint64_t>()));
        print_names(report["fallbacks"], "another type, because rows are no multiple of the block");
        print_names(report["needs_importance"], "importance data is missing");
    }
    for (const json& file : report["files"])
        print(fmt::format("{}: {} bytes, {} tensors\n", printable(file["name"].get<std::string>()),
                          file["bytes"].get<uint64_t>(), file["tensors"].get<int64_t>()));
    print(fmt::format("{} bytes, {:.3f} bits per weight\n", report["bytes"].get<uint64_t>(),
                      report["bits_per_weight"].get<double>()));
    if (is_plan)
        print(fmt::format("free: {} bytes; memory of buffers: {} bytes\n",
                          report["free_bytes"].get<uint64_t>(), report["peak_memory_bytes"].get<uint64_t>()));
}

}  // namespace

void convert(const Options& options, const minim::Cancel& cancel) {
    const minim::Runtime runtime = open_runtime(options);
    minim::ConvertOptions how = convert_options(options);
    std::string report;
    {
        ConvertDisplay display(options.progress);
        how.progress = [&display](const minim_convert_progress& progress) {
            display.show(progress);
            return true;
        };
        report =
            minim::convert(runtime, program::find_model_or_keep(options.model), options.output, how, &cancel);
    }
    if (!options.report_file.empty()) write_file(options.report_file, report + "\n");
    if (options.prints_json) {
        print(report + "\n");
    } else {
        print_summary(json::parse(report), options.is_dry_run);
    }
    flush_output();
}

}  // namespace cli
