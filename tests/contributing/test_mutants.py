"""The mutants of benchmarks/mutants.py: what is made of a function, and which lines must be run to see it."""

import ast

CODE = '''"""What stands outside functions runs before tests."""
LIMIT = 1

def known(a: "int", b=2):
    """Text."""
    if a < b and not a:
        return call(a, key="x")
    total = a + 3
    return f"{total} of 4"
'''


def test_one_place_of_a_function_is_made_another(opened):
    mutants = list(opened("benchmarks.mutants").mutants_in(ast.parse(CODE), "known.py"))
    assert {(mutant.text, mutant.lines) for mutant in mutants} == {
        ("(3)", range(5, 10)),
        *((text, range(6, 7)) for text in ("(a < b or not a)", "(a <= b)", "(a)")),
        *((text, range(7, 8)) for text in ("(call(None, key='x'))", "(call(a))", "('XXxXX')")),
        *((text, range(8, 9)) for text in ("total = None", "(a - 3)", "(4)")),
    }
    lines = CODE.splitlines()
    assert [lines[m.start[0] - 1][m.start[1] : m.end[1]] for m in mutants if m.text == "(a <= b)"] == ["a < b"]
