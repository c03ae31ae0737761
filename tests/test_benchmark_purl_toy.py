"""PURL's toy: what is drawn, the line that it finds, and the command."""

import jax
import numpy as np
import pytest

from pujax import priors
from tests import benchmark_scripts


@pytest.fixture
def toy(monkeypatch):
    return benchmark_scripts.imported(monkeypatch, "purl_toy")


def test_only_the_first_axis_tells_classes_apart(toy):
    p, u = toy.sample(np.random.default_rng(0), 20_000, 40_000)
    positive, negative = u[:20_000], u[20_000:]
    for points, mean in ((p, 1.5), (positive, 1.5), (negative, -1.5)):
        np.testing.assert_allclose(points.mean(0), [mean, 0], atol=0.1)
        np.testing.assert_allclose(np.cov(points.T), np.diag([1.0, 25.0]), atol=0.5)


def test_purl_finds_the_first_axis_and_pca_the_second(toy):
    p, u = toy.sample(np.random.default_rng(1), 500, 1000)
    purl = np.asarray(toy.purl_line(jax.random.key(0), p, u, steps=1500))
    assert np.linalg.norm(purl) == pytest.approx(1, abs=1e-6)
    assert toy.angle(purl) < 10
    assert toy.angle(toy.pca_line(np.concatenate([p, u]))) > 80
    # Turned by a quarter, the points turn both answers.
    turned = np.asarray(toy.purl_line(jax.random.key(0), p[:, ::-1], u[:, ::-1], steps=1500))
    assert toy.angle(turned) > 80


def test_each_view_has_the_error_of_its_own_points(toy):
    found = toy.trial(3, 120, 160, steps=800)
    p, u = found["points"]
    lines = {"PURL": found["purl"], "PCA": found["pca"], "second axis": np.array([0.0, 1.0])}
    for name, line in lines.items():
        points = (p @ line)[:, None], (u @ line)[:, None]
        value = priors.estimate(*points, method="km2", key=3).value
        assert found["errors"][name] == pytest.approx(value - toy.PRIOR, abs=1e-6), name


def test_angles_are_those_between_lines(toy):
    for line, degrees in (((1, 0), 0), ((-1, 0), 0), ((0, -1), 90), ((0.5, 0.75**0.5), 60)):
        assert toy.angle(np.array(line)) == pytest.approx(degrees, abs=1e-6)


def test_one_trial_has_no_standard_error(toy):
    assert toy.mean_and_error([-0.25]) == "0.250 ± -"
    assert toy.mean_and_error([-0.25, 0.75]) == "0.500 ± 0.177"  # 0.25 / sqrt(2)


@pytest.mark.slow
def test_the_table_and_the_figure(toy, tmp_path, capsys):
    figure = tmp_path / "toy.png"
    assert toy.main(["--sizes=60,120", "--trials=2", "--steps=800", f"--figure={figure}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].count("|") == lines[3].count("|") == len(toy.VIEWS) + 4
    assert lines[2].startswith("| 60 |") and lines[3].startswith("| 120 |")
    assert figure.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--sizes=500,x", "--sizes is 'x'"),
        ("--sizes=5", "--sizes is 5"),
        ("--trials=0", "--trials is 0"),
        ("--steps=0", "--steps is 0"),
        ("--sizes=²", "--sizes is '²'"),
        ("--figure=toy.foo", "--figure is 'toy.foo'"),
        ("--figure=/no/such/folder/toy.png", "--figure is '/no/such/folder/toy.png'"),
    ],
)
def test_bad_flags_are_one_line(toy, capsys, flag, message):
    assert toy.main([flag]) == 2
    error = capsys.readouterr().err
    assert error.startswith(message) and "accepted" in error and error.count("\n") == 1
