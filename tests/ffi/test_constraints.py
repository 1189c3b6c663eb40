import json
import unittest

from support import minim, model, prompt

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

    def test_what_is_wrong_is_named(self):
        for arguments, part in (
            (dict(schema={"properties": {"a": {"type": "text"}}}), "schema/properties/a: 'type'"),
            (dict(schema={"not": {}}), "'not' cannot be enforced"),
            (dict(regex="a("), "'a('"),
            (dict(choices=[]), "no choices"),
            (dict(tools=[{"name": "a"}], tool="b"), "no tool 'b'"),
            (dict(regex="a", starts_after="think"), "'think'"),
        ):
            with self.subTest(arguments), self.assertRaises(minim.Error) as caught:
                model().constraint(**arguments)
            self.assertIn(part, str(caught.exception))
        for arguments in ({}, dict(schema={}, regex="a")):
            with self.assertRaises(TypeError):
                model().constraint(**arguments)


if __name__ == "__main__":
    unittest.main()
