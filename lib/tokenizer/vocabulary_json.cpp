// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "base/log.h"
#include "tokenizer/declared_tokens.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace minim::tokenizer {
namespace {

using json::Value;

constexpr const char* k_tokenizer = "tokenizer.json";
constexpr const char* k_tokenizer_config = "tokenizer_config.json";
constexpr const char* k_generation_config = "generation_config.json";
constexpr const char* k_config = "config.json";

// Ids may have gaps, but no more than this, so that a small file cannot ask for a large table.
constexpr size_t k_max_holes = 65536;

Value parse_object(std::string_view text, const char* file) {
    Value object = json::parse(text, file, json::Source::file);
    if (!object.is_object()) fail_file(Reason::type, "{}: the file is not a JSON object", file);
    return object;
}

// Returns the member of an object, or null when it is absent.
const Value& member(const Value& object, const char* key) {
    static const Value null;
    const Value* found = json::find(&object, key);
    return found == nullptr ? null : *found;
}

bool flag(const Value& object, const char* key, bool absent) {
    const Value& value = member(object, key);
    if (value.is_null()) return absent;
    if (!value.is_boolean()) fail_file(Reason::type, "{}: {} is not a boolean", k_tokenizer, key);
    return value.boolean;
}

const std::string& text_of(const Value& value, const char* file, std::string_view what) {
    if (!value.is_string()) fail_file(Reason::type, "{}: {} is not a string", file, what);
    return value.text;
}

int32_t id_of(const Value& value, const char* file, std::string_view what) {
    if (!value.is_integer()) fail_file(Reason::type, "{}: the id of {} is not an integer", file, what);
    const std::optional<int64_t> id = json::to_int64(value);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max())
        fail_file(Reason::value, "{}: the id {} of {} is out of range", file, value.text, what);
    return static_cast<int32_t>(*id);
}

std::string_view type_of(const Value& component) {
    const Value& type = member(component, "type");
    return type.is_string() ? std::string_view(type.text) : std::string_view("none");
}

void require(bool condition, std::string_view what) {
    if (!condition) fail(Status::unsupported, "{}: {}", k_tokenizer, what);
}

void check_split(const Value& split) {
    require(type_of(split) == "Split", "the pre_tokenizer's first step is not Split");
    const Value& regex = member(member(split, "pattern"), "Regex");
    require(regex.is_string(), "the pre_tokenizer's split pattern is not a regular expression");
    if (regex.text != k_piece_pattern) {
        fail(Status::unsupported, "{}: the pre_tokenizer's pattern is not that of MiniMax-M2: {}",
             k_tokenizer, regex.text);
    }
    require(member(split, "behavior").is_string("Isolated"),
            "the pre_tokenizer's split behavior is not Isolated");
    require(!flag(split, "invert", false), "the pre_tokenizer's split is inverted");
}

// Returns the steps of a component, in order: those of a Sequence and of nested Sequences; any other component is one step;
// null has none.
void append_steps(const Value& component, const char* list, std::vector<const Value*>& steps) {
    if (component.is_null()) return;
    const Value& inner = member(component, list);
    if (type_of(component) != "Sequence" || !inner.is_array()) {
        steps.push_back(&component);
        return;
    }
    for (const Value& step : inner.items) append_steps(step, list, steps);
}

std::vector<const Value*> steps_of(const Value& tokenizer, const char* component, const char* list) {
    std::vector<const Value*> steps;
    append_steps(member(tokenizer, component), list, steps);
    return steps;
}

// Returns whether a normalizer leaves every text unchanged.
bool changes_nothing(const Value& normalizer) {
    const std::string_view type = type_of(normalizer);
    if (type == "Strip")
        return !flag(normalizer, "strip_left", true) && !flag(normalizer, "strip_right", true);
    if (type == "Prepend") return member(normalizer, "prepend").is_string("");
    if (type != "Replace") return false;
    const Value& pattern = member(member(normalizer, "pattern"), "String");
    const Value& content = member(normalizer, "content");
    return pattern.is_string() && content.is_string() && pattern.text == content.text;
}

// Returns whether a template for single texts adds no special token: {"Sequence": {...}} alone. Pairs of texts do not occur.
bool adds_nothing(const Value& post_processor) {
    if (type_of(post_processor) == "ByteLevel") return true;  // offsets alone
    const Value& single = member(post_processor, "single");
    if (type_of(post_processor) != "TemplateProcessing" || !single.is_array()) return false;
    return single.items.size() == 1 && member(single.items.front(), "Sequence").is_object();
}

void check_pre_tokenizer(const Value& tokenizer) {
    require(type_of(member(tokenizer, "pre_tokenizer")) == "Sequence", "the pre_tokenizer is not a Sequence");
    const std::vector<const Value*> steps = steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
    require(steps.size() == 2, "the pre_tokenizer is not Split, then ByteLevel");
    check_split(*steps[0]);
    require(type_of(*steps[1]) == "ByteLevel", "the pre_tokenizer's second step is not ByteLevel");
    require(!flag(*steps[1], "add_prefix_space", true), "the pre_tokenizer adds a leading space");
    require(!flag(*steps[1], "use_regex", true),
            "the pre_tokenizer's ByteLevel step has a pattern of its own");
}

void check_pipeline(const Value& tokenizer) {
    for (const Value* step : steps_of(tokenizer, "normalizer", "normalizers"))
        require(changes_nothing(*step), format_text("the normalizer {} is set", type_of(*step)));
    check_pre_tokenizer(tokenizer);
    for (const Value* step : steps_of(tokenizer, "post_processor", "processors"))
        require(adds_nothing(*step),
                format_text("the post_processor {} adds tokens or is not known", type_of(*step)));
    const std::vector<const Value*> decoders = steps_of(tokenizer, "decoder", "decoders");
    for (const Value* step : decoders) {
        const bool is_known =
            type_of(*step) == "ByteLevel" || (type_of(*step) == "Fuse" && decoders.size() > 1);
        require(is_known, format_text("the decoder {} is not ByteLevel", type_of(*step)));
    }
}

void check_model(const Value& model) {
    if (!model.is_object()) fail_file(Reason::format, "{}: model is missing", k_tokenizer);
    require(type_of(model) == "BPE", "the model's type is not BPE");
    const Value& dropout = member(model, "dropout");
    require(dropout.is_null() || (dropout.is_number() && dropout.number == 0.0), "the model has dropout");
    require(!flag(model, "byte_fallback", false), "the model has byte_fallback");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        const Value& value = member(model, key);
        require(value.is_null() || value.is_string(""), format_text("the model has a {}", key));
    }
}

struct Entry {
    int32_t id;
    TokenType type;
    const std::string* text;
    bool is_normalized = false;  // an added token that is searched for in the second pass
};

std::vector<Entry> vocabulary_entries(const Value& vocab) {
    if (!vocab.is_object() || vocab.items.empty()) {
        fail_file(Reason::format, "{}: model.vocab is missing, empty or no object", k_tokenizer);
    }
    std::vector<Entry> entries;
    entries.reserve(vocab.items.size());
    for (size_t i = 0; i < vocab.items.size(); ++i) {
        const std::string& text = vocab.keys[i];
        entries.push_back({id_of(vocab.items[i], k_tokenizer, text), TokenType::normal, &text});
    }
    return entries;
}

void append_added_entries(const Value& added_tokens, std::vector<Entry>& entries) {
    if (added_tokens.is_null()) return;
    if (!added_tokens.is_array()) fail_file(Reason::type, "{}: added_tokens is not an array", k_tokenizer);
    for (const Value& token : added_tokens.items) {
        const std::string& text =
            text_of(member(token, "content"), k_tokenizer, "the content of an added token");
        const int32_t id = id_of(member(token, "id"), k_tokenizer, text);
        for (const char* key : {"lstrip", "rstrip", "single_word"}) {
            require(!flag(token, key, false), format_text("the added token {} has {}", text, key));
        }
        const bool is_special = flag(token, "special", false);
        entries.push_back({id, is_special ? TokenType::control : TokenType::user_defined, &text,
                           flag(token, "normalized", !is_special)});
    }
}

// An added token may also be listed in model.vocab under the same id and text; any other second use of an id
// is an error.
void fill_rows(const std::vector<Entry>& entries, Vocabulary& vocabulary) {
    int32_t max_id = 0;
    for (const Entry& entry : entries) max_id = std::max(max_id, entry.id);
    if (static_cast<size_t>(max_id) >= entries.size() + k_max_holes) {
        fail_file(Reason::limit, "{}: token id {} is too large for a vocabulary of {} tokens", k_tokenizer,
                  max_id, entries.size());
    }
    const size_t rows = static_cast<size_t>(max_id) + 1;
    vocabulary.tokens.resize(rows);
    vocabulary.types.resize(rows, TokenType::unused);
    for (const Entry& entry : entries) {
        const int64_t row = entry.id;
        std::string& text = vocabulary.tokens[row];
        TokenType& type = vocabulary.types[row];
        const bool promoted =
            type == TokenType::normal && entry.type != TokenType::normal && text == *entry.text;
        if (type != TokenType::unused && !promoted) {
            fail_file(Reason::duplicate, "{}: tokens {} and {} have the same id {}", k_tokenizer, text,
                      *entry.text, entry.id);
        }
        text = *entry.text;
        type = entry.type;
        if (entry.is_normalized) vocabulary.normalized.push_back(entry.id);
    }
}

std::string merge_line(const Value& merge, size_t rank) {
    if (merge.is_string()) return merge.text;
    const bool pair = merge.is_array() && merge.items.size() == 2 && merge.items[0].is_string() &&
                      merge.items[1].is_string();
    if (!pair)
        fail_file(Reason::type, "{}: merge {} is neither a string nor a pair of strings", k_tokenizer, rank);
    return format_text("{} {}", merge.items[0].text, merge.items[1].text);
}

void fill_merges(const Value& merges, Vocabulary& vocabulary) {
    if (!merges.is_array()) fail_file(Reason::format, "{}: model.merges is missing or no array", k_tokenizer);
    vocabulary.merges.reserve(merges.items.size());
    for (const Value& merge : merges.items)
        vocabulary.merges.push_back(merge_line(merge, vocabulary.merges.size()));
}

// Added tokens are few and behind the ordinary ones, so the search starts at the end.
int32_t added_token(const Vocabulary& vocabulary, std::string_view text) {
    for (size_t id = vocabulary.tokens.size(); id-- > 0;) {
        const bool added =
            vocabulary.types[id] == TokenType::control || vocabulary.types[id] == TokenType::user_defined;
        if (added && vocabulary.tokens[id] == text) return static_cast<int32_t>(id);
    }
    return k_no_token;
}

// Returns the id of a token such as eos_token, which is a string, or an object with `content`, or null.
int32_t named_token(const Value& config, const char* key, const Vocabulary& vocabulary) {
    const Value& value = member(config, key);
    if (value.is_null()) return k_no_token;
    const std::string& text =
        text_of(value.is_object() ? member(value, "content") : value, k_tokenizer_config, key);
    const int32_t id = added_token(vocabulary, text);
    if (id == k_no_token)
        fail_file(Reason::value, "{}: {} {} is not an added token", k_tokenizer_config, key, text);
    return id;
}

// Returns the same for a token that nothing here depends on: an invalid value is only a warning.
int32_t unused_named_token(const Value& config, const char* key, const Vocabulary& vocabulary,
                           const Logger& logger) {
    try {
        return named_token(config, key, vocabulary);
    } catch (const Error& error) {
        logger.warning("{}; the token is not used", error.what());
        return k_no_token;
    }
}

// The configuration of generation, and that of the model: transformers makes the former of the latter if it is missing.
struct Generation {
    const Value& own;
    const Value& model;

    // Returns a member such as eos_token_id, and the name of its file. In config.json it may be in text_config.
    std::pair<const Value&, const char*> find(const char* key) const {
        if (const Value& value = member(own, key); !value.is_null()) return {value, k_generation_config};
        if (const Value& value = member(model, key); !value.is_null()) return {value, k_config};
        return {member(member(model, "text_config"), key), k_config};
    }
};

// Returns the ids of a member such as eos_token_id, which is a number, or a list of numbers, or null.
std::vector<int32_t> listed_ids(const Generation& generation, const char* key) {
    const auto& [value, file] = generation.find(key);
    std::vector<int32_t> ids;
    if (value.is_array()) {
        for (const Value& id : value.items) ids.push_back(id_of(id, file, key));
    } else if (!value.is_null()) {
        ids.push_back(id_of(value, file, key));
    }
    return ids;
}

std::vector<int32_t> unused_listed_ids(const Generation& generation, const char* key, size_t n_tokens,
                                       const Logger& logger) {
    try {
        const std::vector<int32_t> ids = listed_ids(generation, key);
        for (const int32_t id : ids) {
            if (static_cast<size_t>(id) >= n_tokens)
                fail_file(Reason::value, "{}: {} {} is not one of {} tokens", generation.find(key).second,
                          key, id, n_tokens);
        }
        return ids;
    } catch (const Error& error) {
        logger.warning("{}; the token is not used", error.what());
        return {};
    }
}

// Returns the ids that end texts. Those of config.json are often left over from another tokenizer: one that is no token is a warning.
std::vector<int32_t> end_ids(const Generation& generation, size_t n_tokens, const Logger& logger) {
    constexpr const char* k_key = "eos_token_id";
    if (generation.find(k_key).second == k_config)
        return unused_listed_ids(generation, k_key, n_tokens, logger);
    return listed_ids(generation, k_key);
}

// The tokenizer's own configuration takes precedence over the generation configuration, which has another
// beginning-of-sequence token in some releases.
int32_t preferred(int32_t own, const std::vector<int32_t>& other, const char* name, const char* file,
                  const Logger& logger) {
    if (own == k_no_token) return other.empty() ? k_no_token : other.front();
    if (!other.empty() && std::find(other.begin(), other.end(), own) == other.end()) {
        logger.info("{} says {} {}, {} says {}: the former is taken", k_tokenizer_config, name, own, file,
                    other.front());
    }
    return own;
}

void fill_special_ids(const Value& config, const Generation& generation, Vocabulary& vocabulary,
                      const Logger& logger) {
    const auto unused = [&](const char* name) {
        return unused_named_token(config, name, vocabulary, logger);
    };
    const auto unused_id = [&](const char* name, const char* key) {
        return preferred(unused(name), unused_listed_ids(generation, key, vocabulary.tokens.size(), logger),
                         name, generation.find(key).second, logger);
    };
    vocabulary.extra_eog = end_ids(generation, vocabulary.tokens.size(), logger);
    vocabulary.bos = unused_id("bos_token", "bos_token_id");
    vocabulary.eos = preferred(named_token(config, "eos_token", vocabulary), vocabulary.extra_eog,
                               "eos_token", generation.find("eos_token_id").second, logger);
    vocabulary.pad = unused_id("pad_token", "pad_token_id");
    vocabulary.unk = unused("unk_token");
}

// Returns the rows of the embedding that config.json states; 0 if it states none.
int64_t rows_of(const Value& config) {
    const Value& own = member(config, "vocab_size");
    const Value& rows = own.is_null() ? member(member(config, "text_config"), "vocab_size") : own;
    return std::max<int64_t>(json::to_int64(rows).value_or(0), 0);
}

}  // namespace

Vocabulary vocabulary_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                std::string_view generation_config_json, const Logger& logger,
                                std::string_view config_json) {
    const Value tokenizer = parse_object(tokenizer_json, k_tokenizer);
    const auto optional_object = [](std::string_view text, const char* file) {
        return text.empty() ? Value() : parse_object(text, file);
    };
    const Value config = optional_object(tokenizer_config_json, k_tokenizer_config);
    const Value generation = optional_object(generation_config_json, k_generation_config);
    const Value model_config = optional_object(config_json, k_config);

    check_pipeline(tokenizer);
    const Value& model = member(tokenizer, "model");
    check_model(model);

    Vocabulary vocabulary;
    std::vector<Entry> entries = vocabulary_entries(member(model, "vocab"));
    append_added_entries(member(tokenizer, "added_tokens"), entries);
    fill_rows(entries, vocabulary);
    fill_merges(member(model, "merges"), vocabulary);
    vocabulary.ignore_merges = flag(model, "ignore_merges", false);
    add_declared(declared_tokens(config), rows_of(model_config), vocabulary, logger);
    fill_special_ids(config, {generation, model_config}, vocabulary, logger);
    return vocabulary;
}

}  // namespace minim::tokenizer
