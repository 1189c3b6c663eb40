/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a model one question and prints the answer as it is generated, then the timing.
 *
 *     answer MODEL [QUESTION]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "minim/minim.h"

static int32_t print_token(void* user_data, const minim_token* token) {
    (void)user_data;
    fwrite(token->text, 1, token->text_length, stdout);
    return fflush(stdout) == 0 ? 0 : 1; /* stop if nobody reads the output */
}

/* Returns one user message as the JSON array that minim_chat_tokenize takes; the caller frees it. */
static char* user_message(const char* question) {
    static const char head[] = "[{\"role\": \"user\", \"content\": \"";
    char* json = malloc(sizeof(head) + strlen(question) * 6 + sizeof("\"}]"));
    char* at = json;
    if (json == NULL) return NULL;
    at += sprintf(at, "%s", head);
    for (; *question != 0; ++question) {
        const unsigned char c = (unsigned char)*question;
        at += sprintf(at, c < 0x20 ? "\\u%04x" : c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    strcpy(at, "\"}]");
    return json;
}

int main(int argc, char** argv) {
    const char* question = argc > 2 ? argv[2] : "What is the capital of France?";
    minim_error err = MINIM_ERROR_INIT;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_session* session = NULL;
    minim_session_params params = MINIM_SESSION_PARAMS_INIT;
    minim_sampling* sampling = NULL;
    minim_tokens* prompt = NULL;
    char* messages;
    int failed;

    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL [QUESTION]\n", argv[0]);
        return 2;
    }
    messages = user_message(question);
    if (messages == NULL) return 1;
    params.max_context = 2048;
    failed =
        minim_runtime_create(NULL, &runtime, &err) != MINIM_OK ||
        minim_model_open(runtime, argv[1], NULL, NULL, &model, &err) != MINIM_OK ||
        minim_session_create(model, &params, &session, &err) != MINIM_OK ||
        minim_sampling_create(&sampling, &err) != MINIM_OK ||
        minim_chat_tokenize(model, messages, NULL, NULL, MINIM_SPECIALS_SAFE, &prompt, &err) != MINIM_OK ||
        minim_generate(session, sampling, minim_tokens_data(prompt), minim_tokens_count(prompt), print_token,
                       NULL, NULL, &result, &err) != MINIM_OK;
    if (failed)
        fprintf(stderr, "%s: %s\n", minim_status_name(err.status), err.message);
    else
        printf("\n(%d tokens in %.2f s)\n", (int)result.n_generated, (double)result.generate_us * 1e-6);

    minim_tokens_free(prompt);
    minim_sampling_free(sampling);
    minim_session_free(session);
    minim_model_close(model);
    minim_runtime_free(runtime);
    free(messages);
    return failed;
}
