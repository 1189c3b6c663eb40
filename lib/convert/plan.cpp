// SPDX-License-Identifier: Apache-2.0
#include "convert/plan.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/format_text.h"
#include "base/hash.h"
#include "base/hasher.h"
#include "base/json.h"
#include "checkpoint/file_names.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/safetensors_writer.h"
#include "convert/earlier_output.h"
#include "convert/folder_plan.h"
#include "convert/model_metadata.h"
#include "layouts/layout.h"

namespace minim::convert {
namespace {

using checkpoint::meta_array;
using checkpoint::meta_text;
using checkpoint::meta_value;
using checkpoint::MetaEntries;
using checkpoint::NewTensor;

constexpr std::string_view k_gguf_ending = ".gguf";
constexpr uint64_t k_largest_slab = uint64_t{64} << 20;
constexpr int64_t k_chunk_numbers = int64_t{1} << 16;
constexpr uint64_t k_min_memory = uint64_t{16} << 20;

uint64_t free_bytes_in(const std::string& folder) {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0) return 0;
    return uint64_t{info.f_bavail} * info.f_frsize;
}

void choose_place(const Options& options, Plan& plan) {
    if (options.output.empty()) fail(Status::invalid, "the path of the output is empty");
    plan.layout = options.layout;
    const bool has_gguf_name = checkpoint::ends_in(options.output, k_gguf_ending);
    if (!plan.layout && !has_gguf_name && !options.has_any_name)
        fail(Status::invalid, "the output '{}' must end in .gguf, or be a folder with a layout ({})",
             options.output, folder_layout_names());
    if (plan.layout && has_gguf_name && !options.has_any_name)
        fail(Status::invalid, "the output '{}' is a GGUF file, which has no layout", options.output);
    std::filesystem::path path(options.output);
    if (path.filename().empty()) path = path.parent_path();  // FOLDER/
    plan.name = path.filename().string();
    if (plan.name.empty() || plan.name == "." || plan.name == "..")
        fail(Status::invalid, "the output '{}' is not the name of a file or a new folder", options.output);
    plan.folder = path.parent_path().empty() ? "." : path.parent_path().string();
    std::error_code error;
    if (!std::filesystem::is_directory(plan.folder, error))
        fail(Status::not_found, "{}: the folder {} of the output does not exist", options.output,
             plan.folder);
    if (!plan.layout && std::filesystem::is_directory(path, error))
        fail(Status::invalid, "the output '{}' is a folder", options.output);
}

uint64_t bytes_of(Format type, const SourceTensor& source) {
    uint64_t bytes = 0;
    if (!row_bytes(type, static_cast<uint64_t>(source.n_columns), bytes))
        fail(Status::invalid, "tensor {}: rows of {} are not whole blocks of {}", shown(source.name),
             source.n_columns, traits(type).name);
    return bytes * static_cast<uint64_t>(source.all_rows());
}

// X.scale of X.weight: a factor of each matrix.
PlannedTensor factors_of(const SourceTensor& source) {
    PlannedTensor tensor;
    tensor.source = &source;
    tensor.name = source.name.substr(0, source.name.rfind('.')) + ".scale";
    tensor.shape = {std::ssize(source.matrices)};
    tensor.type = Format::f32;
    tensor.work = Work::factors;
    tensor.bytes = source.matrices.size() * sizeof(float);
    return tensor;
}

void add_tensors(const Source& source, const std::vector<ChosenType>& types, Plan& plan) {
    std::map<std::string, bool, std::less<>> copied;  // matrices with factors beside them
    for (size_t i = 0; i < types.size(); ++i) {
        const SourceTensor& from = source.tensors[i];
        if (from.has_factors) copied[from.name] = types[i].type == from.format;
    }
    for (size_t i = 0; i < types.size(); ++i) {
        const SourceTensor& from = source.tensors[i];
        const auto of = copied.find(from.factors_of);
        if (of != copied.end() && !of->second) continue;  // the numbers of the matrix contain them
        PlannedTensor tensor;
        tensor.source = &from;
        tensor.name = from.name;
        tensor.shape = from.shape;
        tensor.type = types[i].type;
        tensor.work = is_copied(from, tensor.type, source.is_gguf()) ? Work::copy : Work::encode;
        tensor.bytes = bytes_of(tensor.type, from);
        if (types[i].is_fallback) plan.fallbacks.push_back(from.name);
        if (types[i].is_widened) plan.widened.push_back(from.name);
        const bool adds_factors =
            tensor.type == Format::nvfp4 && (tensor.work == Work::encode || !source.is_gguf());
        plan.tensors.push_back(std::move(tensor));
        if (adds_factors) plan.tensors.push_back(factors_of(from));
    }
}

// ---- metadata

// Returns general.file_type for what most bytes of the matrices are.
uint32_t file_type_of_most(const Plan& plan) {
    std::map<Format, uint64_t> bytes;
    for (const PlannedTensor& tensor : plan.tensors)
        if (tensor.source->is_matrix && tensor.work != Work::factors) bytes[tensor.type] += tensor.bytes;
    const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
    return most == bytes.end() ? 0 : file_type_of(most->first).value_or(0);
}

// Returns general.file_type: the recipe's number, unless rules have left no matrix of the recipe's type.
uint32_t chosen_file_type(const Options& options, const Plan& plan) {
    if (!options.is_quantize || !options.types.recipe) return file_type_of_most(plan);
    const uint32_t number = options.types.recipe->file_type;
    const bool has_type = std::ranges::any_of(plan.tensors, [&](const PlannedTensor& tensor) {
        return tensor.source->is_matrix && tensor.work != Work::factors &&
               is_type_of_file(number, tensor.type, tensor.source->n_columns);
    });
    return has_type ? number : file_type_of_most(plan);
}

std::string name_of_model(const Options& options, const Source& source) {
    if (!options.name.empty()) return options.name;
    std::error_code error;
    const auto folder = std::filesystem::canonical(source.checkpoint.folder(), error);
    if (error == std::errc::not_enough_memory) throw std::bad_alloc();
    return error ? "model" : folder.filename().string();
}

MetaEntries copied_metadata(const Source& source) {
    MetaEntries entries;
    for (const auto& entry : source.checkpoint.metadata().entries())
        if (!entry.key.starts_with("split.")) entries.emplace_back(entry.key, entry.value);
    return entries;
}

void add_importance_keys(const Importance& importance, MetaEntries& entries) {
    const auto count = [](int64_t n) { return meta_value(static_cast<uint32_t>(n)); };
    entries.emplace_back("quantize.imatrix.file", meta_text(importance.file_name()));
    entries.emplace_back("quantize.imatrix.dataset", meta_text(importance.dataset()));
    entries.emplace_back("quantize.imatrix.entries_count", count(importance.n_entries()));
    entries.emplace_back("quantize.imatrix.chunks_count", count(importance.n_chunks()));
}

// Returns the experts of a layer, of a source that was cut.
int64_t n_experts_of(const Source& source) {
    const auto stack = std::ranges::find_if(source.tensors, [](const SourceTensor& tensor) {
        return tensor.shape.size() == 3 && !tensor.experts.empty();
    });
    return stack == source.tensors.end() ? 0 : stack->shape.front();
}

// Hashes are added last, as zeros: only their number is known yet.
void add_hash_keys(const Options& options, const Source& source, const Importance* importance,
                   bool has_changed, const MetaEntries& of_source, Plan& plan) {
    const auto find = [&](std::string_view key) {
        return std::ranges::find_if(of_source, [&](const auto& entry) { return entry.first == key; });
    };
    plan.has_hashes = options.writes_hashes && (options.is_quantize || !source.is_gguf() ||
                                                find("minim.tensor_xxh3") != of_source.end());
    if (!plan.has_hashes) return;
    const auto version = find("minim.version");
    const bool keeps_version = !has_changed && version != of_source.end();
    const bool has_encoded = std::ranges::any_of(
        plan.tensors, [](const PlannedTensor& tensor) { return tensor.work == Work::encode; });
    if (has_encoded) put(plan.metadata, k_encoders_key, meta_text(encoders_text(options, importance)));
    const std::vector<uint64_t> zeros(plan.tensors.size());
    plan.metadata.emplace_back("minim.version",
                               keeps_version ? version->second : meta_text(options.program_version));
    plan.metadata.emplace_back("minim.tensor_xxh3", meta_array(std::span<const uint64_t>(zeros)));
    plan.metadata.emplace_back("minim.tensor_source_xxh3", meta_array(std::span<const uint64_t>(zeros)));
}

void add_metadata(const Options& options, const Source& source, const Importance* importance,
                  const Logger& log, Plan& plan) {
    const bool has_changed = std::ranges::any_of(
        plan.tensors, [](const PlannedTensor& tensor) { return tensor.work != Work::copy; });
    const uint32_t file_type = chosen_file_type(options, plan);
    MetaEntries of_source;
    MetaEntries& entries = plan.metadata;
    if (source.is_gguf()) {
        of_source = copied_metadata(source);
        entries = of_source;
        for (const char* key : {"minim.version", "minim.tensor_xxh3", "minim.tensor_source_xxh3"})
            remove(entries, key);
        if (options.is_quantize && options.types.recipe) {
            // At the end, as llama-quantize writes them.
            remove(entries, "general.quantization_version");
            remove(entries, "general.file_type");
            entries.emplace_back("general.quantization_version", meta_value(uint32_t{2}));
            entries.emplace_back("general.file_type", meta_value(file_type));
        } else if (has_changed) {
            put(entries, "general.file_type", meta_value(file_type));
        }
        if (!options.name.empty()) put(entries, "general.name", meta_text(options.name));
    } else {
        entries = model_metadata(source, name_of_model(options, source), file_type, log);
    }
    if (!source.kept_experts.empty()) {
        const int64_t n_expert = n_experts_of(source);
        put(entries, source.key("expert_count"), meta_value(static_cast<uint32_t>(n_expert)));
        put(entries, "minim.experts_kept", meta_text(source.kept_experts));
    }
    edit_metadata(options.edits, entries);
    if (importance != nullptr && has_changed) {
        std::erase_if(entries,
                      [](const auto& entry) { return entry.first.starts_with("quantize.imatrix."); });
        add_importance_keys(*importance, entries);
    }
    add_hash_keys(options, source, importance, has_changed, of_source, plan);
}

// ---- files

std::vector<NewTensor> new_tensors(const Plan& plan, int64_t first, int64_t count) {
    std::vector<NewTensor> tensors;
    for (int64_t i = first; i < first + count; ++i) {
        const PlannedTensor& tensor = plan.tensors[i];
        tensors.push_back({tensor.name, tensor.shape, traits(tensor.type).gguf_type, tensor.bytes});
    }
    return tensors;
}

// Returns the tensors in each part of the source, after some were left out or added.
std::vector<int64_t> counts_of_source(const Source& source, const Plan& plan) {
    std::vector<int64_t> counts;
    for (size_t part = 0; part < source.checkpoint.files().size(); ++part)
        counts.push_back(std::ranges::count_if(plan.tensors, [&](const PlannedTensor& tensor) {
            return tensor.source->matrices.front().source.tensor->part == static_cast<int32_t>(part);
        }));
    return counts;
}

void add_files(const Options& options, const Source& source, const Logger& log, Plan& plan) {
    const auto n_tensors = std::ssize(plan.tensors);
    checkpoint::PartLimits limits = options.limits;
    if (options.keeps_split) {
        if (!source.is_gguf()) fail(Status::invalid, "only the parts of a GGUF file can be kept");
        if (limits.bytes != 0 || limits.tensors != 0)
            fail(Status::invalid, "the source's parts are kept, or limits of a part given, not both");
        limits.counts = counts_of_source(source, plan);
    }
    if (limits.first_without_tensors && limits.bytes == 0 && limits.tensors == 0)
        fail(Status::invalid, "a first part without tensors needs a limit of the other parts");
    const std::vector<int64_t> counts = checkpoint::cut_into_parts(new_tensors(plan, 0, n_tensors), limits);
    const auto n_files = std::ssize(counts);
    const size_t n_ending = checkpoint::ends_in(plan.name, k_gguf_ending) ? k_gguf_ending.size() : 0;
    checkpoint::PartName part = {plan.name.substr(0, plan.name.size() - n_ending), 1,
                                 static_cast<uint64_t>(n_files), std::string(k_gguf_ending)};
    for (int64_t f = 0; f < n_files; ++f) {
        part.number = static_cast<uint64_t>(f + 1);
        const int64_t first = f == 0 ? 0 : plan.files.back().first + plan.files.back().count;
        plan.files.push_back({n_files == 1 ? plan.name : part_file_name(part), 0, first, counts[f]});
    }
    for (int64_t f = 0; f < n_files; ++f) {
        PlannedFile& file = plan.files[f];
        const checkpoint::NewHeader header = header_of(plan, plan.metadata, f);
        file.bytes = header.file_bytes;
        plan.bytes += file.bytes;
        for (int64_t i = 0; i < file.count; ++i) {
            PlannedTensor& tensor = plan.tensors[file.first + i];
            tensor.file = f;
            tensor.offset = header.offsets[i];
            if (limits.bytes != 0 && tensor.bytes > limits.bytes)
                log.warning("tensor {} has {} bytes, more than a part of {}: it has a part of its own",
                            shown(tensor.name), tensor.bytes, limits.bytes);
        }
    }
}

// ---- importance

void check_importance(const Options& options, const Importance* importance, Plan& plan) {
    const Recipe no_recipe = {"", Format::f32};
    const Recipe& recipe = options.types.recipe ? *options.types.recipe : no_recipe;
    bool has_any = false;
    for (const PlannedTensor& tensor : plan.tensors) {
        const std::string& name = tensor.source->name;  // of all matrices of a stack
        const bool is_encoded = plan.layout ? tensor.work == Work::pieces
                                            : tensor.work == Work::encode && tensor.source->is_matrix;
        if (!is_encoded) continue;
        const bool has_data = importance != nullptr && importance->has(name);
        has_any = has_any || has_data;
        if (has_data) {
            importance->check(*tensor.source);
            continue;
        }
        const bool is_listed =
            std::ranges::find(plan.without_importance, name) != plan.without_importance.end();
        if (importance != nullptr && !is_listed) plan.without_importance.push_back(name);
        if (plan.layout) continue;
        if (!options.goes_without_importance && type_needs_importance(recipe, role_of(name), tensor.type))
            plan.needs_importance.push_back(name);
    }
    if (importance == nullptr) return;
    plan.has_unused_importance = !has_any && plan.without_importance.empty() && options.keep_experts.empty();
    if (!has_any && !plan.without_importance.empty() && options.keep_experts.empty())
        fail(Status::invalid, "{}: it has data for no tensor that is encoded; the first of them is {}",
             options.imatrix, plan.without_importance.front());
}

// ---- memory

SlabSizes slab_sizes(const Options& options, const Plan& plan, int32_t n_threads) {
    if (options.memory_bytes < k_min_memory)
        fail(Status::invalid, "{} bytes of memory (--memory); at least {} are needed", options.memory_bytes,
             k_min_memory);
    const int64_t n_together = plan.layout ? row_group(*plan.layout) : 1;
    int64_t widest = 1;
    uint64_t widest_rows = 0;  // bytes of the rows that are read together
    for (const PlannedTensor& tensor : plan.tensors) {
        const SourceTensor& source = *tensor.source;
        const int64_t rows = std::max(layouts::k_rows_together, n_together);
        const auto out_bytes = tensor.work == Work::factors
                                   ? tensor.bytes
                                   : static_cast<uint64_t>(tensor.bytes_of_rows(0, rows));
        widest_rows = std::max(widest_rows, static_cast<uint64_t>(rows * source.row_bytes) + out_bytes);
        if (tensor.work == Work::encode || tensor.work == Work::pieces)
            widest = std::max(widest, source.n_columns);
    }
    SlabSizes sizes;
    sizes.chunk_rows = std::max(std::clamp<int64_t>(k_chunk_numbers / widest, 1, 64), n_together);
    // Each thread has the numbers of a chunk before and after encoding.
    const uint64_t scratch = static_cast<uint64_t>(n_threads) * 2 * sizeof(float) *
                             static_cast<uint64_t>(sizes.chunk_rows * widest);
    const uint64_t least = widest_rows * k_slabs + scratch;
    if (least > options.memory_bytes)
        fail(Status::invalid, "{} bytes of memory; rows of {} numbers on {} threads need {}",
             options.memory_bytes, widest, n_threads, least);
    sizes.bytes = std::clamp<uint64_t>((options.memory_bytes - scratch) / k_slabs, widest_rows,
                                       std::max(k_largest_slab, widest_rows));
    sizes.peak_bytes = sizes.bytes * k_slabs + scratch;
    return sizes;
}

void sum_up(Plan& plan) {
    int64_t n_weights = 0;
    for (const PlannedTensor& tensor : plan.tensors) {
        plan.tensor_bytes += tensor.bytes;
        if (tensor.work == Work::factors) continue;
        n_weights += tensor.source->n_elements();
        plan.source_bytes += tensor.source->bytes();
    }
    if (n_weights > 0)
        plan.bits_per_weight = static_cast<double>(plan.tensor_bytes) * 8.0 / static_cast<double>(n_weights);
}

int64_t n_tensors_of(const Plan& plan, const PlannedFile& file) {
    if (!plan.layout) return file.count;
    int64_t n = 0;
    for (int64_t i = file.first; i < file.first + file.count; ++i) n += std::ssize(plan.tensors[i].pieces);
    return n;
}

void append_names(std::string& out, std::string_view key, const std::vector<std::string>& names) {
    out += format_text(",\"{}\":[", key);
    for (const std::string& name : names) {
        if (&name != &names.front()) out += ',';
        json::append_quoted(out, shown(name));
    }
    out += ']';
}

// Says in the log what differs from what was asked for. The plan names each tensor.
void note_changes(const Options& options, const Plan& plan, const Logger& log) {
    const auto has = [](const std::vector<std::string>& names, const PlannedTensor& tensor) {
        return std::ranges::find(names, tensor.name) != names.end();
    };
    std::map<std::string_view, std::vector<std::string_view>> widened;  // tensors by type
    for (const PlannedTensor& tensor : plan.tensors) {
        if (has(plan.fallbacks, tensor))
            log.warning(
                "tensor {}: rows of {} numbers are no multiple of the block that was asked for; it becomes "
                "{}",
                shown(tensor.name), tensor.source->n_columns, traits(tensor.type).name);
        if (has(plan.widened, tensor)) widened[tensor.source->type_name].push_back(tensor.name);
    }
    for (const auto& [type, names] : widened)
        log.warning(
            "GGUF has no type that holds the numbers of {} tensors of {}, such as {}: they become BF16",
            names.size(), type, shown(names.front()));
    if (plan.has_unused_importance)
        log.warning("the importance data of {} has no effect: no matrix is encoded", shown(options.imatrix));
    if (!plan.without_importance.empty())
        log.warning("there is no importance data for {} tensors: {}", plan.without_importance.size(),
                    fmt::join(plan.without_importance, ", "));
}

}  // namespace

Plan make_plan(const Options& options, const Source& source, const Importance* importance, int32_t n_threads,
               const Logger& log) {
    Plan plan;
    choose_place(options, plan);
    if (plan.layout) {
        plan_folder(options, source, importance, log, plan);
        check_importance(options, importance, plan);
        plan.slabs = slab_sizes(options, plan, n_threads);
        plan.free_bytes = free_bytes_in(plan.folder);
        sum_up(plan);
        note_changes(options, plan, log);
        return plan;
    }
    const std::vector<ChosenType> types = choose_types(options.types, source.tensors, source.is_gguf(),
                                                       source.config.n_layer, importance != nullptr);
    add_tensors(source, types, plan);
    check_importance(options, importance, plan);
    add_metadata(options, source, importance, log, plan);
    add_files(options, source, log, plan);
    plan.slabs = slab_sizes(options, plan, n_threads);
    plan.free_bytes = free_bytes_in(plan.folder);
    sum_up(plan);
    note_changes(options, plan, log);
    return plan;
}

checkpoint::NewHeader header_of(const Plan& plan, const MetaEntries& metadata, int64_t file) {
    const PlannedFile& planned = plan.files[file];
    if (plan.layout) return checkpoint::make_safetensors_header(safetensors_of(plan, file));
    const MetaEntries entries =
        checkpoint::part_metadata(metadata, file, std::ssize(plan.files), std::ssize(plan.tensors));
    return checkpoint::make_gguf_header(entries, new_tensors(plan, planned.first, planned.count));
}

int64_t PlannedTensor::bytes_of_rows(int64_t first, int64_t count) const {
    if (work == Work::copy) return 0;  // the source's
    if (work == Work::encode) return count * row_bytes(type, source->n_columns);
    uint64_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.bytes_of(first, count);
    return static_cast<int64_t>(sum);
}

uint64_t joined_hash(std::span<const uint64_t> hashes) {
    return hashes.size() == 1 ? hashes.front() : hash_bytes(std::as_bytes(hashes));
}

uint64_t hash_of_tensor(const PlannedTensor& tensor,
                        const std::function<void(uint64_t, std::span<std::byte>)>& read) {
    constexpr uint64_t k_read_at_once = uint64_t{8} << 20;
    std::vector<std::byte> block(std::min(k_read_at_once, tensor.bytes));
    Hasher hasher;
    std::vector<uint64_t> hashes;
    const auto add = [&](uint64_t offset, uint64_t bytes) {
        hasher.reset();
        for (uint64_t at = 0; at < bytes; at += k_read_at_once) {
            const std::span part = std::span(block).first(std::min(k_read_at_once, bytes - at));
            read(offset + at, part);
            hasher.add(part);
        }
        hashes.push_back(hasher.value());
    };
    if (tensor.pieces.empty()) add(tensor.offset, tensor.bytes);
    for (const Piece& piece : tensor.pieces) add(piece.offset, piece.bytes);
    return joined_hash(hashes);
}

std::string tensor_json(const PlannedTensor& tensor) {
    std::string out = "{\"name\":";
    json::append_quoted(out, shown(tensor.name));
    const std::string_view from = tensor.work == Work::factors ? "F32" : tensor.source->type_name;
    const std::string_view to =
        tensor.work == Work::pieces ? code_name(tensor.piece_layout) : traits(tensor.type).name;
    return out + format_text(",\"from\":\"{}\",\"to\":\"{}\",\"shape\":[{}],\"bytes\":{}", from, to,
                             fmt::join(tensor.shape, ","), tensor.bytes);
}

std::string to_json(const Plan& plan, const std::vector<std::string>& tensors, std::string_view more) {
    std::string out = "{\"files\":[";
    for (const PlannedFile& file : plan.files) {
        if (&file != &plan.files.front()) out += ',';
        out += "{\"name\":";
        json::append_quoted(out, file.name);
        out += format_text(",\"bytes\":{},\"tensors\":{}}}", file.bytes, n_tensors_of(plan, file));
    }
    for (const auto& [name, text] : plan.side_files)
        out += format_text(",{{\"name\":\"{}\",\"bytes\":{},\"tensors\":0}}", name, text.size());
    out += format_text(
        "],\"bytes\":{},\"tensor_bytes\":{},\"bits_per_weight\":{},\"source_bytes\":{},\"free_bytes\":{},"
        "\"peak_memory_bytes\":{}",
        plan.bytes, plan.tensor_bytes, plan.bits_per_weight, plan.source_bytes, plan.free_bytes,
        plan.slabs.peak_bytes);
    out += more;
    out += ",\"tensors\":[";
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        if (i != 0) out += ',';
        out += tensors.empty() ? tensor_json(plan.tensors[i]) + '}' : tensors[i];
    }
    out += ']';
    append_names(out, "needs_importance", plan.needs_importance);
    append_names(out, "without_importance", plan.without_importance);
    append_names(out, "fallbacks", plan.fallbacks);
    append_names(out, "widened", plan.widened);
    out += '}';
    return out;
}

}  // namespace minim::convert
