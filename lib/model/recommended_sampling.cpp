// SPDX-License-Identifier: Apache-2.0
#include "model/recommended_sampling.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "model/side_file.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::MetaType;

constexpr double k_largest_int32 = std::numeric_limits<int32_t>::max();
constexpr const char* k_file = "generation_config.json";

// Replaces defaults by the values that a source has.
class Reader {
  public:
    Reader(const char* source, const Logger& log) : source_(source), log_(log) {}

    void number(double& value, const char* name, std::optional<double> given, double lowest, double highest) {
        if (!given) return;
        if (!(*given >= lowest && *given <= highest)) {  // also NaN
            log_.warning("{}: {} is {}, which is not between {} and {}; it is ignored", source_, name, *given,
                         lowest, highest);
            return;
        }
        value = *given;
        found_ = true;
    }
    void integer(int32_t& value, const char* name, std::optional<double> given, double lowest) {
        double number = value;
        this->number(number, name, given ? std::optional(std::trunc(*given)) : given, lowest,
                     k_largest_int32);
        value = static_cast<int32_t>(number);
    }
    void found() noexcept { found_ = true; }
    const char* source() const noexcept { return found_ ? source_ : ""; }

  private:
    const char* source_;
    const Logger& log_;
    bool found_ = false;
};

// Returns the shortest decimal number that is this float: 0.95, and not 0.949999988.
double as_written(float value) {
    const std::string text = format_text("{}", value);
    double number = value;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

RecommendedSampling of_gguf(const checkpoint::Metadata& metadata, const Logger& log) {
    RecommendedSampling sampling;
    Reader reader("general.sampling", log);
    const auto value = [&](const char* name) -> std::optional<double> {
        const std::string key = std::string("general.sampling.") + name;
        const checkpoint::MetaValue* found = metadata.find(key);
        if (found == nullptr) return std::nullopt;
        if (found->type == MetaType::f32) return as_written(static_cast<float>(found->number_at(0)));
        if (!found->is_array() && found->type != MetaType::string) return found->number_at(0);
        log.warning("{} is no number; it is ignored", key);
        return std::nullopt;
    };
    reader.number(sampling.temperature, "temp", value("temp"), 0, 100);
    reader.number(sampling.top_p, "top_p", value("top_p"), 0, 1);
    reader.integer(sampling.top_k, "top_k", value("top_k"), 0);
    reader.number(sampling.min_p, "min_p", value("min_p"), 0, 1);
    reader.number(sampling.repetition_penalty, "penalty_repeat", value("penalty_repeat"), 0.001, 1000);
    constexpr int32_t k_usual_window = 64;  // of llama.cpp, whose keys these are
    if (sampling.repetition_penalty != 1.0) sampling.penalty_last_n = k_usual_window;
    reader.integer(sampling.penalty_last_n, "penalty_last_n", value("penalty_last_n"), -1);
    sampling.source = reader.source();
    return sampling;
}

RecommendedSampling of_config(const std::string& text, const Logger& log) {
    RecommendedSampling sampling;
    if (text.empty()) return sampling;
    const json::Value config = json::parse(text, k_file, json::Source::file);
    if (!config.is_object()) fail_file(Reason::format, "{} is no JSON object", k_file);
    Reader reader(k_file, log);
    const auto value = [&](const char* name) -> std::optional<double> {
        const json::Value* found = json::find(&config, name);
        if (found == nullptr || found->is_null()) return std::nullopt;
        if (found->is_number()) return found->number;
        log.warning("{}: {} is {}, no number; it is ignored", k_file, name, json::to_text(*found));
        return std::nullopt;
    };
    reader.number(sampling.temperature, "temperature", value("temperature"), 0, 100);
    reader.number(sampling.top_p, "top_p", value("top_p"), 0, 1);
    reader.integer(sampling.top_k, "top_k", value("top_k"), 0);
    reader.number(sampling.min_p, "min_p", value("min_p"), 0, 1);
    reader.number(sampling.repetition_penalty, "repetition_penalty", value("repetition_penalty"), 0.001,
                  1000);
    const json::Value* samples = json::find(&config, "do_sample");
    if (samples != nullptr && samples->is_boolean() && !samples->boolean) {
        sampling.temperature = 0.0;
        reader.found();
    }
    sampling.source = reader.source();
    return sampling;
}

}  // namespace

RecommendedSampling read_recommended_sampling(const Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.container() == checkpoint::Container::gguf) return of_gguf(checkpoint.metadata(), log);
    return of_config(side_file(checkpoint, k_file, false), log);
}

}  // namespace minim::model
