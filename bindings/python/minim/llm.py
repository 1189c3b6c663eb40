# SPDX-License-Identifier: Apache-2.0
"""LLM: many prompts at once, with generate() and chat() of vLLM's class of that name.

    llm = minim.LLM(model="model.gguf", max_model_len=8192)
    outputs = llm.generate(["The capital of France is"], minim.SamplingParams(temperature=0.0, max_tokens=16))
    print(outputs[0].outputs[0].text)
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import numbers
import os
import typing
import warnings

import minim

from . import _checkpoints as checkpoints
from . import _peers as peers
from ._abi import no_copy, refusal
from ._sampling_params import SamplingParams, StructuredOutputsParams  # noqa: F401  part of this module's interface

Prompt = typing.Union[str, bytes, typing.Sequence[int], typing.Mapping[str, typing.Any]]
Params = typing.Union[None, SamplingParams, typing.Sequence[SamplingParams]]


class Logprob(float):
    """A log-probability, with the names of vLLM's class: logprob, rank (1 is the most likely; None if it is not among the alternatives) and
    decoded_token."""

    rank: typing.Optional[int]
    decoded_token: str

    def __new__(cls, logprob: float, rank: typing.Optional[int], decoded_token: str) -> Logprob:
        made = super().__new__(cls, logprob)
        made.rank, made.decoded_token = rank, decoded_token
        return made

    @property
    def logprob(self) -> float:
        return float(self)

    def __getnewargs__(self) -> typing.Tuple[typing.Any, ...]:
        return float(self), self.rank, self.decoded_token


@dataclasses.dataclass
class CompletionOutput:
    """One answer. finish_reason: "stop" or "length". stop_reason: the stop text that ended it. logprobs: for each token {id: Logprob}, if
    requested."""

    index: int
    text: str
    token_ids: typing.List[int]
    finish_reason: str
    cumulative_logprob: typing.Optional[float] = None
    logprobs: typing.Optional[typing.List[typing.Dict[int, Logprob]]] = None
    stop_reason: typing.Optional[str] = None


@dataclasses.dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: typing.Optional[str]
    prompt_token_ids: typing.List[int]
    outputs: typing.List[CompletionOutput]
    finished: bool = True
    num_cached_tokens: typing.Optional[int] = None
    prompt_logprobs: typing.Optional[typing.List[typing.Optional[typing.Dict[int, Logprob]]]] = None  # the first entry is None


_LENGTHS = (minim.FinishReason.LENGTH, minim.FinishReason.CONTEXT_FULL, minim.FinishReason.TIMEOUT)


def _text_of(model: minim.Model, tokens: typing.List[minim.Token], params: SamplingParams) -> str:
    if not params.detokenize:
        return ""
    if not params.skip_special_tokens:
        return typing.cast(str, model.detokenize([token.id for token in tokens]))
    return "".join(token.text for token in tokens)


def _completion(
    model: minim.Model, index: int, request: minim.Request, tokens: typing.List[minim.Token], params: SamplingParams
) -> CompletionOutput:
    state = request.state
    stop = params.stops()[state.stop_text] if state.stop_text >= 0 else None
    output = CompletionOutput(
        index,
        _text_of(model, tokens, params) + (stop or "" if params.include_stop_str_in_output else ""),
        [token.id for token in tokens],
        "length" if request.finish_reason in _LENGTHS else "stop",
        stop_reason=stop,
    )
    if params.logprobs is not None:
        output.cumulative_logprob = sum(token.logprob for token in tokens)
        output.logprobs = [_alternatives(model, token) for token in tokens]
    return output


def _alternatives(model: minim.Model, token: minim.Token) -> typing.Dict[int, Logprob]:
    ranks = {id: rank for rank, (id, _) in enumerate(token.top_logprobs, 1)}
    if token.prompt_rank > 0:
        ranks[token.id] = token.prompt_rank
    return {
        id: Logprob(value, ranks.get(id), model.token_text(id).decode("utf-8", "replace"))
        for id, value in {**dict(token.top_logprobs), token.id: token.logprob}.items()
    }


_KV_NAMES = {"auto": "f16", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32"}


def _kv_format(name: str) -> str:
    if str(name).lower().startswith(("fp8", "int8", "nvfp4")):
        raise refusal(f"kv_cache_dtype={name!r} is refused: it does not exist here; 'q8_0' has 8 bits, 'q4_0' has 4")
    return _KV_NAMES.get(name, name)


def _drafts(config: typing.Optional[typing.Mapping[str, typing.Any]]) -> int:
    """The draft tokens of a speculative_config: only lookup in the text is there."""
    if not config:
        return 0
    if config.get("method") not in ("ngram", "[ngram]"):
        raise refusal(
            f"LLM: speculative_config={dict(config)!r} is refused: only the method 'ngram' is supported, with num_speculative_tokens"
        )
    for name in set(config) - {"method", "num_speculative_tokens"}:
        warnings.warn(f"LLM: {name} of speculative_config has no effect: the library chooses it", UserWarning, stacklevel=3)
    return int(config.get("num_speculative_tokens", 4))


def _template_text(given: typing.Union[None, str, os.PathLike[str]]) -> typing.Optional[str]:
    """The text of a chat template that is given as text or as a file. None: none is given, or the name of one of the checkpoint's."""
    if given is None or (isinstance(given, str) and ("{{" in given or "{%" in given)):
        return given
    if isinstance(given, str) and not os.path.isfile(given):
        return None
    with open(given, encoding="utf-8") as file:
        return file.read()


class LLM:
    """A model with an engine.

    model          path of a GGUF file or a safetensors folder
    max_model_len  the maximum number of tokens of one request, prompt and answer; None: the context that the model was trained for, or what fits
    max_num_seqs   the maximum number of requests at once; 0: the engine's default
    max_num_batched_tokens   the maximum number of tokens of a step; None: the engine's default
    kv_tokens      size of the KV cache in tokens; None: max_model_len for each of 8 requests, or what fits in memory
    kv             format of the KV cache, or a pair of those of K and V; kv_cache_dtype is its name in vLLM
    enable_prefix_caching    False: prompts that begin alike are evaluated again
    seed           makes the answers of the object reproducible; a seed of SamplingParams comes first
    quantization   checked: ValueError if the weights are not quantized so ("gguf", "fp8", "awq", "gptq", "modelopt" ...)
    gpu_memory_utilization   the part of the memory of each of `devices` that may be used
    cpu_offload_gb           GiB of experts to leave in host memory for each of `devices`, where the CPU computes them
    tensor_parallel_size     the number of ranks that share each layer: GPUs, or processes that mpirun has started on the CPU
    enable_expert_parallel   True: each of these ranks has whole experts
    pipeline_parallel_size   the number of devices that layers are split over: "cuda:0", "cuda:1" ..., if `devices` is None. With
                             tensor_parallel_size, or under mpirun: the number of processes that have layers each. Every process runs the
                             same program; in those other than the first one, LLM() computes for it and then raises SystemExit
    generation_config        "auto": default sampling is what the checkpoint recommends; "vllm": SamplingParams()
    override_generation_config   fields of the default sampling
    speculative_config       {"method": "ngram", "num_speculative_tokens": n}: tokens that are looked up in the text
    max_logprobs   the maximum number of logprobs of a request, at most 20
    chat_template  the text of a Jinja template, or a file with one, in place of the checkpoint's; or the name of one of the checkpoint's
    options        other arguments of minim.Model: devices, threads, host_experts ... Parameters of vLLM's class that are not listed here
                   are refused, or get a warning that they have no effect, if they ask for something.
    """

    __reduce_ex__ = no_copy

    def __init__(
        self,
        model: typing.Union[str, os.PathLike[str]],
        *,
        max_model_len: typing.Optional[int] = None,
        max_num_seqs: typing.Optional[int] = 0,
        max_num_batched_tokens: typing.Optional[int] = None,
        kv_tokens: typing.Optional[int] = None,
        kv: typing.Union[str, typing.Tuple[str, str]] = "f16",
        kv_cache_dtype: str = "auto",
        enable_prefix_caching: typing.Optional[bool] = None,
        seed: typing.Optional[int] = None,
        quantization: typing.Optional[str] = None,
        gpu_memory_utilization: typing.Optional[float] = None,
        cpu_offload_gb: float = 0,
        tensor_parallel_size: int = 1,
        enable_expert_parallel: bool = False,
        pipeline_parallel_size: int = 1,
        generation_config: str = "auto",
        override_generation_config: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        speculative_config: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        max_logprobs: int = 20,
        chat_template: typing.Union[None, str, os.PathLike[str]] = None,
        runner: str = "auto",
        **options: typing.Any,
    ):
        if options.get("tokenizer") == model:
            options.pop("tokenizer")
        own = peers.parameters_of(minim.Model)
        others = {name: options.pop(name) for name in list(options) if name not in own}
        known = own + peers.parameters_of(LLM)
        peers.settle("LLM", others, peers.LLM_WARNED, peers.LLM_REFUSED, known, level=3)
        if runner not in ("auto", "generate"):
            raise refusal(f"LLM: runner={runner!r} is refused: the model only generates text")
        if max_logprobs not in range(21):
            raise refusal(f"LLM: max_logprobs={max_logprobs!r} is refused: at most 20 are reported")
        if generation_config not in ("auto", "vllm", model):
            raise refusal(f"LLM: generation_config={generation_config!r} is refused: it is 'auto' (the checkpoint's) or 'vllm'")
        checkpoints.check_quantization(model, quantization)
        self._draft_tokens = _drafts(speculative_config)
        self._defaults, self._overrides = generation_config, dict(override_generation_config or {})
        template_text = _template_text(chat_template)
        if template_text is not None:
            options["chat_template"] = template_text
        self._template, self._seeds, self._max_logprobs = None if template_text else chat_template, peers.Seeds(seed), max_logprobs
        n_stages = _set_ranks(options, tensor_parallel_size, enable_expert_parallel, pipeline_parallel_size)
        _place(model, options, gpu_memory_utilization, cpu_offload_gb, n_stages)
        self.model = minim.Model(model, **options)
        if self.model.rank:
            with self.model as followed:
                followed.follow()
            raise SystemExit(0)
        if kv_tokens is None:
            kv_tokens = 8 * max_model_len if max_model_len else 0
        self.engine = minim.Engine(
            self.model,
            kv_tokens=kv_tokens,
            kv=kv if kv_cache_dtype == "auto" else _kv_format(kv_cache_dtype),
            max_requests=max_num_seqs or 0,
            n_batch=max_num_batched_tokens or 0,
            prefix_cache=enable_prefix_caching is not False,
            context=max_model_len or 0,
        )
        self._numbers = itertools.count()

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns the sampling that the checkpoint recommends: what generate() and chat() use if none is given."""
        fields: typing.Dict[str, typing.Any] = {}
        if self._defaults != "vllm":
            with self.model.checkpoint() as checkpoint:
                recommended = checkpoint.recommended_sampling
            names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
            fields = {name: getattr(recommended, name) for name in names}
        fields.update({"max_tokens" if name == "max_new_tokens" else name: value for name, value in self._overrides.items()})
        return SamplingParams(**fields)

    def generate(
        self,
        prompts: typing.Union[None, Prompt, typing.Sequence[Prompt]] = None,
        sampling_params: Params = None,
        *,
        prompt_token_ids: typing.Any = None,
        use_tqdm: typing.Any = False,
        priority: typing.Optional[typing.Sequence[int]] = None,
        **others: typing.Any,
    ) -> typing.List[RequestOutput]:
        """Returns the RequestOutputs of one prompt or several, in order. A prompt is a text (in which control tokens are not
        recognised), token ids, or a dict with "prompt" or "prompt_token_ids". sampling_params: one for all, or one for each prompt.
        use_tqdm: True, or a class like tqdm: shows progress. priority: a number for each prompt; the lowest go first."""
        peers.settle("LLM.generate()", others, peers.GENERATE_WARNED, peers.GENERATE_REFUSED, level=3)
        if (prompts is None) == (prompt_token_ids is None):
            raise TypeError("generate() takes prompts, or their ids as prompt_token_ids")
        several = _several(prompts if prompt_token_ids is None else prompt_token_ids)
        each = [(_label(prompt), self._ids(prompt)) for prompt in several]
        return self._answer(each, sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: typing.Sequence[typing.Any],
        sampling_params: Params = None,
        use_tqdm: typing.Any = False,
        lora_request: None = None,
        chat_template: typing.Optional[str] = None,
        *,
        tools: typing.Optional[typing.Sequence[typing.Mapping[str, typing.Any]]] = None,
        chat_template_kwargs: typing.Optional[typing.Mapping[str, typing.Any]] = None,
        priority: typing.Optional[typing.Sequence[int]] = None,
        **options: typing.Any,
    ) -> typing.List[RequestOutput]:
        """Returns the RequestOutputs of one conversation or several. chat_template: the name of one of the checkpoint's templates.
        options: other arguments of minim.Model.tokenize_chat(), such as add_generation_prompt."""
        template = {name: options.pop(name) for name in ("add_generation_prompt", "null_content", "special", "template", "kwargs") if name in options}
        others = {"lora_request": lora_request, **options}
        peers.settle("LLM.chat()", others, peers.GENERATE_WARNED, peers.GENERATE_REFUSED, level=3)
        if chat_template or self._template:
            template.setdefault("template", chat_template or self._template)
        if chat_template_kwargs:
            template["kwargs"] = {**template.get("kwargs", {}), **chat_template_kwargs}
        several = [messages] if len(messages) > 0 and isinstance(messages[0], dict) else messages
        prompts = [(None, self.model.tokenize_chat(each, tools=tools, **template)) for each in several]
        return self._answer(prompts, sampling_params, use_tqdm, priority)

    def close(self) -> None:
        self.engine.close()
        self.model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ids(self, prompt: typing.Any) -> typing.List[int]:
        if isinstance(prompt, dict):
            for name, value in prompt.items():
                if name not in ("prompt", "prompt_token_ids", "cache_salt") and value not in (None, {}, []):
                    raise refusal(f"a prompt with {name!r} is refused: it has 'prompt' or 'prompt_token_ids'")
            prompt = prompt["prompt"] if prompt.get("prompt_token_ids") is None else prompt["prompt_token_ids"]
        if isinstance(prompt, (str, bytes, bytearray)):
            return typing.cast(typing.List[int], self.model.tokenize(prompt, "safe"))
        return [int(id) for id in minim._ids_of(prompt)]

    def _options(self, params: SamplingParams) -> typing.Dict[str, typing.Any]:
        if (params.logprobs or 0) > self._max_logprobs:
            raise refusal(f"logprobs is {params.logprobs}, max_logprobs of the LLM is {self._max_logprobs}")
        return {"draft_tokens": self._draft_tokens or None, **params.options(self.model)}

    def _answer(self, prompts: typing.Any, sampling_params: typing.Any, use_tqdm: typing.Any, priority: typing.Any) -> typing.List[RequestOutput]:
        params = sampling_params if sampling_params is not None else self.get_default_sampling_params()
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise refusal(f"there are {len(each)} sampling_params for {len(prompts)} prompts")
        ranks = [0] * len(prompts) if priority is None else list(priority)
        if len(ranks) != len(prompts):
            raise refusal(f"there are {len(ranks)} priorities for {len(prompts)} prompts")
        options = {id(own): self._options(own) for own in each}
        cut = [(text, _truncated(ids, own, self.model.info.n_context_train)) for (text, ids), own in zip(prompts, each)]
        submitted = []
        for (_, ids), own, rank in zip(cut, each, ranks):
            chosen = dict(options[id(own)])
            if chosen["seed"] is None:
                chosen["seed"] = self._seeds.next()
            submitted.append(self.engine.submit(ids, n=int(own.n), priority=-rank, **chosen))
        answers = []
        for (text, ids), own, requests in zip(cut, each, _shown(submitted, use_tqdm)):
            outputs, of_prompt = [], []
            for index, request in enumerate(requests):
                tokens = list(request.tokens())
                of_prompt = [token for token in tokens if token.prompt_rank > 0]
                outputs.append(_completion(self.model, index, request, tokens[len(of_prompt) :], own))
            answer = RequestOutput(str(next(self._numbers)), text, list(ids), outputs, num_cached_tokens=requests[0].cached_tokens)
            if own.prompt_logprobs is not None:
                answer.prompt_logprobs = [None, *(_alternatives(self.model, token) for token in of_prompt)]
            answers.append(answer)
        return answers


def _several(prompts: typing.Any) -> typing.List[typing.Any]:
    if isinstance(prompts, (str, bytes, bytearray, dict)):
        return [prompts]
    if not hasattr(prompts, "__iter__"):
        raise TypeError(f"a prompt is a text, token ids or a dict with one of them, not a {type(prompts).__name__}")
    listed = list(prompts)
    is_one = len(listed) > 0 and isinstance(listed[0], numbers.Integral)
    return [listed] if is_one else listed


def _label(prompt: typing.Any) -> typing.Optional[str]:
    if isinstance(prompt, dict):
        prompt = prompt.get("prompt")
    return bytes(prompt).decode("utf-8", "replace") if isinstance(prompt, (bytes, bytearray)) else prompt if isinstance(prompt, str) else None


def _truncated(ids: typing.Sequence[int], params: SamplingParams, most: int) -> typing.Sequence[int]:
    kept = params.truncate_prompt_tokens
    return ids if kept is None else ids[-(most if kept == -1 else kept) :]


def _shown(requests: typing.List[typing.Any], use_tqdm: typing.Any) -> typing.Iterable[typing.Any]:
    """The requests, with a bar of progress."""
    if not use_tqdm:
        return requests
    if use_tqdm is True:
        try:
            use_tqdm = importlib.import_module("tqdm.auto").tqdm
        except ImportError:
            warnings.warn("LLM: use_tqdm=True has no effect: the package tqdm is not installed", UserWarning, stacklevel=4)
            return requests
    return typing.cast(typing.Iterable[typing.Any], use_tqdm(requests, desc="Processed prompts"))


def _is_launched() -> bool:
    """Returns whether a launcher has started several processes of this program."""
    sizes = (os.environ.get(name, "1") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"))
    return any(size not in ("", "0", "1") for size in sizes)


def _set_ranks(options: typing.Dict[str, typing.Any], n_tensor: int, has_experts: bool, n_pipeline: int) -> int:
    """Sets the arguments of minim.Model for ranks. Returns the number of devices that layers are split over without ranks."""
    for name, value in (("tensor_parallel_size", n_tensor), ("pipeline_parallel_size", n_pipeline)):
        if value < 1:
            raise refusal(f"LLM: {name}={value!r} is refused: it is a number of ranks, at least 1")
    if has_experts and n_tensor == 1:
        warnings.warn("LLM: enable_expert_parallel=True has no effect: without tensor_parallel_size there is one rank", UserWarning, stacklevel=3)
    are_processes = n_pipeline > 1 and (n_tensor > 1 or _is_launched())
    if n_tensor == 1 and not are_processes:
        return n_pipeline
    options["tensor_parallel"] = n_tensor
    options["expert_parallel"] = -1 if has_experts and n_tensor > 1 else 0
    options["pipeline_parallel"] = n_pipeline
    has_gpus = any(device.usable and device.name != "cpu" for device in minim.devices())
    if options.get("devices") is None and has_gpus:
        options["devices"] = "auto"
    return 1


def _place(path: typing.Any, options: typing.Dict[str, typing.Any], part: typing.Any, offloaded: float, n_stages: int) -> None:
    """Puts the arguments of minim.Model in place of vLLM's for devices."""
    if n_stages != 1:
        if options.get("devices") is None:
            options["devices"] = [f"cuda:{index}" for index in range(n_stages)]
        n_named = len(minim._device_names(options["devices"]))
        if n_named != n_stages:
            raise refusal(f"LLM: pipeline_parallel_size={n_stages}, but `devices` names {n_named}")
    names = minim._device_names(options.get("devices"))
    if part is not None and not 0 < part <= 1:
        raise refusal(f"LLM: gpu_memory_utilization={part!r} is refused: it is a part of the memory, above 0 and at most 1")
    if offloaded < 0:
        raise refusal(f"LLM: cpu_offload_gb={offloaded!r} is refused: it is a number of GiB")
    if names == ["auto"] and (part is not None or offloaded):
        names = [device.name for device in minim.devices() if device.usable and device.name != "cpu"]
        options["devices"] = names or None
    if not names:
        for name, value in (("gpu_memory_utilization", part), ("cpu_offload_gb", offloaded or None)):
            if value is not None:
                text = f"LLM: {name}={value!r} has no effect: all layers are on the CPU; `devices` names GPUs, and minim.devices() lists them"
                warnings.warn(text, UserWarning, stacklevel=3)
        return
    if part is not None:
        options.setdefault("budgets", [float(part)] * len(names))
    if offloaded and not options.get("host_experts"):
        options["host_experts"] = checkpoints.host_experts_of(path, offloaded, len(names))
