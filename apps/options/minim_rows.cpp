// SPDX-License-Identifier: Apache-2.0
// Options of the commands of `minim`.
#include "set.h"

namespace program {
namespace {

constexpr uint32_t k_generate = bit(Command::generate);
constexpr uint32_t k_chat = bit(Command::chat);
constexpr uint32_t k_tokenize = bit(Command::tokenize);
constexpr uint32_t k_inspect = bit(Command::inspect);
constexpr uint32_t k_imatrix = bit(Command::imatrix);
constexpr uint32_t k_kl = bit(Command::eval_kl);
constexpr uint32_t k_choice = bit(Command::eval_choice);
constexpr uint32_t k_needle = bit(Command::eval_needle);
constexpr uint32_t k_reports = k_imatrix | k_kl | k_eval_answers | bit(Command::eval_compare);
constexpr Word k_importance_forms[] = {{"gguf", 0}, {"dat", 1}};
constexpr Word k_scores[] = {{"letter", 0}, {"continuation", 1}, {"generate", 2}};
constexpr uint32_t k_check = bit(Command::check);
constexpr Word k_specials[] = {{"exact", 0}, {"safe", 1}, {"none", 2}};

constexpr Row k_minim_rows[] = {
    {"-p --prompt", "", any_text("TEXT"), k_texts, "", "the text, or what to say to the model",
     set<&Options::text>},
    {"-f --file", "", any_text("FILE"), k_texts, "", "read the text from a file; -: standard input",
     set<&Options::text_file>},
    {"-sys --system --system-prompt", "", any_text("TEXT"), k_answers, "the chat template's own",
     "system message", set<&Options::system>},
    {"-c --ctx-size --max-model-len --context-length", "", count("N", 0, k_largest_int64), k_generate, "0",
     "context in tokens; 0: 4096 or what prompt and -n need, at most the model's own",
     set<&Options::n_context>},
    {"-c --ctx-size --max-model-len --context-length", "", count("N", 0, k_largest_int64), k_chat, "0",
     "context in tokens, of the whole conversation; 0: 32768, at most the model's own",
     set<&Options::n_context>},
    {"-c --ctx-size --max-model-len --context-length", "", count("N", 1, k_longest_context), k_plan, "",
     "context of one sequence, in tokens; required", set<&Options::n_context>},
    {"-j --json-schema", "", any_text("SCHEMA"), k_answers, "",
     "the answer is JSON that fits this JSON Schema; '{}' is any JSON", set<&Options::json_schema>},
    {"-jf --json-schema-file", "", text("FILE"), k_answers, "", "the same, from a file",
     [](Options& o, const Value& v) { o.json_schema = file_text(v); }},
    {"--grammar", "", any_text("GBNF"), k_answers, "",
     "the answer is a text of this grammar in GBNF, whose rule `root` is the whole answer",
     set<&Options::grammar>},
    {"--grammar-file", "", text("FILE"), k_answers, "", "the same, from a file",
     [](Options& o, const Value& v) { o.grammar = file_text(v); }},
    {"--raw", "", flag(), k_generate, "", "continue the text as it is, without chat template",
     set<&Options::raw>},
    {"--hide-reasoning", "", flag(), k_chat, "", "do not show what the model thinks",
     set<&Options::hides_reasoning>},
    {"--specials", "", choice("MODE", k_specials), k_tokenize | k_imatrix, "exact",
     "added tokens recognised in the text: exact (all), safe (no control tokens) or none",
     [](Options& o, const Value& v) { o.specials = k_specials[v.integer].text; }},
    {"--ids", "", flag(), k_tokenize, "", "ids alone, on one line", set<&Options::ids_only>},
    {"--chunk", "", integer("N", 2, k_largest_int32), bit(Command::perplexity), "256",
     "tokens of a chunk: chunks do not overlap, a short last one is left out", set<&Options::chunk_tokens>},
    {"--metadata", "", flag(), k_inspect, "", "the metadata; without --tensors only these",
     set<&Options::show_metadata>},
    {"--tensors", "", flag(), k_inspect, "", "the tensor table; without --metadata only this",
     set<&Options::show_tensors>},
    {"--chunk --chunk-size", "", integer("N", 2, k_largest_int32), k_imatrix | k_kl, "512",
     "tokens of a chunk: chunks do not overlap, a short last one is left out; of an older file of --in-file",
     set<&Options::chunk_tokens>},
    {"--chunks", "", integer("N", 0, k_largest_int32), k_imatrix | k_kl, "0",
     "the most chunks of the text; 0: all", set<&Options::n_chunks>},
    {"--samples", "", text("FILE"), k_imatrix, "",
     "in place of -f: JSON lines with text, or with messages and tools, each cut to --chunk tokens",
     set<&Options::samples_file>},
    {"-o --output --output-file", "", text("FILE"), k_imatrix, "",
     "the file to write; an older one is replaced atomically", set<&Options::output_file>},
    {"--output-format", "", choice("FORM", k_importance_forms), k_imatrix, "dat if FILE ends in .dat",
     "gguf: sums and counts; dat: the older form of llama.cpp",
     [](Options& o, const Value& v) { o.output_format = k_importance_forms[v.integer].text; }},
    {"--process-output", "", flag(), k_imatrix, "", "also collect for output.weight",
     set<&Options::processes_output>},
    {"--save-frequency --output-frequency -ofreq", "", integer("N", 1, k_largest_int32), k_imatrix, "10",
     "write FILE every N chunks", set<&Options::save_frequency>},
    {"--resume", "", flag(), k_imatrix, "",
     "go on behind the chunks that FILE has, of the same text, chunk size and model", set<&Options::resumes>},
    {"--in-file", "", text("FILE"), k_imatrix, "",
     "add the data of this file; may be repeated; without -m FILE is the sum of these files",
     set<&Options::in_files>},
    {"--show --show-statistics", "", text("FILE"), k_imatrix, "",
     "print what a file has of each weight, and nothing else", set<&Options::shown_file>},
    {"--save --kl-divergence-base", "", text("FILE"), k_kl, "",
     "write the log-probabilities of all tokens, for --reference, as llama-perplexity does",
     set<&Options::saved_logits>},
    {"--reference", "", text("FILE"), k_kl, "", "compare the model with a file of --save",
     set<&Options::reference_logits>},
    {"--compact", "", flag(), k_kl, "",
     "save the likeliest tokens of a position alone, down to a rest of 2^-16; llama.cpp cannot read that",
     set<&Options::compact>},
    {"--all", "", flag(), k_kl, "",
     "save all positions of a chunk, not only the second half; llama.cpp cannot read that",
     set<&Options::all_positions>},
    {"--score", "", choice("HOW", k_scores), k_choice, "letter",
     "letter: the likeliest letter after `Answer:`; continuation: the likeliest option after the question; "
     "generate: the letter in an answer by the chat template",
     [](Options& o, const Value& v) { o.score = k_scores[v.integer].text; }},
    {"--shots", "", text("FILE"), k_choice, "",
     "worked examples before each question, those of its category first; JSON lines, with cot_content",
     set<&Options::shots_file>},
    {"-k --n-shots", "", integer("N", 0, 64), k_choice, "5", "the number of these examples",
     set<&Options::n_shots>},
    {"--category", "", any_text("NAME"), k_choice, "", "questions of this category alone",
     set<&Options::category>},
    {"--limit", "", integer("N", 0, k_largest_int32), k_choice | bit(Command::eval_tools), "0",
     "the first N questions; 0: all", set<&Options::limit>},
    {"-o --output --output-file", "", text("FILE"), k_choice, "",
     "a line for each question, for `minim eval compare`; questions that FILE has are left out",
     set<&Options::output_file>},
    {"--temp --temperature", "", real("X", 0, 100), k_eval_answers, "0",
     "temperature of answers; 0: always the likeliest token", set_sampling<&SamplingDefaults::temperature>},
    {"-n --predict --n-predict --max-tokens", "", count("N", 1, k_largest_int32), k_eval_answers, "2048",
     "the most tokens of an answer", set<&Options::n_predict>},
    {"-s --seed --random-seed", "", Type{.kind = Kind::seed, .value = "N"}, k_eval_answers, "1",
     "of --temp, and of the texts of `minim eval needle`",
     [](Options& o, const Value& v) { o.sampling.seed = v.bytes; }},
    {"--lengths", "", Type{.kind = Kind::numbers, .value = "N,N", .high = 1e9}, k_needle, "4096,32768",
     "tokens of the texts", set<&Options::lengths>},
    {"--depths", "", Type{.kind = Kind::numbers, .value = "X,X", .high = 100}, k_needle, "0,25,50,75,100",
     "where the sentence is, in percent of the text", set<&Options::depths>},
    {"-dev --device", "", text("NAME=MEMORY,BANDWIDTH"), k_plan, "those of this machine",
     "a device, which need not exist: 'cuda:0=96GiB,1790GB/s,pcie=50GB/s', or a card's name: 'RTX 3090'; "
     "'cuda:0=121.6GiB,273GB/s,unified' shares the host's memory; none: the CPU alone; may be repeated; in "
     "the order of the layers",
     set<&Options::plan_devices>},
    {"--host", "", text("MEMORY,BANDWIDTH"), k_plan, "this machine",
     "the host's memory: '768GiB,576GB/s'; not beside a unified device", set<&Options::plan_host>},
    {"--link", "", text("TIME,BANDWIDTH"), k_plan, "20us and the devices' pcie",
     "what connects the ranks of -tp, -ep and -pp: '9us,20GB/s', the time to add up a few KB on all of them, "
     "and "
     "the bandwidth of each",
     set<&Options::plan_link>},
    {"--quick", "", flag(), k_check, "",
     "nothing that reads all weights or computes: headers, configuration, vocabulary, a part of the hashes",
     set<&Options::is_quick>},
    {"--machine", "", flag(), k_check, "",
     "also this machine: its kernels and devices against plain code, and its storage",
     set<&Options::checks_machine>},
    {"--sums", "", text("FILE"), k_check, "", "compare the files with these sums, as sha256sum writes them",
     [](Options& o, const Value& v) { o.sums = text_in_file(v); }},
    {"--write-sums", "", text("FILE"), k_check, "", "write the sums of the files, as sha256sum does",
     set<&Options::sums_output>},
    {"--reference", "", text("MODEL"), k_check, "",
     "compare every matrix with that of another file of the same model, most often the original one",
     set<&Options::reference_model>},
    {"--text", "", text("FILE"), k_check, "",
     "with --reference: also the KL divergence between the two models over the text of a file",
     [](Options& o, const Value& v) { o.reference_text = file_text(v); }},
    {"--record", "", text("FILE"), k_check, "",
     "write what the model computes for a built-in text, for --answers on another machine",
     set<&Options::record_output>},
    {"--answers", "", text("FILE"), k_check, "", "compare what the model computes with such a record",
     [](Options& o, const Value& v) { o.known_answers = text_in_file(v); }},
    {"--json", "", flag(), k_plan | k_conversions | k_check | bit(Command::options) | k_reports, "",
     "print one JSON object", set<&Options::prints_json>},
};

}  // namespace

std::span<const Row> minim_rows() {
    return k_minim_rows;
}

}  // namespace program
