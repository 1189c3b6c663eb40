// SPDX-License-Identifier: Apache-2.0
#include "check/report.h"

#include <array>
#include <span>

#include "base/json.h"

namespace minim::check {
namespace {

void append_findings(std::string& out, std::string_view key, std::span<const Finding> findings) {
    json::append_quoted(out, key);
    out += ": [";
    for (const Finding& finding : findings) {
        out += &finding == findings.data() ? "{\"class\": " : ", {\"class\": ";
        json::append_quoted(out, name_of(finding.kind));
        out += ", \"tensor\": ";
        json::append_quoted(out, finding.tensor);
        out += ", \"detail\": ";
        json::append_quoted(out, finding.detail);
        out += "}";
    }
    out += "]";
}

}  // namespace

std::string_view name_of(FaultClass kind) noexcept {
    constexpr std::array<std::string_view, 10> k_names = {
        "header", "config", "tokenizer", "hash", "nan", "range", "probe", "machine", "reference", "answers"};
    return k_names[static_cast<size_t>(kind)];
}

std::string to_json(const Report& report) {
    std::string out = "{";
    append_findings(out, "faults", report.faults);
    out += ", ";
    append_findings(out, "warnings", report.warnings);
    out += ", \"stages\": [";
    for (const std::string& stage : report.stages) {
        if (&stage != report.stages.data()) out += ", ";
        json::append_quoted(out, stage);
    }
    return out + "]}";
}

}  // namespace minim::check
