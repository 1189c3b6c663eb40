// SPDX-License-Identifier: Apache-2.0
// Importance data that is collected on a CUDA device.
#include "engine/importance.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "gpu/models.h"
#include "gpu/support.h"
#include "support/catch.h"
#include "support/helpers.h"

namespace minim::test {
namespace {

using backend::Arithmetic;
using checkpoint::ImportanceData;

const std::string k_m3_path = MINIM_TEST_DATA "/models/minim-tiny-m3";

// Evaluates tokens in steps of some numbers of rows.
ImportanceData importance_on(const std::shared_ptr<const model::Model>& model,
                             const std::vector<size_t>& n_rows) {
    const Logger silent;
    const auto n_tokens = std::accumulate(n_rows.begin(), n_rows.end(), size_t{0});
    const engine::Importance importance(model,
                                        {.chunk_size = static_cast<int64_t>(n_tokens), .with_head = true});
    engine::SessionParams params;
    params.n_context = n_tokens;
    params.k_format = params.v_format = Format::f32;
    engine::Session session(model, params, silent);
    session.observe(importance.inputs());
    const std::vector<int32_t> ids = some_ids(n_tokens);
    size_t at = 0;
    for (const size_t n : n_rows) {
        session.eval(std::span(ids).subspan(at, n), false, {}, nullptr);
        at += n;
    }
    return importance.data();
}

// Returns the norm of the difference in proportion to that of the expected ones.
template <typename T>
double difference(const std::vector<T>& expected, const std::vector<T>& actual) {
    REQUIRE(expected.size() == actual.size());
    double errors = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const auto e = static_cast<double>(expected[i]);
        const double d = static_cast<double>(actual[i]) - e;
        errors += d * d;
        squares += e * e;
    }
    return std::sqrt(errors / std::max(squares, 1e-300));
}

double rows_of(const std::vector<float>& counts) {
    return std::accumulate(counts.begin(), counts.end(), 0.0);
}

// Returns the sums of all matrices together.
std::vector<double> total_of(const checkpoint::ImportanceEntry& entry) {
    std::vector<double> total(static_cast<size_t>(entry.columns));
    for (size_t i = 0; i < entry.sums.size(); ++i)
        total[i % total.size()] += static_cast<double>(entry.sums[i]);
    return total;
}

// Checks the relative differences of all data from the reference's.
void check_near(const ImportanceData& expected, const ImportanceData& actual, double most,
                double most_of_total) {
    REQUIRE(actual.entries.size() == expected.entries.size());
    for (size_t i = 0; i < expected.entries.size(); ++i) {
        INFO(expected.entries[i].name);
        CHECK(rows_of(actual.entries[i].counts) == rows_of(expected.entries[i].counts));
        CHECK(difference(expected.entries[i].sums, actual.entries[i].sums) < most);
        CHECK(difference(total_of(expected.entries[i]), total_of(actual.entries[i])) < most_of_total);
        CHECK(difference(expected.entries[i].in_max, actual.entries[i].in_max) < most);
        CHECK(difference(expected.entries[i].out_norm, actual.entries[i].out_norm) < most);
    }
}

}  // namespace

TEST_CASE("gpu: importance data in exact arithmetic is the reference's") {
    if (!has_devices(1)) return;
    std::vector<std::string> paths(std::begin(k_models), std::end(k_models));
    paths.push_back(k_m3_path);
    for (const std::string& path : paths) {
        INFO(path);
        const ImportanceData expected = importance_on(open_on(path, {}, Arithmetic::exact), {40});
        const auto model = open_on(path, {0}, Arithmetic::exact);
        for (const std::vector<size_t>& n_rows :
             {std::vector<size_t>{40}, std::vector<size_t>{33, 5, 1, 1}}) {
            const ImportanceData actual = importance_on(model, n_rows);
            check_near(expected, actual, 1e-5, 1e-5);
            for (size_t i = 0; i < expected.entries.size(); ++i)
                CHECK(actual.entries[i].counts == expected.entries[i].counts);
        }
    }
}

TEST_CASE("gpu: importance data in fast arithmetic is near the reference's") {
    if (!has_devices(1)) return;
    // Rounded inputs move the later layers, and a row whose best experts are almost alike may choose another one: with 40 rows, some
    // experts see one row more or less.
    struct Case {
        std::string path;
        double most;           // of each expert
        double most_of_total;  // of all experts of a layer together
    };
    for (const auto& [path, most, most_of_total] :
         {Case{k_models[0], 0.1, 0.05}, Case{k_models[1], 0.1, 0.08}, Case{k_models[2], 0.1, 0.05},
          Case{k_m3_path, 0.4, 0.25}}) {
        INFO(path);
        const ImportanceData expected = importance_on(open_on(path, {}, Arithmetic::exact), {40});
        // Rows sorted by expert, slot by slot, and one by one.
        const ImportanceData actual = importance_on(open_on(path, {0}, Arithmetic::fast), {33, 5, 1, 1});
        check_near(expected, actual, most, most_of_total);
        // Nothing is rounded before the first layer.
        for (size_t i = 0; i < expected.entries.size(); ++i)
            if (expected.entries[i].name == "blk.0.attn_q.weight")
                CHECK(difference(expected.entries[i].sums, actual.entries[i].sums) < 1e-5);
    }
}

}  // namespace minim::test
