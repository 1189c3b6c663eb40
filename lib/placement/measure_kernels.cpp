// SPDX-License-Identifier: Apache-2.0
#include "placement/measure_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/experts.h"
#include "backend/kv_view.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "placement/measure.h"
#include "placement/predict.h"

namespace minim::placement {
namespace {

// The shape of MiniMax-M2's layers, whatever the model: the figures are those of a device and a format.
constexpr int64_t k_hidden = 3072;
constexpr int64_t k_expert_ff = 1536;
constexpr int64_t k_heads = 48;
constexpr int64_t k_kv_heads = 8;
constexpr int64_t k_head_dim = 128;
constexpr int64_t k_used_experts = 8;  // experts of a row

// Weights are used in turn, so that no cache of the device has them: four rows' worth of experts, eight matrices of attention's output.
constexpr int64_t k_max_sets = 4;
constexpr int64_t k_max_matrices = 8;
// Many rows: each expert gets as many of them as in a step of 2,048 rows of the model with 256 experts.
constexpr int64_t k_slots_of_expert = 64;
// Small kernels in a row.
constexpr int64_t k_chain = 64;

constexpr double k_measured_seconds = 0.05;
// The least part of a time that belongs to the weights, once the time to start is taken off.
constexpr double k_min_weights_part = 0.25;
constexpr uint64_t k_alignment = 256;

// A format is measured only if the model has at least this many bytes of it.
constexpr uint64_t k_min_format_bytes = uint64_t{64} << 20;

// What a cached figure may be.
constexpr NumberRange k_start_range = {1e2, 1e9};  // a second
constexpr NumberRange k_operations_range = {1e7, 1e17};

constexpr const char* k_what_kernels = "measuring kernels";

// Matrices of one shape on a device, with random contents, packed if the device packs their format.
class DeviceMatrices {
  public:
    DeviceMatrices(const backend::Backend& device, Format format, int64_t rows, int64_t cols, int64_t count)
        : first_{.format = format, .rows = rows, .cols = cols, .row_bytes = row_bytes(format, cols)} {
        const auto bytes = static_cast<uint64_t>(rows * first_.row_bytes);
        memory_ =
            device.allocate(static_cast<uint64_t>(count) * align_up(bytes, k_alignment), k_what_kernels);
        // Codes at random, with scales of a normal size: every 16 bits are a small number as F16 and as the upper half of a float.
        std::vector<std::byte> contents(bytes);
        uint64_t state = 1;
        for (size_t at = 0; at < contents.size(); at += sizeof(uint16_t)) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            const auto word = static_cast<uint16_t>((state >> 48 & 0x0FFFU) | 0x2000U);
            std::memcpy(&contents[at], &word, std::min(sizeof(word), contents.size() - at));
        }
        for (int64_t i = 0; i < count; ++i) {
            places_.push_back(memory_->data() + static_cast<uint64_t>(i) * align_up(bytes, k_alignment));
            device.write(places_.back(), contents.data(), bytes);
        }
        first_.data = places_.front();
        if (!device.packs(format)) return;
        device.pack(places_, first_);
        first_.packed = true;
    }

    backend::Matrix matrix(int64_t i) const {
        backend::Matrix matrix = first_;
        matrix.data = places_[i];
        return matrix;
    }
    backend::ExpertStack stack() const {
        return {.format = first_.format,
                .rows = first_.rows,
                .cols = first_.cols,
                .row_bytes = first_.row_bytes,
                .expert = {places_.begin(), places_.end()},
                .scale = {},
                .packed = first_.packed,
                .blocks = {}};
    }

  private:
    backend::Matrix first_;
    std::unique_ptr<backend::Memory> memory_;
    std::vector<std::byte*> places_;
};

// Bytes of one expert of a format.
uint64_t expert_bytes(Format format) {
    return static_cast<uint64_t>(2 * k_expert_ff * row_bytes(format, k_hidden) +
                                 k_hidden * row_bytes(format, k_expert_ff));
}

// Times operations on a device.
class KernelTimer {
  public:
    explicit KernelTimer(const backend::Backend& device) : device_(device) {}

    // Returns the seconds of a small kernel behind another one.
    double start_seconds() {
        const float* x = put(std::vector<float>(k_hidden, 1.0F));
        float* h = put(std::vector<float>(k_hidden, 1.0F));
        float* weight = put(std::vector<float>(k_hidden, 1.0F));
        const auto stream = device_.reserve(limits(1));
        const double seconds = step_seconds(*stream, [&] {
            for (int64_t i = 0; i < k_chain; ++i)
                device_.norm(*stream, i % 2 == 0 ? x : h, 1, {weight, k_hidden}, 1e-6F, h);
        });
        return seconds / static_cast<double>(k_chain);
    }

    // Returns the bytes a second of a dense matrix and one row.
    double dense_rate(Format format, double start_seconds) {
        constexpr int64_t k_width = k_heads * k_head_dim;
        const auto bytes = static_cast<uint64_t>(k_hidden * row_bytes(format, k_width));
        const int64_t count = number_with_room(bytes, k_max_matrices);
        const DeviceMatrices weights(device_, format, k_hidden, k_width, count);
        const float* x = put(std::vector<float>(k_width, 0.5F));
        float* y = put(std::vector<float>(k_hidden));
        const auto stream = device_.reserve(limits(1));
        const double seconds = step_seconds(*stream, [&] {
            for (int64_t i = 0; i < count; ++i) {
                const backend::Matrix weight = weights.matrix(i);
                const backend::LinearTask task = {&weight, y, false};
                device_.linear(*stream, x, 1, {&task, 1});
            }
        });
        const auto n = static_cast<double>(count);
        return n * static_cast<double>(bytes) / without_start(seconds, n * start_seconds);
    }

    struct ExpertRates {
        double bytes = 0.0;       // a second, of one row
        double operations = 0.0;  // a second, of many rows
    };
    ExpertRates expert_rates(Format format, double start_seconds) {
        const int64_t n_sets = number_with_room(k_used_experts * expert_bytes(format), k_max_sets);
        const int64_t n_experts = n_sets * k_used_experts;
        const int64_t n_rows = n_experts * k_slots_of_expert / k_used_experts;
        const DeviceMatrices gate(device_, format, k_expert_ff, k_hidden, n_experts);
        const DeviceMatrices up(device_, format, k_expert_ff, k_hidden, n_experts);
        const DeviceMatrices down(device_, format, k_hidden, k_expert_ff, n_experts);
        backend::ExpertWeights weights = {.gate = gate.stack(), .up = up.stack(), .down = down.stack()};
        weights.places = put(backend::places_of(weights));
        // The slots take the experts in turn: row r has those of set r % n_sets.
        std::vector<int32_t> host_ids;
        for (int64_t slot = 0; slot < n_rows * k_used_experts; ++slot)
            host_ids.push_back(static_cast<int32_t>(slot % n_experts));
        const int32_t* ids = put(host_ids);
        const float* gates = put(std::vector<float>(host_ids.size(), 0.125F));
        const float* h = put(std::vector<float>(static_cast<size_t>(n_rows * k_hidden), 0.5F));
        float* y = put(std::vector<float>(static_cast<size_t>(n_rows * k_hidden)));
        ExpertRates rates;
        {
            const auto stream = device_.reserve(limits(1));
            const double seconds = step_seconds(*stream, [&] {
                for (int64_t set = 0; set < n_sets; ++set)
                    device_.experts(*stream, h, 1, ids + set * k_used_experts, gates, k_used_experts, weights,
                                    y, false);
            });
            const auto n = static_cast<double>(n_sets);
            rates.bytes = n * static_cast<double>(k_used_experts * expert_bytes(format)) /
                          without_start(seconds, n * start_seconds);
        }
        const auto stream = device_.reserve(limits(n_rows));
        const double seconds = seconds_of(*stream, [&] {
            device_.experts(*stream, h, n_rows, ids, gates, k_used_experts, weights, y, false);
        });
        rates.operations =
            6.0 * static_cast<double>(k_hidden * k_expert_ff * k_used_experts * n_rows) / seconds;
        return rates;
    }

  private:
    static backend::StepLimits limits(int64_t n_rows) {
        return {.n_rows = n_rows,
                .n_context = backend::k_kv_page_tokens,
                .hidden = k_hidden,
                .n_head = k_heads,
                .n_head_kv = k_kv_heads,
                .head_dim = k_head_dim,
                .n_expert = k_max_sets * k_used_experts,
                .n_expert_used = k_used_experts,
                .expert_ff = k_expert_ff,
                .n_vocab = k_hidden};
    }

    static double without_start(double seconds, double start_seconds) {
        return std::max(seconds - start_seconds, k_min_weights_part * seconds);
    }

    // Returns how many of at most `most` blocks take no more than half of the memory that is there.
    int64_t number_with_room(uint64_t bytes, int64_t most) const {
        const uint64_t room = device_.available_bytes() / 2;
        if (room < bytes)
            fail(Status::out_of_device_memory, "{} bytes needed for {}, {} bytes available", bytes,
                 k_what_kernels, room);
        return static_cast<int64_t>(std::min<uint64_t>(room / bytes, static_cast<uint64_t>(most)));
    }

    template <typename T>
    T* put(const std::vector<T>& values) {
        const uint64_t bytes = values.size() * sizeof(T);
        memory_.push_back(device_.allocate(bytes, k_what_kernels));
        device_.write(memory_.back()->data(), reinterpret_cast<const std::byte*>(values.data()), bytes);
        return reinterpret_cast<T*>(memory_.back()->data());
    }

    // Returns the seconds of one call of `work`, which starts operations in the stream.
    template <typename Work>
    double seconds_of(backend::Scratch& stream, const Work& work) const {
        work();  // kernels are loaded when they are first used
        device_.wait(stream);
        for (int64_t n = 1;; n *= 2) {
            const auto start = std::chrono::steady_clock::now();
            for (int64_t i = 0; i < n; ++i) work();
            device_.wait(stream);
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            if (taken.count() >= k_measured_seconds / 2) return taken.count() / static_cast<double>(n);
        }
    }
    // Returns the seconds of a step of one row, which a device may record and repeat.
    template <typename Work>
    double step_seconds(backend::Scratch& stream, const Work& work) {
        const backend::KvLayout layout = {.n_layer = 1, .n_head_kv = k_kv_heads, .head_dim = k_head_dim};
        const auto page = device_.allocate(static_cast<uint64_t>(layout.page_bytes()), k_what_kernels);
        std::byte* const pages[] = {page->data()};
        const backend::KvSequence sequence = {.layout = &layout, .pages = pages};
        const backend::KvRow row = {&sequence, 0};
        const backend::StepBatch batch = {
            .ids = {}, .rows = {&row, 1}, .n_head = k_heads, .n_head_kv = k_kv_heads, .calls = this};
        const auto step = [&] {
            do {
                if (device_.begin_step(stream, batch)) return;
                work();
            } while (!device_.end_step(stream));
        };
        for (int i = 0; i < 3; ++i) step();  // computed, recorded, repeated
        const double seconds = seconds_of(stream, step);
        device_.synchronize(stream);  // the page ends here
        return seconds;
    }

    const backend::Backend& device_;
    std::vector<std::unique_ptr<backend::Memory>> memory_;
};

// The formats that have many of a model's weights.
struct ManyFormats {
    std::array<uint64_t, k_format_count> experts = {};
    std::array<uint64_t, k_format_count> dense = {};
};

ManyFormats count_formats(std::span<const weights::WeightSpec> weights) {
    ManyFormats bytes;
    for (const weights::WeightSpec& weight : weights) {
        if (weight.use != weights::Use::product) continue;
        auto& of_use = weight.is_expert() ? bytes.experts : bytes.dense;
        of_use[static_cast<size_t>(weight.format)] += weight.bytes();
    }
    return bytes;
}

}  // namespace

void measure_kernels(DeviceFacts& facts, const std::function<const backend::Backend&()>& open,
                     std::span<const weights::WeightSpec> weights, CpuLevel level, const Logger& log) {
    const ManyFormats bytes = count_formats(weights);
    const std::string make = make_of(facts.name, level);
    DeviceFacts measured = facts;
    measured.kernels.clear();
    try {
        const double starts = cached_number(
            "start-" + make, [&] { return 1.0 / KernelTimer(open()).start_seconds(); }, k_start_range);
        measured.start_seconds = 1.0 / starts;
        for (const FormatTraits& entry : all_formats()) {
            const bool has_experts = bytes.experts[static_cast<size_t>(entry.format)] >= k_min_format_bytes;
            const bool has_dense = bytes.dense[static_cast<size_t>(entry.format)] >= k_min_format_bytes;
            if (!has_experts && !has_dense) continue;
            KernelRates rates = {.format = entry.format};
            const auto key = [&](const char* what) {
                return format_text("{}-{}-{}", what, entry.name, make);
            };
            if (has_experts) {
                KernelTimer::ExpertRates both;
                const auto measure = [&] {
                    if (both.bytes == 0.0)
                        both =
                            KernelTimer(open()).expert_rates(entry.format, experts_start_seconds(measured));
                    return both;
                };
                rates.experts = cached_number(key("experts"), [&] { return measure().bytes; });
                rates.expert_operations = cached_number(
                    key("experts-many"), [&] { return measure().operations; }, k_operations_range);
            }
            if (has_dense)
                rates.dense = cached_number(key("dense"), [&] {
                    return KernelTimer(open()).dense_rate(entry.format, measured.start_seconds);
                });
            measured.kernels.push_back(rates);
        }
    } catch (const Error& error) {
        return log.info("{}: its kernels are not measured, so that their speed is estimated: {}", facts.name,
                        error.what());
    }
    measured.has_measured_kernels = !measured.kernels.empty();
    facts = std::move(measured);
}

void measure_kernels(DeviceFacts& facts, std::string_view text, std::span<const weights::WeightSpec> weights,
                     const Threads& threads, CpuLevel level, const Logger& log) {
    std::shared_ptr<const backend::Backend> device;
    const auto open = [&]() -> const backend::Backend& {
        if (device == nullptr) device = open_measured(facts.name, text, threads, level);
        return *device;
    };
    measure_kernels(facts, open, weights, level, log);
}

void measure_kernels(Machine& machine, std::span<const weights::WeightSpec> weights, CpuLevel level,
                     const Logger& log) {
    for (int64_t d = 0; d < machine.host_place(); ++d) {
        const backend::Backend& device = *machine.backends[d];
        if (device.uses_host_memory()) continue;
        const auto open = [&]() -> const backend::Backend& { return device; };
        measure_kernels(machine.devices[d], open, weights, level, log);
    }
}

}  // namespace minim::placement
