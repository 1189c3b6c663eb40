// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/render.h"
#include "placement/backends.h"
#include "support.h"
#include "support/files.h"
#include "support/load_reports.h"

using namespace minim;
using namespace minim::test;

namespace {

const std::string k_folder = std::string(MINIM_TEST_MODELS) + "/minim-tiny";
const std::string k_bf16 = std::string(MINIM_TEST_MODELS) + "/minim-tiny-bf16.gguf";

// Fills a folder with links to the files of the safetensors folder, so that a test can change or drop one.
void link_folder(const TemporaryFolder& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(k_folder)) {
        std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
    }
}

void replace_file(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
    std::filesystem::remove(folder / name);
    write_text(folder / name, text);
}

// Returns the default template's prompt of a short conversation.
std::string prompt_of(const model::Model& model) {
    return chat::join(chat::render(model.text().chat_templates().find("", false),
                                   R"([{"role": "user", "content": "Hello"}])", "", "", {}));
}

TinyModel small() {
    TinyShape shape;
    shape.n_layer = 1;
    return TinyModel(shape);
}

}  // namespace

TEST_CASE("a safetensors folder and the GGUF made of it are the same model") {
    const auto folder = open_model(k_folder, "cpu");
    const auto gguf = open_model(k_bf16, "cpu");
    CHECK(folder->config().n_layer == gguf->config().n_layer);
    CHECK(folder->config().n_expert == gguf->config().n_expert);
    CHECK(folder->config().n_vocab == gguf->config().n_vocab);
    CHECK(folder->config().rotary_dim == gguf->config().rotary_dim);
    CHECK(prompt_of(*folder) == prompt_of(*gguf));

    const std::string text = "The capital of Peru is Lima. \U0001F437 1 + 1 = 2";
    const auto ids = gguf->text().tokenizer().encode(text, tokenizer::Specials::exact);
    CHECK(folder->text().tokenizer().encode(text, tokenizer::Specials::exact) == ids);
    CHECK(same_bits(logits_of(*folder, ids), logits_of(*gguf, ids)));
}

TEST_CASE("a safetensors model loads from its index or its folder alike") {
    const auto model = open_model(k_folder + "/model.safetensors.index.json", "cpu");
    CHECK(model->config().n_layer == 3);
}

TEST_CASE("a safetensors folder without config.json or tokenizer.json is not found, by name") {
    for (const char* name : {"config.json", "tokenizer.json"}) {
        const TemporaryFolder folder;
        link_folder(folder);
        std::filesystem::remove(folder / name);
        expect_error(Status::not_found, name, [&] { open_model(folder.path()); });
    }
}

TEST_CASE("a vocabulary size that is not the embedding's is refused") {
    const TemporaryFolder folder;
    link_folder(folder);
    auto config = nlohmann::json::parse(text_of(k_folder + "/config.json"));
    config["vocab_size"] = 2050;
    replace_file(folder, "config.json", config.dump());
    expect_error(Status::format, "model.embed_tokens.weight has 2048 rows",
                 [&] { open_model(folder.path()); });
}

TEST_CASE("a tensor missing from a safetensors folder is named as safetensors has it") {
    const TemporaryFolder folder;
    link_folder(folder);
    auto config = nlohmann::json::parse(text_of(k_folder + "/config.json"));
    config["num_hidden_layers"] = 4;
    config["attn_type_list"] = {1, 1, 1, 1};
    replace_file(folder, "config.json", config.dump());
    expect_error(Status::format, "tensor model.layers.3.input_layernorm.weight is missing",
                 [&] { open_model(folder.path()); });
}

TEST_CASE("more embedding rows than tokens, or fewer, are a format error before any weight is read") {
    for (const int64_t n_vocab : {270, 272}) {
        TinyShape shape;
        shape.n_layer = 1;
        shape.n_vocab = n_vocab;
        GgufWriter gguf = small().writer();
        gguf.tensors = TinyModel(shape).writer().tensors;
        const TemporaryFolder folder;
        gguf.write(folder / "m.gguf");
        int progress_calls = 0;
        model::OpenOptions options;
        options.progress = [&](uint64_t, uint64_t) { return ++progress_calls > 0; };
        expect_error(Status::format,
                     "the tokenizer has 271 tokens, the embedding " + std::to_string(n_vocab) + " rows",
                     [&] { open_with(folder / "m.gguf", options); });
        CHECK(progress_calls == 0);
    }
}

TEST_CASE("a checkpoint without a chat template says so when one is asked for") {
    const TemporaryFolder folder;
    small().write(folder / "m.gguf");
    Lines lines;
    const auto model = open_model(folder / "m.gguf", "cpu", &lines.log);
    CHECK(lines.holding("has no chat template") == 1);
    expect_error(Status::unsupported, "m.gguf has no chat template",
                 [&] { model->text().chat_templates().find("", false); });
}

TEST_CASE("a chat template that cannot be run is refused when asked for, and the model opens") {
    const TemporaryFolder folder;
    TinyModel tiny = small();
    tiny.chat_template =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | urlize }}<|im_end|>{% endfor %}";
    tiny.write(folder / "m.gguf");
    Lines lines;
    const auto model = open_model(folder / "m.gguf", "cpu", &lines.log);
    const auto error = error_of([&] { model->text().chat_templates().find("", false); });
    REQUIRE(error);
    CHECK(error->status() == Status::unsupported);
    CHECK(lines.holding(error->what()) == 1);
}

TEST_CASE("the family's chat template is recognised") {
    const TemporaryFolder folder;
    TinyModel tiny = small();
    tiny.chat_template = text_of(k_folder + "/chat_template.jinja");
    tiny.write(folder / "m.gguf");
    Lines lines;
    const auto model = open_model(folder / "m.gguf", "cpu", &lines.log);
    CHECK(model->text().chat_templates().find("", false).reads("model_identity"));
    CHECK(lines.holding("template") == 0);
}

TEST_CASE("chat templates of a GGUF file are found by name") {
    const TemporaryFolder folder;
    GgufWriter gguf = small().writer();
    gguf.add("tokenizer.chat_template", "D");
    gguf.add("tokenizer.chat_template.tool_use", "T{{ tools | length }}");
    gguf.add("tokenizer.chat_template.short", "S{{ eos_token }}");
    gguf.write(folder / "m.gguf");
    const auto model = open_model(folder / "m.gguf");
    const auto prompt = [&](std::string_view name, std::string_view tools) {
        const chat::Template& found = model->text().chat_templates().find(name, !tools.empty());
        return chat::join(chat::render(found, "[]", tools, "", {}));
    };
    CHECK(prompt("", "") == "D");
    CHECK(prompt("", R"([{"name": "f"}])") == "T1");
    CHECK(prompt("default", R"([{"name": "f"}])") == "D");
    CHECK(prompt("short", "").starts_with("S"));
    CHECK(prompt("short", "").size() > 1);
    expect_error(Status::not_found, "has no chat template 'long'; it has 'default', 'tool_use', 'short'",
                 [&] { model->text().chat_templates().find("long", false); });
}

TEST_CASE("a chat template in tokenizer_config.json counts where there is no file of its own") {
    const TemporaryFolder folder;
    link_folder(folder);
    std::filesystem::remove(folder / "chat_template.jinja");
    auto config = nlohmann::json::parse(text_of(k_folder + "/tokenizer_config.json"));
    config["chat_template"] = text_of(k_folder + "/chat_template.jinja");
    replace_file(folder, "tokenizer_config.json", config.dump());
    CHECK(prompt_of(*open_model(folder.path())) == prompt_of(*open_model(k_folder)));
}

TEST_CASE("mapped and copied weights give the same bits, though copied ones are packed") {
    const std::string examples = MINIM_EXAMPLE_MODELS;
    for (const std::string& path :
         {k_bf16, examples + "/minim-tiny-q8_0.gguf", examples + "/minim-tiny-mix-ik.gguf"}) {
        INFO(path);
        model::OpenOptions owned;
        owned.residence = checkpoint::HostStorage::owned;
        const auto copied = open_with(path, owned);
        model::OpenOptions file;
        file.residence = checkpoint::HostStorage::mapped;
        const auto mapped = open_with(path, file);
        const bool is_quantised = path != k_bf16;
        CHECK(copied->weights().layers[0].wq.packed == is_quantised);
        CHECK(copied->weights().layers[0].experts.down.packed == is_quantised);
        CHECK_FALSE(copied->weights().embedding.packed);
        CHECK_FALSE(copied->weights().layers[0].router.packed);
        CHECK_FALSE(mapped->weights().layers[0].wq.packed);
        const auto chosen = open_with(path, {});  // copied where that is faster
        CHECK(chosen->weights().layers[0].wq.packed == is_quantised);
        const std::vector<int32_t> ids = {2018, 5, 700, 1500, 64};
        CHECK(same_bits(logits_of(*copied, ids), logits_of(*mapped, ids)));
    }
}

TEST_CASE("progress runs to the end, and returning false cancels the load") {
    LoadReports reports;
    model::OpenOptions options;
    options.progress = reports.progress();
    open_with(k_bf16, options);
    reports.check_complete();
    CHECK(reports.total > 0);
    options.progress = [](uint64_t, uint64_t) { return false; };
    CHECK(error_of([&] { open_with(k_bf16, options); }).value().status() == Status::cancelled);
}

TEST_CASE("reading into memory reports what is read and packed, and can be cancelled at every report") {
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const auto load = [&](const checkpoint::Progress& progress) {
        model::OpenOptions options;
        options.residence = checkpoint::HostStorage::owned;
        options.progress = progress;
        return open_with(path, options);
    };
    LoadReports reports;
    const auto model = load(reports.progress());
    const std::vector<uint64_t>& done = reports.done;
    REQUIRE(done.size() >= 2);
    CHECK(done.front() == 0);
    for (size_t i = 1; i < done.size(); ++i) {
        CHECK(done[i] > done[i - 1]);
        CHECK(done[i] - done[i - 1] < 5U << 20);
    }
    reports.check_complete();
    CHECK(done.back() <= model->weight_bytes()[0].total);
    CHECK(done.back() > 7'000'000);
    cancel_at_each(done.size(), load);
}

TEST_CASE("weights read into memory begin where the widest vector may, wherever the file has them") {
    for (const std::string& path : {k_folder, k_bf16}) {
        model::OpenOptions options;
        options.residence = checkpoint::HostStorage::owned;
        const auto model = open_with(path, options);
        const model::Weights& weights = model->weights();
        const auto check = [](const void* data) { CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0); };
        for (const backend::Matrix* matrix : {&weights.embedding, &weights.output}) check(matrix->data);
        check(weights.output_norm.data);
        for (const model::LayerWeights& layer : weights.layers) {
            for (const backend::Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.router})
                check(matrix->data);
            for (const std::byte* expert : layer.experts.down.expert) check(expert);
        }
    }
}

TEST_CASE("a file that shrinks before its weights are read into memory is truncated") {
    const TemporaryFolder folder;
    const std::string path = folder / "m.gguf";
    const std::string source = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    std::filesystem::copy_file(source, path);
    const uint64_t whole = std::filesystem::file_size(path);
    for (const uint64_t left : {whole / 2, whole - 1}) {
        model::OpenOptions options;
        options.residence = checkpoint::HostStorage::owned;
        options.progress = [&](uint64_t done, uint64_t) {
            if (done == 0) std::filesystem::resize_file(path, left);
            return true;
        };
        const auto error = error_of([&] { open_with(path, options); });
        REQUIRE(error);
        CHECK(error->status() == Status::format);
        CHECK(error->reason() == Reason::truncated);
        CHECK(std::string(error->what()).find("m.gguf") != std::string::npos);
        CHECK(reason_of([&] { open_with(path, {}); }) == "truncated");
        std::filesystem::copy_file(source, path, std::filesystem::copy_options::overwrite_existing);
    }
    open_with(path, {});
}

TEST_CASE("rows split among NUMA nodes give the same bits, and each node has its share") {
    PlacementCalls calls = system_placement_calls();
    calls.bind_thread = [](pthread_t, std::span<const int>) { return 0; };
    calls.bind_memory = [](void*, uint64_t, std::span<const int32_t>) { return 0; };
    const std::string examples = MINIM_EXAMPLE_MODELS;
    const std::vector<int32_t> ids = {2018, 5, 700, 1500, 64};
    for (const std::string& path :
         {k_bf16, examples + "/minim-tiny-q8_0.gguf", examples + "/minim-tiny-mix-ik.gguf"}) {
        INFO(path);
        const auto expected = open_with(path, {});
        for (const size_t n_nodes : {2, 3}) {
            Topology topology;
            for (size_t i = 0; i < n_nodes; ++i)
                topology.nodes.push_back({static_cast<int32_t>(i), std::vector<int>(i + 1)});
            const placement::ThreadOptions threads = {
                .n_threads = 4, .n_threads_decode = 6, .numa = Numa::split};
            model::OpenOptions options;
            options.residence = checkpoint::HostStorage::owned;
            const model::Model model(
                path,
                placement::make_backend("cpu", placement::make_threads(threads, topology, Logger(), calls),
                                        active_cpu_level()),
                options, Logger());
            const backend::Matrix& output = model.weights().output;
            REQUIRE(output.blocks != nullptr);
            CHECK(output.blocks->data.size() == n_nodes);
            CHECK_FALSE(model.weights().layers[0].experts.down.blocks.empty());
            CHECK(model.weights().embedding.blocks == nullptr);
            CHECK(same_bits(logits_of(model, ids), logits_of(*expected, ids)));
            CHECK(same_bits(logits_of(model, std::span(ids).first(1)),
                            logits_of(*expected, std::span(ids).first(1))));
            const std::vector<model::WeightBlock> blocks = model.host_blocks();
            REQUIRE(blocks.size() == n_nodes + 1);
            uint64_t total = 0;
            for (const model::WeightBlock& block : blocks) total += block.bytes.size();
            CHECK(total == model.weight_bytes()[0].total);
            CHECK(blocks[0].bytes.size() < blocks[n_nodes - 1].bytes.size());  // fewer cores there
            CHECK(blocks[0].bytes.size() > total / 10);
        }
    }
}

TEST_CASE("mapped weights are prefaulted with progress, and can be cancelled meanwhile") {
    const std::string path = std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-q8_0.gguf";
    const auto load = [&](const checkpoint::Progress& progress) {
        model::OpenOptions options;
        options.residence = checkpoint::HostStorage::mapped;
        options.prefault = true;
        options.progress = progress;
        return open_with(path, options);
    };
    LoadReports reports;
    const auto model = load(reports.progress());
    reports.check_complete();
    CHECK(reports.total > 7'000'000);
    REQUIRE(reports.done.size() >= 2);
    const std::vector<model::WeightBlock> blocks = model->host_blocks();
    REQUIRE_FALSE(blocks.empty());
    for (const model::WeightBlock& block : blocks) {
        const size_t before = reinterpret_cast<uintptr_t>(block.bytes.data()) % 4096;  // in its page
        const size_t n_pages = (before + block.bytes.size() + 4095) / 4096;
        std::vector<unsigned char> present(n_pages);
        REQUIRE(::mincore(const_cast<std::byte*>(block.bytes.data() - before), n_pages * 4096,
                          present.data()) == 0);
        CHECK(std::ranges::all_of(present, [](unsigned char page) { return (page & 1U) != 0; }));
    }
    cancel_at_each(reports.done.size(), load);
}

TEST_CASE("a triggered token cancels the load") {
    CancelToken cancel;
    cancel.trigger();
    model::OpenOptions options;
    options.cancel = &cancel;
    CHECK(error_of([&] { open_with(k_bf16, options); }).value().status() == Status::cancelled);
}

TEST_CASE("the tokenizer follows the model's rules unless the engine's are asked for") {
    CHECK(open_with(k_bf16, {})->text().tokenizer().rules() == tokenizer::PieceRules::model);
    model::OpenOptions options;
    options.text.engine_tokenizer = true;
    CHECK(open_with(k_bf16, options)->text().tokenizer().rules() == tokenizer::PieceRules::gguf_engine);
}

TEST_CASE(
    "what a folder keeps in several tensors is copied where mapping is asked for, and the log says so") {
    const std::string path = std::string(MINIM_TEST_MODELS) + "/minim-tiny-nvfp4";
    const std::vector<int32_t> ids = {5, 70, 900};
    const std::vector<float> expected = logits_of(*open_model(path, "cpu"), ids);
    Lines lines;
    LoadReports reports;
    model::OpenOptions options;
    options.residence = checkpoint::HostStorage::mapped;
    options.progress = reports.progress();
    const model::Model model(
        path, placement::make_backend("cpu", std::make_shared<ThreadPool>(2), active_cpu_level()), options,
        lines.log);
    CHECK(lines.holding("are copied, not mapped") == 1);
    CHECK(same_bits(logits_of(model, ids), expected));
    reports.check_complete();
}
