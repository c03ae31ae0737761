"""The command `pujax priors DATA`: all estimators on a user's own file, as a table.

Unlike the other modules of this package it reads a file and prints.
"""

import logging
import os
import pathlib
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from pujax import accelerator, checks, usage
from pujax.console import message, plural, render_table, run_command
from pujax.data.sources import own_table
from pujax.priors.base import PriorEstimate
from pujax.priors.consensus import BOUNDS, consensus, is_informative, shown, warning
from pujax.priors.conversions import label_frequency_from_unlabeled_prior, population_prior
from pujax.priors.estimate import (
    MIN_RESAMPLES,
    NAMES,
    affordable_resamples,
    check_name,
    estimate,
    from_scores,
    is_balanced,
    needs_scores,
)
from pujax.priors.held_out import held_out_scores

_LOG = logging.getLogger(__name__)

_COLUMNS = ("method", "prior in U", "90 % interval", "prior of all", "label frequency", "seconds")
# Up to how many examples of P and U together which method is to be trusted first.
_FIRST_CHOICE = ((2_000, "out_of_bag and km2"), (20_000, "out_of_bag and best_bin"))
_FIRST_CHOICE_BEYOND = "best_bin or ted_n"
_WIDTH = 100


NO_ESTIMATE = 1
"""Exit status where no estimator that was asked for can work on the data."""


class Report(NamedTuple):
    """What the command prints, and whether there is an estimate in it."""

    text: str
    has_estimate: bool


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("label", "positive", "id_column", "leave_out", "words"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    flags.DEFINE_list("methods", list(NAMES), "methods", flag_values=values)
    flags.DEFINE_integer("resamples", 100, "resamples", lower_bound=0, flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed", lower_bound=0, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = _flags()

    def print_report(rest: list[str]) -> int:
        if len(rest) != 1:
            raise ValueError(
                f"command line: DATA is {' '.join(rest)!r}; accepted: one file (--help says more)"
            )
        if not values.methods:
            raise ValueError(f"--methods is ''; accepted: {', '.join(map(repr, NAMES))}")
        for method in values.methods:
            check_name(method, "--methods")
        is_once = len(set(values.methods)) == len(values.methods)
        checks.require(is_once, "--methods", ",".join(values.methods), "every method once")
        enough = not values.resamples or values.resamples >= MIN_RESAMPLES
        accepted = f"0, for no intervals, or an integer from {MIN_RESAMPLES}"
        checks.require(enough, "--resamples", values.resamples, accepted)
        accelerator.devices()
        found = report(
            rest[0],
            label=values.label,
            positive=values.positive,
            id_column=values.id_column,
            leave_out=values.leave_out,
            words=values.words,
            methods=values.methods,
            num_resamples=values.resamples,
            seed=values.seed,
        )
        message(found.text)
        return 0 if found.has_estimate else NO_ESTIMATE

    return run_command(argv, values, lambda: usage.text("priors", argv[0]), print_report)


def report(
    path: str,
    *,
    label: str = "",
    positive: str = "",
    id_column: str = "",
    leave_out: str = "",
    words: str = "",
    methods: Sequence[str] = NAMES,
    num_resamples: int = 100,
    seed: int = 0,
) -> Report:
    """The table of estimates of a file and how to read it.

    Args:
      path: the file.
      label: name of its label's column; '' is the last one of a table, and as in
        `own_table.read` where rows are arrays.
      positive: as in `own_table.read`.
      id_column: likewise.
      leave_out: likewise.
      words: likewise.
      methods: names of estimators.
      num_resamples: of the bootstrap.
      seed: of everything random.

    Raises:
      ValueError: if the file cannot be read, or holds no PU data.
    """
    try:
        features, is_positive, notes = _read(
            path, label, positive=positive, id_column=id_column, leave_out=leave_out, words=words
        )
    except ValueError as error:
        raise ValueError(own_table.in_options(str(error))) from error
    p, u = features[is_positive], features[~is_positive]
    for name, sample in (("labelled positive", p), ("unlabeled example", u)):
        if len(sample) < 2:
            raise ValueError(f"{path} has {plural(len(sample), name)}; accepted: at least 2")
    held_out: dict[bool, Any] = {}
    rows = [_row(method, p, u, num_resamples, seed, held_out) for method in methods]
    lines = [
        f"{os.path.basename(path)}: {len(p)} labelled positives, {len(u)} unlabeled, "
        f"{p.shape[1]} features",
        *(textwrap.fill(own_table.in_options(note), width=_WIDTH) for note in notes),
        "",
        render_table(rows, _COLUMNS),
        *(f"{row['method']}: {row['failure']}" for row in rows if "failure" in row),
        "",
    ]
    bounds = {row["method"]: row["estimate"] for row in rows if row["method"] in BOUNDS}
    choice = _choice({name: found for name, found in bounds.items() if found is not None})
    lines += [choice, ""] if choice else []
    text = "\n".join([*lines, _advice(len(p) + len(u))])
    return Report(text, any(row["estimate"] is not None for row in rows))


def _read(path: str, label: str, **options: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """A file as training reads it, but with all digits of its numbers.

    Returns:
      `(features, is_positive, notes)`: float64 `[n, d]`, bool `[n]`, and sentences on how the file
      was read.
    """
    rows = own_table.read(
        pathlib.Path(),
        path=path,
        label=label,
        zero_is="unlabeled",
        label_is_last=True,
        dtype=np.float64,
        **options,
    )
    learned = rows.prepared()
    features = learned.transform(rows.frame, dtype=np.float64)
    guessed: tuple[str, ...] = ()
    if not label and rows.frame.is_table:
        last = rows.labels.column
        guessed = (f"the label is taken to be {last!r}, the last column; --label=COLUMN names it",)
    return features, rows.labels.values == 1, (*guessed, *rows.notes, *learned.messages)


def _row(
    method: str,
    p: np.ndarray,
    u: np.ndarray,
    num_resamples: int,
    seed: int,
    held_out: dict[bool, Any],
) -> dict[str, Any]:
    """One line of the table; a method that fails gives a line with the reason.

    Args:
      method: name of the estimator.
      p: `[m, d]`.
      u: `[n, d]`.
      num_resamples: of the bootstrap.
      seed: of everything random.
      held_out: scores by whether they are balanced, filled here, so that a classifier is fitted
        once.
    """
    _LOG.info("%s ...", method)
    start = time.monotonic()
    num_resamples = affordable_resamples(method, num_resamples)
    try:
        if needs_scores(method):
            balanced = is_balanced(method)
            if balanced not in held_out:
                held_out[balanced] = held_out_scores(p, u, balanced=balanced, key=seed)
            scores = held_out[balanced].scores_positive, held_out[balanced].scores_unlabeled
            result = from_scores(*scores, method=method, num_resamples=num_resamples, key=seed)
        else:
            result = estimate(p, u, method=method, num_resamples=num_resamples, key=seed)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
        failure = f"{error or type(error).__name__}"
        return {"method": method, "estimate": None, "failure": failure}
    counts = {"n_p": len(p), "n_u": len(u)}
    has_interval = np.isfinite(result.low)
    return {
        "method": method,
        "estimate": result,
        "prior in U": result.value,
        "90 % interval": f"{result.low:.4f} to {result.high:.4f}" if has_interval else None,
        "prior of all": population_prior(result.value, **counts),
        "label frequency": label_frequency_from_unlabeled_prior(result.value, **counts),
        "seconds": f"{time.monotonic() - start:.1f}",
    }


def _choice(bounds: dict[str, PriorEstimate]) -> str:
    """What the rule makes of the estimates that are upper bounds; '' without intervals."""
    if not any(map(is_informative, bounds.values())):
        return ""
    found = consensus(bounds)
    text = f"'consensus' uses {shown({found.method: found.estimate})}."
    useful = [name for name, one in bounds.items() if is_informative(one)]
    if len(useful) == 1:
        text += " No other one carries information." * (len(bounds) > 1)
    elif found.agree:
        text += f" {', '.join(useful)} agree: one share lies in all their intervals."
    else:
        text += f" Warning: {warning(found)}."
    return textwrap.fill(text, width=_WIDTH)


def _advice(count: int) -> str:
    first = next((name for most, name in _FIRST_CHOICE if count <= most), _FIRST_CHOICE_BEYOND)
    return textwrap.fill(
        f"With {count} examples, look at {first} first. 'prior in U' is the share of positives "
        "among the unlabeled; 'prior of all' (labelled and unlabeled together) and 'label "
        "frequency' (the share of all positives that is labelled) hold if the labelled ones were "
        "taken out of the same sample. Where no region is free of negatives, every method "
        "estimates too much, 'ratio', 'elkan_noto_e1' and 'pearson' most; 'elkan_noto_e3' falls "
        "far below with any noise. An interval covers the randomness of the sample, not this "
        "error. Methods that agree are a good sign; docs/priors.md says which fails when.",
        width=_WIDTH,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
