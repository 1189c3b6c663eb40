# SPDX-License-Identifier: Apache-2.0
"""Llama: a model for one conversation at a time, with the interface of llama-cpp-python's class and OpenAI's answers.

    llm = minim.Llama(model_path="model.gguf", n_ctx=8192)
    answer = llm.create_chat_completion(messages=[{"role": "user", "content": "Hello"}])
    print(answer["choices"][0]["message"]["content"])
"""

from __future__ import annotations

import threading
import time
import typing
import uuid

import minim

from ._abi import no_copy

Json = typing.Dict[str, typing.Any]

_THINK_END = "</think>"


def _schema_of(response_format: typing.Optional[Json]) -> typing.Any:
    """Returns the JSON Schema of a response_format, or None."""
    if response_format is None or response_format.get("type") == "text":
        return None
    kind = response_format.get("type")
    if kind == "json_schema":
        return response_format["json_schema"]["schema"]
    if kind == "json_object":
        return response_format.get("schema", {"type": "object"})
    raise ValueError(f"response_format has the type {kind!r}; possible: 'text', 'json_object', 'json_schema'")


def _tool_name(tool_choice: typing.Any) -> typing.Optional[str]:
    return tool_choice["function"]["name"] if isinstance(tool_choice, dict) else None


def _with_ids(calls: typing.Iterable[Json]) -> typing.List[Json]:
    return [
        {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": dict(call)} for call in calls
    ]


class Llama:
    """A model with one session. Calls of several threads run one after another; minim.Engine serves many at once.

    model_path  a GGUF file or a safetensors folder
    n_ctx       the most tokens of a conversation; 0: the context that the model was trained for, or what fits in memory
    n_threads   0: the cores that this process may use
    options     other arguments of minim.Model: devices, host_experts, threads_decode ...
    """

    __reduce_ex__ = no_copy

    def __init__(
        self, model_path: str, *, n_ctx: int = 0, n_threads: int = 0, kv: str = "f16", **options: typing.Any
    ):
        self.model = minim.Model(model_path, threads=n_threads, **options)
        self.session = self.model.session(context=n_ctx, kv=kv)
        self._lock = threading.Lock()

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
        **options: typing.Any,
    ) -> typing.Union[Json, typing.Iterator[Json]]:
        """Returns an answer as OpenAI's chat.completion, or with stream=True an iterator over its chunks. The message has
        "reasoning_content" beside "content". tool_choice: "auto", "none", "required" or {"type": "function", "function":
        {"name": ...}}. response_format: {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}.
        options: other options of Session.generate(): top_p, top_k, seed, stop ..."""
        if tool_choice not in (None, "auto", "none", "required") and not isinstance(tool_choice, dict):
            raise ValueError(f"tool_choice is {tool_choice!r}")
        given = None if tool_choice == "none" else tools
        opened = self._opens_thought(messages, given)
        constraint = self._constraint(given, tool_choice, _schema_of(response_format), opened)
        options.update(schema=constraint, max_tokens=max_tokens or 0, temperature=temperature)
        chunks = self._chunks(self.model.tokenize_chat(messages, tools=given), given, opened, options)
        return chunks if stream else self._joined(chunks)

    def close(self) -> None:
        self.session.close()
        self.model.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _opens_thought(self, messages: typing.Any, tools: typing.Any) -> bool:
        return self.model.render_chat(messages, tools=tools).rstrip().endswith("<think>")

    def _constraint(
        self, tools: typing.Any, tool_choice: typing.Any, schema: typing.Any, opened: bool
    ) -> typing.Optional[minim.Constraint]:
        after = _THINK_END if opened else None
        if tools and (tool_choice == "required" or isinstance(tool_choice, dict)):
            return self.model.constraint(tools=tools, tool=_tool_name(tool_choice), starts_after=after)
        return None if schema is None else self.model.constraint(schema, starts_after=after)

    def _chunks(self, prompt: typing.Any, tools: typing.Any, opened: bool, options: Json) -> typing.Iterator[Json]:
        frame = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self.model.info.name,
        }

        def chunk(delta: Json, finish: typing.Optional[str] = None, **more: typing.Any) -> Json:
            return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}

        with self._lock, self.model.output_parser(tools, starts_in_reasoning=opened) as parser:
            self.session.truncate(self._common(prompt))
            rest = prompt[len(self.session) :]
            yield chunk({"role": "assistant"})
            for token in self.session.generate(rest, **options):
                yield from map(chunk, self._deltas(parser.feed(token.text)))
            cut = self.session.finish_reason in (minim.FinishReason.LENGTH, minim.FinishReason.CONTEXT_FULL)
            yield from map(chunk, self._deltas(parser.finish("length" if cut else "stop")))
            generated = self.session.result.n_generated
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": generated,
                "total_tokens": len(prompt) + generated,
            }
            yield chunk({}, parser.finish_reason, usage=usage)

    def _common(self, prompt: typing.Sequence[int]) -> int:
        """Returns how many tokens of the prompt the session has already; the last one is evaluated again, for its logits."""
        held = self.session.tokens
        count = 0
        for mine, wanted in zip(held, prompt[:-1]):
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
    def _joined(chunks: typing.Iterator[Json]) -> Json:
        message: Json = {"role": "assistant", "content": None}
        calls: typing.List[Json] = []
        last: Json = {}
        for last in chunks:
            delta = last["choices"][0]["delta"]
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
        finish = last["choices"][0]["finish_reason"]
        return {
            **{key: last[key] for key in ("id", "created", "model", "usage")},
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
