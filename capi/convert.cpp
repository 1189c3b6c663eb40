// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file_names.h"
#include "handles.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

std::vector<std::string> texts_of(const char* const* texts, size_t count, const char* name) {
    if (texts == nullptr && count > 0) fail(Status::invalid, "argument {} is NULL", name);
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i) all.emplace_back(&required(texts[i], name));
    return all;
}

// Splits "KEY=VALUE".
convert::MetadataEdit edit_of(const std::string& text, convert::MetadataEdit::Kind kind) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
        fail(Status::invalid, "the metadata '{}' are not of the form KEY=VALUE", text);
    return {kind, text.substr(0, equals), text.substr(equals + 1)};
}

std::vector<convert::MetadataEdit> edits_of(const minim_convert_params& p) {
    using Kind = convert::MetadataEdit::Kind;
    std::vector<convert::MetadataEdit> edits;
    for (const std::string& key : texts_of(p.unset, p.n_unset, "unset")) edits.push_back({Kind::unset, key});
    for (const std::string& text : texts_of(p.set, p.n_set, "set")) edits.push_back(edit_of(text, Kind::set));
    for (const std::string& text : texts_of(p.set_text, p.n_set_text, "set_text"))
        edits.push_back(edit_of(text, Kind::text));
    return edits;
}

std::optional<Format> type_or_none(const char* name, const char* what) {
    if (name == nullptr || *name == '\0') return std::nullopt;
    return convert::parse_type(name, what);
}

bool is_named(std::string_view text, std::string_view capitals) {
    return std::ranges::equal(text, capitals, [](char a, char b) {
        return (a >= 'a' && a <= 'z' ? static_cast<char>(a - 'a' + 'A') : a) == b;
    });
}

// Returns whether the output is a folder, by its name unless it is said.
bool is_folder(const minim_convert_params& p, const convert::Options& options) {
    const std::string_view container = optional_text(p.container);
    if (container.empty()) return !checkpoint::ends_in(options.output, ".gguf");
    if (is_named(container, "GGUF")) return false;
    if (is_named(container, "SAFETENSORS")) return true;
    fail(Status::invalid, "the container '{}' is not gguf or safetensors", container);
}

// Sets the layout of an output that is a folder. Returns false for a GGUF file.
bool set_layout(const minim_convert_params& p, convert::Options& options) {
    const std::string_view recipe = optional_text(p.recipe);
    const std::string_view layout = optional_text(p.layout);
    options.has_any_name = !optional_text(p.container).empty();
    if (!is_folder(p, options)) {
        if (layout.empty()) return false;
        fail(Status::invalid, "the output '{}' is a GGUF file, which has no layout", options.output);
    }
    if (!recipe.empty() && !layout.empty())
        fail(Status::invalid, "both a recipe, '{}', and a layout, '{}'", recipe, layout);
    const std::string_view type = optional_text(p.matrix_type);
    if (!type.empty() && !is_named(type, "KEEP"))
        fail(Status::invalid, "the type '{}' is for GGUF files; a folder has a layout", type);
    const std::string_view name = recipe.empty() ? layout : recipe;
    options.layout = name.empty() ? convert::FolderLayout::bf16 : convert::find_folder_layout(name);
    if (!options.layout)
        fail(Status::invalid, "the output '{}' is a folder, for which there is no layout '{}' (there are {})",
             options.output, name, convert::folder_layout_names());
    return true;
}

void set_target(const minim_convert_params& p, convert::Options& options) {
    const std::string_view recipe = optional_text(p.recipe);
    const std::string_view type = optional_text(p.matrix_type);
    if (!recipe.empty() && !type.empty())
        fail(Status::invalid, "both a recipe, '{}', and a type, '{}'", recipe, type);
    convert::TypeOptions& types = options.types;
    options.is_quantize = !recipe.empty();
    if (set_layout(p, options)) return;
    if (recipe.empty()) {
        constexpr std::string_view k_plain[] = {"AUTO", "F32", "F16", "BF16", "Q8_0"};
        if (type.empty() || is_named(type, "KEEP")) return;
        if (std::ranges::none_of(k_plain, [&](std::string_view name) { return is_named(type, name); }))
            fail(Status::invalid, "the type '{}' is not keep, auto, f32, f16, bf16 or q8_0", type);
        types.target = convert::Target::plain;
        types.plain_type = is_named(type, "AUTO") ? Format::bf16 : convert::parse_type(type, "type");
        return;
    }
    if (is_named(recipe, "COPY")) return;
    types.recipe = convert::find_recipe(recipe);
    if (!types.recipe) fail(Status::invalid, "there is no recipe or type '{}'", recipe);
    types.target = convert::Target::recipe;
}

convert::Options options_of(const char* source, const char* output, const minim_convert_params& p) {
    convert::Options options;
    options.source = source;
    options.output = output;
    set_target(p, options);
    options.types.rules = texts_of(p.rules, p.n_rules, "rules");
    options.types.output_type = type_or_none(p.output_type, "output_type (--output-tensor-type)");
    options.types.embedding_type = type_or_none(p.embedding_type, "embedding_type (--token-embedding-type)");
    options.types.keeps_output = flag(p.keep_output, "keep_output");
    options.types.is_pure = flag(p.pure, "pure");
    options.types.allows_requantize = flag(p.allow_requantize, "allow_requantize");
    options.goes_without_importance = flag(p.without_importance, "without_importance");
    options.imatrix = optional_text(p.imatrix);
    options.include_weights = texts_of(p.include_weights, p.n_include_weights, "include_weights");
    options.exclude_weights = texts_of(p.exclude_weights, p.n_exclude_weights, "exclude_weights");
    options.effort = flag(p.effort, "effort") ? EncodeEffort::fast : EncodeEffort::full;
    options.writes_hashes = !flag(p.no_hashes, "no_hashes");
    options.name = optional_text(p.name);
    options.edits = edits_of(p);
    if (p.part_tensors < 0) fail(Status::invalid, "part_tensors is {}", p.part_tensors);
    options.limits = {.bytes = p.part_bytes,
                      .tensors = p.part_tensors,
                      .first_without_tensors = flag(p.first_part_empty, "first_part_empty")};
    options.keeps_split = flag(p.keep_parts, "keep_parts");
    options.overwrites = flag(p.overwrite, "overwrite");
    options.restarts = flag(p.restart, "restart");
    options.verifies = !flag(p.no_verify, "no_verify");
    if (p.memory_bytes != 0) options.memory_bytes = p.memory_bytes;
    options.keep_experts = optional_text(p.keep_experts);
    options.reuse = optional_text(p.reuse);
    options.program_version = minim_version();
    return options;
}

convert::ProgressFunction progress_of(const minim_convert_params& p) {
    if (p.progress == nullptr) return nullptr;
    return [&p](const convert::Progress& progress) {
        const std::string tensor(progress.tensor);
        const std::string result(progress.result);
        minim_convert_progress report{};
        report.size = sizeof(report);
        report.done_bytes = progress.done_bytes;
        report.total_bytes = progress.total_bytes;
        report.n_done = progress.n_done;
        report.n_tensors = progress.n_tensors;
        report.tensor = tensor.c_str();
        report.result = result.empty() ? nullptr : result.c_str();
        return p.progress(p.progress_user_data, &report) == 0;
    };
}

}  // namespace

minim_status minim_convert(minim_runtime* runtime, const char* source, const char* output,
                           const minim_convert_params* params, minim_cancel* cancel, minim_text** report,
                           minim_error* err) {
    return guard(err, [&] {
        required(report, "report") = nullptr;
        const std::shared_ptr<Runtime> shared = required(runtime, "runtime").runtime;
        shared->require_threads();
        const minim_convert_params p = params_of(params, "minim_convert_params");
        const convert::Options options =
            options_of(&required(source, "source"), &required(output, "output"), p);
        const ThreadPool& threads = *shared->threads.prompt;
        if (flag(p.dry_run, "dry_run")) {
            *report = new minim_text{convert::plan_conversion(options, threads, shared->log)};
            return;
        }
        *report = new minim_text{
            convert::convert_model(options, threads, token_of(cancel), progress_of(p), shared->log)};
    });
}
