// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/format_text.h"
#include "layouts/layout.h"

namespace minim::layouts {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Tensor;

// The first layout that detects its tensors reads the matrix.
constexpr const Layout* k_layouts[] = {&k_mxfp8, &k_fp8,   &k_int8, &k_packed_integers,
                                       &k_nvfp4, &k_mxfp4, &k_awq,  &k_gptq};
constexpr const Layout* k_stacks[] = {&k_transposed_stack, &k_fp8_stack};

std::string found_text(const AssembledRows& matrix) {
    constexpr std::string_view k_names[] = {"FP8", "MXFP8", "NVFP4", "MXFP4", "whole numbers"};
    const std::string_view name = k_names[static_cast<int64_t>(*matrix.method)];
    if (matrix.group == 0) return std::string(name);
    return format_text("{} in groups of {}", name, matrix.group);
}

// Throws format if a file of the folder declares another quantisation of the matrix.
void check_against_declarations(const PackingHints& hints, const std::string& stem,
                                const AssembledRows& matrix) {
    if (!matrix.method) return;
    const int64_t whole_row = matrix.group == matrix.cols ? -1 : matrix.group;
    const auto agrees = [&](const Declaration::Entry& entry) {
        const bool has_group =
            entry.group == 0 || matrix.group == 0 || entry.group == matrix.group || entry.group == whole_row;
        return entry.method == *matrix.method && has_group;
    };
    for (const Declaration& declaration : hints.declarations) {
        const auto own = declaration.modules.find(stem);
        if (own != declaration.modules.end() && !agrees(own->second))
            fail_file(Reason::value, "tensor {} holds {}, {} says {} of it", matrix.codes->name,
                      found_text(matrix), declaration.file, own->second.text);
        if (own != declaration.modules.end() || declaration.entries.empty() ||
            std::ranges::any_of(declaration.entries, agrees))
            continue;
        fail_file(Reason::value, "tensor {} holds {}, {} declares {}", matrix.codes->name, found_text(matrix),
                  declaration.file, declaration.entries.front().text);
    }
}

std::optional<AssembledRows> find_in(std::span<const Layout* const> layouts, const Tensors& tensors) {
    const auto found =
        std::ranges::find_if(layouts, [&](const Layout* layout) { return layout->detect(tensors); });
    if (found == layouts.end()) return {};
    AssembledRows matrix = (*found)->check(tensors);
    check_against_declarations(tensors.hints, tensors.stem, matrix);
    return matrix;
}

void read_rows(const Checkpoint& checkpoint, const AssembledRows& matrix, int64_t first, int64_t end,
               std::byte* out) {
    for (int64_t r = first; r < end; r += k_rows_together)
        matrix.read({checkpoint, r, std::min(k_rows_together, end - r), matrix.row_bytes,
                     out + (r - first) * matrix.row_bytes});
}

}  // namespace

std::optional<AssembledRows> find_assembled(const FindTensor& find, const std::string& name, int64_t rows,
                                            int64_t cols, const PackingHints& hints) {
    constexpr std::string_view k_codes[] = {".weight", ".weight_packed", ".qweight"};
    if (!name.ends_with(k_codes[0])) return {};
    const std::string stem = name.substr(0, name.size() - k_codes[0].size());
    const Tensor* codes = nullptr;
    std::string_view codes_suffix;
    for (const std::string_view suffix : k_codes) {
        const Tensor* tensor = find(stem + std::string(suffix));
        if (tensor == nullptr) continue;
        if (codes != nullptr)  // it is not known which one is valid
            fail_file(Reason::value, "tensors {} and {} both hold one matrix", codes->name, tensor->name);
        codes = tensor;
        codes_suffix = suffix;
    }
    if (codes == nullptr) return {};
    return find_in(k_layouts, {find, stem, codes_suffix, *codes, rows, cols, hints});
}

std::optional<AssembledRows> find_stacked(const FindTensor& find, const std::string& name, int64_t rows,
                                          int64_t cols, const StackPart& part, const PackingHints& hints) {
    const Tensor* codes = find(name);
    if (codes == nullptr) return {};
    return find_in(k_stacks, {find, name, "", *codes, rows, cols, hints, part});
}

void read_assembled(const Checkpoint& checkpoint, const AssembledRows& matrix, uint64_t at,
                    std::span<std::byte> out) {
    const auto begin = static_cast<int64_t>(at);
    const int64_t n_bytes = std::ssize(out);
    const int64_t first = begin / matrix.row_bytes;
    const int64_t end = (begin + n_bytes + matrix.row_bytes - 1) / matrix.row_bytes;
    const int64_t before = begin - first * matrix.row_bytes;
    if (before == 0 && n_bytes == (end - first) * matrix.row_bytes)
        return read_rows(checkpoint, matrix, first, end, out.data());
    std::vector<std::byte> rows((end - first) * matrix.row_bytes);
    read_rows(checkpoint, matrix, first, end, rows.data());
    std::copy_n(rows.begin() + before, n_bytes, out.begin());
}

}  // namespace minim::layouts
