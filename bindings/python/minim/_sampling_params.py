# SPDX-License-Identifier: Apache-2.0
"""SamplingParams and StructuredOutputsParams, with the fields that vLLM's classes of these names have."""

from __future__ import annotations

import copy
import dataclasses
import numbers
import typing

import minim

from . import _peers as peers
from ._abi import refusal

_MOST_LOGPROBS = 20
_UNUSED = (*peers.SAMPLING_WARNED, *peers.SAMPLING_REFUSED)


@dataclasses.dataclass
class StructuredOutputsParams:
    """The form of an answer, one of: json (a JSON Schema as a dict, a text or a pydantic model), json_object (any object), regex, choice (a
    list of texts), grammar (in GBNF). A structural_tag is refused; the other fields have no effect."""

    json: typing.Any = None
    regex: typing.Optional[str] = None
    choice: typing.Optional[typing.Sequence[str]] = None
    grammar: typing.Optional[str] = None
    json_object: typing.Optional[bool] = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: typing.Optional[str] = None
    structural_tag: typing.Optional[str] = None


def _require(is_right: bool, name: str, value: typing.Any, rule: str) -> None:
    if not is_right:
        raise refusal(f"SamplingParams: {name} is {value!r}; {rule}")


@dataclasses.dataclass
class SamplingParams:
    """Sampling options. top_k of 0 or -1: all tokens. max_tokens None: limited by the context only. seed None or -1: chance. logprobs: the
    number of alternatives to report with the log-probability of each token, at most 20. structured_outputs: a StructuredOutputsParams.
    guided: a JSON Schema or a minim.Constraint. thinking_token_budget: the maximum number of tokens of reasoning. truncate_prompt_tokens: the number of
    last tokens of the prompt to keep. Fields of vLLM's class that are not listed here are refused, or warned about as without effect, if
    they ask for something.
    """

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
    logit_bias: typing.Optional[typing.Mapping[typing.Any, float]] = None
    logprobs: typing.Optional[int] = None
    guided: typing.Any = None
    structured_outputs: typing.Any = None
    guided_decoding: typing.Any = None  # its older name
    thinking_token_budget: typing.Optional[int] = None
    truncate_prompt_tokens: typing.Optional[int] = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    # Without effect, or refused: see _peers.py.
    spaces_between_special_tokens: bool = True
    output_kind: typing.Any = None
    stream_interval: typing.Optional[int] = None
    skip_clone: bool = False
    skip_reading_prefix_cache: typing.Optional[bool] = None
    extra_args: typing.Optional[typing.Dict[str, typing.Any]] = None
    prompt_logprobs: typing.Optional[int] = None
    prompt_logprob_token_ids: typing.Optional[typing.Sequence[int]] = None
    prompt_logprob_start: typing.Optional[int] = None
    logprob_token_ids: typing.Optional[typing.Sequence[int]] = None
    flat_logprobs: bool = False
    bad_words: typing.Optional[typing.Sequence[str]] = None
    allowed_token_ids: typing.Optional[typing.Sequence[int]] = None
    logits_processors: typing.Any = None
    best_of: typing.Optional[int] = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool = False
    repetition_detection: typing.Any = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: typing.Optional[typing.Sequence[int]] = None

    def __post_init__(self) -> None:
        unused = {name: getattr(self, name) for name in _UNUSED}
        if self.best_of == self.n:
            unused.pop("best_of")
        peers.settle("SamplingParams", unused, peers.SAMPLING_WARNED, peers.SAMPLING_REFUSED)
        _require(isinstance(self.n, numbers.Integral) and self.n >= 1, "n", self.n, "it is the number of answers, at least 1")
        is_count = self.max_tokens is None or self.max_tokens >= 1
        _require(is_count, "max_tokens", self.max_tokens, "it is at least 1, or None for no limit besides the context")
        _require(self.top_k >= -1, "top_k", self.top_k, "it is at least 1, or 0 or -1 for all tokens")
        if self.logprobs is True:
            self.logprobs = 1
        is_few = self.logprobs is None or 0 <= self.logprobs <= _MOST_LOGPROBS
        _require(is_few, "logprobs", self.logprobs, f"at most {_MOST_LOGPROBS} are reported, not those of all tokens")
        is_few = self.prompt_logprobs is None or 0 <= self.prompt_logprobs <= _MOST_LOGPROBS
        _require(is_few, "prompt_logprobs", self.prompt_logprobs, f"at most {_MOST_LOGPROBS} are reported, not those of all tokens")
        budget = self.thinking_token_budget
        is_budget = budget is None or budget == -1 or budget >= 1
        _require(is_budget, "thinking_token_budget", budget, "it is at least 1, or -1 or None for no limit")
        kept = self.truncate_prompt_tokens
        _require(kept is None or kept == -1 or kept >= 1, "truncate_prompt_tokens", kept, "it is at least 1, or -1 for what fits")
        forms = [self.guided, self.structured_outputs, self.guided_decoding]
        given = len(forms) - forms.count(None)
        _require(given <= 1, "structured_outputs", self.structured_outputs, "an answer has one form: guided and guided_decoding are other names")
        self.seed = None if self.seed == -1 else self.seed

    def clone(self) -> SamplingParams:
        return copy.copy(self)

    def stops(self) -> typing.List[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def options(self, model: typing.Optional[minim.Model] = None) -> typing.Dict[str, typing.Any]:
        """Returns the arguments of minim.Engine.submit(), except n. model: makes the Constraint of structured_outputs."""
        form = self.structured_outputs if self.structured_outputs is not None else self.guided_decoding
        if form is not None and model is None:
            raise refusal("options() needs the model for structured_outputs")
        budget = self.thinking_token_budget
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
            "stop": self.stops(),
            "stop_tokens": self.stop_token_ids if self.stop_token_ids is not None else (),
            "ignore_end": int(self.ignore_eos),
            "logit_bias": peers.bias_of(self.logit_bias),
            "logprobs": None if self.logprobs is None else 1,
            "top_logprobs": self.logprobs,
            "prompt_logprobs": self.prompt_logprobs,
            "max_reasoning_tokens": None if budget == -1 else budget,
            "schema": self.guided if form is None else peers.structured(typing.cast(minim.Model, model), form),
        }
