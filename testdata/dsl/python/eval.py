"""Evaluates expressions with CPython, for the comparison in dsl/python_test.go.

Reads the names and their values as JSON on the first line, then one expression,
as a JSON string, on each further line. Writes for each one line: the value as
JSON, or ! and the name of the exception; and after a tab what has happened on the
way: "bool" when a truth value has counted as equal to a number, "half" when a half
was rounded, "power" when a power is no whole number.
"""

import ast
import json
import sys
import warnings

warnings.simplefilter("ignore")


def mixes(a, b):
    """Tells whether two values are equal only because True is 1."""
    if isinstance(a, bool) != isinstance(b, bool):
        return a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and any(mixes(x, y) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return any(mixes(a[k], b[k]) for k in a if k in b)
    return False


class Large(Exception):
    """A whole number of more bits than one wants to wait for."""


def power(a, b):
    """Computes a ** b, unless that takes long."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 4096 / abs(a).bit_length():
        raise Large
    return a**b


def times(a, b):
    """Computes a * b, unless that repeats too much."""
    for n, of in ((a, b), (b, a)):
        if isinstance(n, int) and isinstance(of, (str, list)) and n * max(len(of), 1) > 10000:
            raise Large
    return a * b


class Watch(ast.NodeTransformer):
    """Replaces comparisons by functions that note what they compare, and what may
    take long by functions that do not."""

    names = {ast.Eq: "_eq", ast.NotEq: "_ne", ast.In: "_in", ast.NotIn: "_not_in"}

    def visit_Compare(self, node):
        self.generic_visit(node)
        name = self.names.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if name is None:
            return node
        call = ast.Call(ast.Name(name, ast.Load()), [node.left, node.comparators[0]], [])
        return ast.copy_location(call, node)

    def visit_BinOp(self, node):
        self.generic_visit(node)
        name = {ast.Pow: "_pow", ast.Mult: "_mul"}.get(type(node.op))
        if name is None:
            return node
        call = ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])
        return ast.copy_location(call, node)


class Evaluator:
    """Evaluates one expression."""

    def __init__(self, env):
        self.notes = set()
        self.env = dict(env, round=self.round, _eq=self.eq, _ne=self.ne, _in=self.contains, _not_in=self.lacks, _pow=self.power, _mul=times)

    def note(self, mixed):
        if mixed:
            self.notes.add("bool")

    def round(self, number, *digits):
        if isinstance(number, float) and number % 1 == 0.5:
            self.notes.add("half")
        return round(number, *digits)

    def power(self, a, b):
        result = power(a, b)
        if isinstance(result, float):
            self.notes.add("power")
        return result

    def eq(self, a, b):
        self.note(mixes(a, b))
        return a == b

    def ne(self, a, b):
        self.note(mixes(a, b))
        return a != b

    def contains(self, a, b):
        if isinstance(b, list):
            self.note(any(mixes(a, x) for x in b))
        return a in b

    def lacks(self, a, b):
        return not self.contains(a, b)

    def run(self, source):
        tree = ast.fix_missing_locations(Watch().visit(ast.parse(source, mode="eval")))
        return eval(compile(tree, "expression", "eval"), {"__builtins__": {}}, self.env)


def show(value):
    """Gives a value as JSON, with marks for what JSON cannot hold."""
    if isinstance(value, complex):
        return {"$": "complex"}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$": "infinite"}
    if isinstance(value, bool) or value is None or isinstance(value, (float, str)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else {"$": "large"}
    if isinstance(value, list):
        return [show(v) for v in value]
    if isinstance(value, dict):
        return {k: show(v) for k, v in value.items()} if all(isinstance(k, str) for k in value) else {"$": "keys"}
    return {"$": type(value).__name__}


def answer(env, source):
    """Evaluates one expression and says what came of it."""
    e = Evaluator(env)
    try:
        text = json.dumps(show(e.run(source)), sort_keys=True)
    except Large:
        text = '{"$": "large"}'
    except Exception as error:
        text = "!" + type(error).__name__
    return "\t".join([text, *sorted(e.notes)])


def main():
    env = json.loads(sys.stdin.readline())
    env.update({f.__name__: f for f in (abs, float, int, len, max, min, sum)})
    for line in sys.stdin:
        print(answer(env, json.loads(line)), flush=True)


main()
