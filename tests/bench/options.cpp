// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_features.h"
#include "base/error.h"

namespace minim::bench {
namespace {

Format format_named(const std::string& name) {
    const auto format = format_from_name(name);
    if (!format) fail(Status::invalid, "unknown format {}", name);
    return *format;
}

void add_synthetic(CLI::App& app, Options& options) {
    app.add_flag("--synthetic", options.synthetic, "random weights of the shape given below, no file");
    // Comes before the options of single sizes, which change it.
    app.add_flag_callback(
        "--m3", [&options] { options.shape = m3_shape(); },
        "synthetic: the shape of MiniMax-M3, 3 layers, the first one without experts (default: of "
        "MiniMax-M2)");
    app.add_option("--layers", options.shape.n_layer, "synthetic: layers")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--experts", options.shape.n_expert, "synthetic: experts a layer")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--vocab", options.shape.n_vocab, "synthetic: tokens")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--hidden", options.shape.hidden, "synthetic: hidden size")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--expert-ff", options.shape.expert_ff, "synthetic: width of an expert")
        ->capture_default_str();
    app.add_option("--experts-format", options.experts_format,
                   "synthetic: of the experts, or of their gate, up and down")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--dense-format", options.dense_format, "synthetic: of the other weights")
        ->capture_default_str();
    app.add_option("--head-format", options.head_format,
                   "synthetic: of embedding and output head (default: the dense format)");
}

void add_cache(CLI::App& app, Options& options) {
    app.add_option("--expert-cache", options.expert_cache,
                   "bytes on the devices for the experts that are used most, while the CPU computes the "
                   "others: 4GiB")
        ->type_name("SIZE")
        ->transform(CLI::AsSizeValue(false));
    const std::map<std::string, runtime::ExpertMoves> moves = {
        {"fixed", runtime::ExpertMoves::fixed},
        {"reproducible", runtime::ExpertMoves::reproducible},
        {"eager", runtime::ExpertMoves::eager}};
    app.add_option("--expert-moves", options.expert_moves,
                   "when experts of the cache change: fixed (never), reproducible (default) or eager")
        ->type_name("MODE")
        ->transform(CLI::CheckedTransformer(moves, CLI::ignore_case).description(""));
    app.add_option_function<std::string>(
           "--routing", [&options](const std::string& text) { options.routing = parse_routing(text); },
           "synthetic: which experts tokens choose: uniform; zipf:S, the one of rank r in proportion to "
           "1/r^S; drift:S, the same while every 16 tokens the last becomes the first")
        ->type_name("HOW");
}

void add_tests(CLI::App& app, Options& options) {
    app.add_option("-p,--n-prompt", options.n_prompt, "prompt lengths")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-n,--n-gen", options.n_generate, "tokens to generate")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("-d,--depth", options.depths, "tokens in the context before the test")->delimiter(',');
    app.add_flag("--synthetic-depth", options.synthetic_depth,
                 "random K and V for those tokens instead of computed ones");
    app.add_option("--parallel", options.n_parallel, "concurrent sequences")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    app.add_option("-u,--ubatch-size", options.n_ubatch, "rows of a prompt step")
        ->delimiter(',')
        ->capture_default_str();
}

// Completes the formats and what depends on other options.
void complete(Options& options) {
    if (options.synthetic == !options.model.empty())
        throw CLI::ValidationError("either --model or --synthetic");
    if (!options.synthetic && options.routing)
        throw CLI::ValidationError("--routing", "a model file has routers of its own; only for --synthetic");
    options.shape.has_router_bias = options.routing.has_value();
    if (options.experts_format.size() != 1 && options.experts_format.size() != 3)
        throw CLI::ValidationError("--experts-format", "one format, or three: gate,up,down");
    if (options.head_format.empty()) options.head_format = options.dense_format;
    options.shape.gate_format = format_named(options.experts_format.front());
    options.shape.up_format = format_named(options.experts_format[options.experts_format.size() / 2]);
    options.shape.down_format = format_named(options.experts_format.back());
    options.shape.dense_format = format_named(options.dense_format);
    options.shape.head_format = format_named(options.head_format);
    format_named(options.kv);
    if (options.n_threads.empty()) options.n_threads = {usable_core_count()};
}

}  // namespace

void parse(int argc, char** argv, CLI::App& app, Options& options) {
    app.add_option("-m,--model", options.model, "model file or folder");
    add_synthetic(app, options);
    app.add_flag("--mmap", options.mapped, "weights as the file has them, not copied and packed");
    app.add_option("--packed-file", options.packed_file,
                   "packed weights are mapped from this file, which is created if needed");
    app.add_option("--expand", options.expand, "auto, off or on: unpack the codebooks of IQ1 to IQ3 at load")
        ->check(CLI::IsMember({"auto", "off", "on"}))
        ->capture_default_str();
    app.add_flag("--prefault", options.prefault, "with --mmap: weights in memory before the first test");
    app.add_flag("--mlock", options.locked, "lock weights and KV cache in memory");
    app.add_flag("--pin-threads", options.pinned, "each thread stays on a core of its own");
    app.add_option("--numa", options.numa,
                   "off, interleave or split: where threads and memory are; a synthetic model is interleaved "
                   "by split")
        ->check(CLI::IsMember({"off", "interleave", "split"}))
        ->capture_default_str();
    app.add_option("--prefetch", options.prefetch,
                   "auto, off or on: the CPU's products prefetch weights; auto: as measured on this kind of "
                   "CPU, off if it is not known")
        ->check(CLI::IsMember({"auto", "off", "on"}))
        ->capture_default_str();
    app.add_option("--device", options.devices, "devices for the layers: cuda:0 or cuda:0,cuda:1")
        ->delimiter(',')
        ->capture_default_str();
    app.add_flag("--deterministic", options.deterministic,
                 "results of devices do not depend on batch composition and prompt chunks");
    auto* cpu_moe = app.add_flag_callback(
        "--cpu-moe", [&options] { options.n_cpu_moe = INT32_MAX; }, "all experts on the CPU");
    app.add_option("--n-cpu-moe", options.n_cpu_moe,
                   "the experts of the first N layers on the CPU; below 0: of the last")
        ->excludes(cpu_moe);
    app.add_option("--override-tensor", options.overrides,
                   "put experts whose tensor names match on another device: exps=cpu");
    add_cache(app, options);
    add_tests(app, options);
    app.add_option("-t,--threads", options.n_threads, "thread counts; default: all cores")->delimiter(',');
    app.add_option("-r,--repetitions", options.repetitions)
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    app.add_option("-k,--kv", options.kv, "format of the KV cache")->capture_default_str();
    app.add_option("-o,--output", options.output)
        ->check(CLI::IsMember({"table", "json", "csv"}))
        ->capture_default_str();
    app.add_flag("--operations", options.operations,
                 "share of the time by operation; on a device one waits for the other then");
    app.add_flag("--kernels", options.kernels,
                 "time of each operation of a step, of all layers together: on a device recorded and "
                 "repeated, so without "
                 "the host and the gaps between operations");
    app.parse(argc, argv);
    complete(options);
}

std::string description(const Options& options) {
    if (!options.synthetic) return options.model;
    const bool is_m3 = options.shape.family == model::Family::m3;
    std::string text =
        fmt::format("synthetic{}, {} layers, experts {}, dense {}", is_m3 ? " M3" : "", options.shape.n_layer,
                    fmt::join(options.experts_format, ","), options.dense_format);
    if (options.head_format != options.dense_format) text += fmt::format(", head {}", options.head_format);
    return text;
}

}  // namespace minim::bench
