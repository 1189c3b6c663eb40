# SPDX-License-Identifier: Apache-2.0
"""The official JSON Schema test suite, from Debian's packages, where they are installed.

A group counts as enforced if its schema is accepted, or if it is refused because nothing fits it and that is true. A test
is answered wrongly if its value is forbidden and the constraint allows it. A value that the schema allows may be refused:
members come in the schema's order, for example. Values are written as compact JSON, with members in the order of the suite.
"""

import json
import pathlib
import unittest

from support import minim, model

DRAFT_2020_12 = pathlib.Path("/usr/share/perl5/auto/share/dist/Test-JSON-Schema-Acceptance/tests/draft2020-12")
DRAFT_7 = pathlib.Path("/usr/share/json-schema-test-suite/tests/draft7")
LEAST_SHARE = 0.75


def texts_of(group, valid):
    values = [test["data"] for test in group["tests"] if test["valid"] == valid]
    return [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values]


class Suite(unittest.TestCase):
    def check(self, folder, package):
        if not folder.is_dir():
            self.skipTest(f"{folder} is missing: package {package}")
        n_groups = n_enforced = n_narrower = 0
        for file in sorted(folder.glob("*.json")):
            for group in json.loads(file.read_text(encoding="utf-8")):
                n_groups += 1
                try:
                    constraint = model().constraint(group["schema"])
                except minim.Error as error:
                    nothing_fits = error.status == "invalid" and "no text fits" in str(error)
                    n_enforced += nothing_fits and not texts_of(group, True)
                    continue
                n_enforced += 1
                with constraint, self.subTest(file.name, group=group["description"]):
                    self.assertEqual([text for text in texts_of(group, False) if constraint.matches(text)], [])
                    n_narrower += sum(not constraint.matches(text) for text in texts_of(group, True))
        share = n_enforced / n_groups
        print(f"{folder.name}: {n_enforced} of {n_groups} groups enforced ({share:.2f}); {n_narrower} values that fit are refused")
        self.assertGreaterEqual(share, LEAST_SHARE)

    def test_draft_2020_12(self):
        self.check(DRAFT_2020_12, "libtest-json-schema-acceptance-perl")

    def test_draft_7(self):
        self.check(DRAFT_7, "json-schema-test-suite")


if __name__ == "__main__":
    unittest.main()
