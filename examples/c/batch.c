/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a model 32 questions at once. The engine works on all of them together; the answers are read one after
 * another. Each answer is the same as if its question were asked alone.
 *
 *     batch MODEL
 */
#include <stdio.h>

#include "minim/minim.h"

#define N_REQUESTS 32

static int submit(const minim_model* model, minim_engine* engine, const minim_sampling* sampling, int number,
                  minim_request** request, minim_error* err) {
    char messages[128];
    minim_tokens* prompt = NULL;
    int failed;
    snprintf(messages, sizeof(messages), "[{\"role\": \"user\", \"content\": \"What is %d + %d?\"}]",
             10 + number, 3 + 2 * number);
    failed =
        minim_chat_tokenize(model, messages, NULL, NULL, MINIM_SPECIALS_SAFE, &prompt, err) != MINIM_OK ||
        minim_engine_submit(engine, sampling, minim_tokens_data(prompt), minim_tokens_count(prompt), NULL,
                            request, err) != MINIM_OK;
    minim_tokens_free(prompt);
    return failed;
}

/* Waits for the answer and prints it token by token. */
static int print_answer(minim_request* request, int number, minim_error* err) {
    printf("%d + %d: ", 10 + number, 3 + 2 * number);
    for (;;) {
        minim_token token = MINIM_TOKEN_INIT;
        int32_t next = MINIM_NEXT_PENDING;
        if (minim_request_next(request, -1, &token, &next, err) != MINIM_OK) return 1;
        if (next == MINIM_NEXT_END) break;
        fwrite(token.text, 1, token.text_length, stdout);
    }
    printf("\n");
    return 0;
}

int main(int argc, char** argv) {
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    minim_engine* engine = NULL;
    minim_sampling* sampling = NULL;
    minim_request* requests[N_REQUESTS] = {NULL};
    minim_engine_state state = MINIM_ENGINE_STATE_INIT;
    int failed;
    int i;

    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL\n", argv[0]);
        return 2;
    }
    params.kv_tokens = N_REQUESTS * 512;
    params.n_requests = N_REQUESTS;
    failed = minim_runtime_create(NULL, &runtime, &err) != MINIM_OK ||
             minim_model_open(runtime, argv[1], NULL, NULL, &model, &err) != MINIM_OK ||
             minim_engine_create(model, &params, &engine, &err) != MINIM_OK ||
             minim_sampling_create(&sampling, &err) != MINIM_OK ||
             minim_sampling_set_i64(sampling, "max_tokens", 256, &err) != MINIM_OK;
    for (i = 0; i < N_REQUESTS && !failed; ++i)
        failed = submit(model, engine, sampling, i, &requests[i], &err);
    for (i = 0; i < N_REQUESTS && !failed; ++i) failed = print_answer(requests[i], i, &err);
    if (!failed) failed = minim_engine_get_state(engine, &state, &err) != MINIM_OK;
    if (failed)
        fprintf(stderr, "%s: %s\n", minim_status_name(err.status), err.message);
    else
        printf("(%d tokens evaluated in %d steps)\n", (int)state.n_evaluated, (int)state.n_steps);

    for (i = 0; i < N_REQUESTS; ++i) minim_request_free(requests[i]);
    minim_sampling_free(sampling);
    minim_engine_free(engine);
    minim_model_close(model);
    minim_runtime_free(runtime);
    return failed;
}
