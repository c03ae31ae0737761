"""`python -m pujax.priors DATA` prints what the library finds and reports errors in one line."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from pujax import priors, usage
from pujax.audit import inputs
from pujax.priors import __main__ as command
from pujax.priors.estimate import affordable_resamples

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


def test_a_label_that_nobody_named_is_said(path, tmp_path, capsys):
    table = pd.read_csv(path)[["a", "b", "s"]]
    table.to_csv(tmp_path / "last.csv", index=False)
    assert run(str(tmp_path / "last.csv"), METHODS, "--resamples=0") == 0
    said = "the label is taken to be 's', the last column; --label=COLUMN names it"
    assert said in capsys.readouterr().out
    assert run(path, "--label=s", METHODS, "--resamples=0") == 0
    assert "is taken to be" not in capsys.readouterr().out
    labels = table.s.notna().to_numpy().astype(int)
    np.savez(tmp_path / "a.npz", x=table[["a", "b"]], labels=labels)
    assert run(str(tmp_path / "a.npz"), METHODS, "--resamples=0") == 0
    assert "is taken to be" not in capsys.readouterr().out


def test_the_choice_of_the_rule_is_said_and_disagreement_names_all(path, capsys, monkeypatch):
    assert run(path, "--label=s", "--methods=best_bin,tice,elkan_noto_e3", "--resamples=50") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "'consensus' uses best_bin 0." in text and "best_bin, tice agree: one share" in text
    found = {"best_bin": (0.31, 0.25, 0.4), "tice": (1.0, 0.9, 1.0), "ratio": (0.3, 0.2, 0.35)}
    found = {name: priors.PriorEstimate(*one) for name, one in found.items()}
    assert "best_bin, ratio agree: one share" in command._choice(found)
    del found["ratio"]
    assert command._choice(found).endswith("No other one carries information.")
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
    assert run(path, "--label=s", "--methods=tice", "--resamples=0") == 1  # none can
    assert "tice: tice cannot" in capsys.readouterr().out


def test_everything_not_labelled_1_is_unlabeled(tmp_path, capsys):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.svm"
    labels = ["1"] * 30 + ["0"] * 20 + ["-1"] * 10
    path.write_text("".join(f"{y} 1:{rng.normal()} 2:{rng.normal()}\n" for y in labels))
    assert run(str(path), "--methods=best_bin", "--resamples=0") == 0
    assert "30 labelled positives, 30 unlabeled" in capsys.readouterr().out


def customers(path, separator=",", comma=".", positive="1"):
    """A table with words, dates, missing cells and ids; returns its path."""
    rng = np.random.default_rng(0)
    labeled = np.arange(120) < 40
    amounts = [f"{x:.3f}".replace(".", comma) for x in rng.normal(size=120) + labeled]
    amounts[7] = "N/A"
    table = pd.DataFrame(
        {
            "customer": [f"C{i:03d}" for i in range(120)],
            "kind": np.where(labeled, positive, ""),
            "amount": amounts,
            "city": rng.choice(["Rome", "Paris"], 120),
            "since": pd.date_range("2024-01-01", periods=120).strftime("%d.%m.%Y"),
        }
    )
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep=separator)
    return str(path)


def found(text):
    """The line of the method without its seconds."""
    return cells(text, "best_bin")[:-1]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.csv.gz", {}),
        ("a.tsv", {"separator": "\t"}),
        ("a.csv", {"separator": ";", "comma": ","}),
        ("a.parquet", {}),
    ],
)
def test_a_table_is_read_as_pujax_check_reads_it(tmp_path, capsys, name, options):
    path = customers(tmp_path / name, **options)
    options = ("--label=kind", "--methods=best_bin", "--resamples=0")
    assert run(path, *options) == 0
    text = capsys.readouterr().out
    rows = inputs.read(path, label="kind").problem
    p, u = rows.features[rows.labeled], rows.features[~rows.labeled]
    assert f"40 labelled positives, 80 unlabeled, {rows.features.shape[1]} features" in text
    wanted = priors.estimate(p, u, method="best_bin", num_resamples=0, key=0).value
    assert float(found(text)[1]) == pytest.approx(wanted, abs=1e-4)
    said = " ".join(text.split())
    assert "different in every row: 'customer'; rows are called by 'customer' (--id_colu" in said
    assert "80 are empty (unlabeled)" in said and "data." not in said


def test_words_of_positives_and_ids_are_chosen_as_in_training(tmp_path, capsys):
    path = customers(tmp_path / "a.csv", positive="fraud")
    common = ("--label=kind", "--methods=best_bin", "--resamples=0")
    assert run(path, *common) == 2
    assert "column 'kind' is 'fraud'; accepted: a label" in capsys.readouterr().err
    assert run(path, *common, "--positive=fraud") == 0
    text = capsys.readouterr().out
    plain = customers(tmp_path / "b.csv")
    assert run(plain, *common) == 0
    assert found(capsys.readouterr().out) == found(text)
    assert run(plain, *common, "--id_column=none") == 0
    assert "rows are called" not in capsys.readouterr().out
    assert run(plain, *common, "--id_column=client") == 2
    assert "--id_column is 'client'; accepted: a column" in capsys.readouterr().err


def test_columns_are_left_out_or_read_as_words_as_in_training(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = [f"{i % 3}{i % 5},{rng.normal()},note {i},{int(i < 40)}" for i in range(120)]
    path = tmp_path / "a.csv"
    path.write_text("plz,x,note,y\n" + "\n".join(lines))
    common = (str(path), "--label=y", "--id_column=none", "--methods=best_bin", "--resamples=0")
    assert run(*common, "--leave_out=note") == 0
    assert "2 features" in capsys.readouterr().out
    assert run(*common, "--leave_out=note", "--words=plz") == 0
    assert "16 features" in capsys.readouterr().out  # 15 codes


def test_numbers_keep_all_their_digits(samples, path, tmp_path):
    p, u = samples
    both = np.concatenate([p, u])
    np.savez(tmp_path / "a.npz", positives=p, unlabeled=u)
    sklearn.datasets.dump_svmlight_file(both, np.arange(500) < 200, str(tmp_path / "a.svm"))
    for file in (path, tmp_path / "a.npz", tmp_path / "a.svm"):
        label = "s" if file is path else ""
        features, is_positive, _ = command._read(str(file), label)
        # Of 17 digits of text pandas reads the last one differently now and then.
        np.testing.assert_allclose(features, both, rtol=1e-15)
        assert features.dtype == np.float64 and is_positive.sum() == 200


def test_the_label_is_the_last_column_unless_it_is_said(tmp_path, capsys):
    lines = [f"{i % 7},{i % 5},{int(i < 30)}" for i in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,s", *lines]))
    assert run(str(tmp_path / "a.csv"), "--methods=best_bin", "--resamples=0") == 0
    assert "label 's': 30 rows are '1'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv",), "DATA is 'nothing.csv', which does not exist; accepted: a file"),
        ((".",), "DATA is '.', which is a folder; accepted: a file"),
        (("",), "DATA is ''; accepted: a file"),
        ((), "DATA is ''; accepted: one file"),
        (("a.csv", "b.csv"), "DATA is 'a.csv b.csv'"),
        (("a.csv", "--methods=bbe"), "--methods is 'bbe'; accepted: 'km1'"),
        (("a.csv", "--methods="), "--methods is ''; accepted: 'km1'"),
        (("a.csv", "--resamples=-1"), "--resamples is '-1'; accepted: an integer from 0"),
        (("a.csv", "--methods=km2,km2"), "--methods is 'km2,km2'; accepted: every method once"),
        (("a.csv", "--resamples=1"), "--resamples is 1; accepted: 0, for no intervals, or an int"),
        (("a.csv", "--resamples=19"), "--resamples is 19; accepted: 0, for no intervals, or an in"),
        (("a.csv", "--rows=3"), "--rows is not an option of this command; accepted: --help, --id_"),
    ],
)
def test_what_is_wrong_is_one_line_and_status_2(arguments, message, capsys):
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_file_without_positives_is_named(tmp_path, capsys):
    path = tmp_path / "a.csv"
    for word, option in (("1", ()), ("fraud", ("--positive=fraud",))):
        path.write_text(f"x,s\n1,0\n2,0\n3,{word}\n")
        assert run(str(path), *option) == 2
        said = "a.csv has 1 labelled positive; accepted: at least 2"
        assert said in capsys.readouterr().err


def test_the_module_runs_as_a_command(path):
    done = subprocess.run(
        [sys.executable, "-m", "pujax.priors", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0 and all(name in done.stdout for name in priors.NAMES)


def test_the_help_says_where_a_resample_is_expensive_and_how_many_there_are_then():
    said = " ".join(usage.text("priors", "pujax priors").split())
    names = ", ".join(name for name in priors.NAMES if affordable_resamples(name, 100) < 100)
    fewest = affordable_resamples("km1", 21)
    shown = re.search(r"a fifth of it, but at least (\d+), where each is expensive \((.*?)\)", said)
    assert shown and int(shown[1]) == fewest
    assert sorted(shown[2].split(", ")) == sorted(names.split(", "))
