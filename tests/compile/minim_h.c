/* SPDX-License-Identifier: Apache-2.0 */
/* minim.h in each C standard, with every initialiser and the whole round of a generation as a caller
 * writes it. */
#include "minim/minim.h"

int32_t compile_check(minim_runtime* runtime, const char* path);

static int32_t on_token(void* user_data, const minim_token* token) {
    return user_data == NULL || token->text_length > 0 ? 0 : 1;
}

int32_t compile_check(minim_runtime* runtime, const char* path) {
    minim_error err = MINIM_ERROR_INIT;
    minim_runtime_params runtime_params = MINIM_RUNTIME_PARAMS_INIT;
    minim_model_params model_params = MINIM_MODEL_PARAMS_INIT;
    minim_session_params session_params = MINIM_SESSION_PARAMS_INIT;
    minim_tensor_info tensor = MINIM_TENSOR_INFO_INIT;
    minim_generate_result result = MINIM_GENERATE_RESULT_INIT;
    minim_model* model = NULL;
    minim_session* session = NULL;
    const int32_t prompt[] = {1, 2, 3};
    minim_status status;

    status = minim_model_open(runtime, path, &model_params, NULL, &model, &err);
    if (status == MINIM_OK) status = minim_session_create(model, &session_params, &session, &err);
    if (status == MINIM_OK)
        status = minim_generate(session, NULL, prompt, 3, on_token, NULL, NULL, &result, &err);
    minim_session_free(session);
    minim_model_close(model);
    return status + tensor.n_dims + runtime_params.n_threads +
           (MINIM_VERSION_NUMBER < 0 ? err.status : result.finish);
}
