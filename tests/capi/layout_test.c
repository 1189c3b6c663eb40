/* SPDX-License-Identifier: Apache-2.0 */
/* The released layout of every struct: a change here breaks callers that are already compiled. */
#include <assert.h>
#include <stddef.h>

#include "minim/minim.h"

#define FIELD(type, field, offset) \
    static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type " has changed its size")

FIELD(minim_error, size, 0);
FIELD(minim_error, status, 4);
FIELD(minim_error, reason, 8);
FIELD(minim_error, device, 12);
FIELD(minim_error, os_code, 16);
FIELD(minim_error, requested, 24);
FIELD(minim_error, available, 32);
FIELD(minim_error, offset, 40);
FIELD(minim_error, message, 48);
SIZE(minim_error, 1072);

FIELD(minim_runtime_params, flags, 4);
FIELD(minim_runtime_params, n_threads, 8);
FIELD(minim_runtime_params, log_level, 12);
FIELD(minim_runtime_params, log, 16);
FIELD(minim_runtime_params, log_user_data, 24);
FIELD(minim_runtime_params, n_threads_decode, 32);
FIELD(minim_runtime_params, pin_threads, 36);
FIELD(minim_runtime_params, parallel_for, 40);
FIELD(minim_runtime_params, parallel_for_user_data, 48);
FIELD(minim_runtime_params, numa, 56);
FIELD(minim_runtime_params, reserved, 60);
SIZE(minim_runtime_params, 64);

FIELD(minim_tensor_info, n_dims, 4);
FIELD(minim_tensor_info, dims, 8);
FIELD(minim_tensor_info, bytes, 72);
FIELD(minim_tensor_info, name, 80);
FIELD(minim_tensor_info, format, 88);
SIZE(minim_tensor_info, 96);

FIELD(minim_model_params, flags, 4);
FIELD(minim_model_params, backend, 8);
FIELD(minim_model_params, residence, 16);
FIELD(minim_model_params, engine_tokenizer, 20);
FIELD(minim_model_params, progress, 24);
FIELD(minim_model_params, progress_user_data, 32);
FIELD(minim_model_params, devices, 40);
FIELD(minim_model_params, split, 48);
FIELD(minim_model_params, n_split, 56);
FIELD(minim_model_params, n_device_layers, 64);
FIELD(minim_model_params, allow_cpu, 68);
FIELD(minim_model_params, budgets, 72);
FIELD(minim_model_params, n_budgets, 80);
FIELD(minim_model_params, overrides, 88);
FIELD(minim_model_params, n_host_experts, 96);
FIELD(minim_model_params, fit_context, 104);
FIELD(minim_model_params, lock, 112);
FIELD(minim_model_params, prefault, 116);
FIELD(minim_model_params, deterministic, 120);
FIELD(minim_model_params, expand, 124);
FIELD(minim_model_params, packed_file, 128);
FIELD(minim_model_params, expert_cache_bytes, 136);
FIELD(minim_model_params, expert_moves, 144);
FIELD(minim_model_params, fit_k_format, 148);
FIELD(minim_model_params, fit_v_format, 152);
FIELD(minim_model_params, fit_n_ubatch, 156);
FIELD(minim_model_params, expert_profile, 160);
FIELD(minim_model_params, fit_requests, 168);
FIELD(minim_model_params, chat_template, 176);
FIELD(minim_model_params, tensor_parallel, 184);
FIELD(minim_model_params, expert_parallel, 188);
FIELD(minim_model_params, pipeline_parallel, 192);
FIELD(minim_model_params, rank_timeout_ms, 196);
SIZE(minim_model_params, 200);

FIELD(minim_expert_cache, reserved, 4);
FIELD(minim_expert_cache, n_places, 8);
FIELD(minim_expert_cache, n_hits, 16);
FIELD(minim_expert_cache, n_misses, 24);
FIELD(minim_expert_cache, n_moves, 32);
FIELD(minim_expert_cache, bytes, 40);
FIELD(minim_expert_cache, moved_bytes, 48);
SIZE(minim_expert_cache, 56);

FIELD(minim_device_info, usable, 4);
FIELD(minim_device_info, memory_bytes, 8);
FIELD(minim_device_info, free_bytes, 16);
FIELD(minim_device_info, name, 24);
FIELD(minim_device_info, description, 32);
FIELD(minim_device_info, reason, 40);
FIELD(minim_device_info, unified, 48);
SIZE(minim_device_info, 56);

FIELD(minim_model_info, n_layer, 4);
FIELD(minim_model_info, hidden, 8);
FIELD(minim_model_info, n_head, 16);
FIELD(minim_model_info, n_head_kv, 20);
FIELD(minim_model_info, head_dim, 24);
FIELD(minim_model_info, rotary_dim, 28);
FIELD(minim_model_info, n_expert, 32);
FIELD(minim_model_info, n_expert_used, 36);
FIELD(minim_model_info, expert_ff, 40);
FIELD(minim_model_info, n_vocab, 48);
FIELD(minim_model_info, n_context_train, 56);
FIELD(minim_model_info, n_parameters, 64);
FIELD(minim_model_info, weight_bytes, 72);
FIELD(minim_model_info, kv_token_bytes_f16, 80);
FIELD(minim_model_info, rope_theta, 88);
FIELD(minim_model_info, name, 96);
FIELD(minim_model_info, backend, 104);
FIELD(minim_model_info, placement, 112);
FIELD(minim_model_info, process, 120);
FIELD(minim_model_info, n_processes, 124);
FIELD(minim_model_info, n_ranks, 128);
SIZE(minim_model_info, 136);

FIELD(minim_device_memory, first_layer, 4);
FIELD(minim_device_memory, n_layer, 8);
FIELD(minim_device_memory, weights_mapped, 12);
FIELD(minim_device_memory, weight_bytes, 16);
FIELD(minim_device_memory, expert_bytes, 24);
FIELD(minim_device_memory, kv_bytes, 32);
FIELD(minim_device_memory, work_bytes, 40);
FIELD(minim_device_memory, free_bytes, 48);
FIELD(minim_device_memory, name, 56);
FIELD(minim_device_memory, kept_bytes, 64);
FIELD(minim_device_memory, budget_bytes, 72);
FIELD(minim_device_memory, n_expert_layers, 80);
FIELD(minim_device_memory, token_in_bytes, 88);
FIELD(minim_device_memory, token_out_bytes, 96);
FIELD(minim_device_memory, locked_bytes, 104);
SIZE(minim_device_memory, 112);

FIELD(minim_recommended_sampling, top_k, 4);
FIELD(minim_recommended_sampling, temperature, 8);
FIELD(minim_recommended_sampling, top_p, 16);
FIELD(minim_recommended_sampling, min_p, 24);
FIELD(minim_recommended_sampling, repetition_penalty, 32);
FIELD(minim_recommended_sampling, penalty_last_n, 40);
FIELD(minim_recommended_sampling, reserved, 44);
FIELD(minim_recommended_sampling, source, 48);
SIZE(minim_recommended_sampling, 56);

FIELD(minim_layer_devices, device, 4);
FIELD(minim_layer_devices, experts, 8);
SIZE(minim_layer_devices, 12);

FIELD(minim_node_memory, node, 4);
FIELD(minim_node_memory, n_threads, 8);
FIELD(minim_node_memory, n_threads_decode, 12);
FIELD(minim_node_memory, wanted_bytes, 16);
FIELD(minim_node_memory, weight_bytes, 24);
SIZE(minim_node_memory, 32);

FIELD(minim_session_params, flags, 4);
FIELD(minim_session_params, max_context, 8);
FIELD(minim_session_params, k_format, 16);
FIELD(minim_session_params, v_format, 20);
FIELD(minim_session_params, n_batch, 24);
FIELD(minim_session_params, n_ubatch, 28);
SIZE(minim_session_params, 32);

FIELD(minim_option_info, type, 4);
FIELD(minim_option_info, minimum, 8);
FIELD(minim_option_info, maximum, 16);
FIELD(minim_option_info, default_value, 24);
FIELD(minim_option_info, name, 32);
FIELD(minim_option_info, help, 40);
SIZE(minim_option_info, 48);

FIELD(minim_token, id, 4);
FIELD(minim_token, text, 8);
FIELD(minim_token, text_length, 16);
FIELD(minim_token, logprob, 24);
FIELD(minim_token, n_top, 28);
FIELD(minim_token, top, 32);
FIELD(minim_token, prompt_rank, 40);
FIELD(minim_token, reserved, 44);
SIZE(minim_token, 48);
SIZE(minim_token_probability, 8);

FIELD(minim_generate_result, finish, 4);
FIELD(minim_generate_result, stop_token, 8);
FIELD(minim_generate_result, reserved, 12);
FIELD(minim_generate_result, n_prompt, 16);
FIELD(minim_generate_result, n_generated, 24);
FIELD(minim_generate_result, prompt_us, 32);
FIELD(minim_generate_result, generate_us, 40);
FIELD(minim_generate_result, seed, 48);
FIELD(minim_generate_result, stop_text, 56);
FIELD(minim_generate_result, reserved2, 60);
FIELD(minim_generate_result, n_reasoning, 64);
FIELD(minim_generate_result, stop_logprob, 72);
FIELD(minim_generate_result, reserved3, 76);
FIELD(minim_generate_result, n_drafted, 80);
FIELD(minim_generate_result, n_drafts_accepted, 88);
SIZE(minim_generate_result, 96);

FIELD(minim_output_parser_params, flags, 4);
FIELD(minim_output_parser_params, reasoning, 8);
FIELD(minim_output_parser_params, starts_in_content, 12);
FIELD(minim_output_parser_params, tools, 16);
FIELD(minim_output_parser_params, format, 24);
FIELD(minim_output_parser_params, reserved, 28);
SIZE(minim_output_parser_params, 32);

FIELD(minim_chat_markup, size, 0);
FIELD(minim_chat_markup, format, 4);
FIELD(minim_chat_markup, think_begin, 8);
FIELD(minim_chat_markup, think_end, 16);
FIELD(minim_chat_markup, call_begin, 24);
SIZE(minim_chat_markup, 32);

FIELD(minim_output_delta, kind, 4);
FIELD(minim_output_delta, index, 8);
FIELD(minim_output_delta, reserved, 12);
FIELD(minim_output_delta, name, 16);
FIELD(minim_output_delta, name_length, 24);
FIELD(minim_output_delta, text, 32);
FIELD(minim_output_delta, length, 40);
SIZE(minim_output_delta, 48);

FIELD(minim_output_info, finish_reason, 4);
FIELD(minim_output_info, content, 8);
FIELD(minim_output_info, content_length, 16);
FIELD(minim_output_info, reasoning, 24);
FIELD(minim_output_info, reasoning_length, 32);
FIELD(minim_output_info, n_tool_calls, 40);
SIZE(minim_output_info, 48);

FIELD(minim_tool_call, reserved, 4);
FIELD(minim_tool_call, name, 8);
FIELD(minim_tool_call, name_length, 16);
FIELD(minim_tool_call, arguments, 24);
FIELD(minim_tool_call, arguments_length, 32);
SIZE(minim_tool_call, 40);

FIELD(minim_chat_params, flags, 4);
FIELD(minim_chat_params, null_content, 8);
FIELD(minim_chat_params, reserved, 12);
FIELD(minim_chat_params, tools, 16);
FIELD(minim_chat_params, kwargs, 24);
FIELD(minim_chat_params, template_name, 32);
FIELD(minim_chat_params, thinking_off, 40);
FIELD(minim_chat_params, continue_final_message, 44);
SIZE(minim_chat_params, 48);

FIELD(minim_constraint_params, flags, 4);
FIELD(minim_constraint_params, starts_after, 8);
FIELD(minim_constraint_params, calls_are_optional, 16);
FIELD(minim_constraint_params, relax, 20);
FIELD(minim_constraint_params, may_reason, 24);
FIELD(minim_constraint_params, reserved, 28);
SIZE(minim_constraint_params, 32);

FIELD(minim_engine_params, flags, 4);
FIELD(minim_engine_params, kv_tokens, 8);
FIELD(minim_engine_params, k_format, 16);
FIELD(minim_engine_params, v_format, 20);
FIELD(minim_engine_params, n_requests, 24);
FIELD(minim_engine_params, n_batch, 28);
FIELD(minim_engine_params, n_prompt_rows, 32);
FIELD(minim_engine_params, forget_prefixes, 36);
FIELD(minim_engine_params, max_context, 40);
FIELD(minim_engine_params, fewer_requests, 48);
FIELD(minim_engine_params, warm_up, 52);
FIELD(minim_engine_params, host_cache_bytes, 56);
SIZE(minim_engine_params, 64);

FIELD(minim_engine_state, reserved, 4);
FIELD(minim_engine_state, n_waiting, 8);
FIELD(minim_engine_state, n_running, 16);
FIELD(minim_engine_state, n_steps, 24);
FIELD(minim_engine_state, n_evaluated, 32);
FIELD(minim_engine_state, n_preempted, 40);
FIELD(minim_engine_state, n_pages, 48);
FIELD(minim_engine_state, n_pages_held, 56);
FIELD(minim_engine_state, n_pages_cached, 64);
FIELD(minim_engine_state, max_context, 72);
FIELD(minim_engine_state, n_requests, 80);
FIELD(minim_engine_state, n_batch, 88);
FIELD(minim_engine_state, sizes, 96);
FIELD(minim_engine_state, host_cache_bytes, 104);
FIELD(minim_engine_state, n_host_pages, 112);
FIELD(minim_engine_state, n_host_stored, 120);
FIELD(minim_engine_state, n_host_restored, 128);
SIZE(minim_engine_state, 136);

FIELD(minim_request_params, flags, 4);
FIELD(minim_request_params, priority, 8);
FIELD(minim_request_params, reserved, 12);
FIELD(minim_request_params, timeout_ms, 16);
FIELD(minim_request_params, notify, 24);
FIELD(minim_request_params, notify_user_data, 32);
SIZE(minim_request_params, 40);

FIELD(minim_request_state, finish, 4);
FIELD(minim_request_state, stop_token, 8);
FIELD(minim_request_state, reserved, 12);
FIELD(minim_request_state, n_prompt, 16);
FIELD(minim_request_state, n_cached, 24);
FIELD(minim_request_state, n_generated, 32);
FIELD(minim_request_state, n_preempted, 40);
FIELD(minim_request_state, queue_us, 48);
FIELD(minim_request_state, prompt_us, 56);
FIELD(minim_request_state, generate_us, 64);
FIELD(minim_request_state, seed, 72);
FIELD(minim_request_state, stop_text, 80);
FIELD(minim_request_state, reserved2, 84);
FIELD(minim_request_state, n_reasoning, 88);
FIELD(minim_request_state, n_prompt_done, 96);
FIELD(minim_request_state, stop_logprob, 104);
FIELD(minim_request_state, reserved3, 108);
FIELD(minim_request_state, n_drafted, 112);
FIELD(minim_request_state, n_drafts_accepted, 120);
SIZE(minim_request_state, 128);

FIELD(minim_format_info, gguf_type, 4);
FIELD(minim_format_info, block_elems, 8);
FIELD(minim_format_info, block_bytes, 12);
FIELD(minim_format_info, row_header_bytes, 16);
FIELD(minim_format_info, is_weight, 20);
FIELD(minim_format_info, name, 24);
SIZE(minim_format_info, 32);

int main(void) {
    return 0;
}
