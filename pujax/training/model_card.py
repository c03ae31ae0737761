"""The model card of a saved model: README.md with metadata that the Hugging Face Hub reads.

The metadata are YAML between two lines of dashes. Strings stand there as JSON, which YAML contains.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pujax.console import fixed

UNKNOWN = "unknown"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""How the Hub names licenses: 'apache-2.0', 'cc-by-4.0', 'other'."""


def is_license(name: object) -> bool:
    """Whether a word can stand for a license on the Hub; '' is one that is not known."""
    return isinstance(name, str) and (not name or _LICENSE.fullmatch(name) is not None)


def card(document: Mapping[str, Any]) -> str:
    """What the model is, what it was trained on, what is known of it, and what is not.

    Args:
      document: `config.json` of the model.
    """
    config = document["config"]
    about = _of_several_labels if "label_names" in document else _of_one_label
    license_name = config["run"].get("license") or UNKNOWN
    return f"""{_metadata(document)}
# {_title(document)}

{about(document)}
- License of the model: {license_name}. Intended use, and who may be in the data: {UNKNOWN}.
- Versions: {", ".join(f"{name} {version}" for name, version in document["versions"].items())}.

{_tables(document)}"""


def _of_several_labels(document: Mapping[str, Any]) -> str:
    """What a model of several labels per example is, was trained on, and decides."""
    counts, names = document["labels"], document["label_names"]
    return f"""A classifier of {len(names)} labels, of which an example may have several or none,
trained by pujax on {document["info"]["n"]} examples, of whose labels {counts["labeled"]} are known
to be present, {counts["labeled_negatives"]} known to be absent, and {counts["unlabeled"]} unknown.

- Labels: {", ".join(map(_printable, names))}.
{_how_to_use(document)}
- Decision: a label is predicted where the sigmoid of its score is {document["threshold"]:g} or
  more. The scores are not calibrated: the sigmoid of one is no probability."""


def _how_to_use(document: Mapping[str, Any]) -> str:
    """How to predict, and what."""
    return f"""- Use: `pujax predict FOLDER NEW --output=scores.csv`, or
  `pujax.load("FOLDER").predict(rows)`, with this folder, or `hf://OWNER/NAME` where it is on the
  Hugging Face Hub.
- Takes: {document["takes"]}."""


def _of_one_label(document: Mapping[str, Any]) -> str:
    """What a model of positive and negative is, was trained on, and decides."""
    info = document["info"]
    prior, interval = info["prior"], document["prior_interval"]
    known = UNKNOWN
    if prior is not None and math.isfinite(prior):
        known = f"{prior:.4f} ({info['prior_source']})"
        known += " [{:.4f}, {:.4f}]".format(*interval) if interval else ""
    doubt = "Probabilities: none, since the share of positives is not known."
    if document.get("probability_ends"):
        low, high = document["probability_ends"]["priors"]
        doubt = (
            "Probabilities hold for that share. `probability_low` and `probability_high` say what\n"
            f"  they may be if {shares_of(low, high)} of the unlabeled rows are positive, and by\n"
            "  chance in the held-out rows."
        )
    clean = "known negatives, if any,\namong the latter"
    if info["n_support"]:
        positives, negatives = (
            info["support_positives"],
            info["n_support"] - info["support_positives"],
        )
        clean = f"and a support set\nof {positives} more positives and {negatives} known negatives"
    return f"""A binary classifier trained by pujax from {info["n_p"]} labelled positives and
{info["n_u"]} unlabeled examples ({info["setting"]} data), {clean}.

{_how_to_use(document)}
- Positive is what was labelled positive; the labels are taken for a random sample of all positives.
  Where they are not, probabilities and estimates are wrong, though the ranking may still be useful.
- Share of positives in the population: {known}.
- {doubt}
- Decision: `{document["decide"]}`.{_of_scores(document)}"""


def shares_of(low: float, high: float) -> str:
    """Two shares in words; one where both are the same."""
    ends = [f"{fixed(100 * share, 1)}%" for share in (low, high)]
    return ends[0] if low == high else " to ".join(ends)


def _of_scores(document: Mapping[str, Any]) -> str:
    """Which decision the numbers are of, where it is not the model's own."""
    if document["decide"] == "score:0":
        return ""
    return (
        " The numbers below that depend on a decision (accuracy, F1,\n"
        "  recall, the share called positive) are those of a score above 0, not of this one."
    )


def _title(document: Mapping[str, Any]) -> str:
    return _printable(f"{document['config']['method']['name']} on {_data(document)}")


def _data(document: Mapping[str, Any]) -> str:
    """The file or folder of the data, or what their source is called."""
    data = document["config"]["data"]
    named = data["dir"] if "label_names" in document else data["path"]
    return named or document["info"]["name"]


def _metadata(document: Mapping[str, Any]) -> str:
    """The lines of metadata, with those that separate them."""
    config = document["config"]
    task = "tabular-classification"
    if len(document["info"]["input_shape"]) > 1:
        task = "image-classification"
    license_name = config["run"].get("license") or UNKNOWN
    method = str(config["method"]["name"]).replace("_", "-")
    lines = [
        "---",
        "library_name: pujax",
        f"license: {license_name}",
        f"pipeline_tag: {task}",
        "tags:",
        *(f"- {tag}" for tag in ("pujax", "jax", "positive-unlabeled-learning", method)),
    ]
    metrics = [
        *((name, value, "test set") for name, value in document["test"].items()),
        *((x["name"], x["value"], _of_estimate(x)) for x in document["estimates"]),
    ]
    metrics = [x for x in metrics if _is_number(x[1])]
    if metrics:
        lines += [
            "model-index:",
            f"- name: {_quoted(_title(document))}",
            "  results:",
            "  - task:",
            f"      type: {task}",
            "    dataset:",
            f"      name: {_quoted(_data(document))}",
            f"      type: {_quoted(document['info']['name'])}",
            "    metrics:",
        ]
        for name, value, source in metrics:
            lines += [
                f"    - type: {_quoted(name)}",
                f"      value: {value:.6g}",
                f"      name: {_quoted(f'{name} ({source})')}",
            ]
    return "\n".join([*lines, "---", ""])


def _of_estimate(estimate: Mapping[str, Any]) -> str:
    """What a reader of the metadata alone must know of a number that no negatives back."""
    text = "estimate without negatives on held-out rows"
    if _is_number(estimate["low"]):
        text += f", 90 % interval {estimate['low']:.3g} to {estimate['high']:.3g}"
    return f"{text}. {estimate['assumption']}"


def _quoted(text: object) -> str:
    """A string as YAML and JSON both read it."""
    return json.dumps(_printable(text), ensure_ascii=False)


def _printable(text: object) -> str:
    """Text in one line."""
    return "".join(x if x.isprintable() else "?" for x in str(text))


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _tables(document: Mapping[str, Any]) -> str:
    """What is known about how good the model is, in Markdown."""
    test, estimates = document["test"], document["estimates"]
    text = "## Test set\n\n"
    if test:
        text += "| metric | value |\n|---|---|\n"
        text += "".join(f"| {name} | {_number(value)} |\n" for name, value in test.items())
    else:
        text += f"None: accuracy on rows of known class is {UNKNOWN}.\n"
    if "label_names" in document:
        return text
    text += "\n## Estimates without negatives\n\n"
    if not estimates:
        return f"{text}None: nothing was held out, or nothing can be said of it.\n"
    text += (
        "From held-out labelled positives and unlabeled rows, with 90 % intervals.\n\n"
        "| metric | value | low | high | of what, and if what holds |\n|---|---|---|---|---|\n"
    )
    for x in estimates:
        numbers = " | ".join(_number(x[name]) for name in ("value", "low", "high"))
        text += f"| {x['name']} | {numbers} | {x['assumption']} |\n"
    return text


def _number(value: Any) -> str:
    return f"{value:.4f}" if _is_number(value) else UNKNOWN
