"""Can the list of `make mutants` be run: does every text that it breaks stand in its file, and only once?"""

from tests import mutants


def test_every_mutant_breaks_one_line_that_is_there_and_names_tests_that_are() -> None:
    found = mutants.listed()
    assert list(mutants.faults(found)) == []
    assert len(found) >= 77


def test_a_text_that_is_gone_is_reported_by_the_rule_and_the_file() -> None:
    one = mutants.listed()[0]
    gone = one._replace(old="no such line", tests=("tests/nowhere.py::test_it",))
    assert list(mutants.faults([gone, one._replace(file="emu/nowhere.py"), one._replace(new=one.old)])) == [
        f"tests/mutants.toml: {one.rule!r}: 'no such line' occurs 0 times in {one.file}, and should once",
        f"tests/mutants.toml: {one.rule!r}: there is no tests/nowhere.py::test_it",
        f"tests/mutants.toml: {one.rule!r}: there is no file emu/nowhere.py",
        f"tests/mutants.toml: {one.rule!r}: breaks nothing",
    ]
