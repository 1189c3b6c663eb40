"""Writes template_cases.json: what jinja2, under the settings of transformers, makes of the conversations below with the
templates in templates/, minim_tiny.jinja, and altered forms of that one. Needs python3-jinja2. With --check it compares
the file with what it would write; exit code 77: no jinja2."""

import copy
import json
import pathlib
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: python3-jinja2 is missing")
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parent

# Altered forms of minim_tiny.jinja: what releases and users change in templates of the family.
ALTERED = {
    "no_think_prompt": [("]~b]ai\\n<think>\\n' }}{%- endif -%}", "]~b]ai\\n' }}{%- endif -%}")],
    "later_system": [
        ("{%- if turn.role == 'user' -%}\n{{ ']~b]user", "{%- if turn.role == 'system' -%}{{ ']~b]system\\n' ~ turn.content ~ END ~ '\\n' }}{%- elif turn.role == 'user' -%}\n{{ ']~b]user")
    ],
    "null_is_empty": [("{%- if body is string -%}{{ body }}", "{%- if body is none -%}{%- elif body is string -%}{{ body }}")],
    "other_introduction": [("# Tools\\nYou may call one or more tools to assist with the user query.", "# Functions\\nCall what you need.")],
    "response_newlines": [("'\\n<response>' ~ turn.content ~ '</response>'", "'\\n<response>\\n' ~ turn.content ~ '\\n</response>'")],
    "further_variable": [("{{ END ~ '\\n' }}\n\n{%- set state", "{{ '\\nMode: ' ~ (mode | default('plain')) }}{{ END ~ '\\n' }}\n\n{%- set state")],
    "thinking_switch": [
        ("{{ ']~b]ai\\n<think>\\n' }}{%- endif -%}", "{{ ']~b]ai\\n<think>\\n' }}{%- if enable_thinking is defined and not enable_thinking -%}{{ '\\n</think>\\n\\n' }}{%- endif -%}{%- endif -%}")
    ],
    "all_thoughts": [(" and loop.index0 > state.asked", "")],
    "no_thoughts": [("{%- if thought and loop.index0 > state.asked -%}", "{%- if false -%}")],
    "identity": [("You are a helpful assistant.", "Your name is MiniMax-M2.5.")],
    "tool_is_whole": [("(tool.function | tojson(ensure_ascii=False))", "(tool | tojson)")],
    "tool_indented": [("tool.function | tojson(ensure_ascii=False)", "tool.function | tojson(indent=4)")],
    "tool_ascii": [("tool.function | tojson(ensure_ascii=False)", "tool.function | tojson(ensure_ascii=True)")],
    "arguments_as_json": [("{%- for key, value in call.arguments.items() -%}", "{{ call.arguments | tojson }}{%- for key, value in call.arguments | dictsort -%}")],
    "strip_content": [("~ plain(turn.content) ~", "~ plain(turn.content) | trim ~")],
    "other_marks": [("[e~[", "<end>"), ("]~b]ai", "<ai>")],
    "numbered": [("{{ ']~b]user\\n'", "{{ ']~b]user ' ~ loop.index ~ '/' ~ loop.length ~ '\\n'")],
    "no_trim": [("-%}\n{%- if turn.role == 'user' -%}\n", "%}\n{% if turn.role == 'user' %}\n")],
    "blocks_with_lines": [("{%- endmacro -%}", "{% endmacro %}")],
    "strict_roles": [("{%- endif -%}\n{%- endfor -%}\n\n{%- if add_generation_prompt", "{%- else -%}{{ raise_exception('Unexpected role ' ~ turn.role) }}{%- endif -%}\n{%- endfor -%}\n\n{%- if add_generation_prompt")],
    "only_last_two": [("{%- set turns = messages -%}", "{%- set turns = messages[-2:] -%}"), ("turns = messages[1:]", "turns = messages[1:][-2:]")],
    "identity_first": [("{%- if head and head.content -%}{{ plain(head.content) }}\n{%- else -%}{{ model_identity", "{{ model_identity | default('I am.') ~ '\\n' }}{%- if head and head.content -%}{{ plain(head.content) }}\n{%- else -%}{{ model_identity")],
    "bos": [("{{ ']~!b[]~b]system\\n' }}", "{{ (bos_token | default('')) ~ ']~!b[]~b]system\\n' }}")],
    "refuses": [("{%- set turns = messages -%}", "{%- set turns = messages | batch(2) -%}")],
    "fails": [("{%- set turns = messages -%}", "{%- set turns = messages -%}{{ messages.nothing.more }}")],
    "dates_of_variables": [("{%- if head and head.current_date -%}", "{%- if date_string is defined -%}{{ '\\nToday: ' ~ date_string }}{%- endif -%}{%- if head and head.current_date -%}")],
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather in a city, in °C.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "e.g. \"Zürich\" <or> Bern"}, "days": {"type": "integer", "default": 1}, "unit": {"enum": ["C", "F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "list_all", "parameters": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}, "range": {"type": "object", "properties": {"low": {"type": "number"}, "high": {"type": ["number", "null"]}}}}}}},
]


def user(content):
    return {"role": "user", "content": content}


def answer(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, id="call_1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = [
    {"messages": [user("Hello!")]},
    {"messages": [{"role": "system", "content": "Be brief.", "current_date": "2025-11-02", "current_location": "Bern"}, user("2+2?"), answer("4"), user("3+3?")]},
    {"messages": [], "tools": TOOLS},
    {"messages": [user("Weather?"), answer("", reasoning_content="Ask the tool.", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "exact": True, "none": None, "list": [1, "é", {"k": 1.5}]})]), {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}], "tools": TOOLS},
    {"messages": [user("Both"), answer("I look.", tool_calls=[call("get_weather", {"city": "Rome"}, "a"), call("list_all", {}, "b")]), {"role": "tool", "tool_call_id": "a", "content": "rain"}, {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "one"}, {"output": 5}, "plain", {"x": [1.0, None]}]}, answer("Rain.", reasoning_content="done"), user("Thanks")], "tools": TOOLS},
    {"messages": [user("  spaces \n\n"), answer("<think>\nold thought\n</think>\n\nAn answer.\n"), user("And [e~[ ]~b]ai <|im_end|> </think>?"), answer("<think>new</think>Yes.")], "kwargs": {"model_identity": "I am \"me\"."}},
    {"messages": [user([{"type": "text", "text": "part one, "}, {"type": "text", "text": "part two"}, "three"]), answer(None)]},
    {"messages": [{"role": "system", "content": "S1"}, user("q"), {"role": "system", "content": "S2 later"}, answer("a")], "kwargs": {"mode": "fast", "enable_thinking": False, "date_string": "26 Jul 2024"}},
    {"messages": [user("日本語 🤔 ça"), answer("はい 👍🏽", reasoning_content="考え"), user("¿más?")], "kwargs": {"enable_thinking": True, "bos_token": "<s>"}},
    {"messages": [{"role": "tool", "content": "orphan"}]},
    {"messages": [user("x"), {"role": "critic", "content": "unknown role"}]},
    {"messages": [answer("First."), user("line one\r\nline two\ttab 'quote' \"double\" \\ back"), answer(None, tool_calls=[call("list_all", {"tags": ["a'b", 'c"d'], "range": {"low": -0.5, "high": 1e21}})]), {"role": "tool", "tool_call_id": "call_1", "content": "[]"}], "tools": TOOLS[1:]},
]


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    return made


def rendered(source, conversation):
    conversation = copy.deepcopy(conversation)
    variables = {"add_generation_prompt": True, "documents": None, **conversation.get("kwargs", {})}
    try:
        template = environment().from_string(source)
        return {"text": template.render(messages=conversation["messages"], tools=conversation.get("tools"), **variables)}
    except Exception as error:  # the template's own, or a type error within it
        return {"error": str(error)}


def templates():
    tiny = (FOLDER / "minim_tiny.jinja").read_text()
    yield "minim_tiny", tiny
    for name, edits in ALTERED.items():
        source = tiny
        for old, new in edits:
            assert old in source, (name, old)
            source = source.replace(old, new)
        yield name, source
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        yield path.stem, path.read_text()


def main():
    cases = [
        {"name": name, "template": source, "results": [rendered(source, one) for one in CONVERSATIONS]}
        for name, source in templates()
    ]
    document = {"conversations": CONVERSATIONS, "templates": cases}
    path = FOLDER / "template_cases.json"
    if sys.argv[1:] == ["--check"]:
        committed = json.loads(path.read_text())
        for old, new in zip(committed["templates"], cases, strict=True):
            for index, (was, now) in enumerate(zip(old["results"], new["results"], strict=True)):
                # The words of an error are Python's and Jinja's own, which change.
                if was.get("text") != now.get("text"):
                    sys.exit(f"{new['name']}, conversation {index}: {was} was {now}")
        return
    path.write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
