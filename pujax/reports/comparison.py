"""Several runs side by side: their numbers, and differences paired by data and split."""

import json
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from pujax import metrics, significance
from pujax.console import plural
from pujax.models import RANDOM
from pujax.reports import evidence as evidence_lib
from pujax.reports.evidence import HELD_OUT, TEST, Evidence
from pujax.reports.parts import LEVEL, UNKNOWN, Number, Section, Table, with_interval
from pujax.reports.run_folder import Run
from pujax.training import config as config_lib
from pujax.training.evaluation import model_selection

_METRICS = {
    TEST: (*model_selection.BINARY_METRICS, *model_selection.MULTILABEL_METRICS),
    HELD_OUT: ("auc_pu", "recall", "flagged_share", "lee_liu", "precision_top_100"),
}
TITLES = model_selection.TITLES | {
    "auc_pu": "AUC of P against U",
    "recall": "recall",
    "flagged_share": "flagged in U",
    "lee_liu": "Lee-Liu",
    "precision": "precision in U",
    "precision_top_100": "precision of the top 100",
    "false_positive_rate": "false positive rate",
}
NOT_PAIRED = "not paired: "
_PLACES = ("dir", "path", "test_path", "label")
"""Fields of the data that name a file or a folder, a label's perhaps."""
_OVERLAP = (
    " The rows that two splits hold out overlap, and so do those that the runs train on: intervals "
    "over splits are too narrow."
)
_ONE_TEST_SET = (
    " All splits are judged on the same test rows, whose chance is not in intervals over splits."
)
_OVERLAPPING_TEST_SETS = (
    " The test rows of two splits overlap: intervals over splits are too narrow."
)
_MOST_FIELDS = 3


class Group(NamedTuple):
    """Runs that differ in nothing but their seed, and in how they were run.

    Attributes:
      name: method, and fields in which it differs from other groups of that method.
      runs: of the group.
    """

    name: str
    runs: tuple[Run, ...]


class Pairing(NamedTuple):
    """Differences of a group from the reference.

    Attributes:
      group: what is compared.
      differences: by metric; of pairs on several splits with the t interval of the mean over
        splits, of pairs on one split with that of a bootstrap over its examples, where the runs
        wrote their scores.
      pairs: runs on the same data and split.
      reason: why nothing can be paired; '' if something can.
      splits: on how many different splits the pairs are.
      known: by metric, of how many pairs the difference is; those of all may be left out.
    """

    group: Group
    differences: dict[str, Number]
    pairs: int
    reason: str
    splits: int = 0
    known: Mapping[str, int] = {}


def section(runs: Sequence[Run]) -> tuple[Section, list[Pairing]]:
    """The comparison of at least two runs; differences are from the group of the first."""
    source, names = metrics_of(runs)
    pairings = paired(runs)
    if not names:
        text = "None of these runs was evaluated on examples of known class or held-out rows."
        return Section("comparison", "Comparison", (text,)), pairings
    what = "test set" if source == TEST else "held-out rows"
    rows = []
    for run in runs:
        found = evidence_lib.of(run) if source == TEST else evidence_lib.held_out(run)
        numbers = found.numbers if found.source == source else {}
        cells = [with_interval(numbers.get(name, Number())) for name in names]
        rows.append((run.name, run.method + remark(run), run.dataset, str(run.seed), *cells))
    table = Table(
        f"Every run, on its {what}, with 90 % intervals",
        ("run", "method", "data", "seed", *(TITLES[name] for name in names)),
        tuple(rows),
    )
    if not pairings:
        text = "All runs are of one configuration, so nothing is paired."
        return Section("comparison", "Comparison", (text,), tables=(_spread(runs),) + (table,)), []
    reference = groups(runs)[0].name
    lines = [
        (
            pairing.group.name,
            str(pairing.pairs),
            *(
                pairing.reason or _shown(pairing, name) if i == 0 or not pairing.reason else UNKNOWN
                for i, name in enumerate(names)
            ),
        )
        for pairing in pairings
    ]
    differences = Table(
        f"Difference from {reference}, on the same data and split (paired), with intervals",
        ("compared", "pairs", *(TITLES[name] for name in names)),
        tuple(lines),
        "A positive difference is in favour of the row, but for the share flagged, which should "
        "be that of the positives. With pairs on two splits or more the interval is Student's t "
        "over the splits, pairs on one split being averaged; on a single split it is that of a "
        "bootstrap over the examples of one pair, which leaves out the chance of another seed. The "
        f"intervals hold together: all of a column at once in {100 * LEVEL:.0f} % of such pages "
        "(Bonferroni), so that one without 0 says that the difference is more than chance."
        + _shared_rows(runs, source)
        * any(p.splits > 1 for p in pairings),
    )
    texts = (
        "Runs are paired where their examples have one digest: the same rows, labels and split.",
    )
    return Section("comparison", "Comparison", texts, tables=(differences, table)), pairings


def remark(run: Run) -> str:
    """Marks what used true labels, and what is not finished."""
    if run.summary is None:
        return " (not finished)"
    if run.summary.get("oracle"):
        return " (oracle: true labels)"
    selection = run.summary.get("selection") or {}
    return " (oracle epoch)" if selection.get("is_oracle") else ""


def sees_truth(group: Group) -> bool:
    """Whether a run of the group trained on true labels, or chose its epoch by them."""
    summaries = [run.summary or {} for run in group.runs]
    return any(
        x.get("oracle") or (x.get("selection") or {}).get("is_oracle", False) for x in summaries
    )


def metrics_of(runs: Sequence[Run]) -> tuple[str, tuple[str, ...]]:
    """On what most of the runs can be compared, and the names of the metrics."""
    tested, held = (
        [numbers for run in runs if (numbers := evidence_lib.values(run, kind))]
        for kind in (TEST, HELD_OUT)
    )
    if not tested and not held:
        return "", ()
    source, found = (TEST, tested) if len(tested) >= len(held) else (HELD_OUT, held)
    names = tuple(
        name
        for name in _METRICS[source]
        if any(math.isfinite(one.get(name, math.nan)) for one in found)
    )
    return source, names


def groups(runs: Sequence[Run]) -> list[Group]:
    """Runs by configuration without seed, places of files, and how it was run."""
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(json.dumps(_configuration(run), sort_keys=True), []).append(run)
    parts = [part for one in by_config.values() for part in _by_data(one)]
    members = [list(part) for _, part in parts]
    names = [one[0].method + remark(one[0]) + data for data, one in parts]
    for i, one in enumerate(members):
        twins = [x[0] for x in members if x is not one and x[0].method == one[0].method]
        if twins:
            fields = dict.fromkeys(
                field
                for twin in twins
                for field in _differing(_without_running(one[0]), _without_running(twin))
            )
            shown = [f"{name}={_field(one[0].config, name)}" for name in fields]
            more = " and more" if len(shown) > _MOST_FIELDS else ""
            names[i] += f" ({', '.join(shown[:_MOST_FIELDS])}{more})" if shown else ""
    return [Group(name, tuple(one)) for name, one in zip(names, members, strict=True)]


def _by_data(runs: Sequence[Run]) -> list[tuple[str, Sequence[Run]]]:
    """Parts of a group on data that are not the same, and what to call the data; '' if all are.

    Folders are places, into which data may have been moved, and are in no configuration. But one
    seed splits the same rows in one way: where it did in two, the rows are others.
    """
    if not _differ(runs):
        return [("", runs)]
    by_place: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        by_place.setdefault(_places(run), []).append(run)
    differ = [len(set(values)) > 1 for values in zip(*by_place, strict=True)]
    parts: list[tuple[str, Sequence[Run]]] = []
    for place, members in by_place.items():
        named = zip(_PLACES, place, differ, strict=True)
        shown = [
            f"data.{field}={value or repr('')}" for field, value, is_other in named if is_other
        ]
        for digest, part in _by_digest(members):
            what = "encoder" if _has_twin(part[0], runs) else "data"
            names = [*shown, f"{what} of digest {digest[:8]}"] if digest else shown
            parts.append((f" ({', '.join(names)})" if names else "", part))
    return parts


def _has_twin(run: Run, runs: Sequence[Run]) -> bool:
    """Whether another run of its seed has the same examples under another digest."""
    others = [x for x in runs if x.seed == run.seed and x.digest != run.digest]
    return bool(run.examples) and any(x.examples == run.examples for x in others)


def _places(run: Run) -> tuple[str, ...]:
    """Files and folders of the data, as the configuration names them."""
    return tuple(str(run.config["data"].get(field) or "") for field in _PLACES)


def _by_digest(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Parts in which no seed has two digests: the first ones without, others with a digest."""
    seen: dict[str, list[str]] = {}
    parts: list[tuple[str, list[Run]]] = []
    for run in runs:
        digests = seen.setdefault(str(run.seed), [])
        if run.digest and run.digest not in digests:
            digests.append(run.digest)
        place = digests.index(run.digest) if run.digest else 0
        if place >= len(parts):
            parts.append((run.digest if place else "", []))
        parts[place][1].append(run)
    return parts


def _differ(runs: Sequence[Run]) -> bool:
    """Whether one seed of these runs has two digests."""
    found = {(str(run.seed), run.digest) for run in runs if run.digest}
    return len(found) > len({seed for seed, _ in found})


def paired(runs: Sequence[Run]) -> list[Pairing]:
    """Differences of every other group from that of the first run."""
    found = groups(runs)
    source, names = metrics_of(runs)
    partners = [_partners(found[0], other) for other in found[1:]]
    level = _level(sum(not reason for _, reason in partners))
    return [
        _pairing(other, pairs, reason, source, names, level)
        for other, (pairs, reason) in zip(found[1:], partners, strict=True)
    ]


def _level(count: int) -> float:
    """Of so many intervals that together miss a true difference as seldom as one of `LEVEL`.

    Bonferroni's inequality: without it one of ten methods that are equal to the reference often
    seems to be better.
    """
    return 1 - (1 - LEVEL) / max(count, 1)


def _partners(reference: Group, other: Group) -> tuple[list[tuple[Run, Run]], str]:
    """Pairs of runs on the same data and split, or why there are none."""
    sides = [[run for run in x.runs if run.summary is not None] for x in (reference, other)]
    digested = [[run for run in distinct(side) if run.digest] for side in sides]
    pairs = _pairs(*digested)
    if not pairs:
        reason = "other data, split or labels"
        if not all(sides):
            reason = "a run is not finished"
        elif not all(digested):
            reason = "a run did not write data.json"
        elif len({run.config["data"].get("streaming") for side in sides for run in side}) > 1:
            # Of images in files the names and sizes are digested, of others the pixels.
            reason = "data.streaming differs, so that equal images are not known to be equal"
        elif _have_encoders_in_digests([run for side in sides for run in side]):
            reason = "init_from or model.init differs, so that equal data are not known to be equal"
        return [], f"{NOT_PAIRED}{reason}"
    return pairs, ""


def _have_encoders_in_digests(runs: Sequence[Run]) -> bool:
    """Whether runs start from different encoders, and one has no digest without its encoder."""
    encoders = [
        (run.config.get("init_from") or "", (run.config.get("model") or {}).get("init", RANDOM))
        for run in runs
    ]
    both = zip(runs, encoders, strict=True)
    are_known = all(run.examples or encoder == ("", RANDOM) for run, encoder in both)
    return len(set(encoders)) > 1 and not are_known


def _pairing(
    other: Group,
    pairs: Sequence[tuple[Run, Run]],
    reason: str,
    source: str,
    names: Sequence[str],
    level: float,
) -> Pairing:
    """The differences of pairs, with intervals of that level."""
    differences, known = {}, {}
    for name in names:
        by_split: dict[str, list[tuple[Run, Run]]] = {}
        means: dict[str, list[float]] = {}
        for a, b in pairs:
            value = _value(b, source, name) - _value(a, source, name)
            if math.isfinite(value):
                by_split.setdefault(_split(a), []).append((a, b))
                means.setdefault(_split(a), []).append(value)
        # Runs on one split share its rows: their differences are no draws of their own.
        values = [statistics.fmean(x) for x in means.values()]
        known[name] = sum(map(len, means.values()))
        if len(values) > 1:
            differences[name] = mean_difference(values, level=level)
        elif values:
            (members,) = by_split.values()
            differences[name] = _by_examples(members[0], source, name, values[0], level)
    splits = len({_split(a) for a, _ in pairs})
    return Pairing(other, differences, len(pairs), reason, splits, known)


def _split(run: Run) -> str:
    """What is equal for runs of a group on the same data and split."""
    return run.examples or run.digest


def _shared_rows(runs: Sequence[Run], source: str) -> str:
    """What intervals over splits leave out, as their runs are judged on the same rows."""
    if source == HELD_OUT:
        return _OVERLAP
    # At a class prior every seed draws test rows of its own out of the same ones.
    drawn = any(run.config["data"].get("class_prior") is not None for run in runs)
    return _OVERLAPPING_TEST_SETS if drawn else _ONE_TEST_SET


def distinct(runs: Sequence[Run]) -> list[Run]:
    """Runs of a group but for copies: one seed on one split again tells nothing of chance."""
    found: dict[tuple[str, str], Run] = {}
    for run in runs:
        found.setdefault((run.digest or run.folder, str(run.seed)), run)
    return list(found.values())


def _pairs(first: Sequence[Run], second: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Runs on the same data and split, each in one pair, with the same seed where there is one."""
    pairs: list[tuple[Run, Run]] = []
    left = list(first)
    for same_seed in (True, False):
        taken = {run.folder for _, run in pairs}
        for run in second:
            partners = [x for x in left if _are_on_same_data(x, run)]
            if same_seed:
                partners = [x for x in partners if x.seed == run.seed]
            if partners and run.folder not in taken:
                pairs.append((partners[0], run))
                left.remove(partners[0])
    return pairs


def _are_on_same_data(first: Run, second: Run) -> bool:
    """Whether a digest of one is one of the other; of a run without an encoder both are equal."""
    digests = [{run.digest, run.examples} - {""} for run in (first, second)]
    return not digests[0].isdisjoint(digests[1])


def mean_difference(values: Sequence[float], *, level: float = LEVEL) -> Number:
    """The mean of paired differences with Student's t interval; at least two."""
    return Number(statistics.fmean(values), *significance.mean_interval(values, level=level))


def _value(run: Run, source: str, name: str) -> float:
    return evidence_lib.values(run, source).get(name, math.nan)


_DECIDES = {
    TEST: ("accuracy", "auc", "mean_average_precision", "overall_f1", "class_f1"),
    HELD_OUT: ("auc_pu", "lee_liu"),
}
"""What decides, or ranks, by what was evaluated."""

_OF_ALL = tuple(name for name, x in model_selection.BINARY.items() if x.depends_on_share)
"""Metrics that depend on the share of positives."""

_STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    **{name: getattr(metrics, name) for name in model_selection.BINARY_METRICS},
    "auc_pu": metrics.auc,
    "recall": lambda scores, labels: float(np.mean(scores[labels == 1] > 0)),
    "flagged_share": lambda scores, labels: float(np.mean(scores[labels != 1] > 0)),
}


def _by_examples(
    pair: tuple[Run, Run], source: str, name: str, value: float, level: float
) -> Number:
    """A difference with a bootstrap over the common examples of a pair, where known.

    Args:
      pair: of runs; where several are on one split the first of them, whose interval is wider, if
        anything, than that of their mean.
      source: of the number.
      name: of the number.
      value: the difference, or the mean of those on one split, at which the interval is.
      level: of the interval.
    """
    known = [x for run in pair if (x := _scored(run, source)) is not None]
    if name not in _STATISTICS or len(known) < 2:
        return Number(value)
    (ours, labels), (theirs, other_labels) = known
    if not np.array_equal(labels, other_labels):
        return Number(value)
    statistic = _STATISTICS[name]

    def difference(scores: np.ndarray, labels: np.ndarray) -> float:
        return float(statistic(scores[:, 1], labels)) - float(statistic(scores[:, 0], labels))

    both, labels = np.stack([ours, theirs], axis=1).astype(np.float64), labels.astype(int)
    of_pair = difference(both, labels)
    found = evidence_lib.resampled(
        difference,
        both,
        labels,
        value=of_pair,
        level=level,
        is_difference=True,
        fixed_classes=name not in _OF_ALL,
    )
    return Number(value, *(end + value - of_pair for end in found[1:]))


def _scored(run: Run, source: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Scores and labels of what was evaluated; None where they are not known, or not finite."""
    if run.scores is None:
        return None
    if source == TEST:
        scores, labels = run.scores.test_scores, run.scores.test_labels
    else:
        scores, labels = run.scores.held_scores, run.scores.held_labeled
    return (scores, labels) if len(labels) and np.isfinite(scores).all() else None


def _spread(runs: Sequence[Run]) -> Table:
    """Mean and standard deviation of the seeds of one configuration, each counted once."""
    (source, names), method = metrics_of(runs), runs[0].method
    runs = [run for run in distinct(runs) if run.summary is not None]
    cells = []
    for name in names:
        values = [_value(run, source, name) for run in runs]
        known = [value for value in values if math.isfinite(value)]
        text = UNKNOWN
        if known:
            text = f"{statistics.fmean(known):.4f}"
            text += f" ± {statistics.stdev(known):.4f}" if len(known) > 1 else ""
            text += _of(len(known), len(runs))
        cells.append(text)
    return Table(
        f"Mean ± standard deviation (n - 1) of {plural(len(runs), 'seed')}",
        ("method", *(TITLES[name] for name in names)),
        ((method, *cells),),
    )


def _of(known: int, count: int) -> str:
    """' (2 of 3)' behind a number that is not known of all; else nothing."""
    return f" ({known} of {count})" * (known < count)


def _shown(pairing: Pairing, name: str) -> str:
    """A difference, and of how many pairs it is if not of all."""
    known = pairing.known.get(name, pairing.pairs)
    of = _of(known, pairing.pairs) if known else ""
    return _signed(pairing.differences.get(name, Number())) + of


def _signed(known: Number) -> str:
    if not known.is_known:
        return UNKNOWN
    text = f"{known.value:+z.4f}"
    if known.has_interval:
        return f"{text} [{known.low:+z.4f}, {known.high:+z.4f}]"
    return f"{text} [interval unknown]"


def _configuration(run: Run) -> dict[str, Any]:
    """What makes two runs the same but for their seed."""
    data = {k: _file(k, v) for k, v in run.config["data"].items() if k != "dir"}
    data.setdefault("path", "")
    return {
        **{k: v for k, v in run.config.items() if k not in ("seed", "run", "data")},
        "data": data,
        "run": _of_results(run.config),
    }


def _of_results(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of `run` that results depend on."""
    return config_lib.fingerprint(ml_collections.ConfigDict(config))["run"]


def _without_running(run: Run) -> dict[str, Any]:
    """The configuration of a run without the fields of `run` that change no result."""
    return {**run.config, "run": _of_results(run.config)}


def _differing(first: Any, second: Any, path: str = "") -> list[str]:
    """Paths of the fields in which two configurations differ, but for seed and places."""
    found: list[str] = []
    for key in sorted({*first, *second}):
        name = f"{path}{key}"
        if name in ("seed", "data.dir"):
            continue
        a, b = first.get(key), second.get(key)
        if path == "data.":
            a, b = _file(key, a), _file(key, b)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differing(a, b, f"{name}.")
        elif a != b:
            found.append(name)
    return found


def _file(field: str, value: Any) -> Any:
    """Of a field that names a file of data the file; its folder is a place, and may have moved."""
    is_file = field in ("path", "test_path") or str(value).endswith(".npy")
    return pathlib.PurePath(str(value or "")).name if is_file else value


def _field(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config


def better(pairings: Sequence[Pairing], own: Evidence) -> tuple[Group, Number, str] | None:
    """A group that is better than the reference by more than chance, in what ranks or decides."""
    for name in _DECIDES[own.source]:
        ahead = [
            (pairing.group, found, TITLES[name])
            for pairing in pairings
            if may_be_taken(pairing, own.source, name)
            and (found := pairing.differences.get(name, Number())).has_interval
            and found.low > 0
        ]
        if ahead:
            return max(ahead, key=lambda one: one[1].value)
    return None


def may_be_taken(pairing: Pairing, source: str, name: str) -> bool:
    """Whether a group that is ahead by one metric may be recommended.

    Not where it saw true labels, is worse by another metric that ranks or decides, or where the one
    is not known of all pairs: Lee-Liu is unknown of a seed that flags nothing.
    """
    is_known = pairing.known.get(name, pairing.pairs) == pairing.pairs
    return is_known and not sees_truth(pairing.group) and worse_in(pairing, source) is None


def worse_in(pairing: Pairing, source: str) -> tuple[str, Number] | None:
    """In what ranks or decides a group is worse than the reference by more than chance, if any."""
    for name in _DECIDES[source]:
        found = pairing.differences.get(name, Number())
        if found.has_interval and found.high < 0:
            return TITLES[name], found
    return None
