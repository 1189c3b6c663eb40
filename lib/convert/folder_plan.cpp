// SPDX-License-Identifier: Apache-2.0
#include "convert/folder_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "convert/folder_files.h"
#include "model/tensor_names.h"

namespace minim::convert {
namespace {

namespace names = model::names;

constexpr std::string_view k_suffix = ".weight";
constexpr uint64_t k_shard_bytes = 5'000'000'000;

void refuse_option(bool is_given, std::string_view what) {
    if (is_given) fail(Status::invalid, "{} for GGUF files, not for a folder", what);
}

void check_folder_options(const Options& options) {
    const TypeOptions& types = options.types;
    refuse_option(types.target == Target::plain, "a type of all matrices (--type) is");
    refuse_option(types.recipe.has_value(), "recipes are");
    refuse_option(types.output_type || types.embedding_type,
                  "types of the output and the embedding (--output-tensor-type, --token-embedding-type) are");
    refuse_option(types.is_pure || types.keeps_output,
                  "exceptions of recipes (--pure, --leave-output-tensor) are");
    refuse_option(!options.edits.empty() || !options.name.empty(),
                  "changes of metadata (--set, --set-file, --unset, --override-kv, --name) are");
    refuse_option(!options.reuse.empty(), "earlier outputs (--reuse) are");
    refuse_option(
        options.keeps_split || options.limits.tensors != 0 || options.limits.first_without_tensors,
        "limits of parts but their size (--split-max-tensors, --keep-split, --no-tensor-first-split) are");
}

// ---- rules

// A rule of a folder: matrices of the layout, or plain ones.
struct FolderRule {
    std::string text;
    std::regex pattern;
    bool is_quantised = false;
    bool has_matched = false;
};

FolderRule parse_folder_rule(const std::string& text, FolderLayout layout) {
    constexpr size_t k_longest_pattern = size_t{16} << 10;
    const size_t equals = text.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size() || equals > k_longest_pattern)
        fail(Status::invalid, "the rule '{}' is not of the form PATTERN=TYPE", text);
    const std::string_view type = std::string_view(text).substr(equals + 1);
    const std::optional<FolderLayout> wanted = find_folder_layout(type);
    if (!wanted || (*wanted != layout && *wanted != FolderLayout::bf16))
        fail(Status::invalid, "the rule '{}': matrices of a folder of layout {} are {} or bf16", text,
             name_of(layout), name_of(layout));
    try {
        return {text, std::regex(text.substr(0, equals)), *wanted != FolderLayout::bf16};
    } catch (const std::regex_error& error) {
        fail(Status::invalid, "the rule '{}': {}", text, error.what());
    }
}

// Returns whether a tensor is a stack of chosen experts, by its name in GGUF.
bool is_of_experts(std::string_view name) {
    return name.find("_exps.") != std::string_view::npos;
}

class FolderRules {
  public:
    FolderRules(const std::vector<std::string>& texts, FolderLayout layout) : layout_(layout) {
        for (const std::string& text : texts) rules_.push_back(parse_folder_rule(text, layout));
    }

    // Returns whether a matrix of a layer is quantised. Projections of the index stay plain unless a rule says otherwise.
    bool is_quantised(const SourceTensor& tensor) {
        std::optional<bool> decided;
        for (FolderRule& rule : rules_) {
            if (!std::regex_search(tensor.name, rule.pattern)) continue;
            rule.has_matched = true;
            if (!decided) decided = rule.is_quantised;
        }
        if (layout_ == FolderLayout::bf16) return false;
        const bool is_expert = is_of_experts(tensor.name);
        return decided.value_or(is_expert ||
                                (tensor.stays_float ? includes_index(layout_) : includes_attention(layout_)));
    }

    void check_all_matched() const {
        for (const FolderRule& rule : rules_)
            if (!rule.has_matched)
                fail(Status::invalid, "the rule '{}' matches no matrix; the names are like {}", rule.text,
                     names::stacked_expert(0, "up"));
    }

  private:
    FolderLayout layout_;
    std::vector<FolderRule> rules_;
};

// ---- tensors

// Plans the tensors of a folder in the order of layers.
class FolderPlanner {
  public:
    FolderPlanner(const Options& options, const Source& source, const Importance* importance, Plan& plan)
        : options_(options),
          importance_(importance),
          layout_(*plan.layout),
          rules_(options.types.rules, layout_),
          plan_(plan) {
        weights_.layout = layout_;
        weights_.n_expert = source.config.n_expert;
        weights_.n_dense_layer = source.config.n_dense_layer;
        weights_.version = options.program_version;
        for (const SourceTensor& tensor : source.tensors) by_name_[tensor.name] = &tensor;
    }

    void run(int64_t n_layer) {
        weights_.has_input_scales = has_matrix_factor(layout_) && has_input_peaks(n_layer);
        add_plain(names::embedding(), "BF16");
        for (int64_t layer = 0; layer < n_layer; ++layer) add_layer(layer);
        add_plain(names::output_norm(), "BF16");
        add_plain(names::output(), "BF16");
        rules_.check_all_matched();
        point_to_matrices();
    }

    const FolderWeights& weights() const { return weights_; }

  private:
    const SourceTensor* find(const std::string& gguf_name) const {
        const auto found = by_name_.find(gguf_name);
        return found == by_name_.end() ? nullptr : found->second;
    }

    // The names of GGUF and of folders come in this order.
    void add_plain(const names::Spellings& spellings, std::string_view type) {
        if (const SourceTensor* tensor = find(spellings[0])) add_plain_matrix(*tensor, spellings[1], type);
    }

    void add_layer(int64_t layer) {
        using names::Part;
        for (const Part part :
             {Part::attn_q, Part::attn_k, Part::attn_v, Part::attn_output, Part::index_q, Part::index_k}) {
            const names::Spellings spellings = names::layer(layer, part);
            if (const SourceTensor* tensor = find(spellings[0])) add_module(*tensor, layer, spellings[1]);
        }
        for (const Part part : {Part::attn_q_norm, Part::attn_k_norm, Part::index_q_norm, Part::index_k_norm,
                                Part::attn_norm, Part::ffn_norm})
            add_plain(names::layer(layer, part), "BF16");
        for (const auto part : {names::ExpertPart::gate, names::ExpertPart::up, names::ExpertPart::down}) {
            for (const names::Spellings& spellings :
                 {names::dense(layer, part), names::shared_expert(layer, part)})
                if (const SourceTensor* tensor = find(spellings[0])) add_module(*tensor, layer, spellings[1]);
        }
        add_plain(names::layer(layer, Part::router), "F32");
        const names::Spellings bias = names::layer(layer, Part::router_bias);
        weights_.has_router_bias = weights_.has_router_bias || find(bias[0]) != nullptr;
        add_plain(bias, "F32");
        add_experts(layer);
    }

    // A matrix that is one module: a projection of attention, or of a feed-forward that every row takes.
    void add_module(const SourceTensor& tensor, int64_t layer, const std::string& name) {
        const std::string stem = name.substr(0, name.size() - k_suffix.size());
        const bool is_quantised = rules_.is_quantised(tensor);
        weights_.modules.push_back({stem, layer, false, is_quantised});
        if (is_quantised) {
            add_quantised(tensor, stem);
        } else {
            add_plain_matrix(tensor, name, "BF16");
        }
    }

    // Experts one after the other, each with its matrices.
    void add_experts(int64_t layer) {
        constexpr std::pair<const char*, names::ExpertPart> k_parts[] = {{"gate", names::ExpertPart::gate},
                                                                         {"down", names::ExpertPart::down},
                                                                         {"up", names::ExpertPart::up}};
        struct Stack {
            const SourceTensor* tensor;
            names::ExpertPart part;
            bool is_quantised;
        };
        std::vector<Stack> stacks;
        for (const auto& [name, part] : k_parts) {
            const SourceTensor* tensor = find(names::stacked_expert(layer, name));
            if (tensor == nullptr) continue;
            stacks.push_back({tensor, part, rules_.is_quantised(*tensor)});
            std::string module = names::single_expert(layer, 0, part)[0];
            module.resize(module.size() - k_suffix.size());
            module.replace(module.find(".experts.0."), std::string_view(".experts.0.").size(), ".experts.*.");
            weights_.modules.push_back({module, layer, true, stacks.back().is_quantised});
        }
        const int64_t n_expert = stacks.empty() ? 0 : std::ssize(stacks.front().tensor->matrices);
        for (int64_t expert = 0; expert < n_expert; ++expert) {
            for (const Stack& stack : stacks) {
                const std::string name = names::single_expert(layer, expert, stack.part)[0];
                const SourceTensor matrix = matrix_of(*stack.tensor, expert);
                if (stack.is_quantised) {
                    add_quantised(matrix, name.substr(0, name.size() - k_suffix.size()));
                } else {
                    add_plain_matrix(matrix, name, "BF16");
                }
            }
        }
    }

    static SourceTensor matrix_of(const SourceTensor& stack, int64_t expert) {
        SourceTensor matrix;
        matrix.name = stack.name;
        matrix.shape = {stack.n_rows, stack.n_columns};
        matrix.type_name = stack.type_name;
        matrix.format = stack.format;
        matrix.n_columns = stack.n_columns;
        matrix.n_rows = stack.n_rows;
        matrix.row_bytes = stack.row_bytes;
        matrix.is_matrix = stack.is_matrix;
        matrix.has_factors = stack.has_factors;
        matrix.matrices = {stack.matrices[expert]};
        matrix.experts = {stack.number_in_stack(expert)};
        matrix.n_stacked = stack.n_matrices_of_stack();
        return matrix;
    }

    PlannedTensor& add(const SourceTensor& source, std::string name) {
        plan_.matrices.push_back(source);
        PlannedTensor tensor;
        tensor.name = std::move(name);
        tensor.shape = source.shape;
        plan_.tensors.push_back(std::move(tensor));
        return plan_.tensors.back();
    }

    void add_plain_matrix(const SourceTensor& source, const std::string& name, std::string_view type) {
        PlannedTensor& tensor = add(source, name);
        tensor.type = type == "F32" ? Format::f32 : Format::bf16;
        tensor.work = source.format == tensor.type && !source.has_factors ? Work::copy : Work::encode;
        tensor.bytes = static_cast<uint64_t>(source.all_rows() * row_bytes(tensor.type, source.n_columns));
        Piece piece{name, type, source.shape};
        piece.line_bytes = row_bytes(tensor.type, source.n_columns);
        piece.bytes = tensor.bytes;
        tensor.pieces.push_back(std::move(piece));
    }

    void add_quantised(const SourceTensor& source, const std::string& stem) {
        if (source.n_columns % column_multiple(layout_) != 0)
            fail(Status::invalid, "tensor {}: rows of {} are no multiple of {}, as the layout {} needs",
                 shown(source.name), source.n_columns, column_multiple(layout_), name_of(layout_));
        const bool has_few_bits = source.row_bytes < source.n_columns;
        if (has_few_bits && !keeps_codes(layout_, source.format) && !options_.types.allows_requantize)
            fail(Status::invalid,
                 "tensor {} is {}, below 8 bits, and would be encoded again, as {}: a folder made of the "
                 "original weights is better; --allow-requantize does it all the same",
                 shown(source.name), traits(source.format).name, name_of(layout_));
        PlannedTensor& tensor = add(source, stem + std::string(k_suffix));
        tensor.work = Work::pieces;
        tensor.piece_layout = layout_;
        tensor.pieces = pieces_of(layout_, stem, source.n_rows, source.n_columns, weights_.has_input_scales);
        for (const Piece& piece : tensor.pieces) tensor.bytes += piece.bytes;
    }

    // Returns whether importance data has the largest inputs of all matrices that are quantised.
    bool has_input_peaks(int64_t n_layer) {
        if (importance_ == nullptr) return false;
        bool has_any = false;
        for (const auto& [name, tensor] : by_name_) {
            if (names::layer_of(name) < 0 || names::layer_of(name) >= n_layer) continue;
            const bool is_module = tensor->is_matrix || name.find(".indexer.") != std::string::npos;
            if (!is_module || tensor->shape.size() < 2 || !rules_.is_quantised(*tensor)) continue;
            importance_->check(*tensor);
            if (!(importance_->input_peak(*tensor, 0) > 0.0F)) return false;
            has_any = true;
        }
        return has_any;
    }

    // The list of matrices does not grow any more.
    void point_to_matrices() {
        for (size_t i = 0; i < plan_.tensors.size(); ++i) plan_.tensors[i].source = &plan_.matrices[i];
    }

    const Options& options_;
    const Importance* importance_;
    FolderLayout layout_;
    FolderRules rules_;
    Plan& plan_;
    FolderWeights weights_;
    std::map<std::string, const SourceTensor*, std::less<>> by_name_;  // of GGUF
};

// ---- files

void cut_into_shards(uint64_t limit, Plan& plan) {
    plan.files.push_back({"", 0, 0, 0});
    uint64_t bytes = 0;
    for (int64_t i = 0; i < std::ssize(plan.tensors); ++i) {
        const PlannedTensor& tensor = plan.tensors[i];
        if (bytes + tensor.bytes > limit && plan.files.back().count > 0) {
            plan.files.push_back({"", 0, i, 0});
            bytes = 0;
        }
        ++plan.files.back().count;
        bytes += tensor.bytes;
    }
}

void place_pieces(Plan& plan) {
    for (int64_t f = 0; f < std::ssize(plan.files); ++f) {
        PlannedFile& file = plan.files[f];
        file.name = checkpoint::shard_name(f + 1, std::ssize(plan.files));
        const checkpoint::NewHeader header = checkpoint::make_safetensors_header(safetensors_of(plan, f));
        file.bytes = header.file_bytes;
        plan.bytes += file.bytes;
        size_t next = 0;
        for (int64_t i = file.first; i < file.first + file.count; ++i) {
            PlannedTensor& tensor = plan.tensors[i];
            tensor.file = f;
            tensor.offset = header.offsets[next];
            for (Piece& piece : tensor.pieces) piece.offset = header.offsets[next++];
        }
    }
}

}  // namespace

std::vector<checkpoint::NewSafetensor> safetensors_of(const Plan& plan, int64_t file) {
    const PlannedFile& planned = plan.files[file];
    std::vector<checkpoint::NewSafetensor> tensors;
    for (int64_t i = planned.first; i < planned.first + planned.count; ++i)
        for (const Piece& piece : plan.tensors[i].pieces)
            tensors.push_back({piece.name, piece.type, piece.shape, piece.bytes});
    return tensors;
}

void plan_folder(const Options& options, const Source& source, const Importance* importance,
                 const Logger& log, Plan& plan) {
    check_folder_options(options);
    FolderPlanner planner(options, source, importance, plan);
    planner.run(source.config.n_layer);
    cut_into_shards(options.limits.bytes != 0 ? options.limits.bytes : k_shard_bytes, plan);
    place_pieces(plan);
    plan.side_files = folder_files(source, planner.weights(), log);
    std::vector<std::vector<checkpoint::NewSafetensor>> shards;
    for (int64_t f = 0; f < std::ssize(plan.files); ++f) shards.push_back(safetensors_of(plan, f));
    plan.side_files.emplace_back(checkpoint::k_index_name, checkpoint::safetensors_index(shards));
    for (const auto& [name, text] : plan.side_files) plan.bytes += text.size();
}

}  // namespace minim::convert
