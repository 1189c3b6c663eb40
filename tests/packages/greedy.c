/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the greedy answer of a model to "What is the capital of France?", and a newline. */
#include <stdio.h>

#include <minim/minim.h>

static int32_t print_token(void* user_data, const minim_token* token) {
    (void)user_data;
    return fwrite(token->text, 1, token->text_length, stdout) == token->text_length ? 0 : 1;
}

int main(int argc, char** argv) {
    const char* messages = "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
    minim_error err = MINIM_ERROR_INIT;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_session* session = NULL;
    minim_tokens* prompt = NULL;
    if (argc != 2) return 2;
    params.max_context = 2048;
    if (minim_runtime_create(NULL, &runtime, &err) ||
        minim_model_open(runtime, argv[1], NULL, NULL, &model, &err) ||
        minim_session_create(model, &params, &session, &err) ||
        minim_chat_tokenize(model, messages, NULL, NULL, MINIM_SPECIALS_SAFE, &prompt, &err) ||
        minim_generate(session, NULL, minim_tokens_data(prompt), minim_tokens_count(prompt), print_token,
                       NULL, NULL, NULL, &err))
        fprintf(stderr, "%s\n", err.message);
    printf("\n");
    minim_tokens_free(prompt);
    minim_session_free(session);
    minim_model_close(model);
    minim_runtime_free(runtime);
    return err.status;
}
