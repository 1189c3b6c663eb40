// SPDX-License-Identifier: Apache-2.0
// Importance data: collects it from a text, chunk after chunk, merges files of it, and shows one.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "input.h"
#include "interrupt.h"
#include "json_lines.h"
#include "open_model.h"
#include "output.h"

namespace cli {
namespace {

using nlohmann::json;
using Chunks = std::vector<std::vector<int32_t>>;

constexpr int64_t k_few_rows = 16;  // of an expert: fewer say little about its inputs

int32_t importance_format(const Options& options) {
    if (options.output_format == "gguf") return MINIM_IMPORTANCE_GGUF;
    return options.output_format == "dat" ? MINIM_IMPORTANCE_DAT : MINIM_IMPORTANCE_AUTO;
}

// ---- the text ----

// Cuts the tokens of a text into chunks; a short last one is left out.
Chunks chunks_of(const minim::Tokens& tokens, int64_t chunk_tokens) {
    Chunks chunks;
    const auto size = static_cast<size_t>(chunk_tokens);
    for (size_t at = 0; at + size <= tokens.size(); at += size)
        chunks.emplace_back(tokens.begin() + at, tokens.begin() + at + size);
    if (chunks.empty())
        fail(MINIM_E_INVALID,
             fmt::format("the text has {} tokens, fewer than a chunk of {}", tokens.size(), chunk_tokens));
    return chunks;
}

minim::Tokens sample_tokens(const minim::Model& model, const Options& options, const json& sample,
                            int32_t specials) {
    if (sample.contains("text")) return model.tokenize(sample["text"].get<std::string>(), specials);
    const std::string tools = sample.contains("tools") ? sample["tools"].dump() : "";
    return model.chat_tokenize(sample.at("messages").dump(), tools, options.chat_kwargs, specials);
}

// Makes a chunk of each line of a file, cut to the size of a chunk.
Chunks samples_of(const minim::Model& model, const Options& options, int32_t specials) {
    Chunks chunks;
    for_each_json_line(options.samples_file, [&](const json& sample, const std::string&) {
        const minim::Tokens tokens = sample_tokens(model, options, sample, specials);
        const size_t n = std::min<size_t>(tokens.size(), static_cast<size_t>(options.chunk_tokens));
        if (n > 0) chunks.emplace_back(tokens.begin(), tokens.begin() + n);
    });
    if (chunks.empty()) fail(MINIM_E_INVALID, fmt::format("'{}' has no samples", options.samples_file));
    return chunks;
}

// Returns a hash of the text in chunks, never 0 (FNV-1a over the tokens and the size of each chunk).
uint64_t hash_of(const Chunks& chunks) {
    uint64_t hash = 0xCBF29CE484222325;
    const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001B3; };
    for (const std::vector<int32_t>& chunk : chunks) {
        add(chunk.size());
        for (const int32_t id : chunk) add(static_cast<uint64_t>(id));
    }
    return hash == 0 ? 1 : hash;
}

// ---- going on with a file ----

json described(const minim::Importance& importance) {
    return json::parse(importance.describe().view());
}

// Returns the tokens that the data has seen: the rows of the first layer.
int64_t tokens_seen(const json& data) {
    for (const json& tensor : data["tensors"])
        if (tensor["name"] == "blk.0.attn_q.weight") return tensor["rows"]["most"].get<int64_t>();
    return 0;
}

// Adds the data of the file to `importance`, and returns the number of chunks that it has. Throws INVALID if it is from another text or
// model.
size_t resume(minim::Importance& importance, const Options& options, const Chunks& chunks) {
    std::error_code error;
    if (!std::filesystem::exists(options.output_file, error)) {
        print_note(fmt::format("minim: note: there is no '{}' yet: starting with the first chunk\n",
                               printable(options.output_file)));
        return 0;
    }
    const minim::Importance done = minim::Importance::load(options.output_file);
    const json before = described(done);
    const json now = described(importance);
    const auto refuse_other = [&](const char* key, const char* what) {
        if (before[key] == now[key]) return;
        fail(MINIM_E_INVALID, fmt::format("--resume: '{}' is from another {}", options.output_file, what));
    };
    refuse_other("chunk_size", "size of chunks");
    refuse_other("text_hash", "text");
    refuse_other("model_hash", "model");
    if (before["tensors"].size() != now["tensors"].size())
        fail(MINIM_E_INVALID,
             fmt::format("--resume: '{}' has {} weights, {} are collected now: "
                         "--process-output must be as it was",
                         options.output_file, before["tensors"].size(), now["tensors"].size()));
    const int64_t n_tokens = tokens_seen(before);
    int64_t n_passed = 0;
    size_t n_chunks = 0;
    while (n_chunks < chunks.size() && n_passed < n_tokens) n_passed += std::ssize(chunks[n_chunks++]);
    if (n_passed != n_tokens)
        fail(MINIM_E_INVALID, fmt::format("--resume: '{}' has {} tokens, which are no whole chunks",
                                          options.output_file, n_tokens));
    importance.merge(done);
    print_note(fmt::format("minim: resuming: {} of {} chunks are done\n", n_chunks, chunks.size()));
    return n_chunks;
}

// ---- reports ----

// Names the layers that have experts with few rows, and estimates how much more text they need.
void report_few_rows(const json& data, size_t n_chunks) {
    for (const json& tensor : data["tensors"]) {
        const std::string name = tensor["name"];
        if (!name.ends_with(".ffn_down_exps.weight")) continue;
        const auto least = tensor["rows"]["least"].get<double>();
        const auto n_few = tensor["rows"]["below_16"].get<int64_t>();
        if (n_few == 0) continue;
        // An expert without rows may be chosen next by any token, or by none: the estimate is then a lower bound.
        const double more = static_cast<double>(n_chunks) * (k_few_rows / std::max(least, 1.0) - 1.0);
        print_note(fmt::format(
            "minim: {}: {} of {} experts have fewer than {} rows, the least {}: {} {:.0f} more chunks would "
            "give them {}\n",
            printable(name.substr(0, name.find(".ffn"))), n_few, tensor["matrices"].get<int64_t>(),
            k_few_rows, least, least > 0.0 ? "about" : "more than", std::ceil(more), k_few_rows));
    }
}

// Prints one line for each weight, or, with --json, an object with the documented members.
void show(const Options& options) {
    const json data = described(minim::Importance::load(options.shown_file));
    if (options.prints_json) {
        nlohmann::ordered_json shown;
        for (const char* key : {"format", "datasets", "chunks", "chunk_size"}) shown[key] = data[key];
        shown["tensors"] = nlohmann::ordered_json::array();
        for (const json& tensor : data["tensors"]) {
            nlohmann::ordered_json one;
            for (const char* key : {"name", "columns", "matrices", "without_data", "mean", "max"})
                one[key] = tensor[key];
            shown["tensors"].push_back(one);
        }
        return print(shown.dump() + "\n");
    }
    print(fmt::format("{}: {} weights, {} chunks of {} tokens\n", data["format"].get<std::string>(),
                      data["tensors"].size(), data["chunks"].get<int64_t>(),
                      data["chunk_size"].is_null() ? "?" : data["chunk_size"].dump()));
    for (const json& dataset : data["datasets"])
        print(fmt::format("dataset: {}\n", printable(dataset.get<std::string>())));
    print(fmt::format("{:<32} {:>14} {:>11} {:>11} {:>7} {:>22} {:>8}\n", "weight", "shape", "mean",
                      "largest", "90 %", "rows least/median/most", "no data"));
    for (const json& tensor : data["tensors"]) {
        const json& rows = tensor["rows"];
        const std::string counts =
            rows.is_null() ? "?"
                           : fmt::format("{}/{}/{}", rows["least"].get<double>(),
                                         rows["median"].get<double>(), rows["most"].get<double>());
        print(fmt::format(
            "{:<32} {:>14} {:>11.4g} {:>11.4g} {:>6.1f}% {:>22} {:>8}\n",
            printable(tensor["name"].get<std::string>()),
            fmt::format("{} x {}", tensor["matrices"].get<int64_t>(), tensor["columns"].get<int64_t>()),
            tensor["mean"].get<double>(), tensor["max"].get<double>(),
            100.0 * tensor["share_90"].get<double>(), counts, tensor["without_data"].get<int64_t>()));
    }
}

// ---- what the command does ----

minim::Importance load_input(const Options& options, const std::string& path) {
    return minim::Importance::load(path, static_cast<int32_t>(options.chunk_tokens));
}

void merge_files(const Options& options) {
    minim::Importance sum = load_input(options, options.in_files.front());
    for (size_t i = 1; i < options.in_files.size(); ++i) sum.merge(load_input(options, options.in_files[i]));
    sum.save(options.output_file, importance_format(options));
}

std::string dataset_of(const Options& options) {
    const std::string path = options.samples_file.empty() ? options.text_file : options.samples_file;
    return std::filesystem::path(path).filename().string();
}

// Evaluates the chunks from `first` on. Returns false if Ctrl-C ended it; the file then has the chunks that are done.
bool collect(const Options& options, const minim::Model& model, const minim::Importance& importance,
             std::span<const std::vector<int32_t>> chunks, size_t first) {
    minim::Session session(model, session_options(options, static_cast<uint64_t>(options.chunk_tokens)));
    importance.attach(session);
    const bool show_progress = isatty(STDERR_FILENO) == 1;
    std::vector<float> logits;
    const auto save = [&] { importance.save(options.output_file, importance_format(options)); };
    for (size_t i = first; i < chunks.size(); ++i) {
        session.truncate(0);
        // The switch of Ctrl-C is not passed on: a chunk that ends half way would be in the sums.
        session.eval({chunks[i].data(), chunks[i].size()}, false, logits);
        const size_t n_done = i + 1;
        if (show_progress) print_note(fmt::format("\rchunk {} of {}\x1b[K", n_done, chunks.size()));
        const bool is_interrupted = was_interrupted() && n_done < chunks.size();
        const bool is_due = (n_done - first) % static_cast<size_t>(options.save_frequency) == 0;
        if (is_interrupted || is_due || n_done == chunks.size()) save();
        if (!is_interrupted) continue;
        if (show_progress) print_note("\n");
        print_note(fmt::format("minim: {} of {} chunks are in '{}'; the same command with --resume goes on\n",
                               n_done, chunks.size(), printable(options.output_file)));
        return false;
    }
    if (first == chunks.size()) save();
    if (show_progress) print_note("\r\x1b[K");
    return true;
}

}  // namespace

bool imatrix(const Options& options, const minim::Cancel& cancel) {
    if (!options.shown_file.empty()) {
        show(options);
        flush_output();
        return true;
    }
    if (options.model.empty()) {
        merge_files(options);
        return true;
    }
    const std::string text = options.samples_file.empty() ? prompt_text(options) : "";
    const minim::Runtime runtime = open_runtime(options);
    const minim::Model model = open_model(runtime, options, cancel);
    const int32_t specials = specials_of(options.specials);
    const Chunks chunks = options.samples_file.empty()
                              ? chunks_of(model.tokenize(text, specials), options.chunk_tokens)
                              : samples_of(model, options, specials);
    minim::ImportanceOptions collected;
    collected.dataset = dataset_of(options);
    collected.chunk_size = static_cast<int32_t>(options.chunk_tokens);
    collected.process_output = options.processes_output;
    collected.text_hash = hash_of(chunks);
    minim::Importance importance(model, collected);
    const auto most = static_cast<size_t>(options.n_chunks);
    const size_t n_chunks = most == 0 ? chunks.size() : std::min(most, chunks.size());
    const size_t n_done = options.resumes ? resume(importance, options, chunks) : 0;
    for (const std::string& path : options.in_files) importance.merge(load_input(options, path));
    const bool is_whole =
        collect(options, model, importance, std::span(chunks).first(n_chunks), std::min(n_done, n_chunks));
    if (is_whole) report_few_rows(described(importance), std::max(n_chunks, n_done));
    return is_whole;
}

}  // namespace cli
