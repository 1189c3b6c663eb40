# SPDX-License-Identifier: Apache-2.0
import json
import random
import unittest

from support import minim, model, prompt

try:
    import jsonschema
except ImportError:
    jsonschema = None

CAPITAL = "chat_capital"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "size": {"type": "integer", "minimum": 1, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["old", "new"]}, "maxItems": 2},
    },
    "required": ["city", "size", "tags"],
}


def random_scalar(dice):
    return dice.choice(
        [
            {"type": "integer", "minimum": dice.randint(-50, 5), "maximum": dice.randint(6, 300)},
            {"type": "number", "exclusiveMinimum": round(dice.uniform(-3, 0), 2), "maximum": dice.randint(0, 12)},
            {"type": "string", "minLength": dice.randint(0, 2), "maxLength": dice.randint(2, 8)},
            {"pattern": dice.choice(["^[a-c]{1,4}$", r"^\d{1,3}-x?$", "^(foo|ba[rz])$", "^[^\"]?$", "^x|y$"]), "type": "string"},
            {"enum": dice.sample(["a", 'b"c', 1, 2.5, None, True, [1], {"k": 1}], 3)},
            {"type": dice.choice([["integer", "null"], ["number", "boolean"], "boolean", "null"])},
            {"type": "string", "format": dice.choice(["date", "ipv4", "uuid", "date-time"])},
            {"type": "string", "pattern": dice.choice(["^(?!ab)[a-d]+$", r"\bx\b", "^(?=.*1).{1,5}$"]), "maxLength": 6, "minLength": 1},
            {"type": "integer", "multipleOf": dice.choice([2, 7, 25]), "minimum": 0, "maximum": 500},
            {"type": ["integer", "string"], "not": {"enum": dice.sample(["a", "", 1, 2, 10], 3)}, "maxLength": 3, "minimum": 0, "maximum": 12},
            {"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": dice.randint(3, 9)}], "minimum": -9, "maximum": 20},
        ]
    )


def random_schema(dice, depth):
    if depth == 0:
        return random_scalar(dice)

    def inner():
        return random_schema(dice, depth - 1)

    names = dice.sample(["a", "ab", "abc", "b", 'é"'], dice.randint(1, 4))
    return dice.choice(
        [
            lambda: {
                "type": "object",
                "properties": {name: inner() for name in names},
                "required": dice.sample(names, dice.randint(0, len(names))),
                "additionalProperties": dice.choice([False, random_scalar(dice)]),
            },
            lambda: {"type": "array", "items": inner(), "minItems": dice.randint(0, 2), "maxItems": dice.randint(2, 4)},
            lambda: {"type": "array", "prefixItems": [inner(), inner()], "minItems": dice.randint(0, 2), "items": False},
            lambda: {"anyOf": [inner(), inner()]},
            lambda: {
                "type": "object",
                "properties": {name: random_scalar(dice) for name in "abc"},
                "dependentRequired": {"a": ["c"]},
                "if": {"required": ["b"]},
                "then": {"properties": {"a": False}},
                "else": {"required": ["a"]},
                "unevaluatedProperties": False,
            },
            lambda: {
                "type": "object",
                "properties": {name: random_scalar(dice) for name in "abcd"},
                "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 3,
            },
            lambda: {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 99},
                "contains": {"multipleOf": 5},
                "minContains": dice.randint(0, 2),
                "maxContains": 2,
                "maxItems": 4,
            },
            lambda: {"type": "array", "items": {"enum": ["a", 1, None]}, "uniqueItems": True, "minItems": dice.randint(0, 3)},
            lambda: {
                "allOf": [
                    {"type": "object", "properties": {name: random_scalar(dice) for name in "abc"}},
                    {"properties": {name: random_scalar(dice) for name in "de"}, "required": ["d", "b"]},
                ]
            },
            lambda: {
                "type": "object",
                "additionalProperties": inner(),
                "propertyNames": {"pattern": r"^k\d$"},
                "minProperties": dice.randint(0, 1),
                "maxProperties": dice.randint(1, 3),
            },
        ]
    )()


def text_of(tokens):
    return "".join(token.text for token in tokens)


class Constraints(unittest.TestCase):
    def check(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["city", "size", "tags"])
        self.assertIsInstance(value["city"], str)
        self.assertTrue(1 <= value["size"] <= 999)
        self.assertTrue(set(value["tags"]) <= {"old", "new"})

    def test_answers_fit_a_schema(self):
        with model().constraint(SCHEMA) as constraint:
            for seed in range(8):
                with model().session(context=512) as session:
                    options = dict(temperature=1.5, seed=seed, schema=constraint)
                    self.check(text_of(session.generate(prompt(CAPITAL)["ids"], **options)))
                    self.assertEqual(session.finish_reason, "end")

    @unittest.skipIf(jsonschema is None, "jsonschema is not installed")
    def test_another_program_finds_the_answers_to_fit_their_schemas(self):
        n_checked = 0
        for seed in range(150):
            schema = random_schema(random.Random(seed), seed % 4)
            with model().constraint(schema) as form, model().session(context=256) as session:
                options = dict(schema=form, temperature=3.0 if seed % 2 else 0.8, seed=seed, max_tokens=200)
                text = text_of(session.generate("x", **options))
                if session.finish_reason != "end":
                    continue
            with self.subTest(seed=seed, schema=schema, text=text):
                judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
                judge.validate(json.loads(text))
                n_checked += 1
        self.assertGreater(n_checked, 100)

    def test_a_schema_can_be_given_as_it_is(self):
        with model().session(context=512) as session:
            text = text_of(session.generate(prompt(CAPITAL)["ids"], schema={"type": "boolean"}))
        self.assertIn(text, ("true", "false"))

    def test_requests_of_an_engine(self):
        with minim.Engine(model(), kv_tokens=4096) as engine:
            ids = prompt(CAPITAL)["ids"]
            with model().constraint(SCHEMA) as constraint:
                requests = [
                    engine.submit(ids, temperature=1.2, seed=seed, schema=constraint if seed % 2 else SCHEMA)
                    for seed in range(6)
                ]
            for request in requests:  # the constraint is closed already
                answer = request.result()
                self.check(answer.text)
                self.assertEqual(answer.finish_reason, "end")

    def test_expressions_and_choices(self):
        with model().session(context=512) as session:
            regex = model().constraint(regex=r"[a-f]{4}-\d\d")
            text = text_of(session.generate(prompt(CAPITAL)["ids"], schema=regex, temperature=1.0, seed=1))
            self.assertRegex(text, r"\A[a-f]{4}-\d\d\Z")
            grammar = model().constraint(grammar='root ::= "(" root ")" | [a-f]{3} | "é" root')
            text = text_of(session.generate(prompt(CAPITAL)["ids"], schema=grammar, temperature=1.5, seed=1, max_tokens=60))
            self.assertTrue(grammar.matches(text) or len(text) >= 60, text)
            self.assertTrue(grammar.matches("((é(abc)))") and not grammar.matches("((abc)"))
            choices = model().constraint(choices=["Paris", "Lima", "é"])
            text = text_of(session.generate(prompt(CAPITAL)["ids"], schema=choices))
            self.assertIn(text, ("Paris", "Lima", "é"))

    def test_tools_are_called_after_free_reasoning(self):
        parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}
        tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
        call = model().constraint(tools=tools, tool="weather", single=True, starts_after="</think>")
        golden = prompt(CAPITAL)
        self.assertTrue(golden["text"].endswith("<think>\n"))
        with model().session(context=512) as session:
            text = text_of(session.generate(golden["ids"], schema=call))
        reasoning, rest = text.split("</think>")
        self.assertEqual(reasoning, golden["greedy_text"].split("</think>")[0])
        self.assertRegex(
            rest,
            r'\A\n{0,3}<minimax:tool_call>\n<invoke name="weather">\n'
            r'<parameter name="city">[^<]{0,9}</parameter>\n</invoke>\n</minimax:tool_call>\Z',
        )

    def test_reasoning_may_come_first(self):
        constraint = model().constraint(choices=["yes", "no"], may_reason=True)
        for text in ("yes", "</think>no", "<think>hm</think>yes"):
            self.assertTrue(constraint.matches(text), text)
        for text in ("hm</think>yes", "<think>yes", "yes</think>"):
            self.assertFalse(constraint.matches(text), text)
        end = model().tokenize("]~b]user\nWell?[e~[\n]~b]ai\n")
        with model().session(context=64) as session:
            text = text_of(session.generate(end, schema=constraint, max_tokens=40, max_reasoning_tokens=5))
            self.assertTrue(constraint.matches(text), text)

    def test_what_is_wrong_is_named(self):
        for arguments, part in (
            (dict(schema={"properties": {"a": {"type": "text"}}}), "schema/properties/a: 'type'"),
            (dict(schema={"not": {"propertyNames": {"maxLength": 1}}}), "schema/not: 'propertyNames'"),
            (dict(regex="a("), "'a('"),
            (dict(grammar="root ::= a\na ::= b"), "grammar, line 2: rule 'a': rule 'b' is not defined"),
            (dict(choices=[]), "no choices"),
            (dict(tools=[{"name": "a"}], tool="b"), "no tool 'b'"),
            (dict(regex="a", starts_after="think"), "'think'"),
            (dict(regex="a", starts_after="</think>", may_reason=True), "one of them decides"),
            (dict(tools=[{"name": "a"}], optional=True, may_reason=True), "no use if calls are optional"),
        ):
            with self.subTest(arguments), self.assertRaises(minim.Error) as caught:
                model().constraint(**arguments)
            self.assertIn(part, str(caught.exception))
        for arguments in ({}, dict(schema={}, regex="a"), dict(grammar="root ::= \"a\"", regex="a")):
            with self.assertRaises(TypeError):
                model().constraint(**arguments)


class OptionalCalls(unittest.TestCase):
    """Optional tool calls: the answer may be text, and a call that is opened fits the tools."""

    TOOLS = [
        {"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "required": ["city", "days"],
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 4}}}}}
    ]

    def answer(self, question, **options):
        ids = model().tokenize_chat([{"role": "user", "content": question}], tools=self.TOOLS)
        with model().session(context=2048) as session:
            tokens = list(session.generate(ids, max_tokens=300, **options))
            ids = [token.id for token in tokens]
            return model().detokenize(ids, skip_special=False), session.finish_reason

    def test_calls_fit_the_tools_and_end_the_answer(self):
        question = "What is the weather in Paris?"
        free, _ = self.answer(question)
        self.assertIn("Paris</parameter>", free)
        constraint = model().constraint(tools=self.TOOLS, starts_after="</think>", optional=True)
        text, finish = self.answer(question, schema=constraint)
        self.assertEqual(text.split("<minimax:tool_call>")[0], free.split("<minimax:tool_call>")[0])
        self.assertEqual(finish, minim.FinishReason.END)
        parsed = model().parse_output(text, tools=self.TOOLS)
        self.assertEqual(parsed["finish_reason"], "tool_calls")
        (call,) = parsed["tool_calls"]
        arguments = json.loads(call["arguments"])
        self.assertIn(arguments["city"], ["Oslo", "Rome"])
        self.assertGreaterEqual(arguments["days"], 4)
        self.assertTrue(constraint.matches(text))
        self.assertFalse(constraint.matches(free))

    def test_an_answer_without_a_call_is_free(self):
        question = "What is the capital of France?"
        constraint = model().constraint(tools=self.TOOLS, starts_after="</think>", optional=True)
        self.assertEqual(self.answer(question, schema=constraint), self.answer(question))

    def test_a_keyword_that_cannot_be_enforced_is_left_out_if_asked_for(self):
        tools = [*self.TOOLS, {"name": "tag", "parameters": {"properties": {"names": {"type": "array", "uniqueItems": True}}}}]
        with self.assertRaisesRegex(minim.Error, "uniqueItems"):
            model().constraint(tools=tools)
        constraint = model().constraint(tools=tools, relax=True)
        call = '<minimax:tool_call>\n<invoke name="tag">\n<parameter name="names">[1, 1]</parameter>\n</invoke>\n</minimax:tool_call>'
        self.assertTrue(constraint.matches(call))
        self.assertFalse(constraint.matches(call.replace("[1, 1]", "1")))

    def test_the_options_are_for_tools_alone(self):
        for option in ({"optional": True}, {"relax": True}):
            with self.subTest(option), self.assertRaisesRegex(minim.Error, "from tools alone"):
                model().constraint(regex="a", **option)


if __name__ == "__main__":
    unittest.main()
