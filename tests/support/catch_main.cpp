// SPDX-License-Identifier: Apache-2.0
// Sets the host's locale: `LC_ALL=de_DE.UTF-8 ctest` runs every case with a decimal comma.
#include <clocale>

#ifdef MINIM_CATCH2_V3
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) {
    std::setlocale(LC_ALL, "");
    return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
int main(int argc, char** argv) {
    std::setlocale(LC_ALL, "");
    return Catch::Session().run(argc, argv);
}
#endif
