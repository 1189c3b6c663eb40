// SPDX-License-Identifier: Apache-2.0
// minim.hpp in each C++ standard: every member instantiated, and every handle movable but not copyable.
#include "minim/minim.hpp"

template <typename Handle>
constexpr bool is_move_only =
    std::is_nothrow_move_constructible_v<Handle>&& std::is_move_assignable_v<Handle> &&
    !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>;

static_assert(is_move_only<minim::Runtime> && is_move_only<minim::Checkpoint> && is_move_only<minim::Model>);
static_assert(is_move_only<minim::Session> && is_move_only<minim::Sampling> &&
              is_move_only<minim::Constraint> && is_move_only<minim::Decoder> &&
              is_move_only<minim::Importance>);
static_assert(is_move_only<minim::Tokens> && is_move_only<minim::Text> && is_move_only<minim::Cancel>);
static_assert(std::is_base_of_v<std::runtime_error, minim::Exception>);

std::string compile_check(const std::string& path);

std::string compile_check(const std::string& path) {
    const minim::Runtime runtime(minim::RuntimeOptions{2, MINIM_LOG_DEBUG, [](int32_t, const char*) {}});
    minim::RuntimeOptions own_threads;
    own_threads.parallel_for = [](int64_t n_tasks, const minim::Task& task) {
        for (int64_t i = 0; i < n_tasks; ++i) task(i, 0);
    };
    const minim::Runtime on_own_threads(own_threads);
    const minim::Cancel cancel;
    minim::ModelOptions options;
    options.progress = [](uint64_t done, uint64_t total) { return done <= total; };
    const minim::Model model(runtime, path, options, &cancel);
    const minim::Checkpoint checkpoint = model.checkpoint();
    std::string text = checkpoint.metadata(checkpoint.metadata_key(0), 4).str() + checkpoint.tensor(0).name;
    text += model.memory()[0].name;
    const minim::Model by_descriptor = minim::Model::open_fd(on_own_threads, 3, options, &cancel);
    text += std::to_string(minim::Checkpoint::open_fd(runtime, 3).tensor_count());
    text.append(minim::version()).append(minim::build_info());
    if (minim::has_feature("gguf") && minim::version_number() >= MINIM_VERSION_NUMBER)
        text += minim::formats()[0].name + std::string(minim::sampling_options()[0].name);

    minim::Session session(model, {128, MINIM_KV_F32, MINIM_KV_F16, 0, 0});
    const std::vector<unsigned char> bytes = session.save_bytes(&cancel);
    minim::Session::restore_bytes(model, bytes.data(), bytes.size(), {}, &cancel).save_fd(3, &cancel);
    minim::Session::restore_fd(by_descriptor, 3, {}, &cancel).save("state");
    minim::Engine engine(model);
    minim::RequestOptions request_options;
    request_options.notify = [] {};
    engine.submit_n(minim::Sampling(), {1, 2}, 2, request_options)[0].cancel();
    engine.submit(minim::Sampling(), {1, 2}, request_options).cancel();
    minim::Sampling sampling;
    sampling.set("temperature", 1.0)
        .set("top_k", 40)
        .add_stop("\n")
        .add_stop_token(3)
        .add_logit_bias(4, -1.0F)
        .set_constraint(minim::Constraint::from_schema(model, "{}", {"</think>"}))
        .set_constraint(minim::Constraint::from_regex(model, "a*"))
        .set_constraint(minim::Constraint::from_choices(model, {"yes", "no"}))
        .set_constraint(minim::Constraint::from_tools(model, "[]", "name", true));
    if (minim::Constraint::from_regex(model, "a*").matches(std::string_view("a\0", 2))) text += "a";
    minim::ChatOptions chat;
    chat.null_content_is_empty = true;
    const minim::Text rendered = model.chat_render_with("[]", chat);
    const minim::Tokens other = model.chat_tokenize_with("[]", chat);
    minim::OutputParser parser;
    const auto ignore = [](const minim_output_delta&) {};
    parser.feed("text", ignore);
    const int32_t reason = parser.finish(MINIM_FINISH_END, ignore);
    const minim::Output output = minim::parse_output("text", reason);
    text += output.content.value_or("") + rendered.str() + std::to_string(other.size());
    const minim::Tokens prompt = model.chat_tokenize("[]", "[]", "{}");
    const auto collect = [&](const minim_token& token) { text.append(token.text, token.text_length); };
    session.generate(sampling, prompt, collect, &cancel);
    session.generate(sampling, {1, 2}, [](const minim_token& token) { return token.id != 7; });
    session.truncate(1);
    session.begin(sampling, model.tokenize(text, MINIM_SPECIALS_SAFE));
    minim::Decoder decoder(model, true);
    while (const std::optional<minim_token> token = session.next(&cancel)) text += decoder.push(token->id);
    text += decoder.finish();
    minim::Importance importance(model, {"text.txt", 256, true, 1});
    importance.attach(session);
    const std::vector<float> logits = session.eval({1, 2, 3}, true);
    minim::Importance::detach(session);
    importance.merge(minim::Importance::load("older.dat", 512));
    importance.save("data", MINIM_IMPORTANCE_DAT);
    text += importance.describe().view();
    return text + model.detokenize(prompt).str() + model.token_text(prompt[0]).c_str() +
           std::to_string(logits.size() + session.state().n_generated +
                          minim::decode_format("F32", "1234", 4, 1).size() +
                          minim::encode_format("Q8_0", std::vector<float>(32), 32).size());
}
