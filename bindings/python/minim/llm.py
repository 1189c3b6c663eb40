# SPDX-License-Identifier: Apache-2.0
"""LLM and SamplingParams: many prompts at once, with vLLM's offline interface.

    llm = minim.LLM(model="model.gguf", max_model_len=8192)
    outputs = llm.generate(["The capital of France is"], minim.SamplingParams(temperature=0.0, max_tokens=16))
    print(outputs[0].outputs[0].text)
"""

from __future__ import annotations

import dataclasses
import itertools
import typing

import minim

from ._abi import no_copy

Prompt = typing.Union[str, typing.Sequence[int], typing.Mapping[str, typing.Any]]


@dataclasses.dataclass
class SamplingParams:
    """Sampling options. top_k of 0 or -1: all tokens. max_tokens None: limited by the context only. logprobs: the number of
    alternatives to report with the log-probability of each token. guided: a JSON Schema or a minim.Constraint."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: typing.Optional[int] = 16
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: typing.Optional[int] = None
    stop: typing.Union[None, str, typing.Sequence[str]] = None
    stop_token_ids: typing.Optional[typing.Sequence[int]] = None
    ignore_eos: bool = False
    logit_bias: typing.Optional[typing.Mapping[int, float]] = None
    logprobs: typing.Optional[int] = None
    guided: typing.Any = None

    def options(self) -> typing.Dict[str, typing.Any]:
        """Returns the arguments of minim.Engine.submit(), except n."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": max(0, self.top_k),
            "min_p": self.min_p,
            "max_tokens": self.max_tokens or 0,
            "min_tokens": self.min_tokens,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": self.seed,
            "stop": self.stop or (),
            "stop_tokens": self.stop_token_ids or (),
            "ignore_end": int(self.ignore_eos),
            "logit_bias": self.logit_bias,
            "logprobs": None if self.logprobs is None else 1,
            "top_logprobs": self.logprobs,
            "schema": self.guided,
        }


@dataclasses.dataclass
class CompletionOutput:
    """One answer. finish_reason: "stop" or "length". logprobs: for each token {id: log-probability}, if requested."""

    index: int
    text: str
    token_ids: typing.List[int]
    finish_reason: str
    cumulative_logprob: typing.Optional[float] = None
    logprobs: typing.Optional[typing.List[typing.Dict[int, float]]] = None


@dataclasses.dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: typing.Optional[str]
    prompt_token_ids: typing.List[int]
    outputs: typing.List[CompletionOutput]
    finished: bool = True


_LENGTHS = (minim.FinishReason.LENGTH, minim.FinishReason.CONTEXT_FULL, minim.FinishReason.TIMEOUT)


def _completion(index: int, request: minim.Request, params: SamplingParams) -> CompletionOutput:
    tokens = list(request.tokens())
    output = CompletionOutput(
        index,
        "".join(token.text for token in tokens),
        [token.id for token in tokens],
        "length" if request.finish_reason in _LENGTHS else "stop",
    )
    if params.logprobs is not None:
        output.cumulative_logprob = sum(token.logprob for token in tokens)
        output.logprobs = [{**dict(token.top_logprobs), token.id: token.logprob} for token in tokens]
    return output


class LLM:
    """A model with an engine.

    model          path of a GGUF file or a safetensors folder
    max_model_len  the most tokens of one request, prompt and answer; None: the context that the model was trained for, or what fits
    max_num_seqs   the most requests at once; 0: the engine's default
    kv_tokens      size of the KV cache in tokens; None: max_model_len for each of 8 requests, or what fits in memory
    options        other arguments of minim.Model: devices, threads, host_experts ...
    """

    __reduce_ex__ = no_copy

    def __init__(
        self,
        model: str,
        *,
        max_model_len: typing.Optional[int] = None,
        max_num_seqs: int = 0,
        kv_tokens: typing.Optional[int] = None,
        kv: str = "f16",
        **options: typing.Any,
    ):
        self.model = minim.Model(model, **options)
        if kv_tokens is None:
            kv_tokens = 8 * max_model_len if max_model_len else 0
        self.engine = minim.Engine(
            self.model, kv_tokens=kv_tokens, kv=kv, max_requests=max_num_seqs, context=max_model_len or 0
        )
        self._numbers = itertools.count()

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns the sampling that the checkpoint recommends: what generate() and chat() use if none is given."""
        with self.model.checkpoint() as checkpoint:
            recommended = checkpoint.recommended_sampling
        return SamplingParams(
            temperature=recommended.temperature,
            top_p=recommended.top_p,
            top_k=recommended.top_k,
            min_p=recommended.min_p,
            repetition_penalty=recommended.repetition_penalty,
        )

    def generate(
        self,
        prompts: typing.Union[Prompt, typing.Sequence[Prompt]],
        sampling_params: typing.Union[None, SamplingParams, typing.Sequence[SamplingParams]] = None,
    ) -> typing.List[RequestOutput]:
        """Returns the RequestOutputs of one prompt or several, in order. A prompt is a text (in which control tokens are not
        recognised), token ids, or a dict with "prompt" or "prompt_token_ids". sampling_params: one for all, or one for each prompt."""
        several = self._prompts(prompts)
        each = [self._ids(prompt) for prompt in several]
        return self._answer([(self._text(prompt), ids) for prompt, ids in zip(several, each)], sampling_params)

    def chat(
        self,
        messages: typing.Sequence[typing.Any],
        sampling_params: typing.Union[None, SamplingParams, typing.Sequence[SamplingParams]] = None,
        *,
        tools: typing.Optional[typing.Sequence[typing.Mapping[str, typing.Any]]] = None,
        **template: typing.Any,
    ) -> typing.List[RequestOutput]:
        """Returns the RequestOutputs of one conversation or several; `template`: other arguments of minim.Model.tokenize_chat()."""
        several = [messages] if messages and isinstance(messages[0], dict) else messages
        prompts = [(None, self.model.tokenize_chat(each, tools=tools, **template)) for each in several]
        return self._answer(prompts, sampling_params)

    def close(self) -> None:
        self.engine.close()
        self.model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @staticmethod
    def _prompts(prompts: typing.Any) -> typing.List[typing.Any]:
        is_one = isinstance(prompts, (str, dict)) or (len(prompts) > 0 and isinstance(prompts[0], int))
        return [prompts] if is_one else list(prompts)

    @staticmethod
    def _text(prompt: typing.Any) -> typing.Optional[str]:
        if isinstance(prompt, dict):
            return prompt.get("prompt")
        return prompt if isinstance(prompt, str) else None

    def _ids(self, prompt: typing.Any) -> typing.List[int]:
        if isinstance(prompt, dict):
            if "prompt_token_ids" in prompt:
                return list(prompt["prompt_token_ids"])
            prompt = prompt["prompt"]
        return self.model.tokenize(prompt, "safe") if isinstance(prompt, str) else list(prompt)

    def _answer(self, prompts: typing.Any, sampling_params: typing.Any) -> typing.List[RequestOutput]:
        params = sampling_params if sampling_params is not None else self.get_default_sampling_params()
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise ValueError(f"there are {len(each)} sampling_params for {len(prompts)} prompts")
        submitted = [
            self.engine.submit(ids, n=own.n, **own.options()) for (_, ids), own in zip(prompts, each)
        ]
        return [
            RequestOutput(
                str(next(self._numbers)),
                text,
                list(ids),
                [_completion(index, request, own) for index, request in enumerate(requests)],
            )
            for (text, ids), own, requests in zip(prompts, each, submitted)
        ]
