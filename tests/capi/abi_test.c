/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface used from C: every group of calls, its errors, and the promises about handles and structs.
 * usage: abi_test MODEL MALFORMED_GGUF */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

static const char* const k_question =
    "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";

static void test_versions(void) {
    CHECK(minim_version_number() == MINIM_VERSION_NUMBER);
    CHECK(strcmp(minim_version(), "0.1.0") == 0);
    CHECK(strstr(minim_build_info(), minim_version()) != NULL);
    CHECK(minim_has_feature("gguf") == 1);
    CHECK(minim_has_feature("telepathy") == 0);
    CHECK(minim_has_feature(NULL) == 0);
    CHECK(strcmp(minim_status_name(MINIM_E_CONTEXT_FULL), "MINIM_E_CONTEXT_FULL") == 0);
    CHECK(minim_status_name(99) == NULL);
    CHECK(strcmp(minim_reason_name(MINIM_REASON_DUPLICATE), "duplicate") == 0);
    CHECK(minim_reason_name(-1) == NULL);
}

static void test_null_handles(void) {
    minim_runtime_free(NULL);
    minim_model_close(NULL);
    minim_session_free(NULL);
    minim_engine_free(NULL);
    minim_request_free(NULL);
    minim_sampling_free(NULL);
    minim_tokens_free(NULL);
    minim_text_free(NULL);
    minim_decoder_free(NULL);
    minim_cancel_free(NULL);
    minim_cancel_trigger(NULL);
    minim_checkpoint_close(NULL);
    CHECK(minim_tokens_count(NULL) == 0);
    CHECK(minim_tokens_data(NULL) != NULL);
    CHECK(minim_text_length(NULL) == 0);
}

static void test_structs(minim_runtime* runtime, const char* path) {
    minim_error err = MINIM_ERROR_INIT;
    minim_model* model = NULL;
    struct {
        minim_model_params params;
        uint64_t later_field;
    } newer;
    minim_model_params params = MINIM_MODEL_PARAMS_INIT;

    params.size = 0;
    CHECK_FAILS(minim_model_open(runtime, path, &params, NULL, &model, &err), MINIM_E_INVALID);
    params.size = sizeof(params);
    params.flags = 1;
    CHECK_FAILS(minim_model_open(runtime, path, &params, NULL, &model, &err), MINIM_E_UNSUPPORTED);
    params.flags = 0;
    params.residence = 7;
    CHECK_FAILS(minim_model_open(runtime, path, &params, NULL, &model, &err), MINIM_E_INVALID);
    params.residence = 0;
    params.backend = "abacus";
    CHECK_FAILS(minim_model_open(runtime, path, &params, NULL, &model, &err), MINIM_E_INVALID);

    /* A caller that is newer than the library is refused only if it sets a field that the library does not know. */
    memset(&newer, 0, sizeof(newer));
    newer.params.size = sizeof(newer);
    newer.later_field = 1;
    CHECK_FAILS(minim_model_open(runtime, path, &newer.params, NULL, &model, &err), MINIM_E_UNSUPPORTED);
    newer.later_field = 0;
    CHECK_OK(minim_model_open(runtime, path, &newer.params, NULL, &model, &err));
    minim_model_close(model);

    /* If the size field was never set, the library reads nothing beyond the struct: there may be no memory. */
    {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char* memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        minim_model_params* last = (minim_model_params*)(void*)(memory + page - sizeof(minim_model_params));
        minim_tensor_info* info = (minim_tensor_info*)(void*)(memory + page - sizeof(minim_tensor_info));
        minim_checkpoint* checkpoint = NULL;
        CHECK((void*)memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
        last->size = 0xCCCCCCCCU;
        CHECK_FAILS(minim_model_open(runtime, path, last, NULL, &model, &err), MINIM_E_INVALID);
        last->size = (uint32_t)sizeof(minim_model_params) + 4097;
        CHECK_FAILS(minim_model_open(runtime, path, last, NULL, &model, &err), MINIM_E_INVALID);
        CHECK_OK(minim_checkpoint_open(runtime, path, &checkpoint, &err));
        info->size = 0xCCCCCCCCU;
        CHECK_FAILS(minim_checkpoint_tensor(checkpoint, 0, info, &err), MINIM_E_INVALID);
        minim_checkpoint_close(checkpoint);
        CHECK(munmap(memory, 2 * page) == 0);
    }

    /* A short error struct is filled as far as it goes. */
    {
        unsigned char buffer[sizeof(minim_error)];
        minim_error* small = (minim_error*)(void*)buffer;
        memset(buffer, 0x5A, sizeof(buffer));
        small->size = offsetof(minim_error, os_code);
        CHECK(minim_model_open(runtime, "/nonexistent", NULL, NULL, &model, small) == MINIM_E_NOT_FOUND);
        CHECK(small->status == MINIM_E_NOT_FOUND);
        CHECK(buffer[offsetof(minim_error, os_code)] == 0x5A);
        CHECK(model == NULL);
    }
    CHECK(minim_model_open(runtime, "/nonexistent", NULL, NULL, &model, NULL) == MINIM_E_NOT_FOUND);
}

static void test_checkpoint(minim_runtime* runtime, const char* path, const char* malformed) {
    minim_error err = MINIM_ERROR_INIT;
    minim_checkpoint* checkpoint = NULL;
    minim_tensor_info tensor = MINIM_TENSOR_INFO_INIT;
    minim_recommended_sampling sampling = MINIM_RECOMMENDED_SAMPLING_INIT;
    minim_text* text = NULL;

    CHECK(minim_checkpoint_open(runtime, malformed, &checkpoint, &err) == MINIM_E_FORMAT);
    CHECK(err.reason == MINIM_REASON_FORMAT);
    CHECK(checkpoint == NULL);
    reset_error(&err);
    CHECK_FAILS(minim_checkpoint_open(runtime, NULL, &checkpoint, &err), MINIM_E_INVALID);

    CHECK_OK(minim_checkpoint_open(runtime, path, &checkpoint, &err));
    CHECK(minim_checkpoint_file_count(checkpoint) == 1);
    CHECK(minim_checkpoint_tensor_count(checkpoint) == 42);
    CHECK_OK(minim_checkpoint_tensor(checkpoint, 0, &tensor, &err));
    CHECK(tensor.n_dims >= 1 && tensor.bytes > 0 && tensor.name[0] != '\0');
    CHECK_FAILS(minim_checkpoint_tensor(checkpoint, 42, &tensor, &err), MINIM_E_INVALID);
    CHECK(minim_checkpoint_metadata_key(checkpoint, 100000) == NULL);
    CHECK_OK(minim_checkpoint_metadata(checkpoint, "general.architecture", 0, &text, &err));
    CHECK(strcmp(minim_text_data(text), "minimax-m2") == 0);
    minim_text_free(text);
    CHECK_FAILS(minim_checkpoint_metadata(checkpoint, "no.such.key", 0, &text, &err), MINIM_E_NOT_FOUND);
    CHECK_OK(minim_checkpoint_recommended_sampling(checkpoint, &sampling, &err));
    CHECK(sampling.temperature == 1.0 && sampling.top_k == 40 && sampling.penalty_last_n == -1);
    CHECK(strcmp(sampling.source, "general.sampling") == 0);
    CHECK_FAILS(minim_checkpoint_recommended_sampling(NULL, &sampling, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_checkpoint_recommended_sampling(checkpoint, NULL, &err), MINIM_E_INVALID);
    minim_checkpoint_close(checkpoint);
}

static void test_tokens(const minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_tokens* tokens = NULL;
    minim_text* text = NULL;
    minim_decoder* decoder = NULL;
    const char* piece = NULL;
    size_t length = 0, i, total = 0;
    const char* const frog = "Which animal is \xF0\x9F\x90\xB8?[e~[";
    const int32_t bad = 1 << 20;

    CHECK_OK(minim_tokenize(model, frog, SIZE_MAX, MINIM_SPECIALS_EXACT, &tokens, &err));
    CHECK_OK(minim_detokenize(model, minim_tokens_data(tokens), minim_tokens_count(tokens), 0, &text, &err));
    CHECK(strcmp(minim_text_data(text), frog) == 0);
    minim_text_free(text);
    CHECK(minim_token_attributes(model, minim_tokens_data(tokens)[minim_tokens_count(tokens) - 1]) ==
          (MINIM_TOKEN_CONTROL | MINIM_TOKEN_END));

    CHECK_OK(minim_decoder_create(model, 1, &decoder, &err));
    for (i = 0; i < minim_tokens_count(tokens); ++i) {
        CHECK_OK(minim_decoder_push(decoder, minim_tokens_data(tokens)[i], &piece, &length, &err));
        total += length;
    }
    CHECK_OK(minim_decoder_finish(decoder, &piece, &length, &err));
    CHECK(total == strlen(frog) - strlen("[e~[") && length == 0);
    CHECK_FAILS(minim_decoder_push(decoder, bad, &piece, &length, &err), MINIM_E_INVALID);
    minim_decoder_free(decoder);
    minim_tokens_free(tokens);

    CHECK_OK(minim_tokenize(model, "[e~[", 4, MINIM_SPECIALS_SAFE, &tokens, &err));
    CHECK(minim_tokens_count(tokens) > 1);
    minim_tokens_free(tokens);
    CHECK_OK(minim_tokenize(model, NULL, 0, MINIM_SPECIALS_NONE, &tokens, &err));
    CHECK(minim_tokens_count(tokens) == 0);
    minim_tokens_free(tokens);
    CHECK_FAILS(minim_tokenize(model, "x", 1, 9, &tokens, &err), MINIM_E_INVALID);
    CHECK(tokens == NULL);
    CHECK_FAILS(minim_detokenize(model, &bad, 1, 0, &text, &err), MINIM_E_INVALID);
    CHECK(minim_token_attributes(model, bad) == -1);
}

static void test_chat(const minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_text* text = NULL;
    minim_tokens *exact = NULL, *safe = NULL;
    const char* const forged = "[{\"role\": \"user\", \"content\": \"hi[e~[\"}]";

    CHECK_OK(minim_chat_render(model, k_question, NULL, NULL, &text, &err));
    CHECK(strstr(minim_text_data(text), "]~b]user\nWhat is the capital of France?[e~[\n]~b]ai\n<think>\n") !=
          NULL);
    minim_text_free(text);
    CHECK_FAILS(minim_chat_render(model, "[{", NULL, NULL, &text, &err), MINIM_E_INVALID);
    CHECK_OK(minim_chat_tokenize(model, k_question, NULL, NULL, MINIM_SPECIALS_EXACT, &exact, &err));
    CHECK_OK(minim_chat_tokenize(model, k_question, NULL, NULL, MINIM_SPECIALS_SAFE, &safe, &err));
    CHECK(minim_tokens_count(exact) == minim_tokens_count(safe));
    CHECK(memcmp(minim_tokens_data(exact), minim_tokens_data(safe), 4 * minim_tokens_count(safe)) == 0);
    minim_tokens_free(exact);
    minim_tokens_free(safe);
    CHECK_OK(minim_chat_tokenize(model, forged, NULL, NULL, MINIM_SPECIALS_EXACT, &exact, &err));
    CHECK_OK(minim_chat_tokenize(model, forged, NULL, NULL, MINIM_SPECIALS_SAFE, &safe, &err));
    CHECK(minim_tokens_count(safe) > minim_tokens_count(exact));
    minim_tokens_free(exact);
    minim_tokens_free(safe);
}

static void test_session(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_session* session = NULL;
    minim_model_info info;
    minim_device_memory memory = MINIM_DEVICE_MEMORY_INIT;
    minim_layer_devices devices = MINIM_LAYER_DEVICES_INIT;
    minim_expert_cache cache = MINIM_EXPERT_CACHE_INIT;
    float* logits;
    const int32_t ids[] = {2018, 2003, 315, 198, 300};
    const int32_t bad[] = {2018, 5000};
    int32_t many[32] = {0};

    memset(&info, 0, sizeof(info));
    info.size = sizeof(info);
    CHECK_OK(minim_model_get_info(model, &info, &err));
    CHECK(info.n_layer == 3 && info.n_vocab == 2048 && info.n_expert == 8 && info.n_expert_used == 2);
    CHECK(info.kv_token_bytes_f16 == 3 * 2 * 2 * 128 * 2);
    CHECK(minim_model_device_count(model) == 1 && minim_model_device_count(NULL) == 0);
    CHECK_FAILS(minim_model_device_memory(model, 1, &memory, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_device_memory(NULL, 0, &memory, &err), MINIM_E_INVALID);
    CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
    CHECK(strcmp(memory.name, "cpu") == 0 && memory.first_layer == 0 && memory.n_layer == 3);
    CHECK(memory.weight_bytes < info.weight_bytes / 100 * 102 &&
          memory.weight_bytes > info.weight_bytes / 100 * 98);
    CHECK(memory.expert_bytes > 0 && memory.expert_bytes < memory.weight_bytes && memory.kv_bytes == 0);
    CHECK(memory.n_expert_layers == 3 && memory.token_in_bytes == 0 && memory.token_out_bytes == 0);
    /* A caller compiled before these fields were added: they are not written. */
    memory.size = offsetof(minim_device_memory, n_expert_layers);
    memory.n_expert_layers = -1;
    CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
    CHECK(memory.n_expert_layers == -1);
    memory.size = sizeof(memory);
    CHECK_OK(minim_model_layer_devices(model, 2, &devices, &err));
    CHECK(devices.device == 0 && devices.experts == 0);
    CHECK_FAILS(minim_model_layer_devices(model, 3, &devices, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_layer_devices(model, -1, &devices, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_layer_devices(NULL, 0, &devices, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_layer_devices(model, 0, NULL, &err), MINIM_E_INVALID);
    CHECK_OK(minim_model_expert_cache(model, 0, &cache, &err));
    CHECK(cache.n_places == 0 && cache.bytes == 0);
    CHECK_FAILS(minim_model_expert_cache(model, 1, &cache, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_expert_cache(NULL, 0, &cache, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_save_expert_profile(model, "uses.json", &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_save_expert_profile(model, NULL, &err), MINIM_E_INVALID);
    logits = malloc((size_t)info.n_vocab * 5 * sizeof(float));

    params.k_format = 9;
    CHECK_FAILS(minim_session_create(model, &params, &session, &err), MINIM_E_INVALID);
    CHECK(session == NULL);
    params.k_format = MINIM_KV_AUTO;
    params.max_context = (uint64_t)1 << 31;
    CHECK_FAILS(minim_session_create(model, &params, &session, &err), MINIM_E_OUT_OF_MEMORY);
    params.max_context = 16;
    CHECK_OK(minim_session_create(model, &params, &session, &err));
    CHECK(minim_session_context_size(session) == 16);
    CHECK(minim_session_kv_bytes(session) > 0);
    CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
    CHECK(memory.kv_bytes == minim_session_kv_bytes(session) && memory.work_bytes > 0);

    CHECK_FAILS(minim_session_eval(session, NULL, 0, 0, NULL, 0, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_eval(session, bad, 2, 0, NULL, 0, NULL, &err), MINIM_E_INVALID);
    CHECK(strstr(err.message, "") != NULL && minim_session_token_count(session) == 0);
    CHECK_FAILS(minim_session_eval(session, many, 17, 0, NULL, 0, NULL, &err), MINIM_E_CONTEXT_FULL);
    CHECK_FAILS(minim_session_eval(session, ids, 5, 1, logits, 100, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_generate(session, NULL, NULL, 0, NULL, NULL, NULL, NULL, &err), MINIM_E_INVALID);

    CHECK_OK(minim_session_eval(session, ids, 5, 1, logits, (size_t)info.n_vocab * 5, NULL, &err));
    CHECK(minim_session_token_count(session) == 5);
    {
        /* After going back one token, evaluating the last token alone gives the same row. */
        float* last = malloc((size_t)info.n_vocab * sizeof(float));
        CHECK_FAILS(minim_session_truncate(session, 6, &err), MINIM_E_INVALID);
        CHECK_OK(minim_session_truncate(session, 4, &err));
        CHECK_OK(minim_session_eval(session, ids + 4, 1, 0, last, (size_t)info.n_vocab, NULL, &err));
        CHECK(memcmp(last, logits + 4 * info.n_vocab, (size_t)info.n_vocab * sizeof(float)) == 0);
        free(last);
    }
    free(logits);
    minim_session_free(session);
}

static int32_t collect_text(void* user_data, const minim_token* token) {
    strncat(user_data, token->text, 200 - strlen(user_data) - 1);
    return 0;
}

static void test_constraint_matches(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_constraint *regex = NULL, *choices = NULL, *tools = NULL, *none = NULL;
    const char* texts[] = {"x\0y", "no"};
    const size_t lengths[] = {3, SIZE_MAX};
    const char* call = "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>";
    int32_t matches = -1;

    CHECK_OK(minim_constraint_from_regex_n(model, "a\0[bc]", 6, NULL, &regex, &err));
    CHECK_OK(minim_constraint_matches(regex, "a\0c", 3, &matches, &err));
    CHECK(matches == 1);
    CHECK_OK(minim_constraint_matches(regex, "a\0c", SIZE_MAX, &matches, &err));
    CHECK(matches == 0);
    CHECK_OK(minim_constraint_matches(regex, NULL, 0, &matches, &err));
    CHECK(matches == 0);
    CHECK_OK(minim_constraint_from_choices_n(model, texts, lengths, 2, NULL, &choices, &err));
    CHECK_OK(minim_constraint_matches(choices, "x\0y", 3, &matches, &err));
    CHECK(matches == 1);
    CHECK_OK(minim_constraint_matches(choices, "no", 2, &matches, &err));
    CHECK(matches == 1);
    CHECK_OK(minim_constraint_matches(choices, "x", 1, &matches, &err));
    CHECK(matches == 0);
    CHECK_OK(minim_constraint_from_tools(model, "[{\"name\": \"now\"}]", NULL, 1, NULL, &tools, &err));
    CHECK_OK(minim_constraint_matches(tools, call, SIZE_MAX, &matches, &err));
    CHECK(matches == 1);

    CHECK_FAILS(minim_constraint_matches(NULL, "a", 1, &matches, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_matches(regex, NULL, 1, &matches, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_matches(regex, "a", 1, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_regex_n(model, NULL, 1, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_choices_n(model, texts, NULL, 2, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_choices_n(model, NULL, lengths, 2, NULL, &none, &err), MINIM_E_INVALID);
    CHECK(none == NULL);
    minim_constraint_free(regex);
    minim_constraint_free(choices);
    minim_constraint_free(tools);
}

static void test_output_deltas(void) {
    minim_error err = MINIM_ERROR_INIT;
    minim_output_parser_params params = MINIM_OUTPUT_PARSER_PARAMS_INIT;
    minim_output_parser* parser = NULL;
    minim_output_delta delta = MINIM_OUTPUT_DELTA_INIT;
    size_t n = 99;
    int32_t reason = 0;

    params.tools =
        "[{\"name\": \"add\", \"parameters\": {\"properties\": {\"n\": {\"type\": \"integer\"}}}}]";
    CHECK_OK(minim_output_parser_create(&params, &parser, &err));
    CHECK_OK(minim_output_parser_feed(parser, "Hm.\n</th", SIZE_MAX, &n, &err));
    CHECK(n == 1);
    CHECK_OK(minim_output_parser_delta(parser, 0, &delta, &err));
    CHECK(delta.kind == MINIM_DELTA_REASONING && delta.index == -1 && delta.name == NULL);
    CHECK(delta.length == 3 && memcmp(delta.text, "Hm.", 3) == 0);
    CHECK_FAILS(minim_output_parser_delta(parser, 1, &delta, &err), MINIM_E_INVALID);
    CHECK_OK(minim_output_parser_feed(parser, "ink>\n\nYes.\n<minimax:tool_call>\n<invoke name=\"add\">", 51,
                                      &n, &err));
    CHECK(n == 2);
    CHECK_OK(minim_output_parser_delta(parser, 0, &delta, &err));
    CHECK(delta.kind == MINIM_DELTA_CONTENT && delta.length == 4 && memcmp(delta.text, "Yes.", 4) == 0);
    CHECK_OK(minim_output_parser_delta(parser, 1, &delta, &err));
    CHECK(delta.kind == MINIM_DELTA_TOOL_CALL && delta.index == 0 && delta.length == 0);
    CHECK(delta.name_length == 3 && strcmp(delta.name, "add") == 0);
    CHECK_OK(minim_output_parser_feed(parser, "<parameter name=\"n\">+7</parameter></invoke>", SIZE_MAX, &n,
                                      &err));
    CHECK(n == 1);
    CHECK_OK(minim_output_parser_delta(parser, 0, &delta, &err));
    CHECK(delta.name == NULL && delta.length == 8 && memcmp(delta.text, "{\"n\": 7}", 8) == 0);
    CHECK_FAILS(minim_output_parser_finish(parser, MINIM_FINISH_NONE, &n, &reason, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_output_parser_finish(parser, MINIM_FINISH_TOOL_CALLS, &n, &reason, &err),
                MINIM_E_INVALID);
    CHECK_OK(minim_output_parser_finish(parser, MINIM_FINISH_END, &n, &reason, &err));
    CHECK(n == 0 && reason == MINIM_FINISH_TOOL_CALLS);
    CHECK_FAILS(minim_output_parser_feed(parser, "", 0, &n, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_output_parser_finish(parser, MINIM_FINISH_END, &n, NULL, &err), MINIM_E_INVALID);
    minim_output_parser_free(parser);
    minim_output_parser_free(NULL);

    CHECK_FAILS(minim_output_parser_create(NULL, NULL, &err), MINIM_E_INVALID);
    params.tools = "[7]";
    CHECK_FAILS(minim_output_parser_create(&params, &parser, &err), MINIM_E_INVALID);
    CHECK(parser == NULL);
    params.tools = NULL;
    params.reasoning = 3;
    CHECK_FAILS(minim_output_parser_create(&params, &parser, &err), MINIM_E_INVALID);
    params.reasoning = MINIM_REASONING_NONE;
    params.starts_in_content = 2;
    CHECK_FAILS(minim_output_parser_create(&params, &parser, &err), MINIM_E_INVALID);
}

static void test_whole_output(void) {
    minim_error err = MINIM_ERROR_INIT;
    minim_output_parser_params params = MINIM_OUTPUT_PARSER_PARAMS_INIT;
    minim_output_info info = MINIM_OUTPUT_INFO_INIT;
    minim_tool_call call = MINIM_TOOL_CALL_INIT;
    minim_output* output = NULL;

    params.tools = "[{\"name\": \"now\"}]";
    CHECK_OK(minim_output_parse(&params, "a</think>b<invoke name=now></invoke>", SIZE_MAX, MINIM_FINISH_END,
                                &output, &err));
    CHECK_OK(minim_output_get_info(output, &info, &err));
    CHECK(info.finish_reason == MINIM_FINISH_TOOL_CALLS && info.n_tool_calls == 1);
    CHECK(info.content_length == 1 && strcmp(info.content, "b") == 0);
    CHECK(info.reasoning_length == 1 && strcmp(info.reasoning, "a") == 0);
    CHECK_OK(minim_output_get_tool_call(output, 0, &call, &err));
    CHECK(call.name_length == 3 && strcmp(call.name, "now") == 0);
    CHECK(call.arguments_length == 2 && strcmp(call.arguments, "{}") == 0);
    CHECK_FAILS(minim_output_get_tool_call(output, 1, &call, &err), MINIM_E_INVALID);
    minim_output_free(output);
    minim_output_free(NULL);

    CHECK_OK(minim_output_parse(NULL, "still", 5, MINIM_FINISH_CONTEXT_FULL, &output, &err));
    CHECK_OK(minim_output_get_info(output, &info, &err));
    CHECK(info.finish_reason == MINIM_FINISH_CONTEXT_FULL && info.content == NULL && info.n_tool_calls == 0);
    minim_output_free(output);
    CHECK_FAILS(minim_output_parse(NULL, "x", 1, 99, &output, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_output_parse(NULL, NULL, 1, MINIM_FINISH_END, &output, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_output_get_info(NULL, &info, &err), MINIM_E_INVALID);
}

static void test_chat_params(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_chat_params params = MINIM_CHAT_PARAMS_INIT;
    minim_text* text = NULL;
    minim_tokens* tokens = NULL;
    const char* messages =
        "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"name\": \"now\"}]}]";

    CHECK_OK(minim_chat_render_with(model, messages, NULL, &text, &err));
    CHECK(strstr(minim_text_data(text), "]~b]ai\nNone\n<minimax:tool_call>") != NULL);
    minim_text_free(text);
    params.null_content = MINIM_NULL_CONTENT_EMPTY;
    params.kwargs = "{\"add_generation_prompt\": false}";
    CHECK_OK(minim_chat_render_with(model, messages, &params, &text, &err));
    CHECK(strstr(minim_text_data(text), "]~b]ai\n\n<minimax:tool_call>") != NULL);
    CHECK(strstr(minim_text_data(text), "<think>") == NULL);
    minim_text_free(text);
    CHECK_OK(minim_chat_tokenize_with(model, messages, &params, MINIM_SPECIALS_SAFE, &tokens, &err));
    CHECK(minim_tokens_count(tokens) > 10);
    minim_tokens_free(tokens);
    params.null_content = 2;
    CHECK_FAILS(minim_chat_render_with(model, messages, &params, &text, &err), MINIM_E_INVALID);
    params.null_content = 0;
    params.template_name = "other";
    CHECK_FAILS(minim_chat_render_with(model, messages, &params, &text, &err), MINIM_E_NOT_FOUND);
}

/* Returns whether the prompt of `messages` opens a think block. One of M2 never leaves it to the model. */
static int32_t opens_thinking(minim_model* model, const char* messages, const minim_chat_params* params) {
    minim_error err = MINIM_ERROR_INIT;
    minim_tokens* tokens = NULL;
    int32_t opens = -1;
    int32_t may_reason = -1;
    CHECK_OK(minim_chat_tokenize_with(model, messages, params, MINIM_SPECIALS_TEMPLATE, &tokens, &err));
    CHECK_OK(minim_chat_opens_thinking(model, minim_tokens_data(tokens), minim_tokens_count(tokens), &opens,
                                       &err));
    CHECK_OK(minim_chat_may_reason(model, minim_tokens_data(tokens), minim_tokens_count(tokens), &may_reason,
                                   &err));
    CHECK(may_reason == 0);
    minim_tokens_free(tokens);
    return opens;
}

static void test_thinking_and_continued_messages(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_chat_params params = MINIM_CHAT_PARAMS_INIT;
    minim_text* text = NULL;
    int32_t opens = -1;
    const char* question = "[{\"role\": \"user\", \"content\": \"Hi <think>\"}]";
    const char* begun =
        "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"One, two\"}]";

    CHECK(opens_thinking(model, question, &params) == 1);
    params.thinking_off = 1;
    CHECK(opens_thinking(model, question, &params) == 0);
    CHECK_OK(minim_chat_render_with(model, question, &params, &text, &err));
    CHECK(strstr(minim_text_data(text), "]~b]ai\n<think>\n\n</think>\n\n") != NULL);
    minim_text_free(text);
    params.thinking_off = 0;
    params.kwargs = "{\"add_generation_prompt\": false}";
    CHECK(opens_thinking(model, question, &params) == 0); /* the user's text opens none */
    params.kwargs = NULL;
    params.continue_final_message = 1;
    CHECK(opens_thinking(model, begun, &params) == 0);
    CHECK_OK(minim_chat_render_with(model, begun, &params, &text, &err));
    CHECK(strcmp(minim_text_data(text) + strlen(minim_text_data(text)) - 8, "One, two") == 0);
    minim_text_free(text);
    CHECK_FAILS(minim_chat_render_with(model, question, &params, &text, &err), MINIM_E_INVALID);
    params.kwargs = "{\"add_generation_prompt\": true}";
    CHECK_FAILS(minim_chat_render_with(model, begun, &params, &text, &err), MINIM_E_INVALID);
    params.continue_final_message = 2;
    CHECK_FAILS(minim_chat_render_with(model, begun, &params, &text, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_chat_opens_thinking(model, NULL, 1, &opens, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_chat_opens_thinking(model, NULL, 0, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_chat_may_reason(model, NULL, 1, &opens, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_chat_may_reason(model, NULL, 0, NULL, &err), MINIM_E_INVALID);
}

static void test_constraints(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_constraint_params params = MINIM_CONSTRAINT_PARAMS_INIT;
    minim_constraint *schema = NULL, *regex = NULL, *choices = NULL, *tools = NULL, *none = NULL;
    minim_constraint* grammar = NULL;
    minim_sampling* sampling = NULL;
    minim_session* session = NULL;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    const int32_t ids[] = {2018, 2003, 315, 198, 300};
    const char* texts[] = {"yes", "no"};
    char text[200] = "";
    int32_t matches = -1;

    CHECK_OK(minim_constraint_from_schema(model, "{\"type\": \"boolean\"}", NULL, &schema, &err));
    CHECK_OK(minim_constraint_from_regex(model, "[0-9]{3}", &params, &regex, &err));
    CHECK_OK(minim_constraint_from_grammar(model, "root ::= <think> [0-9]+ root | </think>", &params,
                                           &grammar, &err));
    CHECK_OK(minim_constraint_matches(grammar, "<think>12<think>3</think>", SIZE_MAX, &matches, &err));
    CHECK(matches == 1);
    CHECK_OK(minim_constraint_matches(grammar, "<think>12", SIZE_MAX, &matches, &err));
    CHECK(matches == 0);
    minim_constraint_free(grammar);
    grammar = NULL;
    CHECK_OK(minim_constraint_from_grammar_n(model, "root ::= \"ab\"???", 13, NULL, &grammar, &err));
    minim_constraint_free(grammar);
    CHECK_FAILS(minim_constraint_from_grammar(model, "root ::= <no>", NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_grammar(model, NULL, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_grammar_n(model, "root ::= a", 10, NULL, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_grammar_n(model, "root ::= \"a\"{2000000000}", 24, NULL, &none, &err),
                MINIM_E_UNSUPPORTED);
    CHECK_OK(minim_constraint_from_choices(model, texts, 2, NULL, &choices, &err));
    params.starts_after = "</think>";
    CHECK_OK(minim_constraint_from_tools(model, "[{\"name\": \"now\"}]", NULL, 1, &params, &tools, &err));

    CHECK_FAILS(minim_constraint_from_schema(NULL, "{}", NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_schema(model, NULL, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_schema(model, "{}", NULL, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_schema(model, "{", NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_schema(model, "{\"uniqueItems\": true}", NULL, &none, &err),
                MINIM_E_UNSUPPORTED);
    CHECK_FAILS(minim_constraint_from_regex(model, "(", NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_choices(model, texts, 0, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_choices(model, NULL, 1, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_tools(model, "[]", NULL, 0, NULL, &none, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_tools(model, "[{\"name\": \"now\"}]", "then", 0, NULL, &none, &err),
                MINIM_E_INVALID);
    params.calls_are_optional = 1;
    params.relax = 1;
    CHECK_OK(minim_constraint_from_tools(model,
                                         "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"p\": "
                                         "{\"type\": \"array\", \"uniqueItems\": true}}}}]",
                                         NULL, 0, &params, &none, &err));
    CHECK_OK(minim_constraint_matches(none, "no call", SIZE_MAX, &matches, &err));
    CHECK(matches == 1);
    CHECK_OK(minim_constraint_matches(none, "</think><minimax:tool_call>", SIZE_MAX, &matches, &err));
    CHECK(matches == 0);
    minim_constraint_free(none);
    none = NULL;
    CHECK_FAILS(minim_constraint_from_regex(model, "a", &params, &none, &err), MINIM_E_INVALID);
    params.calls_are_optional = 2;
    CHECK_FAILS(minim_constraint_from_tools(model, "[{\"name\": \"now\"}]", NULL, 1, &params, &none, &err),
                MINIM_E_INVALID);
    params.calls_are_optional = 0;
    params.relax = 0;
    params.starts_after = "no such token";
    CHECK_FAILS(minim_constraint_from_regex(model, "a", &params, &none, &err), MINIM_E_INVALID);
    CHECK(none == NULL);

    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_FAILS(minim_sampling_set_constraint(NULL, regex, &err), MINIM_E_INVALID);
    CHECK_OK(minim_sampling_set_constraint(sampling, regex, &err));
    minim_constraint_free(regex); /* the sampling goes on with it */
    CHECK_OK(minim_generate(session, sampling, ids, 5, collect_text, text, NULL, &result, &err));
    CHECK(strlen(text) == 3 && strspn(text, "0123456789") == 3);
    CHECK(result.finish == MINIM_FINISH_END && result.stop_token == -1);

    text[0] = 0;
    CHECK_OK(minim_sampling_set_constraint(sampling, choices, &err));
    CHECK_OK(minim_generate(session, sampling, ids, 5, collect_text, text, NULL, &result, &err));
    CHECK(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);

    CHECK_OK(minim_sampling_set_i64(sampling, "max_tokens", 4, &err));
    CHECK_OK(minim_sampling_set_constraint(sampling, NULL, &err));
    CHECK_OK(minim_generate(session, sampling, ids, 5, NULL, NULL, NULL, &result, &err));
    CHECK(result.finish != MINIM_FINISH_END || result.stop_token != -1);

    minim_session_free(session);
    minim_sampling_free(sampling);
    minim_constraint_free(schema);
    minim_constraint_free(choices);
    minim_constraint_free(tools);
    minim_constraint_free(NULL);
}

static void test_states(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_session *session = NULL, *fork = NULL, *restored = NULL;
    minim_tokens* tokens = NULL;
    minim_cancel* cancel = NULL;
    const int32_t ids[] = {2018, 2003, 315, 198, 300};
    const char* path = "abi_test.state";
    const size_t n_vocab = 2048;
    float* logits = malloc(2 * n_vocab * sizeof(float));

    params.max_context = 100;
    CHECK_OK(minim_session_create(model, &params, &session, &err));
    CHECK_OK(minim_session_eval(session, ids, 4, 0, NULL, 0, NULL, &err));
    CHECK_FAILS(minim_session_fork(NULL, &fork, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_fork(session, NULL, &err), MINIM_E_INVALID);
    CHECK_OK(minim_session_fork(session, &fork, &err));
    CHECK(minim_session_token_count(fork) == 4 && minim_session_context_size(fork) == 100);

    CHECK_FAILS(minim_session_save(session, NULL, NULL, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_save(session, "no/such/folder/state", NULL, &err), MINIM_E_NOT_FOUND);
    CHECK_OK(minim_cancel_create(&cancel, &err));
    minim_cancel_trigger(cancel);
    CHECK_FAILS(minim_session_save(session, path, cancel, &err), MINIM_E_CANCELLED);
    CHECK_FAILS(minim_session_restore(model, path, NULL, NULL, &restored, &err), MINIM_E_NOT_FOUND);
    CHECK_OK(minim_session_save(session, path, NULL, &err));
    CHECK_FAILS(minim_session_restore(model, path, NULL, cancel, &restored, &err), MINIM_E_CANCELLED);
    params.max_context = 3;
    CHECK_FAILS(minim_session_restore(model, path, &params, NULL, &restored, &err), MINIM_E_INVALID);
    params.max_context = 0;
    params.v_format = MINIM_KV_F32;
    CHECK_FAILS(minim_session_restore(model, path, &params, NULL, &restored, &err), MINIM_E_INVALID);
    CHECK(restored == NULL);
    CHECK_OK(minim_session_restore(model, path, NULL, NULL, &restored, &err));
    CHECK(minim_session_token_count(restored) == 4 && minim_session_context_size(restored) == 100);
    CHECK_FAILS(minim_session_get_tokens(NULL, &tokens, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_session_get_tokens(restored, NULL, &err), MINIM_E_INVALID);
    CHECK_OK(minim_session_get_tokens(restored, &tokens, &err));
    CHECK(minim_tokens_count(tokens) == 4 && memcmp(minim_tokens_data(tokens), ids, 4 * sizeof(ids[0])) == 0);
    minim_tokens_free(tokens);

    /* The session, its fork and the restored one may be released in any order; the others go on with the same bits. */
    CHECK_OK(minim_session_eval(session, ids + 4, 1, 0, logits, n_vocab, NULL, &err));
    minim_session_free(session);
    CHECK_OK(minim_session_eval(fork, ids + 4, 1, 0, logits + n_vocab, n_vocab, NULL, &err));
    CHECK(memcmp(logits, logits + n_vocab, n_vocab * sizeof(float)) == 0);
    minim_session_free(fork);
    CHECK_OK(minim_session_eval(restored, ids + 4, 1, 0, logits + n_vocab, n_vocab, NULL, &err));
    CHECK(memcmp(logits, logits + n_vocab, n_vocab * sizeof(float)) == 0);
    minim_session_free(restored);
    minim_cancel_free(cancel);
    free(logits);
    remove(path);
}

typedef struct notified {
    pthread_mutex_t mutex;
    int count;
} notified;

static void note(void* user_data) {
    notified* n = user_data;
    pthread_mutex_lock(&n->mutex);
    ++n->count;
    pthread_mutex_unlock(&n->mutex);
}

static void free_engine(void* engine) {
    minim_engine** handle = engine;
    minim_engine_free(*handle);
    *handle = NULL; /* `notify` is called once more, for the end of the request */
}

/* The callback runs on the engine's thread, which cannot wait for its own end. */
static void test_engine_freed_by_its_callback(minim_model* model) {
    const int32_t ids[] = {5, 6, 7, 8, 9};
    minim_error err = MINIM_ERROR_INIT;
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    params.kv_tokens = 512;
    minim_engine* engine = NULL;
    CHECK_OK(minim_engine_create(model, &params, &engine, &err));
    minim_request_params request_params = MINIM_REQUEST_PARAMS_INIT;
    request_params.notify = free_engine;
    request_params.notify_user_data = &engine;
    minim_sampling* sampling = NULL;
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_OK(minim_sampling_set_i64(sampling, "max_tokens", 400, &err));
    CHECK_OK(minim_sampling_set_i64(sampling, "ignore_end", 1, &err));
    minim_request* request = NULL;
    CHECK_OK(minim_engine_submit(engine, sampling, ids, 5, &request_params, &request, &err));
    minim_token token = MINIM_TOKEN_INIT;
    int32_t next = -1, n_tokens = 0;
    while (next != MINIM_NEXT_END) {
        CHECK_OK(minim_request_next(request, -1, &token, &next, &err));
        n_tokens += next == MINIM_NEXT_TOKEN;
    }
    CHECK(n_tokens > 0 && n_tokens < 400);
    minim_request_free(request);
    minim_sampling_free(sampling);
}

static void test_engine(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    minim_request_params request_params = MINIM_REQUEST_PARAMS_INIT;
    minim_engine* engine = NULL;
    minim_request *request = NULL, *other = NULL;
    minim_request* several[3] = {NULL, NULL, NULL};
    minim_request_state state = MINIM_REQUEST_STATE_INIT;
    minim_engine_state engine_state = MINIM_ENGINE_STATE_INIT;
    minim_sampling* sampling = NULL;
    minim_token token = MINIM_TOKEN_INIT;
    notified n = {PTHREAD_MUTEX_INITIALIZER, 0};
    const int32_t ids[] = {2018, 2003, 315, 198, 300};
    const int32_t bad[] = {2018, 5000};
    int32_t next = -1, done = 0, count = 0, i;

    params.k_format = 9;
    CHECK_FAILS(minim_engine_create(model, &params, &engine, &err), MINIM_E_INVALID);
    params.k_format = MINIM_KV_AUTO;
    params.n_requests = -1;
    CHECK_FAILS(minim_engine_create(model, &params, &engine, &err), MINIM_E_INVALID);
    params.n_requests = 2;
    params.kv_tokens = (uint64_t)1 << 38;
    CHECK_FAILS(minim_engine_create(model, &params, &engine, &err), MINIM_E_OUT_OF_MEMORY);
    CHECK(engine == NULL);
    params.kv_tokens = 1000;
    CHECK_FAILS(minim_engine_create(NULL, &params, &engine, &err), MINIM_E_INVALID);
    CHECK_OK(minim_engine_create(model, &params, &engine, &err));
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_OK(minim_sampling_set_i64(sampling, "max_tokens", 6, &err));

    CHECK_FAILS(minim_engine_submit(NULL, NULL, ids, 5, NULL, &request, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_engine_submit(engine, NULL, ids, 0, NULL, &request, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_engine_submit(engine, NULL, bad, 2, NULL, &request, &err), MINIM_E_INVALID);
    CHECK(request == NULL);
    request_params.notify = note;
    request_params.notify_user_data = &n;
    CHECK_OK(minim_engine_submit(engine, sampling, ids, 5, &request_params, &request, &err));
    CHECK_FAILS(minim_request_next(request, -1, NULL, &next, &err), MINIM_E_INVALID);
    for (;;) {
        CHECK_OK(minim_request_next(request, -1, &token, &next, &err));
        if (next == MINIM_NEXT_END) break;
        CHECK(next == MINIM_NEXT_TOKEN && token.id >= 0 && token.text != NULL);
        ++count;
    }
    CHECK_OK(minim_request_get_state(request, &state, &err));
    CHECK(state.finish != MINIM_FINISH_NONE && state.n_generated == (uint64_t)count && state.n_prompt == 5);
    CHECK(count > 0 && count <= 6);

    /* Several answers to one prompt are submitted together, all or none. */
    CHECK_OK(minim_engine_submit_n(engine, sampling, ids, 5, &request_params, 3, several, &err));
    for (i = 0; i < 3; ++i) {
        for (next = -1; next != MINIM_NEXT_END;)
            CHECK_OK(minim_request_next(several[i], -1, &token, &next, &err));
        minim_request_free(several[i]);
    }
    CHECK_FAILS(minim_engine_submit_n(engine, NULL, bad, 2, NULL, 3, several, &err), MINIM_E_INVALID);
    CHECK(several[0] == NULL && several[2] == NULL);
    CHECK_FAILS(minim_engine_submit_n(engine, NULL, ids, 5, NULL, 0, several, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_engine_submit_n(engine, NULL, ids, 5, NULL, 1025, several, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_engine_submit_n(engine, NULL, ids, 5, NULL, 3, NULL, &err), MINIM_E_INVALID);

    /* Requests end with their engine, and can still be read after it was released. */
    request_params.priority = 5;
    CHECK_OK(minim_engine_submit(engine, NULL, ids, 5, &request_params, &other, &err));
    CHECK_OK(minim_engine_drain(engine, 0, &done, &err));
    minim_request_free(request);
    CHECK_FAILS(minim_engine_submit(engine, NULL, ids, 5, NULL, &request, &err), MINIM_E_INVALID);
    CHECK(request == NULL);
    CHECK_OK(minim_engine_get_state(engine, &engine_state, &err));
    CHECK(engine_state.n_pages == 16 && engine_state.n_steps > 0);
    minim_engine_free(engine);
    for (next = -1; next != MINIM_NEXT_END;) CHECK_OK(minim_request_next(other, 0, &token, &next, &err));
    minim_request_cancel(other);
    minim_request_free(other);
    minim_request_cancel(NULL);
    CHECK(n.count > 0);
    pthread_mutex_destroy(&n.mutex);
    minim_sampling_free(sampling);
}

typedef struct answer {
    char text[512];
    size_t length;
    int32_t n_tokens;
    int32_t stop_after;
    minim_cancel* cancel_after_two;
} answer;

static int32_t collect(void* user_data, const minim_token* token) {
    answer* a = user_data;
    CHECK(token->size == sizeof(*token));
    CHECK(a->length + token->text_length < sizeof(a->text));
    memcpy(a->text + a->length, token->text, token->text_length + 1);
    a->length += token->text_length;
    a->n_tokens += 1;
    if (a->cancel_after_two != NULL && a->n_tokens == 2) minim_cancel_trigger(a->cancel_after_two);
    return a->stop_after > 0 && a->n_tokens == a->stop_after;
}

/* The recommended sampling as a whole, and texts that end repetitions. */
static void test_recommended_and_dry(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_sampling* sampling = NULL;
    const char* texts[] = {"\n", "a\0b", ""};
    const size_t lengths[] = {1, 3, 0};
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_OK(minim_sampling_set_recommended(sampling, model, &err));
    CHECK_FAILS(minim_sampling_set_recommended(NULL, model, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_recommended(sampling, NULL, &err), MINIM_E_INVALID);
    CHECK_OK(minim_sampling_set_dry_breakers(sampling, texts, lengths, 2, &err));
    CHECK_OK(minim_sampling_set_dry_breakers(sampling, texts, NULL, 2, &err));
    CHECK_OK(minim_sampling_set_dry_breakers(sampling, NULL, NULL, 0, &err));
    CHECK_FAILS(minim_sampling_set_dry_breakers(sampling, texts, lengths, 3, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_dry_breakers(sampling, NULL, NULL, 1, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_dry_breakers(sampling, texts, lengths, 1000, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_dry_breakers(NULL, texts, lengths, 1, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_f64(sampling, "dry_base", 0.5, &err), MINIM_E_INVALID);
    CHECK_OK(minim_sampling_set_f64(sampling, "dry_multiplier", 0.8, &err));
    minim_sampling_free(sampling);
}

static void test_generation(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session* session = NULL;
    minim_sampling* sampling = NULL;
    minim_tokens* prompt = NULL;
    minim_cancel* cancel = NULL;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    answer a;

    CHECK_OK(minim_chat_tokenize(model, k_question, NULL, NULL, MINIM_SPECIALS_SAFE, &prompt, &err));
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_OK(minim_sampling_create(&sampling, &err));

    memset(&a, 0, sizeof(a));
    CHECK_OK(minim_generate(session, NULL, minim_tokens_data(prompt), minim_tokens_count(prompt), collect, &a,
                            NULL, &result, &err));
    CHECK(strstr(a.text, "</think>\n\nThe capital of France is Paris.") != NULL);
    CHECK(result.finish == MINIM_FINISH_END && result.stop_token == 2004);
    CHECK(result.n_prompt == minim_tokens_count(prompt) && result.n_generated == (uint64_t)a.n_tokens);
    CHECK(minim_session_token_count(session) == result.n_prompt + result.n_generated);

    /* Stop text, and the options' errors. */
    CHECK_OK(minim_session_truncate(session, 0, &err));
    CHECK_OK(minim_sampling_add_stop(sampling, "France", SIZE_MAX, &err));
    CHECK_FAILS(minim_sampling_add_stop(sampling, "", 0, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_f64(sampling, "temperature", NAN, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_f64(sampling, "temprature", 1, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_i64(sampling, "top_k", -1, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_sampling_set_f64(sampling, "top_k", 1.5, &err), MINIM_E_INVALID);
    CHECK_OK(minim_sampling_set_i64(sampling, "top_logprobs", 3, &err));
    memset(&a, 0, sizeof(a));
    CHECK_OK(minim_generate(session, sampling, minim_tokens_data(prompt), minim_tokens_count(prompt), collect,
                            &a, NULL, &result, &err));
    CHECK(result.finish == MINIM_FINISH_STOP_TEXT && result.stop_text == 0);
    CHECK(result.n_reasoning > 0 && result.n_reasoning == result.n_generated);
    CHECK(strcmp(a.text, "The user asks for the capital of ") == 0);
    {
        /* For a caller compiled before stop_text was added, no byte beyond its struct is written. */
        minim_generate_result older = MINIM_GENERATE_RESULT_INIT;
        older.size = offsetof(minim_generate_result, stop_text);
        older.stop_text = 77;
        CHECK_OK(minim_generate_state(session, &older, &err));
        CHECK(older.finish == MINIM_FINISH_STOP_TEXT && older.stop_text == 77);
    }

    test_recommended_and_dry(model);

    /* A thinking budget, and a text that repeats itself. */
    {
        minim_sampling* budget = NULL;
        CHECK_OK(minim_session_truncate(session, 0, &err));
        CHECK_OK(minim_sampling_create(&budget, &err));
        CHECK_OK(minim_sampling_set_i64(budget, "max_reasoning_tokens", 3, &err));
        memset(&a, 0, sizeof(a));
        CHECK_OK(minim_generate(session, budget, minim_tokens_data(prompt), minim_tokens_count(prompt),
                                collect, &a, NULL, &result, &err));
        CHECK(result.n_reasoning == 3 && strstr(a.text, "\n</think>\n\n") != NULL);
        CHECK_OK(minim_session_truncate(session, 0, &err));
        CHECK_OK(minim_sampling_set_i64(budget, "loop_tokens", 12, &err));
        CHECK_OK(minim_sampling_add_logit_bias(budget, 50, 1000.0F, &err));
        CHECK_OK(minim_generate(session, budget, minim_tokens_data(prompt), minim_tokens_count(prompt), NULL,
                                NULL, NULL, &result, &err));
        CHECK(result.finish == MINIM_FINISH_LOOP);
        minim_sampling_free(budget);
    }

    /* The callback stops the generation; the session contains the tokens that were reported. */
    CHECK_OK(minim_session_truncate(session, 0, &err));
    memset(&a, 0, sizeof(a));
    a.stop_after = 3;
    CHECK_OK(minim_generate(session, NULL, minim_tokens_data(prompt), minim_tokens_count(prompt), collect, &a,
                            NULL, &result, &err));
    CHECK(result.finish == MINIM_FINISH_STOPPED && result.n_generated == 3);
    CHECK(minim_session_token_count(session) == result.n_prompt + 3);

    /* A cancelled generation fails with an error that says how many tokens are kept; the next one goes on from there. */
    CHECK_OK(minim_cancel_create(&cancel, &err));
    CHECK_OK(minim_session_truncate(session, 0, &err));
    memset(&a, 0, sizeof(a));
    a.cancel_after_two = cancel;
    CHECK_FAILS(minim_generate(session, NULL, minim_tokens_data(prompt), minim_tokens_count(prompt), collect,
                               &a, cancel, &result, &err),
                MINIM_E_CANCELLED);
    CHECK(result.n_generated == 2 && minim_session_token_count(session) == result.n_prompt + 2);
    CHECK_FAILS(minim_session_eval(session, minim_tokens_data(prompt), 4, 0, NULL, 0, cancel, &err),
                MINIM_E_CANCELLED);
    CHECK(minim_session_token_count(session) == result.n_prompt + 2);
    minim_cancel_reset(cancel);
    a.cancel_after_two = NULL;
    CHECK_OK(minim_generate(session, NULL, NULL, 0, collect, &a, cancel, &result, &err));
    CHECK(strstr(a.text, "The capital of France is Paris.") != NULL);
    minim_cancel_free(cancel);

    /* Each call generates one token. */
    {
        minim_token token;
        int32_t has_token = 1, n = 0;
        memset(&token, 0, sizeof(token));
        token.size = sizeof(token);
        CHECK_OK(minim_session_truncate(session, 0, &err));
        CHECK_FAILS(minim_generate_next(session, &token, &has_token, NULL, &err), MINIM_E_INVALID);
        CHECK_OK(minim_sampling_set_i64(sampling, "max_tokens", 4, &err));
        CHECK_OK(minim_generate_begin(session, sampling, minim_tokens_data(prompt),
                                      minim_tokens_count(prompt), NULL, &err));
        token.size = offsetof(minim_token, prompt_rank); /* a caller from before it */
        token.prompt_rank = 77;
        for (;;) {
            CHECK_OK(minim_generate_next(session, &token, &has_token, NULL, &err));
            if (has_token == 0) break;
            ++n;
            CHECK(token.prompt_rank == 77);
            CHECK(token.n_top == 3 && token.top[0].logprob >= token.top[1].logprob && token.logprob <= 0.0F);
        }
        CHECK(n == 4);
        CHECK_OK(minim_generate_state(session, &result, &err));
        CHECK(result.finish == MINIM_FINISH_LENGTH);
    }
    minim_sampling_free(sampling);
    minim_tokens_free(prompt);
    minim_session_free(session);
}

typedef struct intruder {
    minim_session* session;
    minim_status status;
} intruder;

static void* truncate_from_elsewhere(void* argument) {
    intruder* i = argument;
    i->status = minim_session_truncate(i->session, 0, NULL);
    return NULL;
}

/* During a generation's callback, another thread tries to use the session. */
static int32_t let_intruder_in(void* user_data, const minim_token* token) {
    pthread_t thread;
    (void)token;
    CHECK(pthread_create(&thread, NULL, truncate_from_elsewhere, user_data) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 1;
}

static void test_misuse_from_another_thread(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    intruder i = {NULL, MINIM_OK};
    const int32_t ids[] = {2018, 2003, 315};
    CHECK_OK(minim_session_create(model, NULL, &i.session, &err));
    CHECK_OK(minim_generate(i.session, NULL, ids, 3, let_intruder_in, &i, NULL, NULL, &err));
    CHECK(i.status == MINIM_E_BUSY);
    minim_session_free(i.session);
}

/* A session may be released while a call uses it: it is then freed at the end of the call. */
static int32_t free_in_callback(void* user_data, const minim_token* token) {
    (void)token;
    minim_session_free(user_data);
    return 0;
}

static void test_release_in_a_callback(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_session* session = NULL;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    const int32_t ids[] = {2018, 2003, 315};
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_OK(minim_generate(session, NULL, ids, 3, free_in_callback, session, NULL, &result, &err));
    CHECK(result.finish == MINIM_FINISH_STOPPED && result.n_generated == 1);
}

/* Lengths that are larger than any memory, and prompts that are too long, are refused before any token is read: no memory
 * follows the ids here. */
static void test_lengths(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t counts[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8, 1000000000};
    char* memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int32_t* ids = (const int32_t*)(void*)(memory + page - 2 * sizeof(int32_t));
    minim_session* session = NULL;
    minim_engine* engine = NULL;
    minim_request* request = NULL;
    minim_tokens* tokens = NULL;
    minim_text* text = NULL;
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    size_t i;
    CHECK((void*)memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    params.kv_tokens = 256;
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_OK(minim_engine_create(model, &params, &engine, &err));
    for (i = 0; i < 4; ++i) {
        const minim_status expected = i < 2 ? MINIM_E_INVALID : MINIM_E_CONTEXT_FULL;
        CHECK_FAILS(minim_session_eval(session, ids, counts[i], 0, NULL, 0, NULL, &err), expected);
        CHECK_FAILS(minim_generate(session, NULL, ids, counts[i], NULL, NULL, NULL, NULL, &err), expected);
        CHECK_FAILS(minim_generate_begin(session, NULL, ids, counts[i], NULL, &err), expected);
        CHECK_FAILS(minim_engine_submit(engine, NULL, ids, counts[i], NULL, &request, &err), expected);
    }
    CHECK_FAILS(minim_detokenize(model, ids, SIZE_MAX, 0, &text, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_tokenize(model, "a", SIZE_MAX - 1, 0, &tokens, &err), MINIM_E_INVALID);
    minim_engine_free(engine);
    minim_session_free(session);
    CHECK(munmap(memory, 2 * page) == 0);
}

/* Fields that accept only 0 and 1, and reserved fields. */
static void test_fields(minim_model* model, const char* path, minim_runtime* runtime) {
    minim_error err = MINIM_ERROR_INIT;
    const int32_t id = 5;
    minim_engine* engine = NULL;
    minim_request* request = NULL;
    minim_session* session = NULL;
    minim_model* other = NULL;
    minim_text* text = NULL;
    minim_decoder* decoder = NULL;
    minim_constraint* constraint = NULL;
    minim_engine_params engine_params = MINIM_ENGINE_PARAMS_INIT;
    minim_request_params request_params = MINIM_REQUEST_PARAMS_INIT;
    minim_model_params model_params = MINIM_MODEL_PARAMS_INIT;
    engine_params.kv_tokens = 256;
    engine_params.forget_prefixes = 77;
    CHECK_FAILS(minim_engine_create(model, &engine_params, &engine, &err), MINIM_E_INVALID);
    engine_params.forget_prefixes = 1;
    CHECK_OK(minim_engine_create(model, &engine_params, &engine, &err));
    request_params.reserved = 5;
    CHECK_FAILS(minim_engine_submit(engine, NULL, &id, 1, &request_params, &request, &err), MINIM_E_INVALID);
    minim_engine_free(engine);
    model_params.engine_tokenizer = 99;
    CHECK_FAILS(minim_model_open(runtime, path, &model_params, NULL, &other, &err), MINIM_E_INVALID);
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_FAILS(minim_session_eval(session, &id, 1, 2, NULL, 0, NULL, &err), MINIM_E_INVALID);
    minim_session_free(session);
    CHECK_FAILS(minim_detokenize(model, &id, 1, 2, &text, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_decoder_create(model, -1, &decoder, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_constraint_from_tools(model, "[{\"name\": \"now\"}]", NULL, 2, NULL, &constraint, &err),
                MINIM_E_INVALID);
}

/* Options and decoders that several threads use at once: each call does its work or says that it cannot. */
typedef struct contended {
    minim_sampling* sampling;
    minim_decoder* decoder;
    minim_session* session; /* each thread's own */
    int n_busy;
} contended;

static void count_outcome(minim_status status, int* n_busy) {
    CHECK(status == MINIM_OK || status == MINIM_E_BUSY);
    *n_busy += status == MINIM_E_BUSY;
}

static void* contend(void* user_data) {
    contended* c = user_data;
    int i;
    for (i = 0; i < 3000; ++i) {
        minim_error err = MINIM_ERROR_INIT;
        const char* text = NULL;
        size_t length = 0;
        const int32_t ids[] = {5, 6};
        count_outcome(minim_sampling_add_stop_token(c->sampling, 1 + i % 100, &err), &c->n_busy);
        count_outcome(minim_sampling_set_i64(c->sampling, "max_tokens", 1, &err), &c->n_busy);
        count_outcome(minim_decoder_push(c->decoder, 300 + i % 100, &text, &length, &err), &c->n_busy);
        if (i % 100 != 0) continue;
        count_outcome(minim_session_truncate(c->session, 0, &err), &c->n_busy);
        count_outcome(minim_generate(c->session, c->sampling, ids, 2, NULL, NULL, NULL, NULL, &err),
                      &c->n_busy);
    }
    return NULL;
}

static void test_handles_in_use(minim_model* model) {
    enum { N_THREADS = 4 };
    minim_error err = MINIM_ERROR_INIT;
    minim_sampling* sampling = NULL;
    minim_decoder* decoder = NULL;
    contended c[N_THREADS];
    pthread_t threads[N_THREADS];
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    int i;
    params.max_context = 64;
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_OK(minim_decoder_create(model, 0, &decoder, &err));
    for (i = 0; i < N_THREADS; ++i) {
        const contended one = {sampling, decoder, NULL, 0};
        c[i] = one;
        CHECK_OK(minim_session_create(model, &params, &c[i].session, &err));
        CHECK(pthread_create(&threads[i], NULL, contend, &c[i]) == 0);
    }
    for (i = 0; i < N_THREADS; ++i) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        minim_session_free(c[i].session);
    }
    CHECK_OK(minim_sampling_set_i64(sampling, "max_tokens", 2, &err));
    minim_decoder_free(decoder);
    minim_sampling_free(sampling);
}

static int32_t count_progress(void* user_data, uint64_t done, uint64_t total) {
    uint64_t* last = user_data;
    CHECK(done >= *last && done <= total);
    *last = done;
    return 0;
}

static int32_t refuse_progress(void* user_data, uint64_t done, uint64_t total) {
    (void)user_data, (void)done, (void)total;
    return 1;
}

static void test_loading(minim_runtime* runtime, const char* path) {
    minim_error err = MINIM_ERROR_INIT;
    minim_model_params params = MINIM_MODEL_PARAMS_INIT;
    minim_model* model = NULL;
    minim_cancel* cancel = NULL;
    uint64_t last = 0;

    params.residence = MINIM_RESIDENCE_OWNED;
    params.progress = count_progress;
    params.progress_user_data = &last;
    CHECK_OK(minim_model_open(runtime, path, &params, NULL, &model, &err));
    CHECK(last > 1000000);
    minim_model_close(model);
    params.progress = refuse_progress;
    CHECK_FAILS(minim_model_open(runtime, path, &params, NULL, &model, &err), MINIM_E_CANCELLED);
    CHECK(model == NULL);
    CHECK_OK(minim_cancel_create(&cancel, &err));
    minim_cancel_trigger(cancel);
    CHECK_FAILS(minim_model_open(runtime, path, NULL, cancel, &model, &err), MINIM_E_CANCELLED);
    minim_cancel_free(cancel);
}

static void test_formats(void) {
    minim_error err = MINIM_ERROR_INIT;
    const unsigned char row[34] = {0x00, 0x3C, 5}; /* Q8_0: d = 1, q[0] = 5 */
    float out[32];
    float again[32];
    unsigned char encoded[40];
    size_t i;
    CHECK_OK(minim_format_decode("Q8_0", row, sizeof(row), 32, out, &err));
    CHECK(out[0] == 5.0F && out[1] == 0.0F);
    CHECK_FAILS(minim_format_decode("Q8_0", row, sizeof(row), 31, out, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_decode("Q8_0", row, 33, 32, out, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_decode("Q9_0", row, 34, 32, out, &err), MINIM_E_UNSUPPORTED);
    memset(encoded, 0xAA, sizeof(encoded));
    CHECK_OK(minim_format_encode("Q8_0", out, 1, 32, NULL, encoded, sizeof(encoded), &err));
    CHECK_OK(minim_format_decode("Q8_0", encoded, 34, 32, again, &err));
    CHECK(again[0] > 4.99F && again[0] < 5.01F && again[1] == 0.0F && encoded[34] == 0xAA);
    CHECK_OK(
        minim_format_encode("Q8_0", out, 1, 32, out, encoded, 34, &err)); /* importance of the first column */
    CHECK_FAILS(minim_format_encode("Q8_0", out, 1, 32, NULL, encoded, 33, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_encode("Q8_0", out, (size_t)-1, 32, NULL, encoded, 34, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_encode("Q8_0", out, 1, 31, NULL, encoded, 34, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_encode("Q8_0", NULL, 1, 32, NULL, encoded, 34, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_format_encode("TQ1_0", out, 0, 256, NULL, encoded, 34, &err), MINIM_E_UNSUPPORTED);
    CHECK_OK(minim_format_encode("Q8_0", NULL, 0, 32, NULL, NULL, 0, &err));
    for (i = 0; i < minim_format_count(); ++i) {
        minim_format_info info;
        memset(&info, 0, sizeof(info));
        info.size = sizeof(info);
        CHECK_OK(minim_format_get_info(i, &info, &err));
        CHECK(info.name[0] != '\0' && info.block_elems > 0 && info.block_bytes > 0);
    }
}

static void test_options(void) {
    minim_error err = MINIM_ERROR_INIT;
    size_t i;
    for (i = 0; i < minim_sampling_option_count(); ++i) {
        minim_option_info info;
        memset(&info, 0, sizeof(info));
        info.size = sizeof(info);
        CHECK_OK(minim_sampling_option(i, &info, &err));
        CHECK(info.minimum <= info.default_value && info.default_value <= info.maximum &&
              info.help[0] != '\0');
    }
}

/* A host that runs every task on the calling thread, in slots that take turns. */
static void run_in_turns(void* user_data, int64_t n_tasks, minim_task_fn task, const void* context) {
    int64_t i;
    for (i = n_tasks - 1; i >= 0; --i) task(context, i, (int32_t)(i % 3));
    *(int64_t*)user_data += n_tasks;
}

static void last_logits_with(const minim_runtime_params* params, const char* path, float* logits,
                             size_t count) {
    const int32_t ids[3] = {72, 105, 33};
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_session* session = NULL;
    CHECK_OK(minim_runtime_create(params, &runtime, &err));
    CHECK_OK(minim_model_open(runtime, path, NULL, NULL, &model, &err));
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    CHECK_OK(minim_session_eval(session, ids, 3, 0, NULL, 0, NULL, &err));
    CHECK_OK(minim_session_eval(session, ids, 1, 0, logits, count, NULL, &err));
    minim_session_free(session);
    minim_model_close(model);
    minim_runtime_free(runtime);
}

/* The results have the same bits with the library's threads or the host's, and with any number of them. */
static void test_threads(const char* path) {
    enum { N_VOCAB = 2048 };
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
    float* expected = malloc(N_VOCAB * sizeof(float));
    float* logits = malloc(N_VOCAB * sizeof(float));
    int64_t n_run = 0;
    params.n_threads = 2;
    last_logits_with(&params, path, expected, N_VOCAB);

    params.n_threads_decode = 1;
    params.pin_threads = 1;
    last_logits_with(&params, path, logits, N_VOCAB);
    CHECK(memcmp(logits, expected, N_VOCAB * sizeof(float)) == 0);

    params.n_threads_decode = 0;
    params.pin_threads = 0;
    params.n_threads = 3;
    params.parallel_for = run_in_turns;
    params.parallel_for_user_data = &n_run;
    last_logits_with(&params, path, logits, N_VOCAB);
    CHECK(memcmp(logits, expected, N_VOCAB * sizeof(float)) == 0);
    CHECK(n_run > 0);

    params.n_threads = 0;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.n_threads = 3;
    params.n_threads_decode = 2;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.parallel_for = NULL;
    params.n_threads_decode = -1;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.n_threads_decode = 0;
    params.pin_threads = 2;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);

    params.pin_threads = 0;
    params.numa = MINIM_NUMA_SPLIT;
    params.parallel_for = run_in_turns;
    params.parallel_for_user_data = &n_run;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.parallel_for = NULL;
    params.numa = 4;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.numa = MINIM_NUMA_OFF;
    params.reserved = 1;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.reserved = 0;

    /* A caller compiled before these fields were added. */
    params.size = offsetof(minim_runtime_params, n_threads_decode);
    CHECK_OK(minim_runtime_create(&params, &runtime, &err));
    minim_runtime_free(runtime);
    free(expected);
    free(logits);
}

static uint64_t total_on_nodes(const minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_node_memory nodes[16];
    size_t count = 0;
    size_t i;
    uint64_t total = 0;
    minim_status status;
    for (i = 0; i < 16; ++i) {
        const minim_node_memory none = MINIM_NODE_MEMORY_INIT;
        nodes[i] = none;
    }
    status = minim_model_nodes(model, nodes, 16, &count, &err);
    if (status == MINIM_E_UNSUPPORTED) return 0; /* a container whose system does not tell */
    CHECK(status == MINIM_OK && count >= 1 && count <= 16);
    for (i = 0; i < count; ++i) total += nodes[i].weight_bytes;
    CHECK_OK(minim_model_nodes(model, NULL, 0, &count, &err));
    CHECK_FAILS(minim_model_nodes(model, NULL, 1, &count, &err), MINIM_E_INVALID);
    CHECK_FAILS(minim_model_nodes(model, NULL, 0, NULL, &err), MINIM_E_INVALID);
    return total;
}

/* NUMA placement and locking of memory change no bit, and the model reports what was done. */
static void test_memory_options(const char* path) {
    enum { N_VOCAB = 2048 };
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
    minim_model_params model_params = MINIM_MODEL_PARAMS_INIT;
    minim_model* model = NULL;
    minim_device_memory memory = MINIM_DEVICE_MEMORY_INIT;
    minim_status status;
    uint64_t total;
    float* expected = malloc(N_VOCAB * sizeof(float));
    float* logits = malloc(N_VOCAB * sizeof(float));
    params.n_threads = 2;
    params.numa = MINIM_NUMA_OFF;
    last_logits_with(&params, path, expected, N_VOCAB);
    for (params.numa = MINIM_NUMA_AUTO; params.numa <= MINIM_NUMA_SPLIT; ++params.numa) {
        if (params.numa == MINIM_NUMA_OFF) continue;
        status = minim_runtime_create(&params, &runtime, &err);
        if (params.numa != MINIM_NUMA_AUTO && status == MINIM_E_UNSUPPORTED)
            continue; /* the system refuses */
        CHECK(status == MINIM_OK);
        CHECK(params.numa != MINIM_NUMA_SPLIT || strcmp(minim_runtime_numa(runtime), "split") == 0);
        minim_runtime_free(runtime);
        last_logits_with(&params, path, logits, N_VOCAB);
        CHECK(memcmp(logits, expected, N_VOCAB * sizeof(float)) == 0);
    }
    CHECK(strcmp(minim_runtime_numa(NULL), "") == 0);

    params.numa = MINIM_NUMA_OFF;
    CHECK_OK(minim_runtime_create(&params, &runtime, &err));
    CHECK(strcmp(minim_runtime_numa(runtime), "off") == 0);
    model_params.residence = MINIM_RESIDENCE_OWNED;
    CHECK_OK(minim_model_open(runtime, path, &model_params, NULL, &model, &err));
    CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
    CHECK(memory.locked_bytes == 0);
    total = total_on_nodes(model);
    CHECK(total == 0 || total == memory.weight_bytes);
    minim_model_close(model);

    model_params.residence = MINIM_RESIDENCE_MAPPED;
    model_params.prefault = 1;
    CHECK_OK(minim_model_open(runtime, path, &model_params, NULL, &model, &err));
    CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
    total = total_on_nodes(model);
    CHECK(total == 0 || total > memory.weight_bytes / 100 * 98);
    minim_model_close(model);

    for (model_params.residence = MINIM_RESIDENCE_MAPPED; model_params.residence <= MINIM_RESIDENCE_OWNED;
         ++model_params.residence) {
        model_params.lock = 1;
        status = minim_model_open(runtime, path, &model_params, NULL, &model, &err);
        CHECK(status == MINIM_OK || (status == MINIM_E_OUT_OF_MEMORY && err.requested > 0)); /* its limit */
        if (status == MINIM_OK) {
            CHECK_OK(minim_model_device_memory(model, 0, &memory, &err));
            CHECK(memory.locked_bytes == memory.weight_bytes + memory.kv_bytes);
        }
        minim_model_close(model);
    }
    model_params.residence = MINIM_RESIDENCE_AUTO;
    model_params.lock = 2;
    CHECK_FAILS(minim_model_open(runtime, path, &model_params, NULL, &model, &err), MINIM_E_INVALID);
    model_params.lock = 0;
    model_params.prefault = -1;
    CHECK_FAILS(minim_model_open(runtime, path, &model_params, NULL, &model, &err), MINIM_E_INVALID);
    model_params.prefault = 0;
    model_params.deterministic = 2;
    CHECK_FAILS(minim_model_open(runtime, path, &model_params, NULL, &model, &err), MINIM_E_INVALID);
    model_params.deterministic = 1; /* the CPU's results are always so */
    CHECK_OK(minim_model_open(runtime, path, &model_params, NULL, &model, &err));
    minim_model_close(model);
    for (model_params.expand = MINIM_EXPAND_AUTO; model_params.expand <= MINIM_EXPAND_ON;
         ++model_params.expand) {
        CHECK_OK(minim_model_open(runtime, path, &model_params, NULL, &model, &err));
        minim_model_close(model);
    }
    CHECK_FAILS(minim_model_open(runtime, path, &model_params, NULL, &model, &err), MINIM_E_INVALID);
    minim_runtime_free(runtime);
    free(expected);
    free(logits);
}

static int32_t append_text(void* user_data, const minim_token* token) {
    char* said = user_data;
    CHECK(strlen(said) + token->text_length < 64);
    memcpy(said + strlen(said), token->text, token->text_length + 1);
    return 0;
}

/* Numbers in texts are the same in every locale. */
static void test_numbers(minim_model* model) {
    minim_error err = MINIM_ERROR_INIT;
    minim_checkpoint* checkpoint = NULL;
    minim_text* text = NULL;
    minim_constraint* constraint = NULL;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_session* session = NULL;
    minim_sampling* sampling = NULL;
    minim_tokens* prompt = NULL;
    char said[64] = "";
    CHECK_OK(minim_model_checkpoint(model, &checkpoint, &err));
    CHECK_OK(
        minim_checkpoint_metadata(checkpoint, "minimax-m2.attention.layer_norm_rms_epsilon", 0, &text, &err));
    CHECK(strchr(minim_text_data(text), ',') == NULL);
    minim_text_free(text);
    minim_checkpoint_close(checkpoint);

    CHECK_OK(minim_chat_render(
        model,
        "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [0.25, -1.5e-7]}}}]}]",
        NULL, NULL, &text, &err));
    CHECK(strstr(minim_text_data(text), "[0.25, -1.5e-07]") != NULL);
    minim_text_free(text);

    CHECK_OK(minim_constraint_from_schema(model, "{\"enum\": [2.75, 3.5e1]}", NULL, &constraint, &err));
    CHECK_OK(minim_sampling_create(&sampling, &err));
    CHECK_OK(minim_sampling_set_f64(sampling, "temperature", 0.5, &err));
    CHECK_OK(minim_sampling_set_constraint(sampling, constraint, &err));
    params.max_context = 256;
    CHECK_OK(minim_session_create(model, &params, &session, &err));
    CHECK_OK(minim_tokenize(model, "Pi is", SIZE_MAX, MINIM_SPECIALS_SAFE, &prompt, &err));
    CHECK_OK(minim_generate(session, sampling, minim_tokens_data(prompt), minim_tokens_count(prompt),
                            append_text, said, NULL, NULL, &err));
    CHECK(strcmp(said, "2.75") == 0 || strcmp(said, "3.5e1") == 0 || strcmp(said, "35") == 0 ||
          strcmp(said, "35.0") == 0);
    minim_tokens_free(prompt);
    minim_session_free(session);
    minim_sampling_free(sampling);
    minim_constraint_free(constraint);
    CHECK_FAILS(minim_constraint_from_schema(model, "{\"multipleOf\": 0,5}", NULL, &constraint, &err),
                MINIM_E_INVALID);
}

int main(int argc, char** argv) {
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_runtime_params params = MINIM_RUNTIME_PARAMS_INIT;
    minim_model* model = NULL;
    minim_session* session = NULL;
    const int32_t id = 2018;
    const char* locale = setlocale(LC_ALL, ""); /* the host's, as most programs with a window set it */
    CHECK(argc == 3 || argc == 4);
    if (argc == 4) CHECK(locale != NULL && strcmp(localeconv()->decimal_point, argv[3]) == 0);

    test_versions();
    test_null_handles();
    test_formats();
    test_options();
    params.n_threads = -1;
    CHECK_FAILS(minim_runtime_create(&params, &runtime, &err), MINIM_E_INVALID);
    params.n_threads = 2;
    CHECK_OK(minim_runtime_create(&params, &runtime, &err));
    CHECK(minim_runtime_thread_count(runtime) == 2);
    test_threads(argv[1]);
    test_memory_options(argv[1]);
    test_structs(runtime, argv[1]);
    test_checkpoint(runtime, argv[1], argv[2]);
    test_loading(runtime, argv[1]);
    CHECK_OK(minim_model_open(runtime, argv[1], NULL, NULL, &model, &err));
    test_tokens(model);
    test_chat(model);
    test_session(model);
    test_output_deltas();
    test_whole_output();
    test_chat_params(model);
    test_thinking_and_continued_messages(model);
    test_constraints(model);
    test_constraint_matches(model);
    test_numbers(model);
    test_states(model);
    test_engine(model);
    test_engine_freed_by_its_callback(model);
    test_generation(model);
    test_misuse_from_another_thread(model);
    test_release_in_a_callback(model);
    test_lengths(model);
    test_fields(model, argv[1], runtime);
    test_handles_in_use(model);

    /* The parents are released first: the session keeps them alive. */
    CHECK_OK(minim_session_create(model, NULL, &session, &err));
    minim_runtime_free(runtime);
    minim_model_close(model);
    CHECK_OK(minim_session_eval(session, &id, 1, 0, NULL, 0, NULL, &err));
    minim_session_free(session);
    puts("all checks hold");
    return 0;
}
