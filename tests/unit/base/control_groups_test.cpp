// SPDX-License-Identifier: Apache-2.0
#include "base/control_groups.h"

#include <filesystem>
#include <string>

#include "support/files.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

// A system of files: what /proc says, and the folders of groups.
struct Machine {
    TemporaryFolder folder;
    std::string groups = folder / "groups";
    std::string mounts = folder / "mounts";
    std::string usual = folder / "sys";

    explicit Machine(const std::string& group, const std::string& mount = "") {
        write_text(groups, group);
        write_text(mounts, "22 1 8:1 / / rw - ext4 /dev/sda rw\n" + mount);
    }
    void put(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = std::filesystem::path(folder.path()) / path;
        std::filesystem::create_directories(file.parent_path());
        write_text(file, text);
    }
    ControlGroupFiles files() const { return {groups.c_str(), mounts.c_str(), usual.c_str()}; }
    int32_t cores() const { return control_group_cores(files()); }
    uint64_t memory() const { return control_group_memory(files()); }
    // A line of mountinfo for a folder of this machine.
    std::string mount_of(const std::string& root, const std::string& point, const std::string& kind,
                         const std::string& options) const {
        return "31 22 0:28 " + root + " " + (folder / point) + " rw,relatime shared:9 - " + kind + " none " +
               options + "\n";
    }
};

}  // namespace

TEST_CASE("without control groups nothing is limited") {
    const Machine machine("");
    CHECK(machine.cores() == INT32_MAX);
    CHECK(machine.memory() == UINT64_MAX);
    const ControlGroupFiles none = {"/no/groups", "/no/mounts", "/no/folder"};
    CHECK(control_group_cores(none) == INT32_MAX);
    CHECK(control_group_memory(none) == UINT64_MAX);
}

TEST_CASE("the quota of the own group and of every parent counts, rounded up to cores") {
    const Machine machine("0::/a.slice/b.service/c\n");
    const auto cores = [&](const std::string& path, const std::string& quota) {
        machine.put(path, quota);
        return machine.cores();
    };
    CHECK(cores("sys/a.slice/b.service/c/cpu.max", "max 100000\n") == INT32_MAX);
    CHECK(cores("sys/a.slice/b.service/c/cpu.max", "750000 100000\n") == 8);
    CHECK(cores("sys/a.slice/b.service/cpu.max", "500000 100000\n") == 5);
    CHECK(cores("sys/a.slice/cpu.max", "150000 50000\n") == 3);
    CHECK(cores("sys/cpu.max", "1000 100000\n") == 1);
    CHECK(cores("sys/other/cpu.max", "1000 1000000\n") == 1);
    CHECK(cores("sys/cpu.max", "0 0\n") == 3);
    CHECK(cores("sys/a.slice/cpu.max", "400000\n") == 4);
    CHECK(cores("sys/a.slice/cpu.max", "9223372036854775807 1\n") == 5);
    CHECK(cores("sys/a.slice/cpu.max", "words\n") == 5);
}

TEST_CASE("the least that a limit of memory leaves counts, and the page cache of that group is free") {
    const Machine machine("0::/a/b\n");
    machine.put("sys/a/b/memory.max", "max\n");
    CHECK(machine.memory() == UINT64_MAX);
    machine.put("sys/a/memory.max", "1000\n");
    CHECK(machine.memory() == 1000);
    machine.put("sys/a/memory.current", "900\n");
    CHECK(machine.memory() == 100);
    machine.put("sys/a/memory.stat",
                "anon 500\nfile 400\ninactive_file 300\nactive_file 50\ninactive_file_x 7\n");
    CHECK(machine.memory() == 450);
    machine.put("sys/a/b/memory.max", "700\n");
    machine.put("sys/a/b/memory.current", "600\n");
    CHECK(machine.memory() == 100);
    machine.put("sys/a/b/memory.current", "800\n");
    CHECK(machine.memory() == 0);
    machine.put("sys/a/b/memory.max", "max\n");
    machine.put("sys/memory.high", "1200\n");
    machine.put("sys/memory.current", "1100\n");
    CHECK(machine.memory() == 100);
}

TEST_CASE("version 1 has a folder for each controller, and its statistics tell of hidden parents") {
    const Machine machine("12:cpuset:/\n4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/y\n");
    machine.put("sys/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
    machine.put("sys/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
    CHECK(machine.cores() == INT32_MAX);
    machine.put("sys/cpu,cpuacct/docker/cpu.cfs_quota_us", "600000\n");
    CHECK(machine.cores() == 6);
    machine.put("sys/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
    machine.put("sys/cpu/docker/x/cpu.cfs_period_us", "50000\n");
    CHECK(machine.cores() == 5);
    machine.put("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
    machine.put("sys/memory/docker/x/memory.limit_in_bytes", "5000\n");
    machine.put("sys/memory/docker/x/memory.usage_in_bytes", "4000\n");
    machine.put("sys/memory/docker/x/memory.stat",
                "inactive_file 1\nactive_file 1\nhierarchical_memory_limit 9000\ntotal_inactive_file 600\n");
    CHECK(machine.memory() == 1601);
    machine.put("sys/memory/docker/x/memory.stat", "hierarchical_memory_limit 4100\ntotal_inactive_file 0\n");
    CHECK(machine.memory() == 100);
}

TEST_CASE("hybrid systems have version 2 beside version 1, and the stricter limit counts") {
    const Machine machine("4:memory:/a\n0::/b\n");
    machine.put("sys/memory/a/memory.limit_in_bytes", "5000\n");
    machine.put("sys/unified/b/memory.max", "4000\n");
    machine.put("sys/unified/b/cpu.max", "200000 100000\n");
    CHECK(machine.memory() == 4000);
    CHECK(machine.cores() == 2);
}

TEST_CASE("mounts say where the folders of groups are") {
    Machine machine("0::/machine/a\n5:cpuacct,cpu:/k\n");
    machine.put("my groups/a/cpu.max", "300000 100000\n");
    machine.put("my groups/cpu.max", "700000 100000\n");
    machine.put("v1/k/cpu.cfs_quota_us", "200000\n");
    machine.put("sys/machine/a/cpu.max", "100000 100000\n");  // no mount shows this folder: not the group
    CHECK(machine.cores() == 1);
    std::string mounts = machine.mount_of("/machine", "my\\040groups", "cgroup2", "rw,nsdelegate");
    write_text(machine.mounts, mounts);
    CHECK(machine.cores() == 3);
    mounts += machine.mount_of("/", "v1", "cgroup", "rw,cpu,cpuacct");
    write_text(machine.mounts, mounts);
    CHECK(machine.cores() == 2);
    write_text(machine.groups, "0::/machine\n");
    CHECK(machine.cores() == 7);
    write_text(machine.groups, "0::/machine/gone (deleted)\n");
    CHECK(machine.cores() == 7);  // its parents are there
    write_text(machine.groups, "0::/../outside\n");
    CHECK(machine.cores() == INT32_MAX);
}

TEST_CASE("a container that sees its group at the root is limited by it, whatever path it is told") {
    for (const char* group : {"0::/\n", "0::/../..\n", "0::/../../x.scope\n",
                              "0::/host.slice/docker-1.scope\n", "0::/with:colon/a\n", ""}) {
        INFO(group);
        const Machine machine(group);
        machine.put("sys/cpu.max", "200000 100000\n");
        machine.put("sys/memory.max", "7000\n");
        CHECK(machine.cores() == 2);
        CHECK(machine.memory() == 7000);
    }
    const Machine machine("0::/host.slice/docker-1.scope/inner\n");
    machine.put("sys/inner/memory.max", "500\n");
    CHECK(machine.memory() == 500);
    const Machine gone("0::/a/gone (deleted)\n");
    gone.put("sys/a/memory.max", "300\n");
    CHECK(gone.memory() == 300);
}
