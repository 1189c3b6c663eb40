// SPDX-License-Identifier: Apache-2.0
#include "placement/predict.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "placement/bytes.h"
#include "placement/plan.h"

namespace minim::placement {
namespace {

// The time of a device's matrices for one row is that of reading them, m, and that of decoding them, k, of which each hides
// part of the other: cube_root(m^3 + k^3), beside the time to start. Fitted to ten decode speeds of an H100 and an H200 with five mixes of
// formats (docs/performance.md), which it meets within 8 %.
//
// The share of the nominal bandwidth that reading reaches, also for the KV cache, and the share that copies reach, which are
// what is measured. The figures of kernels that were measured on the device replace m, k and the time to start. The host: 0.80 of the
// nominal bandwidth. For formats that are not measured: 0.93 of the measured read bandwidth.
constexpr double k_device_part = 0.80;
constexpr double k_copy_part = 0.87;
constexpr double k_kv_part = 0.75;
constexpr double k_host_part = 0.80;
constexpr double k_measured_part = 0.93;

// The share of the multiprocessors' cycles in which kernels decode, and the cycles that a card of unknown kind has a second: as an
// H200's 132 multiprocessors at 1.75 GHz, but fewer with less memory bandwidth. The exponent lies between cards of the same years.
constexpr double k_cycle_part = 0.65;
constexpr double k_cycles_h200 = 132 * 1.75e9;
constexpr double k_bandwidth_h200 = 4.8e12;
constexpr double k_cycles_exponent = 0.3;

// Seconds to start the experts of a layer, and a dense matrix: q, k, v; o; the router.
constexpr double k_start_experts_seconds = 5.7e-6;
constexpr double k_start_dense_seconds = 1.3e-6;
constexpr double k_dense_starts = 3;

// Seconds of each layer in which kernels start and wait for each other without reading memory: attention of a short context,
// norms, and the borders between kernels. On the host: starting jobs of the threads.
constexpr double k_device_layer_seconds = 22e-6;
constexpr double k_host_layer_seconds = 25e-6;
// Seconds to send the residual stream to the host and back, with both waits: once for each layer with offloaded experts.
constexpr double k_hand_over_seconds = 45e-6;
constexpr double k_between_devices_seconds = 30e-6;
// Seconds to send inputs and choices to the host, and its experts' outputs back: once for each layer whose experts the device and
// the host compute together. Measured on an H200.
constexpr double k_exchange_seconds = 14.5e-6;

// Operations a second that kernels reach for each cycle of the multiprocessors: 105 T on an H200. On the host: for each byte
// a second of memory bandwidth, 5.8 T on a server with 576 GB/s and 16 cores.
constexpr double k_device_operations = 105e12 / k_cycles_h200;
constexpr double k_host_operations = 10.0;

// Cycles of a multiprocessor to decode 32 rows x 32 columns of weights and multiply them by one row: the largest of integer instructions
// by 2, all instructions by 4 (cuda/README.md), and loads from shared memory. Those of formats that are not counted are
// taken from their relatives.
constexpr double k_cycles_of_unlisted = 40.0;
struct FormatCycles {
    Format format;
    double cycles;
};
constexpr FormatCycles k_cycles[] = {
    {Format::f32, 16},      {Format::f16, 16},
    {Format::bf16, 16},     {Format::q8_0, 20.5},
    {Format::q4_0, 20},     {Format::q4_1, 20},
    {Format::q5_0, 25},     {Format::q5_1, 25},
    {Format::iq4_nl, 28.5}, {Format::mxfp4, 31.5},
    {Format::nvfp4, 33},    {Format::q2_k, 22},
    {Format::q3_k, 30},     {Format::q4_k, 20},
    {Format::q5_k, 25},     {Format::q6_k, 29},
    {Format::iq2_xxs, 24},  {Format::iq2_xs, 25},
    {Format::iq2_s, 25},    {Format::iq3_xxs, 46},
    {Format::iq3_s, 46},    {Format::iq4_xs, 32.5},
    {Format::iq5_k, 69},    {Format::iq5_ks, 69},
    {Format::iq6_k, 115},   {Format::fp8_e4m3_b128, 39.5},
};

double host_bandwidth(const HostFacts& host) {
    return host.bytes_per_second * (host.is_measured ? k_measured_part : k_host_part);
}

double nominal_bandwidth(const DeviceFacts& device) {
    return device.bytes_per_second / (device.is_measured ? k_copy_part : 1.0);
}

double device_bandwidth(const DeviceFacts& device) {
    return nominal_bandwidth(device) * k_device_part;
}

double cycles_per_second(const DeviceFacts& device) {
    if (device.multiprocessor_hz > 0.0) return device.multiprocessor_hz;
    return k_cycles_h200 * std::pow(nominal_bandwidth(device) / k_bandwidth_h200, k_cycles_exponent);
}

// Returns the rate that was measured for a format; 0: none was.
double measured_rate(const DeviceFacts& device, Format format, double KernelRates::*rate) {
    const auto known = std::ranges::find(device.kernels, format, &KernelRates::format);
    return known == device.kernels.end() ? 0.0 : *known.*rate;
}

// Returns the seconds of a share of matrices for one row, once they have started.
double matrix_seconds(const DeviceFacts& device, std::span<const FormatPart> matrices, double share,
                      double KernelRates::*rate) {
    double measured = 0.0;
    double bytes = 0.0;
    double cycles = 0.0;
    for (const FormatPart& part : matrices) {
        if (const double known = measured_rate(device, part.format, rate); known > 0.0) {
            measured += part.bytes / known;
        } else {
            bytes += part.bytes;
            cycles += part.cycles;
        }
    }
    const double read = share * bytes / device_bandwidth(device);
    const double decode = share * cycles / (cycles_per_second(device) * k_cycle_part);
    return share * measured + std::cbrt(read * read * read + decode * decode * decode);
}

double dense_seconds_of(const DeviceFacts& device, std::span<const FormatPart> matrices) {
    return matrix_seconds(device, matrices, 1.0, &KernelRates::dense);
}

// Returns the seconds of a part of the experts of a layer for one row.
double expert_seconds_of(const DeviceFacts& device, std::span<const FormatPart> experts, double share) {
    return experts_start_seconds(device) + matrix_seconds(device, experts, share, &KernelRates::experts);
}

// Returns the operations a second of the experts of many rows; `otherwise`: of a format that was not measured.
double expert_operations(const DeviceFacts& device, std::span<const FormatPart> experts, double otherwise) {
    double numbers = 0.0;
    double seconds_a_row = 0.0;  // if each number were one operation
    for (const FormatPart& part : experts) {
        const double known = measured_rate(device, part.format, &KernelRates::expert_operations);
        numbers += part.numbers;
        seconds_a_row += part.numbers / (known > 0.0 ? known : otherwise);
    }
    return numbers > 0.0 ? numbers / seconds_a_row : otherwise;
}

// Returns the operations of a row beside those of experts, on average over a prompt of n_context tokens: projections, attention to
// half of the context or to the chosen blocks, scores of index keys, and a dense feed-forward.
double dense_operations(const model::Config& config, int64_t layer, double n_context) {
    const backend::SparseAttention& sparse = config.sparse_attention;
    const bool is_sparse = config.is_sparse(layer);
    const auto hidden = static_cast<double>(config.hidden);
    const auto q = static_cast<double>(config.n_head * config.head_dim);
    const auto kv = static_cast<double>(config.n_head_kv * config.head_dim);
    const double index = is_sparse ? static_cast<double>(sparse.n_head * sparse.dim) : 0.0;
    const double index_key = is_sparse ? static_cast<double>(sparse.dim) : 0.0;
    const auto dense = static_cast<double>(config.has_experts(layer) ? config.shared_ff : config.dense_ff);
    double n_keys = n_context / 2.0;
    if (is_sparse) n_keys = std::min(n_keys, static_cast<double>(sparse.top * sparse.block));
    const double products = 2.0 * hidden * (2.0 * q + 2.0 * kv + index + index_key + 3.0 * dense);
    return products + 4.0 * q * n_keys + 2.0 * index * n_context / 2.0;
}

// One device or the host.
struct Speed {
    double bytes_per_second;
    double operations_per_second;
};

class Predictor {
  public:
    Predictor(const Machine& machine, const ModelBytes& bytes, std::span<const uint64_t> kv_reads,
              const Plan& plan)
        : machine_(machine), bytes_(bytes), plan_(plan), kv_reads_(kv_reads) {}

    DecodeSeconds decode() const {
        DecodeSeconds seconds;
        for (size_t l = 0; l < bytes_.layers.size(); ++l) {
            const LayerBytes& layer = bytes_.layers[l];
            const int64_t own = plan_.layer_place[l];
            const int64_t experts = plan_.expert_place[l];
            seconds.dense += is_host(own) ? layer.dense_on_host
                                          : k_dense_starts * dense_start_seconds(facts_of(own)) +
                                                dense_seconds_of(facts_of(own), layer.dense_parts);
            seconds.kv_cache += static_cast<double>(kv_reads_[l]) /
                                (is_host(own) ? speed_of(own).bytes_per_second
                                              : nominal_bandwidth(facts_of(own)) * k_kv_part);
            const double cached = plan_.cached_part[l];
            const double here = experts_on(own, layer, cached * used_part(layer));
            const double there = experts_on(experts, layer, (1.0 - cached) * used_part(layer));
            seconds.device_experts += here;
            (is_host(experts) ? seconds.host_experts : seconds.device_experts) += there;
            seconds.overlap += std::min(here, there);
            seconds.launches += is_host(own) ? k_host_layer_seconds : k_device_layer_seconds;
            if (own != experts) seconds.hand_over += cached > 0.0 ? k_exchange_seconds : k_hand_over_seconds;
            if (l > 0 && own != plan_.layer_place[l - 1]) seconds.hand_over += k_between_devices_seconds;
        }
        const int64_t last = plan_.layer_place.back();
        seconds.dense += is_host(last) ? bytes_.head_on_host
                                       : dense_start_seconds(facts_of(last)) +
                                             dense_seconds_of(facts_of(last), bytes_.head_parts);
        return seconds;
    }

    // Returns the speed of a prompt as long as the context, in micro-batches. Each reads the weights that it needs once and
    // multiplies every row by them; the devices work one after the other.
    double prompt_tokens_per_second() const {
        const double n_rows = static_cast<double>(std::min(plan_.n_ubatch, plan_.n_context));
        double seconds = 0.0;
        for (size_t l = 0; l < bytes_.layers.size(); ++l) {
            const int64_t own = plan_.layer_place[l];
            const int64_t experts = plan_.expert_place[l];
            seconds += dense_seconds(own, l, n_rows);
            seconds += plan_.cached_part[l] > 0.0 ? shared_seconds(l, n_rows)
                                                  : expert_seconds(experts, bytes_.layers[l], n_rows, 1.0);
            seconds +=
                k_device_layer_seconds + (own != experts ? crossing_seconds(own, experts, n_rows) : 0.0);
        }
        return n_rows / seconds;
    }

  private:
    // A device that only rules name counts as the host: its speed is not known.
    bool is_host(int64_t place) const { return place >= machine_.host_place(); }
    const DeviceFacts& facts_of(int64_t device) const { return machine_.devices[device]; }

    Speed speed_of(int64_t place) const {
        if (is_host(place))
            return {host_bandwidth(machine_.host), machine_.host.bytes_per_second * k_host_operations};
        const DeviceFacts& facts = facts_of(place);
        return {device_bandwidth(facts), cycles_per_second(facts) * k_device_operations};
    }

    // Returns the part of the experts that is read for one token.
    double used_part(const LayerBytes& layer) const {
        if (layer.n_experts == 0) return 0.0;
        return static_cast<double>(bytes_.config.n_expert_used) / static_cast<double>(layer.n_experts);
    }

    // Returns the seconds of a part of a layer's experts for one row.
    double experts_on(int64_t place, const LayerBytes& layer, double part) const {
        if (is_host(place)) return part * layer.experts_on_host;
        if (part * static_cast<double>(layer.experts) <= 0.0) return 0.0;
        return expert_seconds_of(facts_of(place), layer.expert_parts, part);
    }

    double dense_seconds(int64_t place, size_t l, double n_rows) const {
        const Speed speed = speed_of(place);
        const double bytes =
            static_cast<double>(bytes_.layers[l].dense) + static_cast<double>(kv_reads_[l]) / 2.0;
        return std::max(bytes / speed.bytes_per_second,
                        n_rows *
                            dense_operations(bytes_.config, static_cast<int64_t>(l),
                                             static_cast<double>(plan_.n_context)) /
                            speed.operations_per_second);
    }

    // Returns the seconds for a part of the experts.
    double expert_seconds(int64_t place, const LayerBytes& layer, double n_rows, double part) const {
        if (layer.n_experts == 0) return 0.0;
        const model::Config& config = bytes_.config;
        const Speed speed = speed_of(place);
        const double operations = 2.0 * 3.0 * static_cast<double>(config.hidden * config.expert_ff) *
                                  static_cast<double>(config.n_expert_used);
        const double read = static_cast<double>(layer.experts) * std::min(1.0, used_part(layer) * n_rows);
        const double rate = is_host(place) ? speed.operations_per_second
                                           : expert_operations(facts_of(place), layer.expert_parts,
                                                               speed.operations_per_second);
        return part * std::max(read / speed.bytes_per_second, n_rows * operations / rate);
    }

    // Returns the seconds of a layer whose experts the device and the host compute at the same time. Experts are copied to the
    // device if that pays. Of the experts that the device lacks, the host then computes as many as it can while the others are
    // copied.
    double shared_seconds(size_t l, double n_rows) const {
        const LayerBytes& layer = bytes_.layers[l];
        const auto bytes = static_cast<double>(layer.experts);
        const int64_t own = plan_.layer_place[l];
        const double cached = plan_.cached_part[l];
        const double on_host = expert_seconds(plan_.expert_place[l], layer, n_rows, 1.0 - cached);
        const DeviceFacts& device = facts_of(own);
        const auto n_expert = static_cast<double>(bytes_.config.n_expert);
        const auto rule =
            stream_rule(device, machine_.host, bytes_.config, bytes / n_expert, static_cast<int64_t>(n_rows));
        if (!rule.is_on()) return std::max(expert_seconds(own, layer, n_rows, cached), on_host);
        const double all_copies = (1.0 - cached) * bytes / device.link_bytes_per_second;
        const double copied_part = on_host / (on_host + all_copies);
        const double on_device = expert_seconds(own, layer, n_rows, cached + (1.0 - cached) * copied_part);
        return std::max(on_device, copied_part * all_copies);
    }

    double crossing_seconds(int64_t own, int64_t experts, double n_rows) const {
        double link = 0.0;
        for (const int64_t place : {own, experts})
            if (!is_host(place)) link = facts_of(place).link_bytes_per_second;
        const double bytes = 2.0 * n_rows * static_cast<double>(bytes_.config.hidden) * sizeof(float);
        return k_hand_over_seconds + (link > 0.0 ? bytes / link : 0.0);
    }

    const Machine& machine_;
    const ModelBytes& bytes_;
    const Plan& plan_;
    const std::span<const uint64_t> kv_reads_;  // by layer
};

}  // namespace

namespace {

// What links of ranks take that nothing is known of: a sum of a few KB on all of them, and PCIe 4.0 or, between hosts, 10 Gbit/s
// Ethernet.
constexpr double k_sum_seconds = 20e-6;
constexpr double k_device_link = 25e9;
constexpr double k_host_link = 1.25e9;

class RankPredictor {
  public:
    RankPredictor(const Machine& machine, std::span<const ModelBytes> ranks,
                  std::span<const uint64_t> kv_reads, const LinkFacts& link, const Plan& plan)
        : machine_(machine),
          ranks_(ranks),
          config_(ranks.front().config),
          plan_(plan),
          kv_reads_(kv_reads),
          is_on_host_(machine.devices.empty()),
          link_(completed(link)) {}

    // The ranks of a stage work at once, the stages one after the other.
    DecodeSeconds decode() const {
        DecodeSeconds seconds;
        for (int64_t stage = 0; stage < plan_.parallel.pipeline; ++stage) {
            DecodeSeconds slowest;
            for (int64_t i = 0; i < plan_.parallel.ranks_of_stage(); ++i) {
                const DecodeSeconds one = decode_of(stage * plan_.parallel.ranks_of_stage() + i);
                if (one.total() > slowest.total()) slowest = one;
            }
            seconds.dense += slowest.dense;
            seconds.kv_cache += slowest.kv_cache;
            seconds.device_experts += slowest.device_experts;
            seconds.host_experts += slowest.host_experts;
            seconds.launches += slowest.launches;
            seconds.sums += slowest.sums;
        }
        const auto n_borders = static_cast<double>(plan_.parallel.pipeline - 1);
        seconds.hand_over = n_borders * (link_.sum_seconds + row_bytes() / link_.bytes_per_second);
        return seconds;
    }

    double prompt_tokens_per_second() const {
        const double n_rows = static_cast<double>(std::min(plan_.n_ubatch, plan_.n_context));
        double seconds = 0.0;
        for (int64_t stage = 0; stage < plan_.parallel.pipeline; ++stage) {
            double slowest = 0.0;
            for (int64_t i = 0; i < plan_.parallel.ranks_of_stage(); ++i)
                slowest =
                    std::max(slowest, step_seconds(stage * plan_.parallel.ranks_of_stage() + i, n_rows));
            seconds += slowest;
        }
        return n_rows / seconds;
    }

  private:
    const DeviceFacts& facts_of(int64_t rank) const { return machine_.devices[rank]; }
    double row_bytes() const { return static_cast<double>(config_.hidden) * sizeof(float); }
    double n_used() const { return static_cast<double>(config_.n_expert_used); }

    // All ranks of a sum wait for the slowest link.
    LinkFacts completed(LinkFacts link) const {
        if (link.sum_seconds == 0.0) link.sum_seconds = k_sum_seconds;
        if (link.bytes_per_second > 0.0) return link;
        link.bytes_per_second = is_on_host_ ? k_host_link : k_device_link;
        for (const DeviceFacts& device : machine_.devices)
            if (device.link_bytes_per_second > 0.0)
                link.bytes_per_second = std::min(link.bytes_per_second, device.link_bytes_per_second);
        return link;
    }

    Speed speed_of(int64_t rank) const {
        if (is_on_host_)
            return {host_bandwidth(machine_.host), machine_.host.bytes_per_second * k_host_operations};
        return {device_bandwidth(facts_of(rank)), cycles_per_second(facts_of(rank)) * k_device_operations};
    }

    // Returns the exchanges of a layer for few rows: squares of q and k, the sum behind attention, that behind the experts.
    double sums_of_layer() const {
        if (plan_.parallel.ranks_of_stage() == 1) return 0.0;
        return plan_.parallel.tensor > 1 ? 3.0 : 1.0;
    }

    DecodeSeconds decode_of(int64_t rank) const {
        const ModelBytes& bytes = ranks_[rank];
        const double n_experts =
            fullest_group(config_.n_expert, config_.n_expert_used, plan_.parallel.expert_groups);
        DecodeSeconds seconds;
        for (size_t l = 0; l < bytes.layers.size(); ++l) {
            const LayerBytes& layer = bytes.layers[l];
            if (layer.dense == 0) continue;  // of another stage
            const auto kv = static_cast<double>(kv_reads_[l]);
            const double part = layer.n_experts == 0 ? 0.0 : n_experts / static_cast<double>(layer.n_experts);
            seconds.sums += sums_of_layer() * link_.sum_seconds;
            if (is_on_host_) {
                seconds.dense += layer.dense_on_host;
                seconds.kv_cache += kv / host_bandwidth(machine_.host);
                seconds.host_experts += part * layer.experts_on_host;
                seconds.launches += k_host_layer_seconds;
                continue;
            }
            const DeviceFacts& device = facts_of(rank);
            seconds.dense +=
                k_dense_starts * dense_start_seconds(device) + dense_seconds_of(device, layer.dense_parts);
            seconds.kv_cache += kv / (nominal_bandwidth(device) * k_kv_part);
            if (layer.n_experts > 0)
                seconds.device_experts += expert_seconds_of(device, layer.expert_parts, part);
            seconds.launches += k_device_layer_seconds;
        }
        if (bytes.head == 0) return seconds;
        seconds.dense += is_on_host_ ? bytes.head_on_host
                                     : dense_start_seconds(facts_of(rank)) +
                                           dense_seconds_of(facts_of(rank), bytes.head_parts);
        return seconds;
    }

    // Returns the seconds of a rank for a step of many rows.
    double step_seconds(int64_t rank, double n_rows) const {
        const Speed speed = speed_of(rank);
        const auto hidden = static_cast<double>(config_.hidden);
        const double slots = n_used() / static_cast<double>(plan_.parallel.expert_groups);
        const double operations_of_experts = 6.0 * hidden * static_cast<double>(config_.expert_ff) * slots;
        const double read_part = std::min(1.0, n_rows * n_used() / static_cast<double>(config_.n_expert));
        double seconds = 0.0;
        for (size_t l = 0; l < ranks_[rank].layers.size(); ++l) {
            const LayerBytes& layer = ranks_[rank].layers[l];
            if (layer.dense == 0) continue;
            const double operations =
                dense_operations(config_, static_cast<int64_t>(l), static_cast<double>(plan_.n_context));
            seconds += std::max((static_cast<double>(layer.dense) + static_cast<double>(kv_reads_[l]) / 2.0) /
                                    speed.bytes_per_second,
                                n_rows * operations / speed.operations_per_second);
            const double expert_rate = is_on_host_ ? speed.operations_per_second
                                                   : expert_operations(facts_of(rank), layer.expert_parts,
                                                                       speed.operations_per_second);
            if (layer.n_experts > 0)
                seconds += std::max(static_cast<double>(layer.experts) * read_part / speed.bytes_per_second,
                                    n_rows * operations_of_experts / expert_rate);
            seconds +=
                (is_on_host_ ? k_host_layer_seconds : k_device_layer_seconds) + exchange_seconds(n_rows);
        }
        return seconds;
    }

    // Returns the seconds of a layer's exchanges of many rows. With whole experts on hosts, each slot's output goes to all ranks.
    double exchange_seconds(double n_rows) const {
        const auto n_ranks = static_cast<double>(plan_.parallel.ranks_of_stage());
        if (n_ranks == 1.0) return 0.0;
        const double part = (n_ranks - 1.0) / n_ranks;
        const bool shares_slots =
            is_on_host_ && plan_.parallel.tensor == 1 && plan_.parallel.expert_parts == 1;
        const double n_sums = plan_.parallel.tensor > 1 ? 2.0 : 1.0;
        const double rows = n_rows * (shares_slots ? n_used() : 2.0 * n_sums);
        return n_sums * link_.sum_seconds + rows * row_bytes() * part / link_.bytes_per_second;
    }

    const Machine& machine_;
    const std::span<const ModelBytes> ranks_;
    const model::Config& config_;
    const Plan& plan_;
    const std::span<const uint64_t> kv_reads_;  // by layer
    const bool is_on_host_;
    const LinkFacts link_;
};

}  // namespace

double host_rate(const HostFacts& host, Format format) {
    const auto measured = std::ranges::find(host.rates, format, &FormatRate::format);
    return measured == host.rates.end() ? host_bandwidth(host) : measured->bytes_per_second;
}

double decode_cycles(Format format, int64_t rows, int64_t cols) {
    const auto* const known = std::ranges::find(k_cycles, format, &FormatCycles::format);
    const double cycles = known == std::end(k_cycles) ? k_cycles_of_unlisted : known->cycles;
    constexpr double k_unit = 32.0 * 32.0;
    return static_cast<double>(rows) * static_cast<double>(cols) / k_unit * cycles;
}

double dense_start_seconds(const DeviceFacts& device) {
    return device.start_seconds > 0.0 ? device.start_seconds : k_start_dense_seconds;
}

double experts_start_seconds(const DeviceFacts& device) {
    return dense_start_seconds(device) * (k_start_experts_seconds / k_start_dense_seconds);
}

double experts_rate(const DeviceFacts& device, std::span<const FormatPart> experts) {
    double bytes = 0.0;
    for (const FormatPart& part : experts) bytes += part.bytes;
    return bytes / matrix_seconds(device, experts, 1.0, &KernelRates::experts);
}

double balanced_part(double device_rate, double host_rate) {
    return device_rate / (device_rate + host_rate);
}

runtime::StreamRule stream_rule(const DeviceFacts& device, const HostFacts& host, const model::Config& config,
                                double expert_bytes, int64_t n_rows) {
    if (!(device.link_bytes_per_second > 0.0) || !(host.bytes_per_second > 0.0)) return {};
    const double copy_seconds = expert_bytes / device.link_bytes_per_second;
    const double slot_seconds = 6.0 * static_cast<double>(config.hidden * config.expert_ff) /
                                (host.bytes_per_second * k_host_operations);
    const double break_even_slots = copy_seconds / slot_seconds;
    const double even_slots =
        static_cast<double>(n_rows * config.n_expert_used) / static_cast<double>(config.n_expert);
    if (even_slots < break_even_slots) return {};
    return {.break_even_slots = break_even_slots};
}

void predict(const Machine& machine, const ModelBytes& bytes, std::span<const uint64_t> kv_reads,
             Plan& plan) {
    const Predictor predictor(machine, bytes, kv_reads, plan);
    plan.decode_seconds = predictor.decode();
    plan.decode_tokens_per_second = 1.0 / plan.decode_seconds.total();
    plan.prompt_tokens_per_second = predictor.prompt_tokens_per_second();
}

// Counts the choices in which no group has more than m experts, for each m: the coefficient of x^n_used in the product over the groups
// of sum_j<=m C(size, j) x^j.
double fullest_group(int64_t n_expert, int64_t n_used, int64_t n_groups) {
    const auto choices = [](int64_t n, int64_t k) {
        double count = 1.0;
        for (int64_t i = 0; i < k; ++i) count *= static_cast<double>(n - i) / static_cast<double>(i + 1);
        return count;
    };
    double mean = 0.0;
    for (int64_t most = 0; most < n_used; ++most) {
        std::vector<double> ways(n_used + 1, 0.0);
        ways[0] = 1.0;
        for (int64_t group = 0; group < n_groups; ++group) {
            const int64_t size = (n_expert - group + n_groups - 1) / n_groups;
            std::vector<double> more(n_used + 1, 0.0);
            for (int64_t k = 0; k <= n_used; ++k)
                for (int64_t j = 0; j <= std::min({most, size, k}); ++j)
                    more[k] += ways[k - j] * choices(size, j);
            ways = std::move(more);
        }
        mean +=
            1.0 - ways[n_used] / choices(n_expert, n_used);  // the chance that a group has more than `most`
    }
    return mean;
}

void predict_ranks(const Machine& machine, std::span<const ModelBytes> ranks,
                   std::span<const uint64_t> kv_reads, const LinkFacts& link, Plan& plan) {
    const RankPredictor predictor(machine, ranks, kv_reads, link, plan);
    plan.decode_seconds = predictor.decode();
    plan.decode_tokens_per_second = 1.0 / plan.decode_seconds.total();
    plan.prompt_tokens_per_second = predictor.prompt_tokens_per_second();
}

}  // namespace minim::placement
