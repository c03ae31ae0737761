"""The tiers of the tests: what is fast, and what runs on which worker."""

import re
import types

import pytest

from tests import conftest, tiers

RISK = "tests/test_risks.py::test_a[nnpu]"


def test_a_test_is_fast_unless_it_is_listed_or_marked():
    assert tiers.is_fast(RISK, {"parametrize"}, {"tests/test_risks.py::test_b"})
    assert tiers.is_fast(RISK, set(), {"tests/test_risks.py::test_a[upu]"})
    assert not tiers.is_fast(RISK, set(), {RISK})
    assert not tiers.is_fast(RISK, set(), {"tests/test_risks.py::test_a"})
    assert not tiers.is_fast(RISK, {"thorough"}, set())
    assert not tiers.is_fast(RISK, {"slow"}, set())
    assert not tiers.is_fast(RISK, {"aot"}, set())


def test_a_recording_changes_the_tests_that_ran_only(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text("def test_a(): ...\n\ndef test_b(): ...\n")
    (tmp_path / "tests/test_y.py").write_text("def test_c(x): ...\n")
    listing = tmp_path / "tests/not_fast.txt"
    listing.write_text("tests/test_x.py::test_b\ntests/test_x.py::gone\ntests/test_y.py::test_c\n")
    monkeypatch.setattr(tiers, "LIST", listing)
    monkeypatch.setattr(tiers, "REPOSITORY", tmp_path)
    seconds = {"tests/test_x.py::test_a[2]": 9.0, "tests/test_x.py::test_b": 0.01}
    tiers.record(seconds)
    assert listing.read_text().split() == ["tests/test_x.py::test_a", "tests/test_y.py::test_c"]
    # Of a function with fast cases the others alone are listed.
    tiers.record(seconds | {"tests/test_x.py::test_a[1]": 0.01})
    assert listing.read_text().split() == ["tests/test_x.py::test_a[2]", "tests/test_y.py::test_c"]


def test_what_tests_share_is_divided_among_them():
    own = {"a": 0.1, "b": 0.2, "c": 0.3}
    uses = {"a": ["x::run", "x::tmp"], "b": ["x::run"], "c": ["y::run"]}
    found = tiers.divided(own, {"x::run": 4.0, "y::run": 0.5, "z::gone": 9.0}, uses)
    assert found == pytest.approx({"a": 2.1, "b": 2.2, "c": 0.8})
    # "b" is slow by itself: "a" alone is left to pay, and "c" has nothing to share.
    found = tiers.divided(own | {"b": 9.0, "c": 0.1}, {"x::run": 0.16}, uses)
    assert found == pytest.approx({"a": 0.26, "b": 9.08, "c": 0.1})


def test_every_listed_test_exists():
    assert [name for name in sorted(tiers.listed()) if not tiers.exists(name)] == []


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        (RISK, "tests/test_risks.py"),
        (
            "tests/contract/test_methods.py::test_a[pu_mlc]",
            "tests/contract/test_methods.py[pu_mlc]",
        ),
        ("tests/contract/test_methods.py::test_a", "tests/contract/test_methods.py"),
    ],
)
def test_tests_of_a_file_run_together_and_contract_tests_of_a_method(nodeid, group):
    assert tiers.group_of(nodeid) == group


def test_every_test_is_in_one_part_of_several_beside_the_others_of_its_group():
    nodeids = [f"tests/test_{i}.py::test_{j}[{k}]" for i in range(60) for j in "ab" for k in "xy"]
    for count in (1, 2, 3, 5):
        parts = [
            [nodeid for nodeid in nodeids if tiers.is_in_part(nodeid, f"{number}/{count}")]
            for number in range(1, count + 1)
        ]
        assert sorted(sum(parts, [])) == sorted(nodeids)
        files = [{nodeid.partition("::")[0] for nodeid in part} for part in parts]
        assert sum(map(len, files)) == 60
        assert min(map(len, files)) >= 30 / count
    assert all(tiers.is_in_part(nodeid, "") for nodeid in nodeids)


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3"])
def test_a_part_that_cannot_be_is_named(part):
    with pytest.raises(ValueError, match=re.escape(f"part is {part!r}; accepted: K/N")):
        tiers.is_in_part(RISK, part)


def test_a_part_that_cannot_be_is_one_line_of_pytest():
    config = types.SimpleNamespace(getoption=lambda name: "4/3")
    with pytest.raises(pytest.UsageError, match="^--part is '4/3'; accepted: K/N with whole numb"):
        conftest.pytest_configure(config)
