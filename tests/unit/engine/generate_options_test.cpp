// SPDX-License-Identifier: Apache-2.0
#include "engine/generate_options.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "support/helpers.h"

using namespace minim;
using namespace minim::test;
using engine::generate_options;
using engine::GenerateOption;
using engine::GenerateParams;
using engine::OptionType;
using engine::set_option;

namespace {

// The integer next to a bound that an int64_t holds: the bounds of the seed are beyond its range by rounding.
int64_t as_integer(double bound) {
    if (bound >= 9223372036854775807.0) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(bound);
}

bool is_integer(const GenerateOption& option) {
    return option.type == OptionType::integer;
}

void set(GenerateParams& params, const GenerateOption& option, double value) {
    if (is_integer(option)) {
        set_option(params, option.name, as_integer(value));
    } else {
        set_option(params, option.name, value);
    }
}

}  // namespace

TEST_CASE("every option has a name of its own, a help text and a default within its range") {
    std::set<std::string> names;
    for (const GenerateOption& option : generate_options()) {
        INFO(option.name);
        CHECK(names.insert(option.name).second);
        CHECK(std::string(option.help).size() > 5);
        CHECK(option.minimum < option.maximum);
        CHECK(option.default_value >= option.minimum);
        CHECK(option.default_value <= option.maximum);
        CHECK((option.set_integer != nullptr) == is_integer(option));
        CHECK((option.set_number != nullptr) == (option.type == OptionType::number));
    }
    CHECK(names.size() >= 10);
}

TEST_CASE("both ends of every option's range and its default are accepted, and pass the sampler's checks") {
    for (const GenerateOption& option : generate_options()) {
        for (const double value : {option.minimum, option.maximum, option.default_value}) {
            GenerateParams params;
            INFO(option.name << " = " << value);
            CHECK_NOTHROW(set(params, option, value));
            CHECK_NOTHROW(sampling::validate(params.sampling, 100));
        }
    }
}

TEST_CASE("values beyond an option's range are refused with the option and its range") {
    for (const GenerateOption& option : generate_options()) {
        for (const double sign : {-1.0, 1.0}) {
            const double bound = sign < 0 ? option.minimum : option.maximum;
            if (std::abs(bound) > 9e18) continue;  // every 64-bit integer is in range
            GenerateParams params;
            INFO(option.name << " beyond " << bound);
            if (is_integer(option)) {
                expect_error(Status::invalid, option.name, [&] {
                    set_option(params, option.name, as_integer(bound) + static_cast<int64_t>(sign));
                });
            } else {
                const double beyond = std::nextafter(bound, sign * INFINITY);
                expect_error(Status::invalid, option.name, [&] { set_option(params, option.name, beyond); });
                expect_error(Status::invalid, option.name,
                             [&] { set_option(params, option.name, sign * INFINITY); });
                expect_error(Status::invalid, option.name,
                             [&] { set_option(params, option.name, std::nan("")); });
            }
        }
    }
}

TEST_CASE("every seed of 64 bits is taken as it is, and no other integer is read as its neighbour") {
    constexpr int64_t k_max = std::numeric_limits<int64_t>::max();
    for (const int64_t seed : {int64_t{0}, int64_t{42}, k_max, k_max - 1, -k_max - 1, -k_max, int64_t{-1},
                               int64_t{9007199254740993}, int64_t{9223372036854774785}}) {
        GenerateParams params;
        set_option(params, "seed", seed);
        CHECK(params.has_seed);
        CHECK(params.sampling.seed == static_cast<uint64_t>(seed));
    }
    GenerateParams params;
    expect_error(Status::invalid, "option max_tokens is 9007199254740992; it goes from 0 to 9007199254740991",
                 [&] { set_option(params, "max_tokens", int64_t{9007199254740992}); });
    expect_error(Status::invalid, "option top_k is 2147483648; it goes from 0 to 2147483647",
                 [&] { set_option(params, "top_k", int64_t{2147483648}); });
    expect_error(Status::invalid, "to 9007199254740991", [&] { set_option(params, "min_tokens", k_max); });
}

TEST_CASE("an unknown option is refused by name") {
    GenerateParams params;
    for (const char* name : {"", "temp", "Temperature", "top_k "}) {
        expect_error(Status::invalid, std::string("'") + name + "'",
                     [&] { set_option(params, name, int64_t{1}); });
        expect_error(Status::invalid, std::string("'") + name + "'", [&] { set_option(params, name, 1.0); });
    }
}

TEST_CASE("a number option takes an integer, an integer option takes no number") {
    GenerateParams params;
    set_option(params, "temperature", int64_t{2});
    CHECK(params.sampling.temperature == 2.0F);
    expect_error(Status::invalid, "top_k takes an integer", [&] { set_option(params, "top_k", 3.0); });
}

TEST_CASE("options reach the settings they name") {
    GenerateParams params;
    CHECK(params.sampling.temperature == 0.0F);
    CHECK_FALSE(params.has_seed);
    for (const auto& [name, value] :
         {std::pair("max_tokens", 11), std::pair("min_tokens", 2), std::pair("ignore_end", 1),
          std::pair("top_k", 40), std::pair("penalty_last_n", 64), std::pair("seed", -7),
          std::pair("penalize_added_tokens", 1), std::pair("filters_first", 1), std::pair("top_logprobs", 5),
          std::pair("prompt_logprobs", 3), std::pair("prompt_logprobs_from", 7)}) {
        set_option(params, name, int64_t{value});
    }
    for (const auto& [name, value] :
         {std::pair("temperature", 0.5), std::pair("top_p", 0.25), std::pair("min_p", 0.125),
          std::pair("repetition_penalty", 1.5), std::pair("presence_penalty", -2.0),
          std::pair("frequency_penalty", 3.0)}) {
        set_option(params, name, value);
    }
    CHECK(params.max_tokens == 11);
    CHECK(params.min_tokens == 2);
    CHECK(params.ignore_end);
    CHECK(params.sampling.top_k == 40);
    CHECK(params.sampling.penalty_last_n == 64);
    CHECK(params.sampling.seed == static_cast<uint64_t>(-7));
    CHECK(params.has_seed);
    CHECK(params.penalize_added_tokens);
    CHECK(params.sampling.order == sampling::Order::filters_first);
    CHECK(params.sampling.n_top_logprobs == 5);
    CHECK(params.sampling.logprobs);
    CHECK(params.n_prompt_logprobs == 3);
    CHECK(params.first_prompt_logprob == 7);
    CHECK(params.sampling.temperature == 0.5F);
    CHECK(params.sampling.top_p == 0.25F);
    CHECK(params.sampling.min_p == 0.125F);
    CHECK(params.sampling.repetition_penalty == 1.5F);
    CHECK(params.sampling.presence_penalty == -2.0F);
    CHECK(params.sampling.frequency_penalty == 3.0F);
}

TEST_CASE("the listed defaults are those of new settings") {
    GenerateParams fresh;
    GenerateParams set_to_default;
    for (const GenerateOption& option : generate_options()) {
        if (std::string(option.name) != "seed") set(set_to_default, option, option.default_value);
    }
    CHECK(set_to_default.max_tokens == fresh.max_tokens);
    CHECK(set_to_default.min_tokens == fresh.min_tokens);
    CHECK(set_to_default.ignore_end == fresh.ignore_end);
    CHECK(set_to_default.penalize_added_tokens == fresh.penalize_added_tokens);
    CHECK(set_to_default.n_prompt_logprobs == fresh.n_prompt_logprobs);
    CHECK(set_to_default.first_prompt_logprob == fresh.first_prompt_logprob);
    const sampling::Params& a = set_to_default.sampling;
    const sampling::Params& b = fresh.sampling;
    CHECK(a.temperature == b.temperature);
    CHECK(a.top_k == b.top_k);
    CHECK(a.top_p == b.top_p);
    CHECK(a.min_p == b.min_p);
    CHECK(a.repetition_penalty == b.repetition_penalty);
    CHECK(a.penalty_last_n == b.penalty_last_n);
    CHECK(a.presence_penalty == b.presence_penalty);
    CHECK(a.frequency_penalty == b.frequency_penalty);
    CHECK(a.order == b.order);
    CHECK(a.logprobs == b.logprobs);
    CHECK(a.n_top_logprobs == b.n_top_logprobs);
}
