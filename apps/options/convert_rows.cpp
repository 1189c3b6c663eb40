// SPDX-License-Identifier: Apache-2.0
// Options of `minim convert` and `minim quantize`.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "set.h"

namespace program {
namespace {

constexpr uint32_t k_convert = bit(Command::convert);
constexpr uint32_t k_quantize = bit(Command::quantize);
constexpr Word k_plain_types[] = {{"keep", 0}, {"auto", 1}, {"f32", 2}, {"f16", 3}, {"bf16", 4}, {"q8_0", 5}};
constexpr Word k_layouts[] = {{"bf16", 0},     {"fp8", 1},       {"mxfp8", 2},
                              {"nvfp4", 3},    {"nvfp4-ct", 4},  {"mxfp4-ct", 5},
                              {"int4-g32", 6}, {"int4-g128", 7}, {"int8", 8}};
constexpr Word k_containers[] = {{"gguf", 0}, {"safetensors", 1}};
constexpr Word k_efforts[] = {{"full", 0}, {"fast", 1}};
constexpr Word k_progress[] = {{"auto", 0}, {"json", 1}, {"none", 2}};

[[noreturn]] void refuse_value(const Value& value, std::string_view why) {
    throw UsageError(fmt::format("{}: '{}' {}", value.option, value.text, why));
}

// Adds the rules of a file, which are between white space. A # begins a comment, which ends with the line.
void add_rules_of_file(Options& options, const Value& value) {
    const size_t n_before = options.type_rules.size();
    const std::string text = file_text(value);
    for (size_t at = 0; at < text.size();) {
        if (text[at] == '#') {
            at = std::min(text.find('\n', at), text.size());
        } else if (std::string_view(" \t\r\n\f\v").find(text[at]) != std::string_view::npos) {
            ++at;
        } else {
            const size_t end = std::min(text.find_first_of(" \t\r\n\f\v#", at), text.size());
            options.type_rules.push_back(text.substr(at, end - at));
            at = end;
        }
    }
    if (options.type_rules.size() == n_before)
        throw UsageError(fmt::format("{}: the file '{}' has no rules", value.option, value.text));
}

// Adds the rules of a list P=T,P=T of ik_llama.cpp. A comma before the = is part of a pattern.
void add_rules_of_list(Options& options, const Value& value) {
    const size_t n_before = options.type_rules.size();
    std::string rule;
    for (size_t at = 0; at <= value.text.size();) {
        const size_t end = std::min(value.text.find(',', at), value.text.size());
        rule += value.text.substr(at, end - at);
        at = end + 1;
        const size_t equals = rule.rfind('=');
        const bool has_type =
            equals != std::string::npos && rule.find_first_of("{}()[]\\.^$*+?|", equals) == std::string::npos;
        if (has_type || at > value.text.size()) {
            if (!rule.empty()) options.type_rules.push_back(rule);
            rule.clear();
        } else {
            rule += ',';
        }
    }
    if (options.type_rules.size() == n_before) refuse_value(value, "has no rules");
}

// Reads N, NK, NM or NG, in powers of 1000 as llama-gguf-split.
void set_part_bytes(Options& options, const Value& value) {
    std::string_view text = value.text;
    uint64_t unit = 1;
    if (!text.empty()) {
        const char last = text.back();
        if (last == 'K' || last == 'k') unit = 1'000;
        if (last == 'M' || last == 'm') unit = 1'000'000;
        if (last == 'G' || last == 'g') unit = 1'000'000'000;
        if (unit != 1) text.remove_suffix(1);
    }
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number == 0 || number > INT64_MAX / unit)
        refuse_value(value, "is not a size such as 48G, 500M or 64K");
    options.part_bytes = number * unit;
}

void check_key_value(const Value& value) {
    const size_t equals = value.text.find('=');
    if (equals == std::string::npos || equals == 0) refuse_value(value, "is not of the form KEY=VALUE");
}

void add_metadata(Options& options, const Value& value) {
    check_key_value(value);
    options.metadata.push_back(value.text);
}

void add_metadata_file(Options& options, const Value& value) {
    check_key_value(value);
    const size_t equals = value.text.find('=');
    Value file = value;
    file.text = value.text.substr(equals + 1);
    options.metadata_texts.push_back(value.text.substr(0, equals + 1) + file_text(file));
}

bool is_number(std::string_view text, bool is_whole) {
    const char* const last = text.data() + text.size();
    int64_t whole = 0;
    uint64_t large = 0;
    double real = 0.0;
    const auto reads = [&](auto& number) {
        const auto [end, error] = std::from_chars(text.data(), last, number);
        return error == std::errc() && end == last;
    };
    return reads(whole) || reads(large) || (!is_whole && reads(real));
}

// Reads KEY=TYPE:VALUE of llama.cpp. A key that is there keeps its own type.
void add_override(Options& options, const Value& value) {
    check_key_value(value);
    const size_t equals = value.text.find('=');
    const size_t colon = value.text.find(':', equals);
    if (colon == std::string::npos) refuse_value(value, "is not of the form KEY=TYPE:VALUE");
    const std::string key = value.text.substr(0, equals + 1);
    const std::string type = value.text.substr(equals + 1, colon - equals - 1);
    std::string text = value.text.substr(colon + 1);
    if (type == "str") {
        options.metadata_texts.push_back(key + text);
    } else if (type == "bool") {
        if (text != "true" && text != "false") refuse_value(value, "is neither bool:true nor bool:false");
        options.metadata.push_back(key + text);
    } else if (type == "int") {
        if (!is_number(text, true)) refuse_value(value, "has no whole number behind int:");
        options.metadata.push_back(key + text);
    } else if (type == "float") {
        if (!is_number(text, false)) refuse_value(value, "has no number behind float:");
        if (text.find_first_not_of("+-0123456789") == std::string::npos) text += ".0";  // else an integer
        options.metadata.push_back(key + text);
    } else {
        refuse_value(value, "has no type int, float, bool or str");
    }
}

constexpr Row k_convert_rows[] = {
    {"--type", "", choice("TYPE", k_plain_types), k_convert, "keep",
     "keep: each tensor in the type that holds its numbers, BF16 where GGUF has none; auto: BF16 for all "
     "matrices; or the type of "
     "all matrices",
     [](Options& o, const Value& v) { o.type = k_plain_types[v.integer].text; }},
    {"--to", "", choice("CONTAINER", k_containers), k_conversions, "by the name of OUTPUT",
     "write a GGUF file, or a safetensors folder; by its name OUTPUT is a GGUF file if it ends in .gguf",
     [](Options& o, const Value& v) { o.container = k_containers[v.integer].text; }},
    {"--layout", "", choice("LAYOUT", k_layouts), k_convert, "bf16",
     "of an output that is a folder: fp8 and mxfp8 as the official releases; of experts alone nvfp4 as "
     "ModelOpt, the others as compressed-tensors",
     [](Options& o, const Value& v) { o.layout = k_layouts[v.integer].text; }},
    {"--tensor-type", "", text("PATTERN=TYPE"), k_conversions, "",
     "the type of the matrices whose GGUF name has a match of a regular expression, before the recipe; may "
     "be repeated, the first "
     "match decides",
     set<&Options::type_rules>},
    {"--tensor-type-file", "", text("FILE"), k_conversions, "",
     "such rules from a file, between white space; # begins a comment", add_rules_of_file},
    {"--custom-q", "", text("PATTERN=TYPE,PATTERN=TYPE"), k_conversions, "",
     "such rules in a list, as of ik_llama.cpp", add_rules_of_list},
    {"--output-tensor-type", "", text("TYPE"), k_conversions, "by the recipe",
     "the type of output.weight; before the rules", set<&Options::output_type>},
    {"--token-embedding-type", "", text("TYPE"), k_conversions, "by the recipe",
     "the type of token_embd.weight; before the rules", set<&Options::embedding_type>},
    {"--leave-output-tensor", "", flag(), k_quantize, "", "output.weight stays in the type of the source",
     set<&Options::keeps_output>},
    {"--pure", "", flag(), k_quantize, "", "all matrices get the main type of the recipe",
     set<&Options::is_pure>},
    {"--allow-requantize", "", flag(), k_conversions, "",
     "encode also matrices of a source below 8 bits, which adds the errors of both encodings",
     set<&Options::allows_requantize>},
    {"--imatrix", "", text("FILE"), k_conversions, "", "importance data, of `minim imatrix` or llama-imatrix",
     set<&Options::imatrix>},
    {"--include-weights", "", text("TEXT"), k_quantize, "",
     "use importance data only for tensors whose name has TEXT; may be repeated",
     set<&Options::include_weights>},
    {"--exclude-weights", "", text("TEXT"), k_quantize, "",
     "use no importance data for tensors whose name has TEXT; may be repeated",
     set<&Options::exclude_weights>},
    {"--without-importance", "", flag(), k_quantize, "",
     "encode also types that need importance data without any", set<&Options::goes_without_importance>},
    {"--effort", "", choice("EFFORT", k_efforts), k_quantize, "full",
     "fast: fewer scales are tried; several times faster, with slightly larger errors",
     [](Options& o, const Value& v) { o.is_fast = v.integer == 1; }},
    {"--name", "", any_text("TEXT"), k_conversions, "the source's", "general.name",
     [](Options& o, const Value& v) {
         if (v.text.empty()) refuse_value(v, "is no name: --unset general.name removes it");
         o.general_name = v.text;
     }},
    {"--set", "", text("KEY=VALUE"), k_conversions, "",
     "set a metadata key, which keeps its type; of a new one the type is deduced, or said: KEY=u32:5; may be "
     "repeated",
     add_metadata},
    {"--set-file", "", text("KEY=FILE"), k_conversions, "",
     "set a metadata key to the text of a file, such as tokenizer.chat_template; may be repeated",
     add_metadata_file},
    {"--unset", "", text("KEY"), k_conversions, "", "remove a metadata key; may be repeated",
     set<&Options::removed_metadata>},
    {"--override-kv", "", text("KEY=TYPE:VALUE"), k_conversions, "",
     "as --set, with the types of llama.cpp: int, float, bool, str; may be repeated", add_override},
    {"--split-max-size", "", text("N[K|M|G]"), k_conversions, "one file",
     "divide the output into parts with up to N bytes of tensors; K, M and G are powers of 1000; a folder "
     "has "
     "parts of 5G",
     set_part_bytes},
    {"--split-max-tensors", "", integer("N", 1, k_largest_int32), k_conversions, "one file",
     "divide the output into parts with up to N tensors", set<&Options::part_tensors>},
    {"--no-tensor-first-split", "", flag(), k_conversions, "", "the first part has the metadata alone",
     set<&Options::first_part_empty>},
    {"--keep-split", "", flag(), k_conversions, "",
     "write parts with the tensors that the parts of the source have", set<&Options::keeps_parts>},
    {"--keep-experts", "", text("N|FILE"), k_conversions, "all",
     "keep N experts of each layer, those of the largest outputs in the importance data, or those that a "
     "JSON "
     "file lists: "
     "{\"layers\": [[ids], ...]}",
     set<&Options::kept_experts>},
    {"--reuse", "", text("FILE"), k_conversions, "",
     "copy tensors from an earlier output that was made of the same source with the same type and importance "
     "data",
     set<&Options::reused_file>},
    {"--no-hashes", "", flag(), k_conversions, "", "write no hashes of the tensors into the metadata",
     set<&Options::writes_no_hashes>},
    {"--dry-run", "", flag(), k_conversions, "", "print the plan: types, sizes, memory; write nothing",
     set<&Options::is_dry_run>},
    {"--overwrite", "", flag(), k_conversions, "", "replace an existing output", set<&Options::overwrites>},
    {"--restart", "", flag(), k_conversions, "", "throw an unfinished output away", set<&Options::restarts>},
    {"--no-verify", "", flag(), k_conversions, "", "do not read the output again at the end",
     set<&Options::skips_verification>},
    {"--memory",
     "",
     {.kind = Kind::size, .value = "SIZE"},
     k_conversions,
     "2GiB",
     "the most memory of all buffers",
     set_bytes<&Options::conversion_memory>},
    {"--report", "", text("FILE"), k_conversions, "",
     "write a JSON report, with errors and hashes of all tensors", set<&Options::report_file>},
    {"--progress", "", choice("MODE", k_progress), k_conversions, "auto",
     "auto: one line on a terminal, else a line for each tensor; json: a JSON object for each tensor; none",
     [](Options& o, const Value& v) { o.progress = k_progress[v.integer].text; }},
};

}  // namespace

std::span<const Row> convert_rows() {
    return k_convert_rows;
}

}  // namespace program
