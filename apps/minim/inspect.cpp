// SPDX-License-Identifier: Apache-2.0
// Prints what a checkpoint's headers say. Names and values come from the file, so they are printed with control characters
// escaped.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "open_model.h"
#include "output.h"
#include "quantisation.h"

namespace cli {
namespace {

constexpr size_t k_array_elements = 8;
constexpr size_t k_value_bytes = 160;

struct FormatTotal {
    uint64_t n_tensors = 0;
    double elements = 0.0;
    uint64_t bytes = 0;
};

// A safetensors file starts with the length of its header: these four bytes would make it a gigabyte, which
// no reader accepts. In a folder the library looks for safetensors first.
bool is_gguf(const std::string& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        const std::filesystem::path folder(path);
        return !std::filesystem::exists(folder / "model.safetensors.index.json", error) &&
               !std::filesystem::exists(folder / "model.safetensors", error);
    }
    std::ifstream file(path, std::ios::binary);
    std::array<char, 4> magic{};
    file.read(magic.data(), magic.size());
    return std::string_view(magic.data(), magic.size()) == "GGUF";
}

std::vector<minim_tensor_info> tensors_of(const minim::Checkpoint& checkpoint) {
    std::vector<minim_tensor_info> tensors;
    for (size_t i = 0; i < checkpoint.tensor_count(); ++i) tensors.push_back(checkpoint.tensor(i));
    return tensors;
}

// Returns the number of elements, as a double: a hostile file may claim more elements than fit into an integer.
double element_count(const minim_tensor_info& tensor) {
    double count = 1.0;
    for (int32_t i = 0; i < tensor.n_dims; ++i) count *= static_cast<double>(tensor.dims[i]);
    return count;
}

void print_summary(const Options& options, const minim::Checkpoint& checkpoint) {
    print(fmt::format("file:      {}\n", printable(options.model)));
    print(fmt::format("kind:      {}\n", is_gguf(options.model) ? "gguf" : "safetensors"));
    print(fmt::format("files:     {}\n", checkpoint.file_count()));
    print(fmt::format("bytes:     {}\n", checkpoint.file_bytes()));
    print(fmt::format("metadata:  {}\n", checkpoint.metadata_count()));
    print(fmt::format("tensors:   {}\n", checkpoint.tensor_count()));
}

void print_metadata(const minim::Checkpoint& checkpoint) {
    if (checkpoint.metadata_count() == 0) return;
    print("\nmetadata\n");
    for (size_t i = 0; i < checkpoint.metadata_count(); ++i) {
        const char* key = checkpoint.metadata_key(i);
        const minim::Text value = checkpoint.metadata(key, k_array_elements);
        print(fmt::format("  {} = {}\n", printable(key), printable(value.view(), k_value_bytes)));
    }
}

std::string shape_text(const minim_tensor_info& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.dims, tensor.dims + tensor.n_dims, ", "));
}

void print_tensors(const std::vector<minim_tensor_info>& tensors) {
    if (tensors.empty()) return;
    print("\ntensors\n");
    size_t name_width = 0;
    size_t shape_width = 0;
    for (const minim_tensor_info& tensor : tensors) {
        name_width = std::max(name_width, printable(tensor.name).size());
        shape_width = std::max(shape_width, shape_text(tensor).size());
    }
    for (const minim_tensor_info& tensor : tensors) {
        print(fmt::format("  {:<{}}  {:<{}}  {:<8}  {:>14}\n", printable(tensor.name), name_width,
                          shape_text(tensor), shape_width, printable(tensor.format), tensor.bytes));
    }
}

void print_totals(const std::vector<minim_tensor_info>& tensors) {
    if (tensors.empty()) return;
    std::map<std::string, FormatTotal> totals;
    for (const minim_tensor_info& tensor : tensors) {
        FormatTotal& total = totals[printable(tensor.format)];
        total.n_tensors += 1;
        total.elements += element_count(tensor);
        total.bytes += tensor.bytes;
    }
    print("\ntotals by format\n");
    for (const auto& [format, total] : totals) {
        const double bits =
            total.elements > 0 ? static_cast<double>(total.bytes) * 8.0 / total.elements : 0.0;
        print(fmt::format("  {:<8}  {:6} tensors  {:16.0f} elements  {:16} bytes  {:6.3f} bits each\n",
                          format, total.n_tensors, total.elements, total.bytes, bits));
    }
}

std::string sampling_text(const minim::Checkpoint& checkpoint) {
    const minim_recommended_sampling sampling = checkpoint.recommended_sampling();
    if (*sampling.source == 0) return "sampling:  nothing is recommended\n";
    std::string text = fmt::format("sampling:  temperature {}, top_p {}, top_k {}", sampling.temperature,
                                   sampling.top_p, sampling.top_k);
    if (sampling.min_p > 0) text += fmt::format(", min_p {}", sampling.min_p);
    if (sampling.repetition_penalty != 1) {
        text += fmt::format(", repetition_penalty {}", sampling.repetition_penalty);
        if (sampling.penalty_last_n >= 0) text += fmt::format(" (last {} tokens)", sampling.penalty_last_n);
    }
    return text + fmt::format(" are recommended ({})\n", sampling.source);
}

}  // namespace

void inspect(const Options& options) {
    const minim::Runtime runtime = open_runtime(options);
    const minim::Checkpoint checkpoint(runtime, options.model);
    const std::vector<minim_tensor_info> tensors = tensors_of(checkpoint);
    print_summary(options, checkpoint);
    print(quantisation_text(options.model));
    print(sampling_text(checkpoint));
    if (options.show_metadata) print_metadata(checkpoint);
    if (options.show_tensors) print_tensors(tensors);
    print_totals(tensors);
    flush_output();
}

}  // namespace cli
