"""The benchmark of intervals of probabilities: its flags, and its table of means."""

import pytest

from tests import benchmark_scripts


@pytest.fixture
def benchmark_module(monkeypatch):
    return benchmark_scripts.imported(monkeypatch, "probability_interval")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds=0"], "--seeds is 0; accepted: an integer from 1"),
        (["--first_seed=-1"], "--first_seed is -1; accepted: an integer from 0"),
        (["--sets=iris"], "--sets is 'iris'; accepted: a part of 'a9a, 1 %', "),
        (["--data_dir=nowhere"], "--data_dir is 'nowhere'; accepted: a folder that holds"),
        ([], "cannot find mushrooms "),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(benchmark_module, tmp_path, capsys, flags, said):
    assert benchmark_module.main([f"--data_dir={tmp_path}", "--sets=mushrooms", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(said) and captured.err.count("\n") == 1


def test_the_table_holds_means_over_seeds_and_sets(benchmark_module, tmp_path, capsys, monkeypatch):
    def measure(name, folder, *, seed):
        width = (seed - 200) / 10 + 0.4 * (name == "fashion_mnist")
        return dict.fromkeys(benchmark_module.RANGES, (1.0, True, width))

    monkeypatch.setattr(benchmark_module, "measure", measure)
    flags = [f"--data_dir={tmp_path}", "--seeds=2", "--sets=phishing;fashion_mnist"]
    assert benchmark_module.main(flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "| set | range: bins | range: mean | range: width | estimate: bins |"
    )
    assert lines[2:] == [
        f"| {name} |{f' 1.00 | 1.00 | {width} |' * 3}"
        for name, width in (("phishing", "0.05"), ("fashion_mnist", "0.45"), ("all", "0.25"))
    ]
