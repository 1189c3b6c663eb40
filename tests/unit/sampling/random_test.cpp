// SPDX-License-Identifier: Apache-2.0
#include "sampling/random.h"

#include "support/catch.h"

namespace minim::sampling {

TEST_CASE("splitmix64 gives its published values") {
    uint64_t state = 1234567;
    CHECK(splitmix64(state) == 6457827717110365317U);
    CHECK(splitmix64(state) == 3203168211198807973U);
    CHECK(splitmix64(state) == 9817491932198370423U);
    CHECK(splitmix64(state) == 4593380528125082431U);
    CHECK(splitmix64(state) == 16408922859458223821U);
}

TEST_CASE("xoshiro256** gives its published values") {
    Random random(std::array<uint64_t, 4>{1, 2, 3, 4});
    CHECK(random.next() == 11520U);
    CHECK(random.next() == 0U);
    CHECK(random.next() == 1509978240U);
    CHECK(random.next() == 1215971899390074240U);
    CHECK(random.next() == 1216172134540287360U);
}

TEST_CASE("a seed fills the generator's state with the values of splitmix64") {
    uint64_t state = 42;
    std::array<uint64_t, 4> words{};
    for (uint64_t& word : words) word = splitmix64(state);
    Random from_seed(42);
    Random from_state(words);
    for (int i = 0; i < 10; ++i) CHECK(from_seed.next() == from_state.next());
}

TEST_CASE("uniform numbers lie from 0 to below 1, use 53 bits and have the right moments") {
    Random random(0);
    Random bits(0);
    constexpr int k_draws = 100000;
    double sum = 0.0;
    double squares = 0.0;
    bool in_range = true;
    bool exact = true;
    for (int i = 0; i < k_draws; ++i) {
        const double u = random.uniform();
        in_range = in_range && u >= 0.0 && u < 1.0;
        exact = exact && u * 0x1p53 == static_cast<double>(bits.next() / 2048);
        sum += u;
        squares += u * u;
    }
    CHECK(in_range);
    CHECK(exact);
    // The margins are six standard deviations of the mean and of the mean square.
    CHECK(sum / k_draws == Approx(0.5).margin(6 * 0.2887 / 316.2));
    CHECK(squares / k_draws == Approx(1.0 / 3.0).margin(6 * 0.2981 / 316.2));
}

TEST_CASE("neighbouring seeds give unrelated numbers") {
    int n_high = 0;
    for (uint64_t seed = 0; seed < 1000; ++seed) n_high += Random(seed).uniform() >= 0.5 ? 1 : 0;
    CHECK(n_high > 400);
    CHECK(n_high < 600);
}

}  // namespace minim::sampling
