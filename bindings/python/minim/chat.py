# SPDX-License-Identifier: Apache-2.0
"""Llama: a model for one conversation at a time, with the calls of llama-cpp-python's class that complete chats and texts, and OpenAI's
answers.

    llm = minim.Llama(model_path="model.gguf", n_ctx=8192)
    answer = llm.create_chat_completion(messages=[{"role": "user", "content": "Hello"}])
    print(answer["choices"][0]["message"]["content"])
"""

from __future__ import annotations

import os
import sys
import time
import typing
import uuid
import warnings

import minim

from . import _peers as peers
from ._abi import no_copy, refusal
from ._streams import Stream, Turns

Json = typing.Dict[str, typing.Any]

_LENGTHS = (minim.FinishReason.LENGTH, minim.FinishReason.CONTEXT_FULL)


def _schema_of(response_format: typing.Optional[Json]) -> typing.Any:
    """Returns the JSON Schema of a response_format, or None."""
    if response_format is None or response_format.get("type") == "text":
        return None
    kind = response_format.get("type")
    if kind == "json_schema":
        schema = (response_format.get("json_schema") or {}).get("schema")
        if schema is None:
            raise refusal("response_format has the type 'json_schema', but no json_schema with a schema")
        return schema
    if kind == "json_object":
        return response_format.get("schema") or {"type": "object"}
    raise refusal(f"response_format has the type {kind!r}; possible: 'text', 'json_object', 'json_schema'")


def _tool_name(tool_choice: typing.Any) -> typing.Optional[str]:
    return tool_choice["function"]["name"] if isinstance(tool_choice, dict) else None


def _with_ids(calls: typing.Iterable[Json]) -> typing.List[Json]:
    return [
        {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": dict(call)} for call in calls
    ]


def _grammar_text(grammar: typing.Any) -> typing.Optional[str]:
    """Returns the GBNF of a text or of llama-cpp-python's LlamaGrammar."""
    text = getattr(grammar, "_grammar", grammar)
    if text is not None and not isinstance(text, str):
        raise TypeError(f"grammar is a text in GBNF or a LlamaGrammar, not a {type(grammar).__name__}")
    return text


_KV_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}  # numbers of GGML types
_NUMA = {False: "off", True: "interleave"}  # and 0 and 1, which are equal to them
_SPLIT_NONE, _SPLIT_LAYER, _SPLIT_ROW = 0, 1, 2
_LOG_TO_STDERR = "info"


def _kv_type(name: str, number: typing.Any) -> str:
    if isinstance(number, str):
        return number
    if number not in _KV_TYPES:
        raise refusal(f"Llama: {name}={number!r} is refused: the KV cache has the formats {_KV_TYPES}")
    return _KV_TYPES[number]


def _write_line(level: int, line: str) -> None:
    print(line, file=sys.stderr)


def _model_options(given: Json, options: Json) -> None:
    """Puts the arguments of minim.Model in place of llama.cpp's."""
    layers, mode = given["n_gpu_layers"], given["split_mode"]
    if mode not in (_SPLIT_NONE, _SPLIT_LAYER):
        raise refusal(f"Llama: split_mode={mode!r} is refused: 1 splits the model by layers, 0 uses one GPU")
    if layers == 0 and options.get("devices") is not None:
        raise refusal("Llama: n_gpu_layers=0 is refused beside devices, which are to have layers")
    if layers:
        one = f"cuda:{given['main_gpu']}"
        options.setdefault("devices", one if mode == _SPLIT_NONE else "auto")
        options.setdefault("device_layers", None if layers < 0 else layers)
    if mode == _SPLIT_LAYER:
        peers.settle("Llama", {"main_gpu": given["main_gpu"]}, peers.LLAMA_WARNED, {}, level=5)
    if given["tensor_split"] is not None:
        options.setdefault("split", given["tensor_split"])
    if given["use_mmap"] is not None:
        options.setdefault("mmap", bool(given["use_mmap"]))
    if given["use_mlock"]:
        options.setdefault("lock", True)
    numa = given["numa"]
    if numa is not None:
        if not isinstance(numa, str) and numa not in _NUMA:
            raise refusal(f"Llama: numa={numa!r} is refused: it is True, False, 'auto', 'off', 'interleave' or 'split'")
        options["numa"] = numa if isinstance(numa, str) else _NUMA[numa]
    if given["verbose"] and options.get("log") is None:
        options.update(log=_write_line, log_level=options.get("log_level", _LOG_TO_STDERR))
    decode, prompt = given["n_threads"] or 0, given["n_threads_batch"] or 0
    options.setdefault("threads", prompt or decode)
    if prompt and decode:
        options.setdefault("threads_decode", decode)


class Llama:
    """A model with one session. Calls of several threads run one after another; minim.Engine serves many at once. A stream that is not read
    to its end is ended by the next call of the same thread; other threads get an Error of status BUSY if it is not read for 2 seconds.

    model_path  a GGUF file or a safetensors folder
    n_ctx       the maximum number of tokens of a conversation; 0: the context that the model was trained for, or what fits in memory
    n_batch, n_ubatch   rows of a prompt step: the smaller one; 0: what opening the model chose
    n_threads, n_threads_batch   threads for steps of one token, and for prompts; 0 or None: the cores that this process may use
    n_gpu_layers    the number of layers on the GPUs, the last ones of the model; below 0: all; 0 or None: none, or see `devices`
    split_mode, main_gpu, tensor_split   0: only the GPU main_gpu; 1: all GPUs, with these shares of the layers
    use_mmap, use_mlock   True or False: map the file or not; lock it in memory. None: map it if memory is short
    kv, type_k, type_v    formats of the KV cache: "f16", or numbers of GGML types
    numa        True: interleave memory over NUMA nodes; or as in minim.Model
    seed        makes the answers of the object reproducible; -1 or None: chance
    draft_model     an object with num_pred_tokens, such as LlamaPromptLookupDecoding: so many tokens are looked up in the text
    last_n_tokens_size    the tokens that penalties look at; None: all
    logits_all  has no effect: log-probabilities can always be had
    verbose     True: log lines go to stderr
    options     other arguments of minim.Model: devices, host_experts ... Parameters of llama-cpp-python's class that are not listed here
                are refused, or get a warning that they have no effect, if they ask for something.
    """

    __reduce_ex__ = no_copy

    def __init__(
        self,
        model_path: typing.Union[str, os.PathLike[str]],
        *,
        n_ctx: int = 0,
        n_batch: int = 0,
        n_ubatch: int = 0,
        n_threads: typing.Optional[int] = 0,
        n_threads_batch: typing.Optional[int] = None,
        n_gpu_layers: typing.Optional[int] = None,
        split_mode: int = _SPLIT_LAYER,
        main_gpu: int = 0,
        tensor_split: typing.Optional[typing.Sequence[float]] = None,
        use_mmap: typing.Optional[bool] = None,
        use_mlock: bool = False,
        kv: typing.Union[str, typing.Tuple[str, str]] = "f16",
        type_k: typing.Any = None,
        type_v: typing.Any = None,
        numa: typing.Union[None, bool, int, str] = None,
        seed: typing.Optional[int] = None,
        draft_model: typing.Any = None,
        last_n_tokens_size: typing.Optional[int] = None,
        logits_all: bool = False,
        verbose: typing.Optional[bool] = None,
        **options: typing.Any,
    ):
        given = dict(locals())
        own = peers.parameters_of(minim.Model)
        others = {name: options.pop(name) for name in list(options) if name not in own}
        known = own + peers.parameters_of(Llama)
        peers.settle("Llama", others, peers.LLAMA_WARNED, peers.LLAMA_REFUSED, known, level=3)
        n_drafts = getattr(draft_model, "num_pred_tokens", None)
        if draft_model is not None and n_drafts is None:
            raise refusal("Llama: draft_model is refused: only objects with num_pred_tokens are supported, for lookup in the text")
        _model_options(given, options)
        both = (kv, kv) if isinstance(kv, str) else kv
        formats = tuple(
            each if number is None else _kv_type(name, number)
            for each, name, number in zip(both, ("type_k", "type_v"), (type_k, type_v))
        )
        self._defaults = {"draft_tokens": n_drafts, "penalty_last_n": last_n_tokens_size}
        self._seeds = peers.Seeds(peers.seed_of(seed))
        self.model = minim.Model(model_path, **options)
        if n_gpu_layers and all(device.name == "cpu" for device in self.model.memory()):
            text = f"Llama: n_gpu_layers={n_gpu_layers} has no effect: no device but the CPU can be used; minim.devices() says why"
            warnings.warn(text, UserWarning, stacklevel=2)
        self.session = self.model.session(context=n_ctx, kv=formats, n_ubatch=min(n_batch or n_ubatch, n_ubatch or n_batch))
        self._turns = Turns()

    def create_chat_completion(
        self,
        messages: typing.Sequence[Json],
        *,
        tools: typing.Optional[typing.Sequence[Json]] = None,
        tool_choice: typing.Any = None,
        stream: bool = False,
        response_format: typing.Optional[Json] = None,
        max_tokens: typing.Optional[int] = None,
        temperature: float = 1.0,
        logprobs: typing.Optional[bool] = None,
        top_logprobs: typing.Optional[int] = None,
        model: typing.Optional[str] = None,
        grammar: typing.Any = None,
        **options: typing.Any,
    ) -> typing.Union[Json, typing.Iterator[Json]]:
        """Returns an answer as OpenAI's chat.completion, or with stream=True an iterator over its chunks. The message has
        "reasoning_content" beside "content". tool_choice: "auto", "none", "required" or {"type": "function", "function":
        {"name": ...}}. response_format: {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}.
        max_tokens: None, 0 or below: no limit besides the context. logprobs, top_logprobs: True, and the number of alternatives. model:
        the name in the answer. grammar: a text in GBNF that the answer must fit, or a LlamaGrammar. options: other options of Session.generate(): top_p, top_k, seed, stop, repeat_penalty ..."""
        if tool_choice not in (None, "auto", "none", "required") and not isinstance(tool_choice, dict):
            raise refusal(f"tool_choice is {tool_choice!r}")
        if top_logprobs and not logprobs:
            raise refusal(f"top_logprobs is {top_logprobs}, but logprobs is {logprobs!r}: it must be True")
        given = None if tool_choice == "none" else tools
        schema = _schema_of(response_format)
        chosen = self._sampling("create_chat_completion()", options, max_tokens, temperature)
        if logprobs:
            chosen.update(logprobs=1, top_logprobs=top_logprobs or 0)
        prompt = self.model.tokenize_chat(messages, tools=given)
        thought = self._thought(prompt)
        chosen["schema"] = self._constraint(given, tool_choice, schema, _grammar_text(grammar), thought)
        chunks = self._chunks(prompt, given, "starts_after" in thought, chosen, model or self.model.info.name)
        return Stream(self._turns, chunks) if stream else self._joined(self._turns.whole(chunks))

    def create_completion(
        self,
        prompt: typing.Any,
        *,
        max_tokens: typing.Optional[int] = 16,
        temperature: float = 1.0,
        logprobs: typing.Optional[int] = None,
        echo: bool = False,
        stream: bool = False,
        model: typing.Optional[str] = None,
        grammar: typing.Any = None,
        **options: typing.Any,
    ) -> typing.Union[Json, typing.Iterator[Json]]:
        """Continues a text, in which control tokens are recognised, or token ids. Returns OpenAI's text_completion, or with stream=True an
        iterator over its chunks. max_tokens: None, 0 or below: no limit besides the context. logprobs: the number of alternatives. echo:
        the text begins with the prompt. grammar, options: as in create_chat_completion()."""
        chosen = self._sampling("create_completion()", options, max_tokens, temperature)
        if logprobs is not None:
            if echo:
                raise refusal("create_completion(): echo=True is refused beside logprobs: those of prompts are not reported")
            chosen.update(logprobs=1, top_logprobs=int(logprobs))
        if grammar is not None:
            chosen["schema"] = self.model.constraint(grammar=_grammar_text(grammar))
        is_text = isinstance(prompt, (str, bytes, bytearray))
        ids = self.model.tokenize(prompt, True) if is_text else [int(id) for id in minim._ids_of(prompt)]
        shown = (self.model.detokenize(ids) if not isinstance(prompt, str) else prompt) if echo else ""
        chunks = self._text_chunks(ids, shown, chosen, model or self.model.info.name)
        return Stream(self._turns, chunks) if stream else self._joined_text(self._turns.whole(chunks))

    def __call__(self, prompt: typing.Any, **options: typing.Any) -> typing.Union[Json, typing.Iterator[Json]]:
        """As create_completion()."""
        return self.create_completion(prompt, **options)

    def tokenize(self, text: typing.Union[str, bytes], add_bos: bool = True, special: bool = False) -> typing.List[int]:
        """Returns token ids. special: recognise control tokens. The model has no token for the beginning of a text: add_bos adds none."""
        return [int(id) for id in self.model.tokenize(text, bool(special))]

    def detokenize(self, tokens: typing.Sequence[int]) -> bytes:
        return b"".join(self.model.token_text(id) for id in tokens)

    def n_ctx(self) -> int:
        return typing.cast(int, self.session.context_size)

    def n_vocab(self) -> int:
        return typing.cast(int, self.model.n_vocab)

    def set_seed(self, seed: typing.Optional[int]) -> None:
        self._seeds = peers.Seeds(peers.seed_of(seed))

    def reset(self) -> None:
        """Forgets the conversation."""
        self._turns.take(None)
        try:
            self.session.truncate(0)
        finally:
            self._turns.leave(True)

    def close(self) -> None:
        self.session.close()
        self.model.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _sampling(self, owner: str, options: Json, max_tokens: typing.Optional[int], temperature: float) -> Json:
        """Returns options of Session.generate() for those of llama-cpp-python."""
        options = dict(options)
        if "repeat_penalty" in options:
            options["repetition_penalty"] = options.pop("repeat_penalty")
        own = [*minim.sampling_options(), "stop", "stop_tokens", "cancel", "dry_breakers", "logit_bias", "schema", "repeat_penalty"]
        others = {name: options.pop(name) for name in list(options) if name not in own}
        peers.settle(owner, others, peers.ASKING_WARNED, peers.ASKING_REFUSED, own, level=4)
        if options.get("schema") is not None:
            raise refusal(f"{owner}: schema is refused: response_format={{'type': 'json_schema', ...}} has its place")
        chosen = {**self._defaults, **options}
        if chosen.get("stop") == "":  # as in llama-cpp-python
            del chosen["stop"]
        chosen.update(max_tokens=max(0, max_tokens or 0), temperature=temperature)
        if chosen.get("top_k") is not None:
            chosen["top_k"] = max(0, chosen["top_k"])
        chosen["logit_bias"] = peers.bias_of(chosen.get("logit_bias"))
        chosen["seed"] = peers.seed_of(chosen.get("seed"))
        if chosen["seed"] is None:
            chosen["seed"] = self._seeds.next()
        return chosen

    def _thought(self, prompt: typing.Any) -> Json:
        """Returns the arguments by which a constraint leaves room for the reasoning that a prompt opens, or leaves to the model."""
        if self.model.chat_opens_thinking(prompt):
            return {"starts_after": self.model.chat_markup.think_end}
        return {"may_reason": self.model.chat_may_reason(prompt)}

    def _constraint(
        self, tools: typing.Any, tool_choice: typing.Any, schema: typing.Any, grammar: typing.Any, thought: Json
    ) -> typing.Optional[minim.Constraint]:
        must_call = tool_choice == "required" or isinstance(tool_choice, dict)
        if must_call and not tools:
            raise refusal(f"tool_choice is {tool_choice!r}, but there are no tools")
        if grammar is not None and (must_call or schema is not None):
            raise refusal("grammar is refused beside response_format or a tool that must be called: an answer has one form")
        if must_call and schema is not None:
            raise refusal(f"response_format is refused beside tool_choice={tool_choice!r}: an answer that must be a call has its form")
        if must_call:
            return self.model.constraint(tools=tools, tool=_tool_name(tool_choice), **thought)
        if grammar is not None:
            return self.model.constraint(grammar=grammar, **thought)
        return None if schema is None else self.model.constraint(schema, **thought)

    def _generated(self, prompt: typing.Sequence[int], options: Json) -> typing.Iterator[minim.Token]:
        """Evaluates what the session does not have of the prompt, and iterates over the answer."""
        self.session.truncate(self._common(prompt))
        return self.session.generate(prompt[len(self.session) :], **options)

    def _usage(self, prompt: typing.Sequence[int]) -> Json:
        generated = self.session.result.n_generated
        counts = {"prompt_tokens": len(prompt), "completion_tokens": generated}
        return {**counts, "total_tokens": len(prompt) + generated}

    def _chunks(
        self, prompt: typing.Any, tools: typing.Any, opened: bool, options: Json, name: str
    ) -> typing.Generator[Json, None, None]:
        frame = _frame("chatcmpl", "chat.completion.chunk", name)
        scores: typing.List[Json] = []  # of tokens whose text is in no chunk yet

        def chunk(delta: Json, finish: typing.Optional[str] = None, **more: typing.Any) -> Json:
            choice: Json = {"index": 0, "delta": delta, "finish_reason": finish}
            if options.get("logprobs"):
                choice["logprobs"] = {"content": list(scores)}
                scores.clear()
            return {**frame, "choices": [choice], **more}

        with self.model.output_parser(tools, starts_in_reasoning=opened) as parser:
            yield chunk({"role": "assistant"})
            for token in self._generated(prompt, options):
                if options.get("logprobs"):
                    scores.append(self._score(token))
                yield from map(chunk, self._deltas(parser.feed(token.text)))
            cut = self.session.finish_reason in _LENGTHS
            yield from map(chunk, self._deltas(parser.finish("length" if cut else "stop")))
            yield chunk({}, parser.finish_reason, usage=self._usage(prompt))

    def _text_chunks(
        self, prompt: typing.Any, shown: str, options: Json, name: str
    ) -> typing.Generator[Json, None, None]:
        frame = _frame("cmpl", "text_completion", name)
        offset = 0

        def chunk(text: str, scores: typing.Optional[Json], finish: typing.Optional[str] = None) -> Json:
            return {**frame, "choices": [{"text": text, "index": 0, "logprobs": scores, "finish_reason": finish}]}

        if shown:
            yield chunk(shown, None)
        for token in self._generated(prompt, options):
            scores = self._text_score(token, offset) if options.get("logprobs") else None
            offset += len(token.text)
            if token.text or scores:
                yield chunk(token.text, scores)
        cut = self.session.finish_reason in _LENGTHS
        yield {**chunk("", None, "length" if cut else "stop"), "usage": self._usage(prompt)}

    def _score(self, token: minim.Token) -> Json:
        """An entry of OpenAI's logprobs of a chat."""

        def entry(id: int, logprob: float) -> Json:
            data = self.model.token_text(id)
            return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}

        top = [entry(id, logprob) for id, logprob in token.top_logprobs]
        return {**entry(token.id, token.logprob), "top_logprobs": top}

    def _text_score(self, token: minim.Token, offset: int) -> Json:
        """An entry of OpenAI's logprobs of a completed text."""
        whole = self._score(token)
        top = {entry["token"]: entry["logprob"] for entry in [*whole["top_logprobs"], whole]}
        scores: Json = {"tokens": [whole["token"]], "token_logprobs": [whole["logprob"]]}
        return {**scores, "top_logprobs": [top], "text_offset": [offset]}

    def _common(self, prompt: typing.Sequence[int]) -> int:
        """Returns how many tokens of the prompt the session has already; the last one is evaluated again, for its logits."""
        known = self.session.tokens
        count = 0
        for mine, wanted in zip(known, prompt[:-1]):
            if mine != wanted:
                break
            count += 1
        return count

    @staticmethod
    def _deltas(deltas: typing.Iterable[Json]) -> typing.Iterator[Json]:
        for delta in deltas:
            call = delta.get("tool_call")
            if call is None:
                yield delta
                continue
            function = {key: call[key] for key in ("name", "arguments") if key in call}
            whole = {"index": call["index"], "function": function}
            if "name" in call:
                whole.update(id=f"call_{uuid.uuid4().hex[:24]}", type="function")
            yield {"tool_calls": [whole]}

    @staticmethod
    def _joined(chunks: typing.Iterable[Json]) -> Json:
        message: Json = {"role": "assistant", "content": None}
        calls: typing.List[Json] = []
        scores: typing.Optional[typing.List[Json]] = None
        last: Json = {}
        for last in chunks:
            choice = last["choices"][0]
            delta = choice["delta"]
            if "logprobs" in choice:
                scores = (scores or []) + choice["logprobs"]["content"]
            for key in ("content", "reasoning_content"):
                if key in delta:
                    message[key] = (message.get(key) or "") + delta[key]
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    calls.append({"name": "", "arguments": ""})
                for key, text in call["function"].items():
                    calls[call["index"]][key] += text
        if calls:
            message["tool_calls"] = _with_ids(calls)
        whole: Json = {"index": 0, "message": message, "finish_reason": last["choices"][0]["finish_reason"]}
        if scores is not None:
            whole["logprobs"] = {"content": scores}
        frame = {key: last[key] for key in ("id", "created", "model", "usage")}
        return {**frame, "object": "chat.completion", "choices": [whole]}

    @staticmethod
    def _joined_text(chunks: typing.Sequence[Json]) -> Json:
        choices = [chunk["choices"][0] for chunk in chunks]
        scores: typing.Optional[Json] = None
        for choice in choices:
            if choice["logprobs"] is not None:
                scores = choice["logprobs"] if scores is None else {key: scores[key] + choice["logprobs"][key] for key in scores}
        text = "".join(choice["text"] for choice in choices)
        whole = {"text": text, "index": 0, "logprobs": scores, "finish_reason": choices[-1]["finish_reason"]}
        return {**chunks[-1], "choices": [whole]}


def _frame(prefix: str, kind: str, name: str) -> Json:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": name}
