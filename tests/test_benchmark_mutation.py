"""Mutation testing: a part of the code meets all tests that are named after it."""

import pytest

from benchmarks import mutation


@pytest.mark.parametrize("name", ["risks", "meta", "contrastive", "metrics"])
def test_a_folder_meets_every_test_file_of_its_name(name):
    part, found = mutation.PARTS[name], set()
    for source in (mutation.ROOT / "pujax" / part.sources).glob("*.py"):
        found |= set(mutation.tests_of(part, source))
    named = mutation.ROOT.glob(f"tests/test_{name}*.py")
    assert found == {str(path.relative_to(mutation.ROOT)) for path in named}
