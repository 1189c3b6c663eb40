// SPDX-License-Identifier: Apache-2.0
#include "ranks/launcher.h"

#include <map>
#include <string>

#include "support/helpers.h"

using namespace minim;
using namespace minim::test;

namespace {

ranks::Launch launch_of(const std::map<std::string, std::string>& variables) {
    return ranks::find_launch([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

}  // namespace

TEST_CASE("the variables of each launcher are known") {
    for (const auto& [size, process] :
         {std::pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, std::pair{"PMI_SIZE", "PMI_RANK"},
          std::pair{"SLURM_NTASKS", "SLURM_PROCID"}}) {
        const ranks::Launch launch = launch_of({{size, "4"}, {process, "3"}});
        CHECK(launch.size == 4);
        CHECK(launch.process == 3);
        CHECK(launch_of({{size, "4"}}).size == 1);
    }
    CHECK(launch_of({}).size == 1);
    CHECK(launch_of({}).process == 0);
}

TEST_CASE("Open MPI within an allocation of Slurm counts") {
    const ranks::Launch launch = launch_of({{"SLURM_NTASKS", "1"},
                                            {"SLURM_PROCID", "0"},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_RANK", "1"}});
    CHECK(launch.size == 2);
    CHECK(launch.process == 1);
}

TEST_CASE("a launcher's variables that make no sense are refused with their values") {
    expect_error(Status::invalid, "OMPI_COMM_WORLD_SIZE of the launcher is 'two'", [] {
        launch_of({{"OMPI_COMM_WORLD_SIZE", "two"}, {"OMPI_COMM_WORLD_RANK", "0"}});
    });
    expect_error(Status::invalid, "PMI_RANK of the launcher is '-1'", [] {
        launch_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "-1"}});
    });
    expect_error(Status::invalid, "PMI_RANK is 2, which is not below PMI_SIZE: 2", [] {
        launch_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}});
    });
}
