"""The benchmarks of class priors: their flags, their files of results, their tables."""

import json

import pytest

from pujax import priors
from tests import benchmark_scripts

STUDIES = ("prior_estimators", "prior_small", "purl_updates")
OF_ALL = (
    (["--sets=iris"], "--sets is 'iris'; accepted: 'a9a', "),
    (["--sets="], "--sets is ''; accepted: sets, or a --data_dir"),
    (["--sets=digits,a9a"], "--data_dir is ''; accepted: a9a=FOLDER, too, since --sets names it"),
    (["--data_dir=a9a=nowhere"], "--data_dir is 'a9a=nowhere'; accepted: SOURCE=FOLDER with a"),
    (["--data_dir=a9a"], "--data_dir is 'a9a'; accepted: SOURCE=FOLDER with a folder that"),
    (["--data_dir=digits=."], "--data_dir is 'digits=.'; accepted: SOURCE=FOLDER with a"),
    (["--priors=0.3,1"], "--priors is '0.3,1'; accepted: shares between 0 and 1, both excl"),
    (["--priors=some"], "--priors is 'some'; accepted: shares between 0 and 1"),
    (["--trials=0"], "--trials is 0; accepted: an integer from 1"),
    (["--out=nowhere/x"], "--out is 'nowhere/x'; accepted: a file in a folder that exists"),
    (["--out=."], "--out is '.'; accepted: a file in a folder that exists"),
)
OF_ONE = {
    "prior_estimators": (
        (["--methods=km3"], "--methods is 'km3'; accepted: 'km1', "),
        (["--methods=km2:loss=squared"], "--methods is 'km2:loss=squared'; accepted: km2, or se"),
        (["--methods=out_of_bag:loss=l"], "--methods holds 'out_of_bag:loss=l': loss is 'l'; acc"),
        (["--methods=out_of_bag:step=3"], "--methods holds 'out_of_bag:step=3': out_of_bag() got"),
        (["--methods=out_of_bag:hidden=3x"], "--methods holds 'out_of_bag:hidden=3x': hidden is"),
        (["--num_positives=0"], "--num_positives is 0; accepted: an integer from 1"),
        (["--num_unlabeled=0"], "--num_unlabeled is 0; accepted: an integer from 1"),
        (["--num_resamples=-1"], "--num_resamples is -1; accepted: an integer from 0"),
        (["--num_positives=20000"], "20000 positives and 2000 unlabeled, 600 of them positive, a"),
    ),
    "prior_small": (
        (["--labeled=0"], "--labeled is '0'; accepted: whole numbers from 1, split by commas"),
        (["--labeled=1.5"], "--labeled is '1.5'; accepted: whole numbers from 1"),
        (["--first_trial=-1"], "--first_trial is -1; accepted: an integer from 0"),
        (["--labeled=99999"], "--labeled is '99999'; accepted: fewer, since no set has rows"),
    ),
    "purl_updates": (
        (["--points=test"], "--points is 'test'; accepted: 'training', 'fresh', "),
        (["--updates=-1"], "--updates is '-1'; accepted: whole numbers from 0, split by commas"),
        (["--updates="], "--updates is ''; accepted: whole numbers from 0"),
        (["--num_positives=7"], "--num_positives is 7; accepted: an integer from 8"),
        (["--num_unlabeled=7"], "--num_unlabeled is 7; accepted: an integer from 8"),
        (["--fresh_positives=-1"], "--fresh_positives is -1; accepted: an integer from 0"),
        (["--fresh_unlabeled=-1"], "--fresh_unlabeled is -1; accepted: an integer from 0"),
    ),
}
CASES = [
    pytest.param(name, flags, said, id=f"{name} {flags[0]}")
    for name in STUDIES
    for flags, said in (*OF_ALL, *OF_ONE[name])
]


@pytest.mark.parametrize(("name", "flags", "said"), CASES)
def test_a_wrong_flag_is_refused_in_one_line(name, flags, said, tmp_path, monkeypatch, capsys):
    study = benchmark_scripts.imported(monkeypatch, name)
    monkeypatch.chdir(tmp_path)
    assert study.main(["--out=lines.jsonl", "--sets=overlap_2.0", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(said) and captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("text", ["{", "3\n", '{"set": "digits"}\n', "\xff"])
def test_a_damaged_file_of_results_is_named(name, text, tmp_path, monkeypatch, capsys):
    path = tmp_path / "lines.jsonl"
    path.write_text(text, encoding="latin-1")
    study = benchmark_scripts.imported(monkeypatch, name)
    assert study.main([f"--out={path}", "--sets=overlap_2.0"]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"{path} is damaged (") and text.count("\n") == 1


def test_settings_behind_a_name_reach_the_estimator_and_the_table_has_a_row_of_them(
    tmp_path, monkeypatch, capsys
):
    study, called = benchmark_scripts.imported(monkeypatch, "prior_estimators"), []

    def estimated(p, u, **options):
        called.append((len(p), len(u), options))
        return priors.PriorEstimate(0.4)

    method = "out_of_bag:loss=squared:hidden=50x40:max_steps=20:learning_rate=0.01"
    study.check_method(method)
    monkeypatch.setattr(priors, "out_of_bag", estimated)
    out = tmp_path / "lines.jsonl"
    sizes = ("--num_positives=50", "--num_unlabeled=60")
    arguments = [f"--methods={method}", "--sets=half_apart", "--priors=0.3,0.5", f"--out={out}"]
    assert study.main([*arguments, *sizes, "--trials=1"]) == 0
    settings = {"loss": "squared", "hidden": (50, 40), "max_steps": 20, "learning_rate": 0.01}
    assert called[1:] == 2 * [(50, 60, settings | {"num_resamples": 0, "key": 0})]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(x["prior"], x["value"]) for x in lines] == [(0.3, 0.4), (0.5, 0.4)]
    shown = f"| {method} | 0.100 (+0.100) | 0.100 (-0.100) | 0.100 (-0.000) | 0.0 |"
    assert shown in capsys.readouterr().out.replace("(+0.000)", "(-0.000)")


def test_an_estimator_that_worked_on_no_draw_has_no_number(monkeypatch, capsys):
    study = benchmark_scripts.imported(monkeypatch, "prior_small")
    estimates = {name: [0.4, 0.3, 0.5] for name in priors.BOUNDS if name != "best_bin"}
    study.show({("digits", 0.3, 50): {"estimates": estimates, "seconds": 1.0}})
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("| best_bin (before) | - | - | - |") == 3  # by prior, labels and set
    assert lines.count("| best_bin | - | - | - |") == 3
    assert lines.count("| tice | 0.100 (+0.100) | 0.100 (+0.100) | +0.100 |") == 3


def test_every_estimator_is_accepted_and_nothing_is_said(monkeypatch, caplog):
    study = benchmark_scripts.imported(monkeypatch, "prior_estimators")
    for method in (*priors.NAMES, "consensus", "out_of_bag:hidden=8", "out_of_bag:level=0.5"):
        study.check_method(method)
    assert not caplog.records


def test_intervals_are_kept_and_those_that_hold_the_prior_are_counted(
    tmp_path, monkeypatch, capsys
):
    study = benchmark_scripts.imported(monkeypatch, "prior_estimators")
    intervals = iter([(0.2, 0.5), (0.31, 0.41), (0.1, 0.29)])

    def estimated(p, u, *, method, num_resamples, key):
        assert num_resamples == 7
        return priors.PriorEstimate(0.4, *next(intervals))

    monkeypatch.setattr(priors, "estimate", estimated)
    out = tmp_path / "lines.jsonl"
    sizes = ("--num_positives=50", "--num_unlabeled=60", "--num_resamples=7", "--trials=3")
    asked = ("--methods=ratio", "--sets=half_apart", "--priors=0.3", f"--out={out}")
    assert study.main([*asked, *sizes]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(x["low"], x["high"]) for x in lines] == [(0.2, 0.5), (0.31, 0.41), (0.1, 0.29)]
    text = capsys.readouterr().out
    assert "ratio: 1 of 3 intervals hold the prior, 1 are above it; mean width 0.197" in text
