#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "base/json.h"
#include "checkpoint/text_file.h"
#include "model/choose_residence.h"
#include "model/fingerprint.h"
#include "model/mapped_weights.h"
#include "model/place_weights.h"
#include "model/vocabulary.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;

constexpr uint64_t k_largest_text_file = uint64_t{256} << 20;

// What a safetensors folder keeps beside the weights. A missing optional file is an empty string.
std::string side_file(const Checkpoint& checkpoint, const char* name, bool required) {
    try {
        return checkpoint::read_text_file(checkpoint.folder() + "/" + name, k_largest_text_file);
    } catch (const Error& error) {
        if (error.status() == Status::not_found && !required) return {};
        throw;
    }
}

Config read_config(const Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.kind() == Checkpoint::Kind::gguf) return config_from_gguf(checkpoint.metadata(), log);
    return config_from_json(side_file(checkpoint, "config.json", true), log);
}

tokenizer::Vocabulary read_vocabulary(const Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.kind() == Checkpoint::Kind::gguf) return vocabulary_from_gguf(checkpoint.metadata(), log);
    return tokenizer::vocabulary_from_json(side_file(checkpoint, "tokenizer.json", true),
                                           side_file(checkpoint, "tokenizer_config.json", false),
                                           side_file(checkpoint, "generation_config.json", false), log);
}

// chat_template.jinja word for word, else the field of tokenizer_config.json.
std::string read_chat_template(const Checkpoint& checkpoint) {
    if (checkpoint.kind() == Checkpoint::Kind::gguf) {
        const auto text = checkpoint.metadata().string("tokenizer.chat_template");
        return text ? std::string(*text) : std::string();
    }
    std::string text = side_file(checkpoint, "chat_template.jinja", false);
    if (!text.empty()) return text;
    const std::string config_text = side_file(checkpoint, "tokenizer_config.json", false);
    if (config_text.empty()) return {};
    const json::Value config = json::parse(config_text, "tokenizer_config.json", json::Source::file);
    const json::Value* field = json::find(&config, "chat_template");
    return field != nullptr && field->is_string() ? field->text : std::string();
}

// Rows without a token of their own: padding of the vocabulary.
std::vector<uint8_t> rows_without_token(const tokenizer::Tokenizer& tokenizer, int64_t n_vocab) {
    std::vector<uint8_t> unused(static_cast<size_t>(n_vocab), 1);
    for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
        unused[static_cast<size_t>(id)] = tokenizer.token_type(id) == tokenizer::TokenType::unused ? 1 : 0;
    }
    return unused;
}

// Of the added tokens at the end of the vocabulary, which no ordinary token follows.
int32_t first_of_added_tokens(const tokenizer::Tokenizer& tokenizer) {
    int32_t first = tokenizer.n_tokens();
    while (first > 0 && !tokenizer::is_ordinary(tokenizer.token_type(first - 1))) --first;
    return first;
}

bool packs_any(const backend::Backend& backend, const Checkpoint& checkpoint) {
    return std::ranges::any_of(checkpoint.tensors(), [&](const checkpoint::Tensor& tensor) {
        return tensor.format && backend.packs(*tensor.format);
    });
}

// Without devices that got no layer.
std::vector<Stage> checked_stages(std::vector<Stage> stages, const Config& config) {
    std::erase_if(stages, [](const Stage& stage) { return stage.n_layer == 0; });
    int64_t n_layer = 0;
    for (const Stage& stage : stages) n_layer += stage.n_layer;
    if (n_layer != config.n_layer)
        fail(Status::invalid, "the devices have {} layers, the model {}", n_layer, config.n_layer);
    for (const Stage& stage : stages)
        if (!stage.experts.empty() && std::ssize(stage.experts) != stage.n_layer)
            fail_internal("places for the experts of {} layers of {}", stage.experts.size(), stage.n_layer);
    return stages;
}

}  // namespace

Model::Model(const std::string& path, std::shared_ptr<const backend::Backend> backend,
             const OpenOptions& options, const Logger& log)
    : Model(
          path,
          [&](const Config& config, Weights&) {
              return std::vector<Stage>{{std::move(backend), config.n_layer}};
          },
          options, log) {}

Model::Model(const std::string& path, const Split& split, const OpenOptions& options, const Logger& log)
    : checkpoint_(Checkpoint::open(path, log)) {
    throw_if_cancelled(options.cancel, "loading");
    config_ = read_config(checkpoint_, log);
    const auto rules =
        options.engine_tokenizer ? tokenizer::PieceRules::gguf_engine : tokenizer::PieceRules::model;
    tokenizer_.emplace(read_vocabulary(checkpoint_, log), rules, log);
    chat_template_text_ = read_chat_template(checkpoint_);
    if (chat_template_text_.empty()) {
        why_no_chat_template_ = format_text("{} has no chat template", path);
    } else {
        try {
            chat_template_ = chat::recognise_template(chat_template_text_);
        } catch (const Error& error) {
            if (error.status() != Status::unsupported) throw;
            why_no_chat_template_ = error.what();
        }
    }
    if (!why_no_chat_template_.empty()) log.warning("{}", why_no_chat_template_);
    Weights shapes = check_weights(checkpoint_, config_);

    const auto n_tokens = static_cast<int64_t>(tokenizer_->n_tokens());
    const bool disagrees = checkpoint_.kind() == Checkpoint::Kind::gguf ? n_tokens != config_.n_vocab
                                                                        : n_tokens > config_.n_vocab;
    if (disagrees) {
        fail_file(Reason::shape, "the tokenizer has {} tokens, the embedding {} rows", n_tokens,
                  config_.n_vocab);
    }
    stages_ = checked_stages(split(config_, shapes), config_);
    shares_ = shares_of(stages_);
    load_weights(options, shapes.gathered != nullptr, log);
    unused_rows_ = rows_without_token(*tokenizer_, config_.n_vocab);
    first_added_token_ = first_of_added_tokens(*tokenizer_);
    forward_.emplace(stages_, config_, weights_);
}

// Null where no device computes on host memory.
const backend::Backend* Model::host_backend() const noexcept {
    for (const Share& share : shares_)
        if (share.backend->uses_host_memory()) return share.backend.get();
    return nullptr;
}

// Weights that are `gathered` from several tensors lie in no file as they are computed with.
void Model::load_weights(const OpenOptions& options, bool gathered, const Logger& log) {
    using checkpoint::Residence;
    const bool packs_to_file = !options.packed_file.empty();
    if (packs_to_file) check_packed_file(options);
    std::optional<Residence> residence = options.residence;
    if (gathered && !packs_to_file) {
        if (residence == Residence::mapped)
            log.warning(
                "weights of several tensors each are copied, not mapped: their codes and scales are brought "
                "together");
        residence = Residence::owned;
    }
    const bool on_host_alone = shares_.size() == 1 && host_backend() != nullptr;
    bool packs = false;
    for (const Share& share : shares_)
        packs |= share.backend->uses_host_memory() && packs_any(*share.backend, checkpoint_);
    if (on_host_alone && !packs_to_file) {
        const Residence chosen = choose_residence(residence, checkpoint_.tensor_bytes(), packs, log);
        if (chosen == Residence::mapped) return map_weights(options, log);
    }
    // Weights of the host that stay in their files are read ahead by place_weights().
    checkpoint_.load(Residence::owned, {}, options.cancel);
    fingerprint_ = model::fingerprint(checkpoint_, config_);
    weights_ = bind_weights(checkpoint_, config_, log);
    const bool copies_host =
        !packs_to_file && (on_host_alone || choose_residence(residence, host_weight_bytes(shares_, weights_),
                                                             packs, log) == Residence::owned);
    const ReadWeights read = [this](const std::byte* from, std::span<std::byte> out) {
        if (weights_.gathered != nullptr && weights_.gathered->holds(from))
            return weights_.gathered->read(from, out);
        checkpoint_.read(from, out);
    };
    if (!copies_host && !packs_to_file && host_backend() != nullptr) keep_mapped(options, {}, log);
    const PlaceOptions place = {.copies_host = copies_host,
                                .packed_file = options.packed_file,
                                .origin = origin_of(fingerprint_, checkpoint_.files()),
                                .checks_packed = packs_to_file && makes_present(options),
                                .expand = options.expand,
                                .progress = options.progress,
                                .cancel = options.cancel};
    weight_memory_ = place_weights(shares_, place, read, weights_, log);
    weights_.gathered.reset();
    if (packs_to_file) keep_mapped(options, {}, log);
    weight_bytes_ = model::weight_bytes(shares_, weights_, weight_memory_);
}

void Model::check_packed_file(const OpenOptions& options) const {
    const auto n_host =
        std::ranges::count_if(shares_, [](const Share& share) { return share.backend->uses_host_memory(); });
    if (n_host == 0)
        fail(Status::invalid, "packed_file {}: no weights stay on the host", options.packed_file);
    if (n_host > 1)
        fail(Status::invalid,
             "packed_file {}: {} backends compute on the host, and a file has the weights of one",
             options.packed_file, n_host);
    if (options.residence == checkpoint::Residence::owned)
        fail(Status::invalid, "packed_file {}: it is mapped, and the weights are to be copied into memory",
             options.packed_file);
}

// Whether mapped weights of the host are to be in memory before the model is ready.
bool Model::makes_present(const OpenOptions& options) const {
    return options.prefault || host_backend()->host_memory().locks();
}

void Model::map_weights(const OpenOptions& options, const Logger& log) {
    checkpoint_.load(checkpoint::Residence::mapped,
                     makes_present(options) ? checkpoint::Progress() : options.progress, options.cancel);
    fingerprint_ = model::fingerprint(checkpoint_, config_);
    weights_ = bind_weights(checkpoint_, config_, log);
    keep_mapped(options, options.progress, log);
    weight_bytes_ = model::weight_bytes(shares_, weights_, {});
}

// What the host's weights that stay in their files ask for.
void Model::keep_mapped(const OpenOptions& options, const checkpoint::Progress& progress, const Logger& log) {
    const backend::Backend& host = *host_backend();
    if (host.host_memory().is_placed())
        log.warning("numa {}: mapped weights lie where the system has put the pages of their files",
                    to_string(host.host_memory().plan()->mode));
    if (makes_present(options))
        make_present(mapped_blocks(shares_, weights_), host, progress, options.cancel);
}

std::vector<WeightBlock> Model::host_blocks() const {
    std::vector<WeightBlock> blocks;
    for (const WeightMemory& memory : weight_memory_) {
        for (size_t b = 0; b < memory.host.size(); ++b) {
            const bool is_common = b + 1 == memory.host.size();
            blocks.push_back({{memory.host[b].data(), memory.host[b].size()},
                              true,
                              is_common ? -1 : static_cast<int32_t>(b)});
        }
    }
    if (!blocks.empty() || host_backend() == nullptr) return blocks;
    for (const auto block : mapped_blocks(shares_, weights_)) blocks.push_back({block});
    return blocks;
}

std::shared_ptr<const constraint::TokenTrie> Model::token_trie() const {
    const std::lock_guard lock(token_trie_mutex_);
    if (!token_trie_) token_trie_ = std::make_shared<const constraint::TokenTrie>(*tokenizer_);
    return token_trie_;
}

const chat::Template& Model::chat_template() const {
    if (!chat_template_) fail(Status::unsupported, "{}", why_no_chat_template_);
    return *chat_template_;
}

}  // namespace minim::model
