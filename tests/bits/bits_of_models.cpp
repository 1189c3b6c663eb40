// SPDX-License-Identifier: Apache-2.0
// Computes the bits that whole models give, as hashes, through the public interface: logits of all positions of a prompt, of decode steps of
// several numbers of rows, with several formats of the KV cache, and a greedy text. Every machine and instruction set gives the same.
//
//   bits_of_models EXPECTED DATA MODEL...           compares with the lines of the file EXPECTED; its exit status is 1 if one differs
//   bits_of_models --write EXPECTED DATA MODEL...   writes that file
//
// DATA: tests/data. Prints the instruction set. Models that EXPECTED does not name are an error, so the list cannot shrink unseen.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "minim/minim.hpp"

namespace {

namespace fs = std::filesystem;
using Lines = std::map<std::string, std::string>;  // "MODEL KV PART" and a hash

constexpr size_t k_prompt = 48;  // positions; emulated machines compute some ten a second
constexpr int k_greedy = 16;
constexpr struct {
    const char* name;
    int32_t format;
} k_kv[] = {{"F16", MINIM_KV_F16}, {"F32", MINIM_KV_F32}, {"Q8_0", MINIM_KV_Q8_0}};
// Rows of a step: kernels have paths of their own for up to 8, and for more.
constexpr size_t k_steps[] = {1, 2, 3, 4, 6, 8, 5, 9};

// FNV-1a of 64 bits.
class Hash {
  public:
    template <typename T>
    void add(const std::vector<T>& values) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
        for (size_t i = 0; i < values.size() * sizeof(T); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001B3U;
    }
    std::string text() const {
        char text[17];
        std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash_));
        return text;
    }

  private:
    uint64_t hash_ = 0xCBF29CE484222325U;
};

std::vector<int32_t> prompt_ids(const fs::path& data) {
    std::ifstream file(data / "golden/prompts/unicode.json");
    std::vector<int32_t> ids = nlohmann::json::parse(file)["ids"].get<std::vector<int32_t>>();
    std::ifstream other(data / "golden/prompts/tool_call.json");
    for (const int32_t id : nlohmann::json::parse(other)["ids"]) ids.push_back(id);
    ids.resize(k_prompt);
    return ids;
}

int32_t best(const std::vector<float>& logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void add_model(const minim::Runtime& runtime, const fs::path& path, const std::vector<int32_t>& ids,
               Lines& lines) {
    const minim::Model model(runtime, path.string());
    const std::string name = path.filename().string();
    for (const auto& [kv_name, format] : k_kv) {
        minim::SessionOptions options;
        options.max_context = 128;
        options.k_format = options.v_format = format;
        const std::string key = name + " " + kv_name + " ";
        minim::Session whole(model, options);
        std::vector<float> logits = whole.eval(ids, true);
        Hash at_once;
        at_once.add(logits);
        lines[key + "at_once"] = at_once.text();

        minim::Session parts(model, options);
        Hash in_steps;
        size_t at = 0;
        for (const size_t rows : k_steps) {
            const std::vector<int32_t> step(ids.begin() + static_cast<ptrdiff_t>(at),
                                            ids.begin() + static_cast<ptrdiff_t>(at + rows));
            in_steps.add(parts.eval(step, true));
            at += rows;
        }
        lines[key + "in_steps"] = in_steps.text();
        if (format != MINIM_KV_F16) continue;
        logits = whole.eval({ids.back()});
        std::vector<int32_t> text;
        while (text.size() < k_greedy) {
            text.push_back(best(logits));
            logits = whole.eval({text.back()});
        }
        Hash greedy;
        greedy.add(text);
        lines[key + "greedy"] = greedy.text();
    }
}

Lines read(const fs::path& path) {
    Lines lines;
    std::ifstream file(path);
    std::string model, kv, part, hash;
    while (file >> model >> kv >> part >> hash) lines[model + " " + kv + " " + part] = hash;
    return lines;
}

int compare(const Lines& expected, const Lines& found) {
    int n_faults = 0;
    for (const auto& [key, hash] : found) {
        const auto known = expected.find(key);
        if (known != expected.end() && known->second == hash) continue;
        ++n_faults;
        std::printf("%s: %s, but %s is expected\n", key.c_str(), hash.c_str(),
                    known == expected.end() ? "nothing" : known->second.c_str());
    }
    std::printf("%zu hashes, %d of them wrong\n", found.size(), n_faults);
    return found.empty() || n_faults > 0 ? 1 : 0;
}

int run(std::vector<std::string> words) {
    const bool writes = !words.empty() && words.front() == "--write";
    if (writes) words.erase(words.begin());
    if (words.size() < 3) {
        std::fprintf(stderr, "usage: bits_of_models [--write] EXPECTED DATA MODEL...\n");
        return 2;
    }
    minim::RuntimeOptions options;
    options.n_threads = 2;
    const minim::Runtime runtime(options);
    std::printf("%s; kernels in use: %s\n", minim_build_info(), minim_runtime_cpu_level(runtime.get()));
    const std::vector<int32_t> ids = prompt_ids(words[1]);
    Lines found;
    for (size_t i = 2; i < words.size(); ++i) add_model(runtime, words[i], ids, found);
    if (!writes) return compare(read(words[0]), found);
    std::ofstream file(words[0]);
    for (const auto& [key, hash] : found) file << key << " " << hash << "\n";
    return file.good() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
