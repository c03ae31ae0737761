"""The study of PURL's prior over the number of updates, on a simulated set and few steps."""

import json

import numpy as np
import pytest

from pujax import priors
from tests import benchmark_scripts


@pytest.fixture
def study(monkeypatch):
    return benchmark_scripts.imported(monkeypatch, "purl_updates")


@pytest.mark.slow
def test_every_estimate_is_a_line_and_none_is_made_twice(study, tmp_path, capsys):
    out = tmp_path / "lines.jsonl"
    sizes = ("positives=120", "unlabeled=240")
    arguments = [
        *("--sets=overlap_3.5", "--updates=0,3,25", "--trials=1", f"--out={out}"),
        *(f"--num_{size}" for size in sizes),
        *("--fresh_positives=40", "--fresh_unlabeled=80"),
    ]
    assert study.main(arguments) == 0
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
    assert study.main(arguments) == 0
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


def test_each_estimate_is_of_the_points_that_it_is_named_by(study, monkeypatch, tmp_path):
    fitted, seen = [], []

    def trained(p, u, *, lengths, **_):
        fitted.append((p, u))
        for updates in lengths:
            yield updates, (p, u), lambda rows: rows

    def km2(p, u):
        seen.append((p, u))
        return priors.PriorEstimate(0.1 * len(seen))

    monkeypatch.setattr(study, "trained", trained)
    monkeypatch.setattr(priors, "km2", km2)
    out = tmp_path / "lines.jsonl"
    arguments = [
        *("--sets=overlap_2.0", "--updates=7", "--trials=1", "--points=training,fresh,halves"),
        *("--num_positives=100", "--num_unlabeled=200", "--fresh_positives=30", f"--out={out}"),
    ]
    assert study.main(arguments) == 0
    whole, *halves = fitted
    training, fresh, *others = seen
    for i, size in enumerate((30, 200)):
        assert training[i] is whole[i] and len(fresh[i]) == size
        rows = np.concatenate([whole[i], fresh[i]])
        assert len(np.unique(rows, axis=0)) == len(rows)
        for half, other in zip(halves, others, strict=True):
            assert len(half[i]) == len(other[i]) == len(whole[i]) / 2
            rows = np.unique(np.concatenate([half[i], other[i]]), axis=0)
            np.testing.assert_array_equal(rows, np.unique(whole[i], axis=0))
    values = [json.loads(line)["value"] for line in out.read_text().splitlines()]
    np.testing.assert_allclose(values, [0.1, 0.2, 0.35])


@pytest.mark.thorough
def test_a_network_goes_on_from_the_length_before(study):
    rows = np.random.default_rng(0).normal(size=(660, 3)).astype(np.float32)
    p, u = rows[:220], rows[220:]  # an epoch has more than one batch

    def features(lengths):
        found = study.trained(p, u, hidden=(6, 4), lengths=lengths, seed=0)
        return {length: np.concatenate(own) for length, own, _ in found}

    several, straight = features([0, 1, 5]), features([5])
    assert np.abs(several[0] - several[1]).max() > 1e-6
    np.testing.assert_allclose(several[5], straight[5], atol=1e-6)
    assert np.abs(several[5] - several[1]).max() > 1e-4
