/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that answers many requests at once, read as fast as C can: the measure for aio_bench.py.
 *
 *     batch_bench MODEL N_REQUESTS N_TOKENS THREADS
 *
 * Prints seconds, CPU seconds of the process, and tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "minim/minim.h"

enum { k_prompt = 16 };

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A prompt of its own for each request. */
static int submit(minim_engine* engine, const minim_sampling* sampling, int32_t number,
                  minim_request** request, minim_error* err) {
    int32_t ids[k_prompt];
    for (int32_t i = 0; i < k_prompt; ++i) ids[i] = 1 + (17 * number + 5 * i) % 1000;
    return minim_engine_submit(engine, sampling, ids, k_prompt, NULL, request, err) != MINIM_OK;
}

static int read_answer(minim_request* request, long* n_tokens, minim_error* err) {
    for (;;) {
        minim_token token = MINIM_TOKEN_INIT;
        int32_t next = MINIM_NEXT_PENDING;
        if (minim_request_next(request, -1, &token, &next, err) != MINIM_OK) return 1;
        if (next == MINIM_NEXT_END) return 0;
        ++*n_tokens;
    }
}

static int answer_all(minim_engine* engine, const minim_sampling* sampling, minim_request** requests,
                      int32_t count, minim_error* err) {
    long n_tokens = 0;
    const double start = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int32_t i = 0; i < count; ++i)
        if (submit(engine, sampling, i, &requests[i], err)) return 1;
    for (int32_t i = 0; i < count; ++i)
        if (read_answer(requests[i], &n_tokens, err)) return 1;
    printf("%.6f %.6f %ld\n", seconds_of(CLOCK_MONOTONIC) - start, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           n_tokens);
    return 0;
}

int main(int argc, char** argv) {
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime_params threads = MINIM_RUNTIME_PARAMS_INIT;
    minim_engine_params params = MINIM_ENGINE_PARAMS_INIT;
    minim_runtime* runtime = NULL;
    minim_model* model = NULL;
    minim_engine* engine = NULL;
    minim_sampling* sampling = NULL;
    minim_request** requests = NULL;
    int32_t count, n_tokens;
    int failed;
    if (argc != 5) return 2;
    count = atoi(argv[2]);
    n_tokens = atoi(argv[3]);
    threads.n_threads = atoi(argv[4]);
    params.kv_tokens = (uint64_t)count * (uint64_t)(n_tokens + 128);
    requests = calloc((size_t)count, sizeof(*requests));
    failed = requests == NULL || minim_runtime_create(&threads, &runtime, &err) != MINIM_OK ||
             minim_model_open(runtime, argv[1], NULL, NULL, &model, &err) != MINIM_OK ||
             minim_engine_create(model, &params, &engine, &err) != MINIM_OK ||
             minim_sampling_create(&sampling, &err) != MINIM_OK ||
             minim_sampling_set_i64(sampling, "max_tokens", n_tokens, &err) != MINIM_OK ||
             minim_sampling_set_i64(sampling, "ignore_end", 1, &err) != MINIM_OK ||
             answer_all(engine, sampling, requests, count, &err);
    if (failed) fprintf(stderr, "%s\n", err.message);
    for (int32_t i = 0; requests != NULL && i < count; ++i) minim_request_free(requests[i]);
    free(requests);
    minim_sampling_free(sampling);
    minim_engine_free(engine);
    minim_model_close(model);
    minim_runtime_free(runtime);
    return failed;
}
