"""The study of PURL's prior over the number of updates, on a simulated set and few steps."""

import importlib
import json
import pathlib
import sys

import numpy as np
import pytest


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[1] / "benchmarks"))
    yield importlib.import_module("purl_updates")
    for name in ("purl_updates", "prior_estimators"):
        sys.modules.pop(name, None)


@pytest.mark.thorough
def test_every_estimate_is_a_line_and_none_is_made_twice(study, monkeypatch, tmp_path, capsys):
    out = tmp_path / "lines.jsonl"
    sizes = ("positives=120", "unlabeled=240")
    arguments = [
        *("--sets=overlap_3.5", "--updates=0,3,25", "--trials=1", f"--out={out}"),
        *(f"--num_{size}" for size in sizes),
        *("--fresh_positives=40", "--fresh_unlabeled=80"),
    ]
    monkeypatch.setattr(sys, "argv", ["purl_updates.py", *arguments])
    study.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    cells = {(x["points"], x["updates"]) for x in lines}
    wanted = {(name, x) for name in ("training", "fresh", "halves") for x in (0, 3, 25)}
    wanted |= {("out_of_bag", x) for x in (3, 25, "own")} | {(x, "own") for x in study.ON_ROWS}
    assert cells == wanted and len(lines) == len(wanted)
    assert all(0 < x["value"] < 1 for x in lines)
    of = {(x["points"], x["updates"]): x["value"] for x in lines}
    assert abs(of["out_of_bag", "own"] - 0.7) < 0.25
    shown = capsys.readouterr().out
    assert f"| training | {of['training', 0] - 0.7:+.3f} " in shown
    # What is missing is made, and nothing else.
    kept = [x for x in lines if (x["points"], x["updates"]) != ("halves", 25)]
    out.write_text("".join(json.dumps(x | {"kept": True}) + "\n" for x in kept))
    study.main()
    again = [json.loads(line) for line in out.read_text().splitlines()]
    assert [x for x in again if "kept" in x] == [x | {"kept": True} for x in kept]
    (made,) = (x for x in again if "kept" not in x)
    assert (made["points"], made["updates"]) == ("halves", 25)
    assert made["value"] == of["halves", 25]


def test_samples_are_divided_at_the_same_prior_and_share_no_row(study):
    classes = np.arange(1000.0)[:, None], -1 - np.arange(1000.0)[:, None]
    p, u = study.draw(classes, 0.7, 0, (130, 260))
    (first, others), (fresh, more) = study.divided(p, u, 0.7, (100, 200))
    assert [len(x) for x in (first, others, fresh, more)] == [100, 200, 30, 60]
    assert (others >= 0).sum() == 140 and (others[:140] >= 0).all() and (more >= 0).sum() == 42
    assert len(np.unique(np.concatenate([first, others, fresh, more]))) == 390
    one, two = study.half(others, 140, np.random.default_rng(0))
    assert (one >= 0).sum() == (two >= 0).sum() == 70 and not np.isin(one, two).any()
    with pytest.raises(ValueError, match="accepted: what 1000 positive and 1000 negative"):
        study.draw(classes, 0.7, 0, (500, 1000))
