/* Prints what the compiler makes of minim.h: "STRUCT FIELD OFFSET SIZE" a line, and "STRUCT - 0 SIZE" for
 * the whole. */
#include <stdio.h>

#include "minim/minim.h"

#define STRUCT(type) printf("%s - 0 %zu\n", #type, sizeof(type))
#define FIELD(type, field) \
    printf("%s %s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type*)NULL)->field))

int main(void) {
    STRUCT(minim_error);
    FIELD(minim_error, size);
    FIELD(minim_error, status);
    FIELD(minim_error, reason);
    FIELD(minim_error, device);
    FIELD(minim_error, os_code);
    FIELD(minim_error, requested);
    FIELD(minim_error, available);
    FIELD(minim_error, offset);
    FIELD(minim_error, message);

    STRUCT(minim_runtime_params);
    FIELD(minim_runtime_params, size);
    FIELD(minim_runtime_params, flags);
    FIELD(minim_runtime_params, n_threads);
    FIELD(minim_runtime_params, log_level);
    FIELD(minim_runtime_params, log);
    FIELD(minim_runtime_params, log_user_data);
    FIELD(minim_runtime_params, n_threads_decode);
    FIELD(minim_runtime_params, pin_threads);
    FIELD(minim_runtime_params, parallel_for);
    FIELD(minim_runtime_params, parallel_for_user_data);
    FIELD(minim_runtime_params, numa);
    FIELD(minim_runtime_params, reserved);

    STRUCT(minim_tensor_info);
    FIELD(minim_tensor_info, size);
    FIELD(minim_tensor_info, n_dims);
    FIELD(minim_tensor_info, dims);
    FIELD(minim_tensor_info, bytes);
    FIELD(minim_tensor_info, name);
    FIELD(minim_tensor_info, format);

    STRUCT(minim_model_params);
    FIELD(minim_model_params, size);
    FIELD(minim_model_params, flags);
    FIELD(minim_model_params, backend);
    FIELD(minim_model_params, residence);
    FIELD(minim_model_params, engine_tokenizer);
    FIELD(minim_model_params, progress);
    FIELD(minim_model_params, progress_user_data);
    FIELD(minim_model_params, devices);
    FIELD(minim_model_params, split);
    FIELD(minim_model_params, n_split);
    FIELD(minim_model_params, n_device_layers);
    FIELD(minim_model_params, allow_cpu);
    FIELD(minim_model_params, budgets);
    FIELD(minim_model_params, n_budgets);
    FIELD(minim_model_params, overrides);
    FIELD(minim_model_params, n_host_experts);
    FIELD(minim_model_params, fit_context);
    FIELD(minim_model_params, lock);
    FIELD(minim_model_params, prefault);
    FIELD(minim_model_params, deterministic);
    FIELD(minim_model_params, expand);
    FIELD(minim_model_params, packed_file);

    STRUCT(minim_device_info);
    FIELD(minim_device_info, size);
    FIELD(minim_device_info, usable);
    FIELD(minim_device_info, memory_bytes);
    FIELD(minim_device_info, free_bytes);
    FIELD(minim_device_info, name);
    FIELD(minim_device_info, description);
    FIELD(minim_device_info, reason);

    STRUCT(minim_model_info);
    FIELD(minim_model_info, size);
    FIELD(minim_model_info, n_layer);
    FIELD(minim_model_info, hidden);
    FIELD(minim_model_info, n_head);
    FIELD(minim_model_info, n_head_kv);
    FIELD(minim_model_info, head_dim);
    FIELD(minim_model_info, rotary_dim);
    FIELD(minim_model_info, n_expert);
    FIELD(minim_model_info, n_expert_used);
    FIELD(minim_model_info, expert_ff);
    FIELD(minim_model_info, n_vocab);
    FIELD(minim_model_info, n_context_train);
    FIELD(minim_model_info, n_parameters);
    FIELD(minim_model_info, weight_bytes);
    FIELD(minim_model_info, kv_token_bytes_f16);
    FIELD(minim_model_info, rope_theta);
    FIELD(minim_model_info, name);
    FIELD(minim_model_info, backend);
    FIELD(minim_model_info, placement);

    STRUCT(minim_device_memory);
    FIELD(minim_device_memory, size);
    FIELD(minim_device_memory, first_layer);
    FIELD(minim_device_memory, n_layer);
    FIELD(minim_device_memory, weights_mapped);
    FIELD(minim_device_memory, weight_bytes);
    FIELD(minim_device_memory, expert_bytes);
    FIELD(minim_device_memory, kv_bytes);
    FIELD(minim_device_memory, work_bytes);
    FIELD(minim_device_memory, free_bytes);
    FIELD(minim_device_memory, name);
    FIELD(minim_device_memory, kept_bytes);
    FIELD(minim_device_memory, budget_bytes);
    FIELD(minim_device_memory, n_expert_layers);
    FIELD(minim_device_memory, token_in_bytes);
    FIELD(minim_device_memory, token_out_bytes);
    FIELD(minim_device_memory, locked_bytes);

    STRUCT(minim_layer_devices);
    FIELD(minim_layer_devices, size);
    FIELD(minim_layer_devices, device);
    FIELD(minim_layer_devices, experts);

    STRUCT(minim_node_memory);
    FIELD(minim_node_memory, size);
    FIELD(minim_node_memory, node);
    FIELD(minim_node_memory, n_threads);
    FIELD(minim_node_memory, n_threads_decode);
    FIELD(minim_node_memory, wanted_bytes);
    FIELD(minim_node_memory, weight_bytes);

    STRUCT(minim_session_params);
    FIELD(minim_session_params, size);
    FIELD(minim_session_params, flags);
    FIELD(minim_session_params, max_context);
    FIELD(minim_session_params, k_format);
    FIELD(minim_session_params, v_format);
    FIELD(minim_session_params, n_batch);
    FIELD(minim_session_params, n_ubatch);

    STRUCT(minim_option_info);
    FIELD(minim_option_info, size);
    FIELD(minim_option_info, type);
    FIELD(minim_option_info, minimum);
    FIELD(minim_option_info, maximum);
    FIELD(minim_option_info, default_value);
    FIELD(minim_option_info, name);
    FIELD(minim_option_info, help);

    STRUCT(minim_token_probability);
    FIELD(minim_token_probability, id);
    FIELD(minim_token_probability, logprob);

    STRUCT(minim_token);
    FIELD(minim_token, size);
    FIELD(minim_token, id);
    FIELD(minim_token, text);
    FIELD(minim_token, text_length);
    FIELD(minim_token, logprob);
    FIELD(minim_token, n_top);
    FIELD(minim_token, top);

    STRUCT(minim_generate_result);
    FIELD(minim_generate_result, size);
    FIELD(minim_generate_result, finish);
    FIELD(minim_generate_result, stop_token);
    FIELD(minim_generate_result, reserved);
    FIELD(minim_generate_result, n_prompt);
    FIELD(minim_generate_result, n_generated);
    FIELD(minim_generate_result, prompt_us);
    FIELD(minim_generate_result, generate_us);
    FIELD(minim_generate_result, seed);

    STRUCT(minim_constraint_params);
    FIELD(minim_constraint_params, size);
    FIELD(minim_constraint_params, flags);
    FIELD(minim_constraint_params, starts_after);

    STRUCT(minim_engine_params);
    FIELD(minim_engine_params, size);
    FIELD(minim_engine_params, flags);
    FIELD(minim_engine_params, kv_tokens);
    FIELD(minim_engine_params, k_format);
    FIELD(minim_engine_params, v_format);
    FIELD(minim_engine_params, n_requests);
    FIELD(minim_engine_params, n_batch);
    FIELD(minim_engine_params, n_prompt_rows);
    FIELD(minim_engine_params, forget_prefixes);

    STRUCT(minim_engine_state);
    FIELD(minim_engine_state, size);
    FIELD(minim_engine_state, reserved);
    FIELD(minim_engine_state, n_waiting);
    FIELD(minim_engine_state, n_running);
    FIELD(minim_engine_state, n_steps);
    FIELD(minim_engine_state, n_evaluated);
    FIELD(minim_engine_state, n_preempted);
    FIELD(minim_engine_state, n_pages);
    FIELD(minim_engine_state, n_pages_held);
    FIELD(minim_engine_state, n_pages_cached);

    STRUCT(minim_request_params);
    FIELD(minim_request_params, size);
    FIELD(minim_request_params, flags);
    FIELD(minim_request_params, priority);
    FIELD(minim_request_params, reserved);
    FIELD(minim_request_params, timeout_ms);
    FIELD(minim_request_params, notify);
    FIELD(minim_request_params, notify_user_data);

    STRUCT(minim_request_state);
    FIELD(minim_request_state, size);
    FIELD(minim_request_state, finish);
    FIELD(minim_request_state, stop_token);
    FIELD(minim_request_state, reserved);
    FIELD(minim_request_state, n_prompt);
    FIELD(minim_request_state, n_cached);
    FIELD(minim_request_state, n_generated);
    FIELD(minim_request_state, n_preempted);
    FIELD(minim_request_state, queue_us);
    FIELD(minim_request_state, prompt_us);
    FIELD(minim_request_state, generate_us);
    FIELD(minim_request_state, seed);
    return 0;
}
