// SPDX-License-Identifier: Apache-2.0
// Options of the commands of `minim`.
#include "set.h"

namespace program {
namespace {

constexpr uint32_t k_generate = bit(Command::generate);
constexpr uint32_t k_chat = bit(Command::chat);
constexpr uint32_t k_tokenize = bit(Command::tokenize);
constexpr uint32_t k_inspect = bit(Command::inspect);
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
    {"--specials", "", choice("MODE", k_specials), k_tokenize, "exact",
     "added tokens recognised in the text: exact (all), safe (no control tokens) or none",
     [](Options& o, const Value& v) { o.specials = k_specials[v.integer].text; }},
    {"--ids", "", flag(), k_tokenize, "", "ids alone, on one line", set<&Options::ids_only>},
    {"--chunk", "", integer("N", 2, k_largest_int32), bit(Command::perplexity), "256",
     "tokens of a chunk: chunks do not overlap, a short last one is left out", set<&Options::chunk_tokens>},
    {"--metadata", "", flag(), k_inspect, "", "the metadata; without --tensors only these",
     set<&Options::show_metadata>},
    {"--tensors", "", flag(), k_inspect, "", "the tensor table; without --metadata only this",
     set<&Options::show_tensors>},
    {"-dev --device", "", text("NAME=MEMORY,BANDWIDTH"), k_plan, "those of this machine",
     "a device, which need not exist: 'cuda:0=96GiB,1790GB/s,pcie=50GB/s', or a card's name: 'RTX 3090'; "
     "'cuda:0=121.6GiB,273GB/s,unified' shares the host's memory; may be repeated; in the order of the "
     "layers",
     set<&Options::plan_devices>},
    {"--host", "", text("MEMORY,BANDWIDTH"), k_plan, "this machine",
     "the host's memory: '768GiB,576GB/s'; not beside a unified device", set<&Options::plan_host>},
    {"--link", "", text("TIME,BANDWIDTH"), k_plan, "20us and the devices' pcie",
     "what connects the ranks of -tp, -ep and -pp: '9us,20GB/s', the time to add up a few KB on all of them, "
     "and "
     "the bandwidth of each",
     set<&Options::plan_link>},
    {"--json", "", flag(), k_plan | bit(Command::options), "", "print one JSON object",
     set<&Options::prints_json>},
};

}  // namespace

std::span<const Row> minim_rows() {
    return k_minim_rows;
}

}  // namespace program
