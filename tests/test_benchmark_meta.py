"""The benchmarks of meta-gradients, as they are run, at small sizes: rows, and what must hold."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow  # each is a process that compiles a dozen programs


def tables(script, *arguments):
    """Rows of the tables that a benchmark prints, as dicts by header."""
    command = [sys.executable, f"benchmarks/{script}.py", *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.strip("|").split("|") for line in done.stdout.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line] for line in lines if not line[0].startswith("---")]
    header = cells[0]
    assert all(len(row) == len(header) for row in cells)
    return [dict(zip(header, row, strict=True)) for row in cells[1:]]


def test_exact_estimators_point_where_reverse_mode_does():
    rows = {row["estimator"]: row for row in tables("meta_estimators", "--steps=4", "--rounds=1")}
    assert len(rows) == 12
    for name, row in rows.items():
        exact = name.startswith(("reverse", "mixed", "forward", "truncated", "finite"))
        cosine = float(row["cosine"])
        assert cosine == pytest.approx(1, abs=1e-3) if exact else -1 <= cosine < 1, name
        assert float(row["units"]) > 0 and float(row["MB"]) > 0
        assert (row["residual"] != "") == name.startswith("implicit")
    assert [rows[x]["count"] for x in ("reverse", "one_step")] == ["12", "6"]


def test_memory_of_segments_and_of_mixed_mode_is_a_share_of_plain_reverse_modes():
    rows = tables("meta_memory", "--steps=9", "--width=2", "--topology=cpu:1")
    plain, segments, mixed, both, truncated = rows
    assert plain["share"] == "1.00" and int(plain["MB"]) > 0
    assert all(float(row["share"]) < 0.7 for row in (segments, mixed, both, truncated))
    assert re.fullmatch(r"`reverse`, `segment=3`", segments["estimator"])
    assert float(both["share"]) <= float(mixed["share"]) <= float(plain["share"])


def test_bad_numbers_of_steps_are_one_line_before_anything_is_compiled():
    command = [sys.executable, "benchmarks/meta_estimators.py", "--steps=2"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ValueError: --steps is '2'; accepted: integers from 4"
