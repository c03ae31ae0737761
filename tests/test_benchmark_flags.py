"""Flags of benchmarks that cannot be are one line before any work, and calls stay in an epoch."""

import pytest

from tests import benchmark_scripts


@pytest.mark.parametrize(
    ("script", "given", "said"),
    [
        ("checkpoint_hashes", ["--saves=0"], "--saves is 0; accepted: an integer from 1"),
        ("checkpoint_hashes", ["--arrays=0"], "--arrays is 0; accepted: an integer from 1"),
        ("priors_speed", ["--repeats=0"], "--repeats is 0; accepted: an integer from 1"),
        ("priors_speed", ["--points=a"], "--points is 'a'; accepted: an integer from 10"),
        ("priors_speed", ["--features=1"], "--features is 1; accepted: an integer from 2"),
        ("check_rates", ["--data_dir=.", "--draws=0"], "--draws is 0; accepted: an integer from 1"),
        ("check_rates", ["--data_dir=.", "--sets=iris"], "--sets is 'iris'; accepted: 'mushrooms'"),
        ("check_rates", ["--data_dir=nowhere"], "--data_dir is 'nowhere'; accepted: a folder"),
        ("check_rates", ["--data_dir=."], "cannot find mushrooms"),
        ("calibration", ["--data_dir=a9a"], "--data_dir is 'a9a'; accepted: SOURCE=FOLDER"),
        ("calibration", ["--data_dir=iris=."], "a set of --data_dir is 'iris'; accepted: 'a9a'"),
        ("calibration", ["--data_dir=a9a=no"], "a9a of --data_dir is 'no'; accepted: a folder"),
        ("calibration", ["--data_dir=a9a=."], "cannot find a9a"),
        ("calibration", ["--labeled=0"], "--labeled is 0.0; accepted: a number in (0, 1)"),
        ("calibration", ["--seeds=-1"], "--seeds is -1; accepted: an integer from 0"),
        (
            "pu_smi_convergence",
            ["--data_dir=.", "--sets=iris"],
            "--sets is 'iris'; accepted: 'a9a'",
        ),
        ("pu_smi_convergence", ["--data_dir=no"], "--data_dir is 'no'; accepted: a folder"),
        (
            "pu_smi_convergence",
            ["--data_dir=.", "--trials=1"],
            "--trials is 1; accepted: an integer",
        ),
        ("pu_smi_convergence", ["--data_dir=."], "cannot find a9a"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(tmp_path, monkeypatch, capsys, script, given, said):
    main = benchmark_scripts.imported(monkeypatch, script).main
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(said) and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["a"], "--classes is 'a'; accepted: an integer from 1"),
        (["20", "0"], "--classes is 0; accepted: an integer from 1"),
        ([], "--classes is ''; accepted: integers from 1, one for each table"),
    ],
)
def test_wrong_numbers_of_categories_are_refused_in_one_line(monkeypatch, capsys, classes, said):
    script = benchmark_scripts.with_flags(monkeypatch, "semantic_decoupling", classes=classes)
    assert script.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(said) and captured.err.count("\n") == 1


@pytest.mark.parametrize("name", ["train_step", "gradpu_step"])
def test_every_timed_call_lies_in_an_epoch(monkeypatch, name):
    script = benchmark_scripts.with_flags(monkeypatch, name)
    for num_steps in range(1, 9):
        for count in range(1, num_steps + 1):
            places = [script.first_step(call, count, num_steps) for call in range(20)]
            assert min(places) == 0 and max(places) + count <= num_steps
    assert [script.first_step(call, 3, 10) for call in range(5)] == [0, 3, 6, 2, 5]
