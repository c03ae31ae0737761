"""Folders of runs written by hand, as a run leaves them, without training."""

import dataclasses
import functools
import json
import pathlib

import numpy as np

from pujax import metrics
from pujax.reports import run_folder
from pujax.training import config as config_lib
from pujax.training import example_scores

DIGEST = "0123456789abcdef"


@functools.cache
def _default(method):
    return json.dumps(config_lib.default_config(method).to_dict())


def config(method="nnpu", **data):
    tree = json.loads(_default(method))
    tree["data"] |= data
    return tree


def scores_of(positives, negatives, *, gap, seed=0):
    """Scores of so many positives and negatives, whose means are `gap` apart around 0."""
    random = np.random.default_rng(seed)
    labels = np.repeat([1, 0], [positives, negatives]).astype(np.int8)
    scores = random.normal(size=len(labels)) + gap * (labels - 0.5)
    return scores.astype(np.float32), labels


def write(folder, tree, *, summary=None, scores=None, rows=None, digest=DIGEST):
    """Writes what is given; returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(tree))
    if digest:
        (folder / "data.json").write_text(json.dumps({"digest": digest}))
    rows = epochs() if rows is None else rows
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if scores is not None:
        np.savez_compressed(folder / example_scores.FILE, **scores)
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def epochs():
    return [
        {"epoch": i, "stage": "train", "loss": 1 / (i + 1), "test_accuracy": 0.5 + i / 10}
        | {"test_f1": 0.5, "test_predicted_positive": 0.5}
        for i in range(4)
    ]


def train_part(seed=1):
    """30 labelled positives and 100 unlabeled, 40 of them positive."""
    scores, truth = scores_of(70, 60, gap=4.0, seed=seed)
    labeled = np.arange(130) < 30
    return {
        "train_scores": scores,
        "train_labeled": labeled,
        "train_truth": truth,
        "train_ids": np.arange(130),
        "map_rows": np.arange(0, 130, 2),
        "map_pca": np.random.default_rng(0).normal(size=[65, 2]).astype(np.float32),
        "map_tsne": np.random.default_rng(1).normal(size=[65, 2]).astype(np.float32),
    }


def base_summary(method="nnpu", seed=0):
    return {
        "method": method,
        "oracle": False,
        "dataset": "digits",
        "seed": seed,
        "num_epochs": 4,
        "selection": {"rule": "last", "epoch": 3, "value": None, "is_oracle": False},
        "setting": "one_sample",
        "counts": {
            "labeled": 30,
            "unlabeled": 100,
            "support": 0,
            "support_positives": 0,
            "validation": 0,
            "validation_labeled": 0,
            "test": 0,
            "test_positives": 0,
            "hidden_positives": 40,
            "unlabeled_without_truth": 0,
        },
        "prior": 0.5384615,
        "prior_source": "counted in the source",
        "prior_interval": None,
        "prior_choice": None,
        "prior_unlabeled": 0.4,
        "test": {},
        "warnings": [],
        "one_class": [],
        "seconds": 12.0,
        "versions": {"pujax": "0.1"},
    }


def tested(
    folder,
    *,
    gap=4.0,
    positives=60,
    negatives=90,
    method="nnpu",
    seed=0,
    shift=0.0,
    change=None,
    digest=DIGEST,
    with_scores=True,
    **data,
):
    """A run with a test set; `change` may alter its summary."""
    scores, labels = scores_of(positives, negatives, gap=gap, seed=seed + 7)
    scores = (scores + shift).astype(np.float32)
    summary = base_summary(method, seed)
    summary["counts"] |= {"test": positives + negatives, "test_positives": positives}
    names = ("accuracy", "f1", "auc", "average_precision")
    summary["test"] = {name: float(getattr(metrics, name)(scores, labels)) for name in names}
    summary["test"]["predicted_positive"] = float(np.mean(scores > 0))
    if change is not None:
        change(summary)
    arrays = {**train_part(), "test_scores": scores, "test_labels": labels}
    tree = config(method, **data) | {"seed": seed}
    return write(
        folder, tree, summary=summary, scores=arrays if with_scores else None, digest=digest
    )


def held(folder, *, gap=4.0, positives=40, unlabeled=200, prior=0.3, change=None, **data):
    """A run on one's own rows: nothing but held-out P and U, and a prior that was estimated."""
    hidden = round(0.3 * unlabeled)
    p_scores, _ = scores_of(positives, 0, gap=gap, seed=1)
    u_scores, truth = scores_of(hidden, unlabeled - hidden, gap=gap, seed=2)
    summary = base_summary()
    summary["dataset"] = "own_table"
    summary["counts"] |= {
        "validation": positives + unlabeled,
        "validation_labeled": positives,
        "hidden_positives": None,
        "unlabeled_without_truth": 100,
    }
    summary |= {"prior_source": "estimated by km2", "prior_unlabeled": prior}
    ends = {} if prior is None else {"prior_interval": (0.8 * prior, 1.2 * prior)}
    estimates = metrics.unlabeled_estimates(
        p_scores, u_scores, prior=prior, setting="one_sample", num_resamples=200, **ends
    )
    finite = [
        {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in x._asdict().items()}
        for x in estimates
    ]
    summary["held_out"] = finite
    if prior is not None:
        summary["held_out_prior"] = {"used": prior, "at_most": 1.5 * prior}
        summary["prior_choice"] = {
            "method": "km2",
            "agree": True,
            "estimates": {"km2": [prior, 0.8 * prior, 1.2 * prior], "tice": [1.1 * prior]},
        }
    if change is not None:
        change(summary)
    held_scores = np.concatenate([p_scores, u_scores])
    arrays = {
        **train_part(),
        "held_scores": held_scores,
        "held_labeled": np.arange(len(held_scores)) < positives,
        "held_truth": np.full(len(held_scores), -1, np.int8),
        "held_ids": np.arange(len(held_scores)) + 130,
        "held_probabilities": (1 / (1 + np.exp(-held_scores))).astype(np.float32),
        "train_truth": np.where(np.arange(130) < 30, 1, -1).astype(np.int8),
    }
    return write(folder, config(**data), summary=summary, scores=arrays)


def read(folder, name="run"):
    return run_folder.read(str(folder), name)


def changed(run, **fields):
    return dataclasses.replace(run, **fields)
