// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "placement/measure.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/setting.h"
#include "support/temporary_folder.h"

using namespace minim;
using namespace minim::placement;
using namespace minim::test;

namespace {

weights::WeightSpec product(Format format, int64_t rows) {
    return {.use = weights::Use::product,
            .format = format,
            .rows = rows,
            .cols = 3072,
            .row_bytes = row_bytes(format, int64_t{3072})};
}

}  // namespace

TEST_CASE("the speed of kernels is measured for formats with many weights, and once") {
    const TemporaryFolder folder;
    const Setting cache("XDG_CACHE_HOME", folder.path());
    const auto pool = std::make_shared<const ThreadPool>(1);
    const Threads threads = {.prompt = pool, .decode = pool, .memory = {}};
    // 65 MB of Q8_0, a few of Q4_K, and as many of IQ2_XXS as of Q8_0, which may be unpacked.
    const std::vector<weights::WeightSpec> weights = {
        product(Format::q8_0, 21000), product(Format::q4_k, 1000), product(Format::iq2_xxs, 90000)};
    const auto rates = [&] {
        HostFacts host;
        measure_rates(host, weights, threads, active_cpu_level(), {});
        return host.rates;
    };
    const std::vector<FormatRate> measured = rates();
    REQUIRE(measured.size() == 2);
    for (const FormatRate& rate : measured) {
        CHECK((rate.format == Format::q8_0 || rate.format == Format::iq2_xxs));
        CHECK(rate.bytes_per_second > 1e7);
        CHECK(rate.bytes_per_second < 1e12);
    }

    int n_files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder / "minim")) {
        ++n_files;
        if (file.path().filename().string().find("Q8_0") != std::string::npos)
            write_text(file.path(), "12345678900\n");
    }
    CHECK(n_files == 2);
    for (const FormatRate& rate : rates())
        if (rate.format == Format::q8_0) CHECK(rate.bytes_per_second == 12345678900.0);
}
