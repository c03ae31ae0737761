"""`python -m pujax.priors DATA` prints what the library finds and reports errors in one line."""

import re
import subprocess
import sys

import numpy as np
import pytest

from pujax import priors
from pujax.priors import __main__ as command

METHODS = "--methods=best_bin,ratio,pen_l1"


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    sizes = ((200, 3), (120, 3), (180, 0))
    p, hidden, negative = (rng.normal(shift, 1, [n, 2]) for n, shift in sizes)
    return p, np.concatenate([hidden, negative])


@pytest.fixture(scope="module")
def path(samples, tmp_path_factory):
    p, u = samples
    file = tmp_path_factory.mktemp("data") / "mine.csv"
    lines = ["a,s,b", *(f"{x!r},1,{y!r}" for x, y in p.tolist())]
    file.write_text("\n".join([*lines, *(f"{x!r},,{y!r}" for x, y in u.tolist())]))
    return str(file)


def run(*arguments):
    return command.main(["priors", *arguments])


def cells(text, method):
    return re.split(r"  +", re.search(rf"^{method} .*$", text, re.MULTILINE)[0])


def test_the_table_holds_what_the_library_finds(samples, path, capsys):
    assert run(path, "--label=s", METHODS, "--resamples=50", "--seed=2") == 0
    text = capsys.readouterr().out
    assert "mine.csv: 200 labelled positives, 300 unlabeled, 2 features" in text
    for method in ("best_bin", "ratio", "pen_l1"):
        found = priors.estimate(*samples, method=method, num_resamples=50, key=2)
        name, prior, interval, of_all, frequency, _ = cells(text, method)
        assert name == method
        assert float(prior) == pytest.approx(found.value, abs=1e-4)
        ends = [float(end) for end in interval.split(" to ")]
        assert ends == pytest.approx(found[1:], abs=1e-4)
        assert float(of_all) == pytest.approx((200 + 300 * found.value) / 500, abs=1e-4)
        assert float(frequency) == pytest.approx(200 / (200 + 300 * found.value), abs=1e-4)
    assert "With 500 examples, look at out_of_bag and km2 first." in text


def test_the_choice_of_the_rule_is_said_and_disagreement_names_all(path, capsys, monkeypatch):
    assert run(path, "--label=s", "--methods=best_bin,tice,elkan_noto_e3", "--resamples=50") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "'consensus' uses best_bin 0." in text and "best_bin, tice agree: one share" in text
    estimates = iter([priors.PriorEstimate(0.8, 0.7, 0.9), priors.PriorEstimate(0.4, 0.3, 0.5)])
    monkeypatch.setattr(command, "from_scores", lambda *scores, **options: next(estimates))
    assert run(path, "--label=s", "--methods=best_bin,ratio") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "'consensus' uses ratio 0.4 [0.3, 0.5]. Warning:" in text
    assert "best_bin 0.8 [0.7, 0.9], ratio 0.4 [0.3, 0.5]" in text


def test_methods_that_are_no_bounds_take_no_part_in_the_rule(path, capsys):
    assert run(path, "--label=s", "--methods=elkan_noto_e3,pen_l1", "--resamples=20") == 0
    assert "consensus" not in capsys.readouterr().out


def test_without_resamples_the_interval_is_a_dash(path, capsys):
    assert run(path, "--label=s", "--methods=best_bin", "--resamples=0") == 0
    text = capsys.readouterr().out
    assert cells(text, "best_bin")[2] == "-" and "consensus" not in text


def test_a_method_that_fails_is_a_line_and_no_crash(path, capsys, monkeypatch):
    def refuse(*samples, method, **options):
        raise ValueError(f"{method} cannot")

    monkeypatch.setattr(command, "estimate", refuse)
    assert run(path, "--label=s", "--methods=tice,best_bin", "--resamples=0") == 0
    text = capsys.readouterr().out
    assert set(cells(text, "tice")[1:]) == {"-"}
    assert "tice: tice cannot" in text
    assert 0 < float(cells(text, "best_bin")[1]) < 1


def test_everything_not_labelled_1_is_unlabeled(tmp_path, capsys):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.svm"
    labels = ["1"] * 30 + ["0"] * 20 + ["-1"] * 10
    path.write_text("".join(f"{y} 1:{rng.normal()} 2:{rng.normal()}\n" for y in labels))
    assert run(str(path), "--methods=best_bin", "--resamples=0") == 0
    assert "30 labelled positives, 30 unlabeled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv",), "nothing.csv is no file; accepted"),
        ((), "DATA is ''; accepted: one file"),
        (("a.csv", "b.csv"), "DATA is 'a.csv b.csv'"),
        (("a.csv", "--methods=bbe"), "--methods is 'bbe'; accepted: 'km1'"),
        (("a.csv", "--methods="), "--methods is ''; accepted: 'km1'"),
        (("a.csv", "--resamples=-1"), "resamples"),
        (("a.csv", "--rows=3"), "Unknown command line flag 'rows'"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(arguments, message, capsys):
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_file_without_positives_is_named(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("x,s\n1,0\n2,0\n3,1\n")
    assert run(str(path)) == 2
    assert "a.csv has 1 labelled positives (label 1); accepted: at least 2" in (
        capsys.readouterr().err
    )


def test_the_module_runs_as_a_command(path):
    done = subprocess.run(
        [sys.executable, "-m", "pujax.priors", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0 and all(name in done.stdout for name in priors.NAMES)
