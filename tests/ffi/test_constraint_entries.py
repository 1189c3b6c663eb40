# SPDX-License-Identifier: Apache-2.0
"""tests/data/constraint/schemas.json: schemas, expressions and tools with texts that must match and texts that must not."""

import locale
import unittest

from support import DATA, load_json, minim, model

ENTRIES = [entry for file in sorted((DATA / "constraint").glob("*.json")) for entry in load_json(f"constraint/{file.name}")]


def arguments(entry):
    names = {"schema", "regex", "choices", "tools", "tool", "single"}
    return {name: value for name, value in entry.items() if name in names}


def spellings(text):
    return [text] if isinstance(text, str) else text


def says_where(entry, message):
    return all(any(word in message for word in spellings(place)) for place in entry.get("place", []))


def faults(entry):
    """Returns the errors in the library's answers for an entry, as text."""
    try:
        constraint = model().constraint(**arguments(entry))
    except minim.Error as error:
        if not (entry.get("refuse") or entry.get("refuse_or_right")):
            return [f"refused: {error}"]
        if str(error.status) not in entry.get("status", ["unsupported"]):
            return [f"refused with status {error.status}"]
        return [] if says_where(entry, str(error)) else [f"the error does not say where: {error}"]
    if entry.get("refuse"):
        return ["not refused"]
    with constraint:
        no = [f"no: {t}" for t in entry.get("accept", []) if not any(map(constraint.matches, spellings(t)))]
        return no + [f"yes: {text}" for text in entry.get("reject", []) if constraint.matches(text)]


class Entries(unittest.TestCase):
    def test_entries(self):
        for entry in ENTRIES:
            with self.subTest(entry["name"]):
                self.assertEqual(faults(entry), [])

    def test_in_a_locale_with_a_decimal_comma(self):
        names = [name for name in ("de_DE.UTF-8", "fr_FR.UTF-8") if is_installed(name)]
        if not names:
            self.skipTest("no locale with a decimal comma is installed")
        before = locale.setlocale(locale.LC_ALL)
        locale.setlocale(locale.LC_ALL, names[0])
        try:
            for entry in ENTRIES:
                if "locale" in entry:
                    with self.subTest(entry["name"]):
                        self.assertEqual(faults(entry), [])
        finally:
            locale.setlocale(locale.LC_ALL, before)


def is_installed(name):
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_ALL, before)
    return True


if __name__ == "__main__":
    unittest.main()
