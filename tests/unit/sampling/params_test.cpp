// SPDX-License-Identifier: Apache-2.0
#include "sampling/params.h"

#include "expect_error.h"

namespace minim::sampling {
namespace {

constexpr float k_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float k_infinity = std::numeric_limits<float>::infinity();

// Sets one field and checks that the error names it.
template <typename Field, typename Value>
void expect_refused(Field Params::*field, Value value, const std::string& text) {
    Params params;
    params.*field = static_cast<Field>(value);
    expect_error(Status::invalid, text, [&] { validate(params, 100); });
}

template <typename Field, typename Value>
void expect_accepted(Field Params::*field, Value value) {
    Params params;
    params.*field = static_cast<Field>(value);
    CHECK_NOTHROW(validate(params, 100));
}

}  // namespace

TEST_CASE("the default parameters are valid") {
    CHECK_NOTHROW(validate(Params{}, 1));
}

TEST_CASE("a vocabulary of no tokens is refused") {
    expect_error(Status::invalid, "n_vocab 0", [] { validate(Params{}, 0); });
    expect_error(Status::invalid, "n_vocab -5", [] { validate(Params{}, -5); });
}

TEST_CASE("a temperature must be a finite number of at least 0") {
    expect_accepted(&Params::temperature, 0.0F);
    expect_accepted(&Params::temperature, 100.0F);
    expect_refused(&Params::temperature, -0.1F, "temperature -0.1");
    expect_refused(&Params::temperature, k_infinity, "temperature inf");
    expect_refused(&Params::temperature, k_nan, "temperature nan");
}

TEST_CASE("top_k may be any number") {
    expect_accepted(&Params::top_k, -1);
    expect_accepted(&Params::top_k, std::numeric_limits<int32_t>::max());
}

TEST_CASE("top_p and min_p must lie between 0 and 1") {
    expect_accepted(&Params::top_p, 0.0F);
    expect_refused(&Params::top_p, -0.5F, "top_p -0.5");
    expect_refused(&Params::top_p, 1.5F, "top_p 1.5");
    expect_refused(&Params::top_p, k_nan, "top_p nan");
    expect_accepted(&Params::min_p, 1.0F);
    expect_refused(&Params::min_p, -0.5F, "min_p -0.5");
    expect_refused(&Params::min_p, 1.5F, "min_p 1.5");
    expect_refused(&Params::min_p, k_nan, "min_p nan");
}

TEST_CASE("penalties must be finite and the repetition penalty above 0") {
    expect_accepted(&Params::repetition_penalty, 0.5F);
    expect_refused(&Params::repetition_penalty, 0.0F, "repetition_penalty 0");
    expect_refused(&Params::repetition_penalty, -1.5F, "repetition_penalty -1.5");
    expect_refused(&Params::repetition_penalty, k_infinity, "repetition_penalty inf");
    expect_refused(&Params::repetition_penalty, k_nan, "repetition_penalty nan");
    expect_accepted(&Params::presence_penalty, -2.0F);
    expect_refused(&Params::presence_penalty, -2e6F, "presence_penalty -2000000");
    expect_refused(&Params::presence_penalty, k_infinity, "presence_penalty inf");
    expect_refused(&Params::presence_penalty, k_nan, "presence_penalty nan");
    expect_accepted(&Params::frequency_penalty, -2.0F);
    expect_refused(&Params::frequency_penalty, 2e6F, "frequency_penalty 2000000");
    expect_refused(&Params::frequency_penalty, -k_infinity, "frequency_penalty -inf");
    expect_refused(&Params::frequency_penalty, k_nan, "frequency_penalty nan");
}

TEST_CASE("the window of the repetition penalty is a count or -1") {
    expect_accepted(&Params::penalty_last_n, -1);
    expect_accepted(&Params::penalty_last_n, 0);
    expect_accepted(&Params::penalty_last_n, std::numeric_limits<int32_t>::max());
    expect_refused(&Params::penalty_last_n, -2, "penalty_last_n -2");
    expect_refused(&Params::penalty_exempt_from, -1, "penalty_exempt_from -1");
}

TEST_CASE("top log-probabilities are limited to 20 and need logprobs") {
    expect_refused(&Params::n_top_logprobs, -1, "n_top_logprobs -1");
    expect_refused(&Params::n_top_logprobs, 21, "n_top_logprobs 21");
    expect_refused(&Params::n_top_logprobs, 5, "n_top_logprobs 5 needs logprobs");
    Params params;
    params.logprobs = true;
    params.n_top_logprobs = 20;
    CHECK_NOTHROW(validate(params, 100));
}

TEST_CASE("an unknown order of filters is refused") {
    expect_accepted(&Params::order, Order::filters_first);
    expect_refused(&Params::order, 2, "order 2");
    expect_refused(&Params::order, -1, "order -1");
}

TEST_CASE("a logit bias must name a token of the vocabulary and be finite or -inf") {
    Params params;
    const auto refused = [&](int32_t token, float bias, const std::string& text) {
        params.logit_bias = {{1, 0.5F}, {token, bias}};
        expect_error(Status::invalid, text, [&] { validate(params, 100); });
    };
    refused(100, 1.0F, "token 100 of a vocabulary of 100");
    refused(-1, 1.0F, "token -1");
    refused(3, k_infinity, "logit_bias inf of token 3");
    refused(3, k_nan, "logit_bias nan of token 3");
    refused(3, 2e6F, "logit_bias 2000000 of token 3");
    params.logit_bias = {{99, -k_infinity}, {0, -100.0F}, {0, 100.0F}};
    CHECK_NOTHROW(validate(params, 100));
}

}  // namespace minim::sampling
