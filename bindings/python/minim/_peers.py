# SPDX-License-Identifier: Apache-2.0
"""Parameters of vLLM's and llama-cpp-python's classes that minim.LLM, SamplingParams and Llama have no use for: some get a warning with the
reason, the others are refused, as answers would not be what was asked for. Nothing is dropped without a word.
"""

from __future__ import annotations

import difflib
import inspect
import random
import reprlib
import typing
import warnings

import minim

from ._abi import refusal

Given = typing.Dict[str, typing.Any]
Reasons = typing.Dict[str, str]

_NOTHING: typing.Tuple[typing.Any, ...] = (None, False, 0, "", "auto", [], {}, ())  # asks for nothing


def _by_name(groups: typing.Dict[str, str]) -> Reasons:
    return {name: reason for reason, names in groups.items() for name in names.split()}


LLM_WARNED: Reasons = _by_name(
    {
        "nothing is downloaded, and no code of a checkpoint is run": "trust_remote_code revision code_revision tokenizer_revision hf_token"
        " download_dir ignore_patterns hf_config_path config_format allow_deprecated_quantization",
        "the tokenizer and the templates are those of the checkpoint": "tokenizer_mode",
        "the files decide how they are read": "load_format safetensors_load_strategy safetensors_prefetch_num_threads"
        " safetensors_prefetch_block_size model_loader_extra_config pt_load_map_location max_parallel_loading_workers model_impl",
        "weights stay in the formats of the file, and the backend chooses those of activations": "dtype override_attention_dtype",
        "a backend has one way to compute, which it compiles before": "enforce_eager max_seq_len_to_capture cuda_graph_sizes"
        " cudagraph_capture_sizes max_cudagraph_capture_size compilation_config attention_config attention_backend kernel_config moe_backend"
        " linear_backend enable_flashinfer_autotune optimization_level performance_mode disable_cascade_attn mamba_config mamba_cache_dtype"
        " mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode mamba_backend enable_bf16x3_router_gemm gdn_prefill_backend"
        " kda_prefill_backend mamba_ssu_algorithm enable_mamba_cache_stochastic_rounding mamba_cache_philox_rounds replayssm_buffer_len"
        " use_replayssm jit_monitor_mode jit_monitor_verbose ir_op_priority",
        "one process drives all devices": "cpu_distributed_timeout_seconds dcp_comm_backend dcp_q_replicate dcp_kv_cache_interleave_size"
        " cp_kv_cache_interleave_size enable_batch_sharded_sampling enable_ep_weight_filter enable_elastic_ep dp_sync_interval"
        " _api_process_count _api_process_rank disable_custom_all_reduce distributed_executor_backend ray_workers_use_nsight all2all_backend"
        " enable_eplb eplb_config expert_placement_strategy num_redundant_experts enable_dbo ubatch_size"
        " dbo_decode_token_threshold dbo_prefill_token_threshold disable_nccl_for_dp_synchronization numa_bind numa_bind_nodes numa_bind_cpus"
        " distributed_timeout_seconds fault_tolerance_config enable_fault_tolerance worker_extension_cls scheduler_cls enable_nccl_comm_suspend",
        "the engine has pages of 64 tokens, evaluates long prompts in chunks between the steps of others, and evaluates again what it"
        " preempted": "block_size swap_space preemption_mode enable_chunked_prefill max_num_partial_prefills max_long_partial_prefills"
        " long_prefill_token_threshold async_scheduling num_scheduler_steps multi_step_stream_outputs stream_interval num_lookahead_slots"
        " disable_hybrid_kv_cache_manager disable_sliding_window prefix_caching_hash_algo kv_sharing_fast_prefill calculate_kv_scales"
        " kv_cache_dtype_skip_layers use_v2_block_manager scheduler_reserve_full_isl prefill_schedule_interval watermark scheduling_policy"
        " disable_async_output_proc max_num_scheduled_tokens prefix_cache_retention_interval prefix_match_unit enable_cumem_allocator enable_sleep_mode kv_offloading_size kv_offloading_backend",
        "host memory keeps whole experts, of as many layers as cpu_offload_gb needs": "offload_backend cpu_offload_params offload_group_size"
        " offload_num_in_group offload_prefetch_step offload_params",
        "all prompts of a call wait for their turn": "max_num_queued_reqs max_num_queued_tokens",
        "log-probabilities and samplers have one form": "logprobs_mode use_fp64_gumbel",
        "the KV cache has kv_tokens tokens": "num_gpu_blocks_override kv_cache_memory_bytes",
        "no statistics or traces are recorded; engine.state has counts": "disable_log_stats disable_log_requests aggregate_engine_logging"
        " otlp_traces_endpoint collect_detailed_traces show_hidden_metrics_for_version kv_cache_metrics kv_cache_metrics_sample"
        " cudagraph_metrics enable_layerwise_nvtx_tracing enable_mfu_metrics enable_logging_iteration_details profiler_config"
        " per_request_spec_decode_metrics enable_mm_processor_stats kv_events_config",
        "structured output is part of the library": "structured_outputs_config guided_decoding_backend",
        "generate() returns the whole text; Model.parse_output() takes reasoning and calls out of it": "reasoning_parser"
        " reasoning_parser_plugin reasoning_config",
        "texts are the only input of the model": "limit_mm_per_prompt mm_processor_kwargs mm_processor_cache_gb mm_processor_cache_type"
        " mm_shm_cache_max_object_size_mb mm_encoder_tp_mode mm_encoder_attn_backend mm_encoder_attn_dtype mm_hasher_algorithm mm_tensor_ipc"
        " mm_processor_device mm_ipc_gpu_memory_gb mm_device_do_normalize skip_mm_profiling media_io_kwargs interleave_mm_strings"
        " allowed_local_media_path allowed_media_domains disable_mm_preprocessor_cache disable_chunked_mm_input video_pruning_rate"
        " video_pruning_method language_model_only renderer_num_workers tokenizer_pool_size tokenizer_pool_type tokenizer_pool_extra_config"
        " enable_mm_embeds mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin ec_manager_config",
        "there are no adapters": "max_loras max_lora_rank max_cpu_loras lora_dtype lora_extra_vocab_size fully_sharded_loras"
        " long_lora_scaling_factors lora_target_modules specialize_active_lora enable_lora_bias enable_tower_connector_lora"
        " enable_mixed_moe_lora_format enable_moe_shared_loras",
        "the object has no name on a network": "served_model_name",
        "there is no progress of loading to show; `progress` gets it": "use_tqdm_on_load",
        "`devices` names the devices": "device",
        "it has no counterpart here": "additional_config shutdown_timeout fail_on_environ_validation",
    }
)

LLM_REFUSED: Reasons = _by_name(
    {
        "tensor_parallel_size and pipeline_parallel_size are there, with mpirun for several machines; this kind of parallelism is not": ""
        " data_parallel_size prefill_context_parallel_size decode_context_parallel_size nnodes data_parallel_size_local data_parallel_rank"
        " node_rank data_parallel_backend data_parallel_address data_parallel_rpc_port data_parallel_hybrid_lb data_parallel_external_lb"
        " data_parallel_start_rank data_parallel_multi_port_external_lb master_addr master_port",
        "devices=['cuda:0', 'cuda:1'] names devices": "device_ids",
        "the tokenizer is that of the checkpoint": "tokenizer skip_tokenizer_init tokens_only",
        "the configuration is that of the checkpoint": "hf_overrides rope_scaling rope_theta quantization_config model_class_overrides"
        " model_weights",
        "the model only generates text": "task convert override_pooler_config pooler_config enable_prompt_embeds diffusion_config",
        "adapters are not supported": "enable_lora default_mm_loras enable_prompt_adapter",
        "logits cannot be changed by a function; logit_bias and structured outputs are there": "logits_processors logits_processor_pattern",
        "caches and weights are not moved between processes": "kv_transfer_config ec_transfer_config weight_transfer_config",
        "classes of vLLM cannot be used": "worker_cls io_processor_plugin",
        "draft models are not supported; speculative_config={'method': 'ngram', 'num_speculative_tokens': 4} is": "spec_method spec_model"
        " spec_tokens",
        "it is not supported": "enable_return_routed_experts return_sampling_mask mm_encoder_only enable_trace_replay",
    }
)

SAMPLING_WARNED: Reasons = _by_name(
    {
        "whole answers are returned": "output_kind stream_interval",
        "texts have no spaces between special tokens": "spaces_between_special_tokens",
        "no sampler reads it": "extra_args",
        "prompts are always looked up in the prefix cache": "skip_reading_prefix_cache",
        "objects are not changed, so they need no copies": "skip_clone",
    }
)

SAMPLING_REFUSED: Reasons = _by_name(
    {
        "log-probabilities of prompts are those of all their tokens: set prompt_logprobs": "prompt_logprob_token_ids prompt_logprob_start",
        "alternatives are the most likely ones: set logprobs": "logprob_token_ids flat_logprobs",
        "texts and tokens cannot be forbidden; logit_bias and structured outputs are there": "bad_words allowed_token_ids",
        "logits cannot be changed by a function; logit_bias and structured outputs are there": "logits_processors",
        "beams are not supported; n gives several answers": "use_beam_search best_of length_penalty early_stopping",
        "it is not supported": "repetition_detection routed_experts_prompt_start trace_decode_token_ids",
    }
)

GENERATE_REFUSED: Reasons = _by_name(
    {
        "adapters are not supported": "lora_request prompt_adapter_request",
        "texts are the only input of the model": "mm_processor_kwargs",
        "texts are tokenized as Model.tokenize() does; pass ids for anything else": "tokenization_kwargs",
        "SamplingParams(structured_outputs=...) has its place": "guided_options_request",
        "messages are always closed": "continue_final_message",
    }
)
GENERATE_WARNED: Reasons = _by_name({"the template gets the messages as they are": "chat_template_content_format"})

LLAMA_WARNED: Reasons = _by_name(
    {
        "the KV cache of a layer is on the device of the layer": "offload_kqv op_offload swa_full",
        "attention has one way to be computed": "flash_attn",
        "each call has its times": "no_perf",
        "the template is that of the checkpoint": "chat_format",
        "the model has no tokens for infill": "spm_infill",
        "it has no effect without split_mode=0": "main_gpu",
        "there are no adapters": "lora_scale lora_base",
    }
)
LLAMA_REFUSED: Reasons = _by_name(
    {
        "minim.Checkpoint reads the headers alone": "vocab_only",
        "the configuration is that of the checkpoint": "kv_overrides rope_scaling_type rope_freq_base rope_freq_scale yarn_ext_factor"
        " yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_orig_ctx",
        "the model only generates text": "pooling_type attention_type embedding",
        "adapters are not supported": "lora_path",
        "the template is that of the checkpoint": "chat_handler",
        "the tokenizer is that of the checkpoint": "tokenizer",
    }
)
ASKING_REFUSED: Reasons = _by_name(
    {
        "the samplers are top_k, top_p, min_p, penalties and DRY": "typical_p tfs_z mirostat_mode",
        "logits cannot be changed by a function; logit_bias and response_format are there": "logits_processor",
        "stop and max_tokens end an answer; close() ends a stream": "stopping_criteria",
        "this old form is gone: pass tools and tool_choice": "functions function_call",
        "the model has no tokens for infill": "suffix",
    }
)
ASKING_WARNED: Reasons = _by_name({"mirostat is not there": "mirostat_tau mirostat_eta"})

# Values that ask for nothing besides those of _NOTHING: what is done anyway.
_NEUTRAL: typing.Dict[str, typing.Tuple[typing.Any, ...]] = {
    **dict.fromkeys(("data_parallel_size", "nnodes", "data_parallel_size_local"), (1,)),
    **dict.fromkeys(("prefill_context_parallel_size", "decode_context_parallel_size", "best_of"), (1,)),
    **dict.fromkeys(("typical_p", "tfs_z", "length_penalty", "lora_scale", "yarn_attn_factor", "yarn_beta_slow"), (1.0,)),
    **dict.fromkeys(("rope_scaling_type", "pooling_type", "attention_type"), (-1,)),
    **dict.fromkeys(("flash_attn", "language_model_only", "no_perf"), (True,)),
    "task": ("generate",),
    "convert": ("none",),
    "worker_cls": ("auto",),
    "data_parallel_backend": ("mp",),
    "yarn_ext_factor": (-1.0,),
    "yarn_beta_fast": (32.0,),
    "mirostat_tau": (5.0,),
    "mirostat_eta": (0.1,),
    "block_size": (64,),
    "use_tqdm_on_load": (True,),
    "device": ("cpu",),
}
# What is done anyway is True here, and False asks for something.
_ALWAYS = ("spaces_between_special_tokens", "offload_kqv", "enable_chunked_prefill", "disable_log_stats", "disable_log_requests")


def _asks_for_nothing(name: str, value: typing.Any) -> bool:
    if name in _ALWAYS and isinstance(value, bool):
        return value
    if isinstance(value, (type(None), bool, int, float, str, list, dict, tuple)):
        return value in _NOTHING or value in _NEUTRAL.get(name, ())
    return name == "output_kind"  # an enumeration: LLM of vLLM has one value for all


def settle(owner: str, given: Given, warned: Reasons, refused: Reasons, others: typing.Iterable[str] = (), level: int = 4) -> None:
    """Warns about parameters without effect, and raises ArgumentError, which is a ValueError, for those that are refused. Unknown ones raise TypeError."""
    for name, value in given.items():
        reason = refused.get(name, warned.get(name))
        if reason is None:
            near = difflib.get_close_matches(name, [*warned, *refused, *others], 1, 0.5)
            hint = f"; the nearest one is {near[0]!r}" if near else ""
            raise TypeError(f"{owner} has no parameter {name!r}{hint}")
        if _asks_for_nothing(name, value):
            continue
        text = f"{owner}: {name}={reprlib.repr(value)}"
        if name in refused:
            raise refusal(f"{text} is refused: {reason}")
        warnings.warn(f"{text} has no effect: {reason}", UserWarning, stacklevel=level)


def parameters_of(call: typing.Callable[..., typing.Any]) -> typing.List[str]:
    """The names of keyword parameters."""
    parameters = inspect.signature(call).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def seed_of(seed: typing.Optional[int]) -> typing.Optional[int]:
    """A seed of -1, or llama.cpp's 2^32 - 1, is chance, as None is."""
    return None if seed is None or seed in (-1, 2**32 - 1) else seed


class Seeds:
    """The seeds of the requests of an object that has a seed: others for each, the same ones in each run."""

    def __init__(self, seed: typing.Optional[int]):
        self._random = None if seed is None or seed == -1 else random.Random(int(seed))

    def next(self) -> typing.Optional[int]:
        return None if self._random is None else self._random.getrandbits(62)


def bias_of(logit_bias: typing.Any) -> typing.Optional[typing.Dict[int, float]]:
    """logit_bias with ids as numbers or, as in JSON, as texts."""
    if logit_bias is None:
        return None
    try:
        return {int(token): float(bias) for token, bias in logit_bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise refusal(f"logit_bias maps token ids to numbers, unlike {reprlib.repr(logit_bias)}") from None


def structured(model: minim.Model, form: typing.Any) -> typing.Optional[minim.Constraint]:
    """A Constraint of vLLM's StructuredOutputsParams or GuidedDecodingParams, or of a dict with their names; None if it asks for nothing."""
    fields = dict(form) if isinstance(form, dict) else {name: value for name, value in vars(form).items() if name[0] != "_"}
    kinds = ("json", "regex", "choice", "json_object", "grammar", "structural_tag")
    chosen = [kind for kind in kinds if fields.get(kind) not in (None, False)]
    for name, value in fields.items():
        if name == "structural_tag" and value is not None:
            raise refusal(f"structured_outputs: {name} is refused: json, json_object, regex, choice and grammar are supported")
        if name not in kinds and value not in (None, False):
            known = ("disable_fallback", "disable_any_whitespace", "disable_additional_properties", "whitespace_pattern", "backend", "backend_was_auto")
            if name not in known:
                raise TypeError(f"structured_outputs has no field {name!r}")
            warnings.warn(f"structured_outputs: {name}={value!r} has no effect: the library decides it", UserWarning, stacklevel=5)
    if len(chosen) != 1:
        raise refusal(f"structured_outputs has one of {', '.join(kinds[:-1])}; given: {', '.join(chosen) or 'none'}")
    if chosen == ["grammar"]:
        return model.constraint(grammar=fields["grammar"])
    if chosen == ["regex"]:
        return model.constraint(regex=fields["regex"])
    if chosen == ["choice"]:
        return model.constraint(choices=fields["choice"])
    return model.constraint({"type": "object"} if chosen == ["json_object"] else _schema_of(fields["json"]))


def _schema_of(schema: typing.Any) -> typing.Any:
    if isinstance(schema, str):
        return minim.json.loads(schema)
    return schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema  # pydantic
