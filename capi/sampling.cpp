// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "engine/generate_options.h"
#include "handles.h"
#include "sampling/dry.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

minim_status minim_sampling_create(minim_sampling** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = new minim_sampling;
    });
}

void minim_sampling_free(minim_sampling* sampling) {
    delete sampling;
}

minim_status minim_sampling_set_i64(minim_sampling* sampling, const char* name, int64_t value,
                                    minim_error* err) {
    return guard(err, [&] {
        const SamplingWriter writer(required(sampling, "sampling"));
        engine::set_option(writer.params(), &required(name, "name"), value);
    });
}

minim_status minim_sampling_set_f64(minim_sampling* sampling, const char* name, double value,
                                    minim_error* err) {
    return guard(err, [&] {
        const SamplingWriter writer(required(sampling, "sampling"));
        engine::set_option(writer.params(), &required(name, "name"), value);
    });
}

minim_status minim_sampling_set_recommended(minim_sampling* sampling, const minim_model* model,
                                            minim_error* err) {
    return guard(err, [&] {
        const SamplingWriter writer(required(sampling, "sampling"));
        const model::RecommendedSampling& recommended =
            required(model, "model").model().text().recommended_sampling();
        engine::GenerateParams& params = writer.params();
        engine::set_option(params, "temperature", recommended.temperature);
        engine::set_option(params, "top_p", recommended.top_p);
        engine::set_option(params, "top_k", int64_t{recommended.top_k});
        engine::set_option(params, "min_p", recommended.min_p);
        engine::set_option(params, "repetition_penalty", recommended.repetition_penalty);
        engine::set_option(params, "penalty_last_n", int64_t{recommended.penalty_last_n});
    });
}

minim_status minim_sampling_set_dry_breakers(minim_sampling* sampling, const char* const* texts,
                                             const size_t* lengths, size_t count, minim_error* err) {
    return guard(err, [&] {
        constexpr size_t k_max_breakers = 64;
        const SamplingWriter writer(required(sampling, "sampling"));
        if (count > k_max_breakers)
            fail(Status::invalid, "{} breakers for DRY; at most {} are possible", count, k_max_breakers);
        if (count > 0) required(texts, "texts");
        std::vector<std::string> breakers;
        for (size_t i = 0; i < count; ++i) {
            breakers.emplace_back(text_argument(texts[i], lengths != nullptr ? lengths[i] : SIZE_MAX, "texts")
                                      .substr(0, minim::sampling::k_max_breaker_bytes));
            if (breakers.back().empty()) fail(Status::invalid, "breaker {} for DRY is empty", i);
        }
        writer.params().dry_breakers = std::move(breakers);
    });
}

minim_status minim_sampling_add_stop(minim_sampling* sampling, const char* text, size_t length,
                                     minim_error* err) {
    return guard(err, [&] {
        const SamplingWriter writer(required(sampling, "sampling"));
        auto& stops = writer.params().stop_texts;
        const std::string_view stop = text_argument(text, length, "text");
        if (stop.empty()) fail(Status::invalid, "a stop text is empty");
        if (stops.size() >= minim::sampling::k_max_stop_strings) {
            fail(Status::invalid, "more than {} stop texts", minim::sampling::k_max_stop_strings);
        }
        const minim::sampling::StopMatcher checked({std::string(stop)});
        stops.emplace_back(stop);
    });
}

minim_status minim_sampling_add_stop_token(minim_sampling* sampling, int32_t id, minim_error* err) {
    return guard(err, [&] {
        if (id < 0) fail(Status::invalid, "stop token {} is not a token", id);
        SamplingWriter(required(sampling, "sampling")).params().stop_tokens.push_back(id);
    });
}

minim_status minim_sampling_add_logit_bias(minim_sampling* sampling, int32_t id, float bias,
                                           minim_error* err) {
    return guard(err, [&] {
        if (id < 0) fail(Status::invalid, "logit bias for {}, which is not a token", id);
        if (!(bias <= minim::sampling::k_max_penalty)) {  // also refuses NaN
            fail(Status::invalid, "the logit bias of token {} is {}", id, bias);
        }
        SamplingWriter(required(sampling, "sampling")).params().sampling.logit_bias.push_back({id, bias});
    });
}

size_t minim_sampling_option_count(void) {
    return engine::generate_options().size();
}

minim_status minim_sampling_option(size_t index, minim_option_info* out, minim_error* err) {
    return guard(err, [&] {
        const auto options = engine::generate_options();
        if (index >= options.size()) fail(Status::invalid, "option {} of {}", index, options.size());
        const engine::GenerateOption& option = options[index];
        minim_option_info info{};
        info.type = static_cast<int32_t>(option.type);
        info.minimum = option.minimum;
        info.maximum = option.maximum;
        info.default_value = option.default_value;
        info.name = option.name;
        info.help = option.help;
        result_to(out, "minim_option_info", info);
    });
}
