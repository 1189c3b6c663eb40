// SPDX-License-Identifier: Apache-2.0
#include "check/machine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "backend/operations.h"
#include "base/format_text.h"
#include "base/hash.h"
#include "model/architecture.h"
#include "weights/reader.h"

namespace minim::check {
namespace {

using backend::Backend;
using weights::WeightSpec;

constexpr int64_t k_n_sample_rows = 64;  // of a matrix
constexpr size_t k_n_matrices = 3;       // of a format
constexpr int64_t k_n_inputs[] = {1, 3, 40};
constexpr double k_device_error = 0.02;  // devices may round inputs to 8 bits in other groups
constexpr uint64_t k_region_bytes = uint64_t{1} << 20;
constexpr uint64_t k_n_regions = 32;

// Some rows of a matrix, as the file has them.
struct SampleRows {
    const WeightSpec* weight = nullptr;
    std::vector<std::byte> bytes;
    int64_t n_rows = 0;
};

// Returns matrices of each format that products read: the first, one of the middle, and the last.
std::map<Format, std::vector<const WeightSpec*>> samples_of(const Opened& opened) {
    std::map<Format, std::vector<const WeightSpec*>> all;
    for (const WeightSpec& weight : opened.weights)
        if (weight.use == weights::Use::product && weight.rows >= k_n_sample_rows)
            all[weight.format].push_back(&weight);
    std::map<Format, std::vector<const WeightSpec*>> some;
    for (const auto& [format, matrices] : all)
        for (size_t i = 0; i < std::min(k_n_matrices, matrices.size()); ++i)
            some[format].push_back(matrices[i * (matrices.size() - 1) / (k_n_matrices - 1)]);
    return some;
}

SampleRows read_sample(const weights::Reader& reader, const WeightSpec& weight) {
    SampleRows sample{&weight,
                      std::vector<std::byte>(static_cast<size_t>(k_n_sample_rows * weight.row_bytes)),
                      k_n_sample_rows};
    const int64_t first = (weight.rows - k_n_sample_rows) / 2 / 16 * 16;
    reader.read(weight, static_cast<uint64_t>(first * weight.row_bytes), sample.bytes);
    return sample;
}

// Numbers between -1 and 1 that every machine makes alike.
std::vector<float> inputs_of(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    uint64_t state = 1;
    for (float& value : values) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        value = static_cast<float>(static_cast<int64_t>(state >> 40U)) / static_cast<float>(1 << 23) - 1.0F;
    }
    return values;
}

// Returns the products of the rows with 1, 3 and 40 inputs, each [n, rows], as the backend computes them.
std::vector<std::vector<float>> products(const Backend& backend, backend::Scratch& scratch,
                                         const SampleRows& sample, std::span<const float> inputs) {
    constexpr std::string_view k_what = "a check of the machine";
    const auto weights = backend.allocate(sample.bytes.size(), k_what);
    backend.write(weights->data(), sample.bytes.data(), sample.bytes.size());
    backend::Matrix matrix{.data = weights->data(),
                           .format = sample.weight->format,
                           .rows = sample.n_rows,
                           .cols = sample.weight->cols,
                           .row_bytes = sample.weight->row_bytes};
    if (backend.packs(matrix.format)) {
        std::byte* const data[] = {weights->data()};
        backend.pack(data, matrix);
        matrix.packed = true;
    }
    const auto h = backend.allocate(inputs.size_bytes(), k_what);
    backend.write(h->data(), std::as_bytes(inputs).data(), inputs.size_bytes());
    std::vector<std::vector<float>> all;
    for (const int64_t n : k_n_inputs) {
        std::vector<float>& results = all.emplace_back(n * matrix.rows);
        const uint64_t result_bytes = results.size() * sizeof(float);
        const auto y = backend.allocate(result_bytes, k_what);
        const backend::LinearTask task = {&matrix, reinterpret_cast<float*>(y->data()), false};
        backend.linear(scratch, reinterpret_cast<const float*>(h->data()), n, {&task, 1});
        backend.synchronize(scratch);
        backend.read(reinterpret_cast<std::byte*>(results.data()), y->data(), result_bytes);
    }
    return all;
}

// Returns the root mean square of the difference over that of `right`.
double relative_difference(std::span<const float> values, std::span<const float> right) {
    double of_difference = 0.0;
    double of_right = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double d = static_cast<double>(values[i]) - static_cast<double>(right[i]);
        of_difference += d * d;
        of_right += static_cast<double>(right[i]) * static_cast<double>(right[i]);
    }
    return of_difference == 0.0 ? 0.0 : std::sqrt(of_difference / of_right);
}

bool are_same_bits(std::span<const float> a, std::span<const float> b) {
    return hash_bytes(std::as_bytes(a)) == hash_bytes(std::as_bytes(b));
}

// A backend with room for the products.
struct Multiplier {
    std::shared_ptr<const Backend> backend;
    std::unique_ptr<backend::Scratch> scratch;
    bool needs_equal_bits = false;

    Multiplier(std::shared_ptr<const Backend> wanted, const model::Config& config, bool equal_bits)
        : backend(std::move(wanted)), needs_equal_bits(equal_bits) {
        backend::StepLimits limits = model::shape_of(config);
        limits.n_rows = *std::ranges::max_element(k_n_inputs);
        limits.n_context = limits.n_rows;
        scratch = backend->reserve(limits);
    }
};

void compare_products(const SampleRows& sample, const Multiplier& plain, std::span<const Multiplier> others,
                      Report& report) {
    const std::vector<float> inputs = inputs_of(*std::ranges::max_element(k_n_inputs) * sample.weight->cols);
    const auto right = products(*plain.backend, *plain.scratch, sample, inputs);
    for (const Multiplier& other : others) {
        if (!other.backend->runs(sample.weight->format)) continue;
        const auto found = products(*other.backend, *other.scratch, sample, inputs);
        for (size_t i = 0; i < right.size(); ++i) {
            const double difference = relative_difference(found[i], right[i]);
            const bool is_right =
                other.needs_equal_bits ? are_same_bits(found[i], right[i]) : difference <= k_device_error;
            if (is_right) continue;
            report.fault(
                FaultClass::machine, std::string(other.backend->name()),
                format_text(
                    "{} products of {} inputs with rows of {} differ by {:.3g} from those of plain code",
                    traits(sample.weight->format).name, k_n_inputs[i], sample.weight->source.tensor->name,
                    difference));
        }
    }
}

void read_twice(const checkpoint::Checkpoint& checkpoint, const CancelToken* cancel, Report& report) {
    std::vector<std::byte> region(k_region_bytes);
    for (const File& file : checkpoint.files()) {
        const uint64_t n_bytes = std::min(k_region_bytes, file.size());
        const uint64_t n_regions = std::min(k_n_regions, (file.size() + k_region_bytes - 1) / k_region_bytes);
        for (uint64_t i = 0; i < n_regions; ++i) {
            throw_if_cancelled(cancel, "the check");
            const uint64_t at = n_regions == 1 ? 0 : (file.size() - n_bytes) / (n_regions - 1) * i;
            uint64_t hashes[2] = {};
            for (uint64_t& hash : hashes) {
                file.forget(at, n_bytes);
                file.read_at(at, std::span(region).first(n_bytes));
                hash = hash_bytes(std::span(region).first(n_bytes));
            }
            if (hashes[0] != hashes[1])
                report.fault(
                    FaultClass::machine, file.path(),
                    format_text("{} bytes at {} are not the same when they are read twice", n_bytes, at));
        }
    }
}

}  // namespace

void check_machine(const Opened& opened, std::span<const std::shared_ptr<const Backend>> devices,
                   const placement::Threads& threads, CpuLevel level, const Reading& reading,
                   Report& report) {
    report.stages.emplace_back("machine");
    const Multiplier plain(placement::make_backend("cpu", threads, CpuLevel::scalar), opened.config, true);
    std::vector<Multiplier> others;
    others.emplace_back(placement::make_backend("cpu", threads, level), opened.config, true);
    for (const auto& device : devices)
        if (!device->uses_host_memory()) others.emplace_back(device, opened.config, false);
    const weights::Reader reader(opened.checkpoint);
    for (const auto& [format, matrices] : samples_of(opened)) {
        for (const WeightSpec* matrix : matrices) {
            throw_if_cancelled(reading.cancel, "the check");
            compare_products(read_sample(reader, *matrix), plain, others, report);
        }
    }
    read_twice(opened.checkpoint, reading.cancel, report);
}

}  // namespace minim::check
