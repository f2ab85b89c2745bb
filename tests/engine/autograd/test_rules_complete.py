"""Every autograd rule of rules.txt has a test."""

import ast
import re
from pathlib import Path

_HERE = Path(__file__).parent


def _rules():
    lines = (_HERE / "rules.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def _tests():
    found = {}
    for path in sorted(_HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                match = re.match(r"test_([a-z]{2}\d\d)(_|$)", node.name)
                if match:
                    found.setdefault(match.group(1).upper(), []).append((path.name, node))
    return found


def test_rules_file():
    rules = _rules()
    assert len(rules) == 227
    assert all(re.fullmatch(r"[A-Z]{2}\d\d", rule) and text for rule, text in rules.items())


def test_every_rule_has_a_test():
    assert sorted(set(_rules()) - set(_tests())) == []


def test_every_test_names_a_rule_and_says_it():
    rules, unknown, silent = _rules(), [], []
    for rule, places in _tests().items():
        for file, node in places:
            if rule not in rules:
                unknown.append((file, node.name))
            elif not (ast.get_docstring(node) or "").startswith(f"{rule}: "):
                silent.append((file, node.name))
    assert unknown == []
    assert silent == []
