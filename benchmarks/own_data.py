"""From one file to predictions of new rows: pujax beside classical rows and other packages.

    python benchmarks/own_data.py --data_dir=FOLDER --output=cells.jsonl [--python=OTHER]

Each cell is what a user does: files are written (train.csv with a column `known`, new.csv without
it; Fashion-MNIST as .npz, and as folders of images, which only networks take), a command or a
script is run on them as a process of its own, and the scores that it wrote are compared with the
truth, which nothing else sees. `lines` counts the lines of that command or script, `seconds` is
from its start to its end (reading, estimating the share of positives, training and predicting), and
`CPU seconds` are what of it was computed, which is what tells on a busy machine;
JAX_COMPILATION_CACHE_DIR, where set, spares compiling what it holds.
Positives are dropped from a9a until 8 % of the rows are left. The row lagam, which learns from
them, also gets 45 known negatives.

`--set=FIELD=VALUE`, as often as one likes, sets a field of pujax's configuration in every cell
that is done by this call; another setting needs another --output, which is checked.

The interpreter OTHER has pulearn and pu-toolbox; rows whose package it lacks are left out with a
message. Every cell that is done is a line of --output, and is not done again; one that failed is a
line, too, and is done again by the next call, whose line then counts. The tables printed at the end
hold means over seeds, with the number of seeds and of failures in brackets; without --data_dir they
show what the file holds.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from pujax import checks, metrics
from pujax.data import sources

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BINS = 15
NUM_NEW = 4000
NUMBERS = (
    *(("ap", "AP", 3), ("auc", "AUC", 3), ("ece", "calibration error", 3)),
    *(("brier", "Brier score", 3), ("seconds", "seconds", 0), ("cpu_seconds", "CPU seconds", 0)),
    ("lines", "lines", 0),
)


class Problem(NamedTuple):
    """A set: its source, rows of the file, how many are known, share of positives (0: its own)."""

    source: str
    folder: str
    num_rows: int
    num_known: int
    share: float = 0.0


PROBLEMS = {
    "a9a, 1 %": Problem("a9a", "libsvm", 8000, 80, 0.08),
    "a9a, 2 %": Problem("a9a", "libsvm", 8000, 160, 0.08),
    "mushrooms": Problem("mushrooms", "libsvm", 4000, 80),
    "phishing": Problem("phishing", "libsvm", 6000, 120),
    "fashion_mnist": Problem("fashion_mnist", "fashion_mnist", 4000, 200),
    "fashion_mnist, folder": Problem("fashion_mnist", "fashion_mnist", 4000, 200),
}
"""Tables of CSV but the last two: an `.npz` of pixels, and folders of PNG files."""
ENDINGS = {"fashion_mnist": "npz", "fashion_mnist, folder": "folder"}
METHODS = ("nnpu", "upu", "vpu", "dist_pu", "pusb", "self_pu", "naive", "lagam")
WITH_NEGATIVES = ("lagam",)
NUM_NEGATIVES = 45
"""Known ones in the files of these rows: about 36 are not held out, and the default takes 30."""
_TRAIN = (
    "{python} {repository}/train.py --config={repository}/configs/own_table.py:method={method} "
    "--config.data.path=train.{ending}{label} --config.seed={seed} --workdir=run "
    "--config.run.figures=False --config.run.compare={options}{settings}"
)
_TRAIN_FOLDER = (
    "{python} {repository}/train.py --config={repository}/configs/own_folder.py:method={method} "
    "--config.data.path=train --config.data.image_size=28 --config.data.channels=1 "
    "--config.seed={seed} --workdir=run --config.run.figures=False{settings}"
)
_PREDICT_FOLDER = "{python} -m pujax.predict run new --output=scores.csv"
_PREDICT = "{python} -m pujax.predict run new.{ending} --output=scores.csv"
_READ_CSV = """
import pandas as pd
{imports}
train, new = pd.read_csv("train.csv"), pd.read_csv("new.csv")
features = list(new.columns)
rows, known = train[features].to_numpy(), train["known"].to_numpy()
"""
_READ_NPZ = """
import numpy as np
import pandas as pd
{imports}
train, new = np.load("train.npz"), np.load("new.npz")["x"]
rows, known = train["x"], train["labels"]
"""
_LOGISTIC = "make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))"
_BOOSTING = "HistGradientBoostingClassifier()"
_SKLEARN = """from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
"""


class Script(NamedTuple):
    """What a user of another package writes; `model` is fitted, and asked for `predict_proba`."""

    package: str
    imports: str
    fit: str
    has_probabilities: bool = True


def _pulearn(name: str, arguments: str) -> Script:
    """A classifier of pulearn around one of scikit-learn."""
    used = [x for x in ("HistGradientBoostingClassifier", "LogisticRegression") if x in arguments]
    lines = [x for x in _SKLEARN.splitlines() if any(word in x for word in used)]
    if "make_pipeline" in arguments:
        lines += _SKLEARN.splitlines()[2:]
    imports = "\n".join([f"from pulearn import {name}", *lines])
    fit = f"model = {name}({arguments}).fit(rows, known)"
    return Script("pulearn", imports, fit)


def _toolbox(name: str, *, has_probabilities: bool) -> Script:
    fit = (
        f"report = PUPipeline(classifier={name}, random_state={{seed}}).fit_evaluate(rows, known)\n"
    )
    scaled = "scaler = StandardScaler().fit(rows)\nrows = scaler.transform(rows)\n"
    imports = "from pu_toolbox import PUPipeline\nfrom sklearn.preprocessing import StandardScaler"
    fit = f"{scaled}{fit}model = report.final_model"
    return Script("pu_toolbox", imports, fit, has_probabilities)


_COUNTS = "labeled=int(known.sum()), unlabeled=int((known == 0).sum())"
SCRIPTS = {
    "pulearn Elkanoto, logistic": _pulearn(
        "ElkanotoPuClassifier", f"{_LOGISTIC}, hold_out_ratio=0.2, random_state={{seed}}"
    ),
    "pulearn Elkanoto, boosting": _pulearn(
        "ElkanotoPuClassifier", f"{_BOOSTING}, hold_out_ratio=0.2, random_state={{seed}}"
    ),
    "pulearn WeightedElkanoto, logistic": _pulearn(
        "WeightedElkanotoPuClassifier",
        f"{_LOGISTIC}, {_COUNTS}, hold_out_ratio=0.2, random_state={{seed}}",
    ),
    "pulearn Bagging, logistic": _pulearn(
        "BaggingPuClassifier",
        f"{_LOGISTIC}, n_estimators=30, max_samples=int(known.sum()), random_state={{seed}}",
    ),
    "pulearn Bagging, boosting": _pulearn(
        "BaggingPuClassifier",
        f"{_BOOSTING}, n_estimators=30, max_samples=int(known.sum()), random_state={{seed}}",
    ),
    "pu-toolbox PUPipeline, auto": _toolbox('"auto"', has_probabilities=False),
    "pu-toolbox PUPipeline, elkan_noto": _toolbox('"elkan_noto"', has_probabilities=True),
}
CLASSIC = {
    f"classic {base}, {correction}": (base, correction)
    for base in ("logistic", "boosting")
    for correction in ("naive", "elkan_noto", "bagging")
}
ROWS = (*METHODS, *CLASSIC, *SCRIPTS)


def draw(problem: Problem, folder: pathlib.Path, *, seed: int) -> dict[str, np.ndarray]:
    """Rows and classes of the file and of new rows, and who is known."""
    directory = str(folder / problem.folder)
    data = sources.load(problem.source, directory=directory if os.path.isdir(directory) else folder)
    rows = np.concatenate([data.train_inputs, data.test_inputs])
    labels = np.concatenate([data.train_labels, data.test_labels])
    positive = labels == 1 if len(data.class_names) == 2 else labels % 2 == 0
    rows = rows.reshape(len(rows), -1).astype(np.float32)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    if problem.share:
        share = problem.share / (1 - problem.share) * (~positive).sum() / positive.sum()
        order = order[~positive[order] | (rng.random(len(order)) < share)]
    train, new = order[: problem.num_rows], order[problem.num_rows :][:NUM_NEW]
    known = np.zeros(len(train), bool)
    known[rng.choice(np.flatnonzero(positive[train]), problem.num_known, replace=False)] = True
    negative = np.zeros(len(train), bool)
    negative[rng.choice(np.flatnonzero(~positive[train]), NUM_NEGATIVES, replace=False)] = True
    return {
        "negative": negative,
        "rows": rows[train],
        "positive": positive[train],
        "known": known,
        "new": rows[new],
        "new_positive": positive[new],
    }


def write(
    drawn: dict[str, np.ndarray], folder: pathlib.Path, ending: str, *, has_negatives: bool = False
) -> None:
    """The files that a user has; with known negatives what is not known is empty, or -1."""
    labels = drawn["known"].astype(np.int32)
    if has_negatives:
        labels[~drawn["known"] & ~drawn["negative"]] = -1
    if ending == "npz":
        np.savez(folder / "train.npz", x=drawn["rows"], labels=labels)
        np.savez(folder / "new.npz", x=drawn["new"])
        return
    if ending == "folder":
        sides = np.where(drawn["known"], "train/positive", "train/unlabeled")
        if has_negatives:
            sides = np.where(drawn["negative"], "train/negative", sides)
        _write_images(drawn["rows"], [folder / side for side in sides])
        _write_images(drawn["new"], [folder / "new"] * len(drawn["new"]))
        return
    names = [f"f{i}" for i in range(drawn["rows"].shape[1])]
    train = pd.DataFrame(drawn["rows"], columns=names)
    known = pd.Series(labels).astype(str).replace("-1", "")
    train.assign(known=known).to_csv(folder / "train.csv", index=False)
    pd.DataFrame(drawn["new"], columns=names).to_csv(folder / "new.csv", index=False)


def _write_images(rows: np.ndarray, folders: list[pathlib.Path]) -> None:
    """Grey images whose names keep their order."""
    side = math.isqrt(rows.shape[1])
    for i, (pixels, folder) in enumerate(zip(rows, folders, strict=True)):
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.reshape(side, side).astype(np.uint8))
        image.save(folder / f"{i:06d}.png")


def commands(row: str, ending: str, *, seed: int, settings: Sequence[str] = ()) -> list[str]:
    """Command lines of pujax for a row of the table; settings are of the training, FIELD=VALUE."""
    base, correction = CLASSIC.get(row, ("", ""))
    options = f" --config.method.base={base} --config.method.correction={correction}"
    fill = {
        "python": shlex.quote(sys.executable),
        "repository": shlex.quote(str(REPOSITORY)),
        "method": "classic" if base else row,
        "ending": ending,
        "label": " --config.data.label=known" if ending == "csv" else "",
        "seed": seed,
        "options": options if base else "",
        "settings": "".join(f" {shlex.quote(f'--config.{setting}')}" for setting in settings),
    }
    if ending == "folder":
        return [_TRAIN_FOLDER.format(**fill), _PREDICT_FOLDER.format(**fill)]
    return [_TRAIN.format(**fill), _PREDICT.format(**fill)]


def script(row: str, ending: str, *, seed: int) -> str:
    """The script of another package for a row of the table."""
    parts = SCRIPTS[row]
    read = _READ_CSV if ending == "csv" else _READ_NPZ
    new = "new[features].to_numpy()" if ending == "csv" else "new"
    if "scaler" in parts.fit:
        new = f"scaler.transform({new})"
    end = f"found = model.predict_proba({new})[:, 1]\n"
    end += 'pd.DataFrame({"probability": found}).to_csv("scores.csv", index=False)\n'
    if not parts.has_probabilities:
        end = f"found = model.decision_function({new})\n"
        end += 'pd.DataFrame({"score": found}).to_csv("scores.csv", index=False)\n'
    text = "\n".join([read.format(imports=parts.imports), parts.fit, end])
    return text.replace("{seed}", str(seed)).lstrip()


def run(
    row: str,
    folder: pathlib.Path,
    ending: str,
    *,
    seed: int,
    python: str,
    settings: Sequence[str] = (),
) -> tuple[int, str]:
    """Lines that the user writes, and '' or what went wrong."""
    if row in SCRIPTS:
        text = script(row, ending, seed=seed)
        (folder / "fit.py").write_text(text)
        steps = [f"{shlex.quote(python)} fit.py"]
        count = sum(bool(line.strip()) for line in text.splitlines())
    else:
        steps = commands(row, ending, seed=seed, settings=settings)
        count = len(steps)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    for step in steps:
        done = subprocess.run(
            shlex.split(step), cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            return count, (done.stderr.strip().splitlines() or ["no message"])[-1]
    return count, ""


def expected_calibration_error(shares: np.ndarray, positive: np.ndarray) -> float:
    """Over bins of equal mass."""
    parts = np.array_split(np.argsort(shares, kind="stable"), BINS)
    return sum(abs(shares[i].sum() - positive[i].sum()) for i in parts) / len(positive)


def judge(folder: pathlib.Path, positive: np.ndarray) -> dict[str, float]:
    """The numbers of a cell from the scores that were written."""
    written = pd.read_csv(folder / "scores.csv")
    scores = written["score" if "score" in written else "probability"].to_numpy()
    found = {
        "auc": metrics.auc(scores, positive),
        "ap": metrics.average_precision(scores, positive),
    }
    if "probability" in written:
        shares = np.clip(written["probability"].to_numpy(np.float64), 0, 1)  # ratios may exceed 1
        found["ece"] = expected_calibration_error(shares, positive)
        found["brier"] = float(np.mean((shares - positive) ** 2))
    return found


def cpu_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def has_package(python: str, package: str) -> bool:
    """Whether an interpreter finds a package."""
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    return subprocess.run([python, "-c", find]).returncode == 0


def read(path: pathlib.Path) -> list[dict]:
    """Cells that were tried, of each its last line; one that failed has an `error`."""
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        cells = [dict(json.loads(line)) for line in lines]
        last = {(cell["data"], cell["row"], cell["seed"]): cell for cell in cells}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); accepted: a file of results") from error
    return list(last.values())


def chosen(flag: str, text: str, names: Sequence[str]) -> list[str]:
    """The names that hold a part of a text split by ';', all for ''; each part must be in one."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    for part in parts:
        known = any(part in name for name in names)
        checks.require(known, flag, part, f"a part of {', '.join(map(repr, names))}")
    return [name for name in names if not parts or any(part in name for part in parts)]


def check(flags: argparse.Namespace) -> None:
    """Raises a ValueError for flags that cannot be, before anything is read or written."""
    checks.whole_number("--seeds", flags.seeds, 1)
    for setting in flags.set:
        name, is_pair, _ = setting.partition("=")
        is_field = is_pair and all(part.isidentifier() for part in name.split("."))
        checks.require(is_field, "--set", setting, "FIELD=VALUE, such as data.holdout=0")
    chosen("--rows", flags.rows, ROWS)
    chosen("--sets", flags.sets, tuple(PROBLEMS))
    data, output = flags.data_dir, pathlib.Path(flags.output)
    is_there = not data or os.path.isdir(data)
    checks.require(is_there, "--data_dir", data, "a folder that holds libsvm/ and fashion_mnist/")
    is_file = output.parent.is_dir() and not output.is_dir()
    checks.require(is_file, "--output", flags.output, "a file in a folder that exists")
    checks.require(bool(shutil.which(flags.python)), "--python", flags.python, "an interpreter")


def measure(flags: argparse.Namespace) -> None:
    """Does the cells that are not done yet, or that failed."""
    path = pathlib.Path(flags.output)
    cells = read(path)
    for cell in cells:
        found = cell.get("settings", [])
        accepted = f"a file of cells with --set {flags.set}; those of this one have {found}"
        checks.require(found == flags.set, "--output", flags.output, accepted)
    whole = [cell for cell in cells if "error" not in cell]
    done = {(cell["data"], cell["row"], cell["seed"]) for cell in whole}
    wanted = chosen("--rows", flags.rows, ROWS)
    for package in ("pulearn", "pu_toolbox"):
        if not has_package(flags.python, package):
            print(f"{flags.python} has no {package}; its rows are left out")
            wanted = [x for x in wanted if x not in SCRIPTS or SCRIPTS[x].package != package]
    names = chosen("--sets", flags.sets, tuple(PROBLEMS))
    for seed in range(flags.seeds):
        for name in names:
            drawn, ending = None, ENDINGS.get(name, "csv")
            for row in wanted:
                is_left_out = ending == "folder" and row not in METHODS
                if (name, row, seed) in done or is_left_out:
                    continue
                drawn = drawn or draw(PROBLEMS[name], pathlib.Path(flags.data_dir), seed=seed)
                with tempfile.TemporaryDirectory() as place:
                    folder = pathlib.Path(place)
                    write(drawn, folder, ending, has_negatives=row in WITH_NEGATIVES)
                    started, computed = time.monotonic(), cpu_seconds()
                    lines, error = run(
                        row, folder, ending, seed=seed, python=flags.python, settings=flags.set
                    )
                    cell = {"data": name, "row": row, "seed": seed, "lines": lines}
                    cell["settings"] = flags.set
                    cell["seconds"] = round(time.monotonic() - started, 2)
                    cell["cpu_seconds"] = round(cpu_seconds() - computed, 2)
                    found = {"error": error} if error else judge(folder, drawn["new_positive"])
                with path.open("a") as file:
                    file.write(json.dumps(cell | found) + "\n")
                print(json.dumps(cell | found), flush=True)


def spread(values: list[float], digits: int, num_failed: int) -> str:
    """Mean and standard deviation, a dash without a value; in brackets how many, and failures."""
    counts = [str(len(values))] if values else []
    counts += [f"{num_failed} failed"] if num_failed else []
    end = f" ({', '.join(counts)})" if counts else ""
    if not values:
        return f"-{end}"
    deviation = f" +- {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 and digits else ""
    return f"{np.mean(values):.{digits}f}{deviation}{end}"


def show(cells: list[dict]) -> None:
    """Prints a Markdown table of every number: rows by sets."""
    by_place = collections.defaultdict(list)
    for cell in cells:
        by_place[cell["row"], cell["data"]].append(cell)
    sets = [name for name in PROBLEMS if any(data == name for _, data in by_place)]
    rows = [row for row in ROWS if any(name == row for name, _ in by_place)]
    for key, title, digits in NUMBERS:
        print(f"\n{title}\n\n| row | {' | '.join(sets)} |\n|{'---|' * (len(sets) + 1)}")
        for row in rows:
            texts = []
            for name in sets:
                of_place = by_place[row, name]
                whole = [cell[key] for cell in of_place if key in cell and "error" not in cell]
                texts.append(spread(whole, digits, sum("error" in cell for cell in of_place)))
            print(f"| {row} | {' | '.join(texts)} |")
    for cell in cells:
        if "error" in cell:
            print(f"failed: {cell['data']}, {cell['row']}, seed {cell['seed']}: {cell['error']}")


def main(arguments: Sequence[str]) -> int:
    """Reads the flags, measures, prints; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", default="", help="holds libsvm/ and fashion_mnist/")
    parser.add_argument("--output", required=True, help="file of results, one line a cell")
    parser.add_argument("--python", default=sys.executable, help="interpreter of other packages")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", default="", help="parts of names of rows, split by ;")
    parser.add_argument("--sets", default="", help="parts of names of sets, split by ;")
    parser.add_argument(
        "--set", action="append", default=[], help="FIELD=VALUE of pujax's training, repeatable"
    )
    flags = parser.parse_args(arguments)
    try:
        check(flags)
        if flags.data_dir:
            measure(flags)
        show(read(pathlib.Path(flags.output)))
    except ValueError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
