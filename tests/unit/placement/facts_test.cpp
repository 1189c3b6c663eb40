// SPDX-License-Identifier: Apache-2.0
#include "placement/facts.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "placement/measure.h"
#include "support/catch.h"
#include "support/files.h"
#include "support/helpers.h"
#include "support/setting.h"
#include "support/temporary_folder.h"

using namespace minim;
using namespace minim::test;
using namespace minim::placement;

TEST_CASE("a device is described by its name, memory and bandwidths in any unit") {
    const DeviceFacts device = parse_device("cuda:0=96GiB,1790GB/s,pcie=50GB/s");
    CHECK(device.name == "cuda:0");
    CHECK(device.memory_bytes == uint64_t{96} << 30);
    CHECK(device.bytes_per_second == 1790e9);
    CHECK(device.link_bytes_per_second == 50e9);

    const DeviceFacts other = parse_device("CUDA12=1.5TB,0.9TiB/s");
    CHECK(other.name == "cuda:12");
    CHECK(other.memory_bytes == 1'500'000'000'000);
    CHECK(other.bytes_per_second == 0.9 * 1099511627776.0);
    CHECK(other.link_bytes_per_second == 0.0);

    const DeviceFacts unified = parse_device("cuda:0=121.6GiB,273GB/s,unified");
    CHECK(unified.is_unified);
    CHECK(unified.bytes_per_second == 273e9);
    CHECK(unified.link_bytes_per_second == 0.0);
    CHECK_FALSE(device.is_unified);

    CHECK(parse_device("sim:0=4096kB,7B/s").memory_bytes == 4'096'000);
    CHECK(parse_device("sim:0=4096KiB,7B/s").memory_bytes == 4'194'304);
    CHECK(parse_host("768GiB,576GB/s").memory_bytes == uint64_t{768} << 30);
    CHECK(parse_host("64GB,100MiB/s").bytes_per_second == 104'857'600.0);
}

TEST_CASE("a device of this machine needs no numbers") {
    for (const auto& [text, memory] :
         {std::pair{"CUDA0", uint64_t{0}}, std::pair{"cuda:0=96GiB", uint64_t{96} << 30}}) {
        INFO(text);
        const DeviceFacts facts = parse_device(text);
        CHECK(facts.name == "cuda:0");
        CHECK(facts.memory_bytes == memory);
        CHECK(facts.bytes_per_second == 0.0);
        CHECK_FALSE(facts.is_measured);
    }
}

TEST_CASE("a rate that was measured once comes from the cache") {
    const TemporaryFolder folder;
    const Setting cache("XDG_CACHE_HOME", folder.path());
    int n_measured = 0;
    const auto measure = [&] {
        ++n_measured;
        return 2e9 + 0.25;
    };
    CHECK(cached_number("a device: of/two words", measure) == 2e9);  // rounded, as a file has it
    CHECK(cached_number("a device: of/two words", measure) == 2e9);
    CHECK(n_measured == 1);
    CHECK(cached_number("another device", measure) == 2e9);
    CHECK(n_measured == 2);
    // A file that holds no rate counts for nothing.
    for (const char* text : {"1e99\n", "-3\n", "fast\n", ""}) {
        INFO(text);
        for (const auto& file : std::filesystem::directory_iterator(folder / "minim"))
            write_text(file.path(), text);
        n_measured = 0;
        CHECK(cached_number("a device: of/two words", measure) == 2e9);
        CHECK(n_measured == 1);
    }
}

TEST_CASE("a text that describes no device is quoted") {
    for (const char* text : {"",
                             "cuda:0=",
                             "=96GiB,1GB/s",
                             "cuda:0=96,1GB/s",
                             "cuda:0=96GiB,1GB",
                             "cuda:0=96GiB,1GB/s,",
                             "cuda:0=96GiB,1GB/s,50GB/s",
                             "cuda:0=96GiB,unified",
                             "cuda:0=96GiB,1GB/s,pcie=50GB/s,unified",
                             "cuda:0=96GiB,1GB/s,unified,unified",
                             "cuda:0=96GiB,1GB/s,Unified",
                             "cuda:0=96GiB,1GB/s,pcie=50GB",
                             "cuda:0=-1GiB,1GB/s",
                             "cuda:0=0GiB,1GB/s",
                             "cuda:0=96gib,1GB/s",
                             "cuda:0=96 GiB,1GB/s",
                             "cuda:0=1e3GiB,1GB/s",
                             "cuda:0=nanGiB,1GB/s",
                             "cuda:0=infGiB,1GB/s",
                             "cuda:0=99999999999TiB,1GB/s",
                             "CPU=96GiB,1GB/s",
                             "cuda:0=96GiB,1GB/s,pcie=50GB/s,x",
                             "cu da=96GiB,1GB/s",
                             "cuda:x=96GiB,1GB/s",
                             "cuda=96GiB,1GB/s",
                             "cuda:=96GiB,1GB/s",
                             "cuda:-1=96GiB,1GB/s",
                             "cuda:01=96GiB,1GB/s",
                             "cuda:0:1=96GiB,1GB/s",
                             ":0=96GiB,1GB/s",
                             "0:0=96GiB,1GB/s",
                             "cuda:99999=96GiB,1GB/s",
                             "gpu_0",
                             "cuda:0=0.5B,1GB/s"}) {
        INFO(text);
        expect_error(Status::invalid, "'" + std::string(text) + "'", [&] { parse_device(text); });
    }
    for (const char* text : {"", "768GiB", "768GiB,576GB", "768,576GB/s", "768GiB,576GB/s,1GB/s", "x,y"}) {
        INFO(text);
        expect_error(Status::invalid, "'" + std::string(text) + "'", [&] { parse_host(text); });
    }
}

TEST_CASE("a link is a time and a bandwidth") {
    const LinkFacts link = parse_link("9us, 20GB/s");
    CHECK(link.sum_seconds == Approx(9e-6));
    CHECK(link.bytes_per_second == 20e9);
    CHECK(parse_link("20GB/s,0.5ms").sum_seconds == Approx(5e-4));
    CHECK(parse_link("20us").bytes_per_second == 0.0);
    CHECK(parse_link("25GB/s").sum_seconds == 0.0);
    for (const char* text :
         {"", "9", "9us,", "9us,9us", "1GB/s,2GB/s", "9us,20GB", "-9us", "2s", "9us,20GB/s,1us", "nan us"}) {
        INFO(text);
        expect_error(Status::invalid, "link '" + std::string(text) + "'", [&] { parse_link(text); });
    }
}

TEST_CASE("cards have their figures, with and without a name and a count") {
    const auto names = [](const std::vector<std::string>& texts) {
        std::string all;
        for (const DescribedDevice& device : parse_devices(texts)) all += device.facts.name + " ";
        return all;
    };
    const DeviceFacts card = parse_devices({"RTX 3090"}).front().facts;
    CHECK(card.name == "cuda:0");
    CHECK(card.memory_bytes == uint64_t{24} << 30);
    CHECK(card.bytes_per_second == 936e9);
    CHECK(card.link_bytes_per_second == 25e9);
    CHECK(card.multiprocessor_hz == 82 * 1.7e9);
    for (const char* text : {"rtx 3090", "RTX3090", "NVIDIA GeForce RTX 3090", "nvidia-rtx-3090", "3090",
                             " RTX  3090 ", "1x RTX 3090", "cuda:0=RTX 3090"}) {
        INFO(text);
        CHECK(parse_devices({text}).front().facts.bytes_per_second == card.bytes_per_second);
        CHECK(names({text}) == "cuda:0 ");
    }
    CHECK(parse_devices({"NVIDIA A100-SXM4-80GB"}).front().facts.memory_bytes == uint64_t{80} << 30);
    CHECK(parse_devices({"A100"}).front().facts.memory_bytes == uint64_t{80} << 30);
    CHECK(parse_devices({"A100 40GB"}).front().facts.memory_bytes == uint64_t{40} << 30);
    CHECK(parse_devices({"NVIDIA H100 80GB HBM3"}).front().facts.bytes_per_second == 3350e9);
    CHECK(parse_devices({"NVIDIA RTX PRO 6000 Blackwell Workstation Edition"}).front().facts.memory_bytes ==
          uint64_t{96} << 30);

    CHECK(names({"4x RTX 3090"}) == "cuda:0 cuda:1 cuda:2 cuda:3 ");
    CHECK(names({"2 x RTX 3090", "RTX 4090"}) == "cuda:0 cuda:1 cuda:2 ");
    CHECK(names({"2x3090,RTX 4090"}) == "cuda:0 cuda:1 cuda:2 ");
    CHECK(names({"RTX 3090", "cuda:0=H200", "RTX 4090"}) == "cuda:1 cuda:0 cuda:2 ");
    CHECK(names({"CUDA1=24GiB,936GB/s", "RTX 3090", "RTX 3090"}) == "cuda:1 cuda:0 cuda:2 ");
    CHECK(names({"cuda:0,cuda:3"}) == "cuda:0 cuda:3 ");
    const DeviceFacts riser = parse_devices({"2x RTX 3090,pcie=3.2GB/s"}).back().facts;
    CHECK(riser.link_bytes_per_second == 3.2e9);
    CHECK(riser.bytes_per_second == card.bytes_per_second);
    CHECK(names({"2x RTX 3090,pcie=3.2GB/s"}) == "cuda:0 cuda:1 ");
}

TEST_CASE("an unknown card is refused with the known ones") {
    for (const char* text :
         {"RTX 3091", "", "4x", "0x RTX 3090", "65x RTX 3090", "-1x RTX 3090", "2x cuda:0=24GiB,936GB/s",
          "RTX 3090=20GiB", "B200=20GiB", "H200=96GiB,1790GB/s", "RTX 3090,pcie=3.2", "cuda:x=RTX 3090",
          "cuda:x=96GiB,1790GB/s", "rtx", "NVIDIA", "80GB", "RTX 3090,,RTX 3090"}) {
        INFO(text);
        expect_error(Status::invalid, "'", [&] { parse_devices({text}); });
    }
    expect_error(Status::invalid, "RTX 3080 Ti, RTX 3090, RTX 3090 Ti", [&] { parse_devices({"RTX 3091"}); });
}

TEST_CASE("this machine's memory and bandwidth are found out") {
    const HostFacts host = measured_host(1);
    CHECK(host.is_measured);
    CHECK(host.memory_bytes > 0);
    CHECK(host.bytes_per_second > 1e8);
    CHECK(measured_host(1).bytes_per_second > 1e8);  // from the cache, if the machine has a place for one
}
