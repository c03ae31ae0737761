"""What the configuration files share: the tasks of the papers and the argument after the colon."""

import re

import ml_collections

from pujax import methods
from pujax.training import config as config_lib

_VEHICLES = {"source": "cifar10", "positive_classes": (0, 1, 8, 9)}
_BY_ORDER = {"sampling": "file_order", "num_support": 0}
# Data settings of the LaGAM paper's tasks (section 4.1); class ids are those of the sources.
TASKS = {
    "digits": {
        "source": "digits",
        "positive_classes": (0, 2, 4, 6, 8),
        "num_labeled": 100,
        "num_support": 60,
    },
    "mnist": {"source": "mnist", "positive_classes": (0, 2, 4, 6, 8)},
    "fashion_mnist": {"source": "fashion_mnist", "positive_classes": (0, 2, 4, 6, 8)},
    "cifar10-1": _VEHICLES,
    "cifar10-2": {"source": "cifar10", "positive_classes": (2, 3, 4, 5, 6, 7)},
    "cifar100-1": {"source": "cifar100", "positive_classes": (18, 19)},
    "cifar100-2": {
        "source": "cifar100",
        "positive_classes": (0, 1, 7, 8, 11, 12, 13, 14, 15, 16),
    },
    "stl10-1": {"source": "stl10", "positive_classes": (0, 2, 3, 8, 9)},
    "stl10-2": {"source": "stl10", "positive_classes": (1, 4, 5, 6, 7)},
    # Class ids follow the sorted folder names; all but Non_Demented are positive. The paper does
    # not state its positive classes.
    "alzheimer": {"source": "alzheimer", "image_size": 224, "positive_classes": (0, 1, 3)},
    # ImPULSeS, Table II and the rows of its code. Balanced: c = 0.2, as the code has it.
    "cifar10-imbalanced": {**_VEHICLES, **_BY_ORDER, "num_positives": 3000, "num_labeled": 600},
    "cifar10-balanced": {**_VEHICLES, **_BY_ORDER, "num_labeled": 4000},
    "cifar100-imbalanced": {
        **_BY_ORDER,
        "source": "cifar100",
        "label_set": "fine",
        "positive_classes": (8, 13, 41, 48, 58, 69, 81, 85, 89, 90),
        "num_labeled": 1000,
    },
    # The same for small machines, not the paper's.
    "fashion_mnist-imbalanced": {
        **_BY_ORDER,
        "source": "fashion_mnist",
        "positive_classes": (0, 2, 4, 6, 8),
        "num_positives": 3000,
        "num_labeled": 600,
    },
    "digits-imbalanced": {
        **_BY_ORDER,
        "source": "digits",
        "positive_classes": (0, 2, 4, 6, 8),
        "num_positives": 200,
        "num_labeled": 40,
    },
    # Tables of numbers (Sakai et al. 2021, section 5.2); class 1 is positive.
    "a9a": {"source": "a9a", "positive_classes": (1,)},
    "ijcnn1": {"source": "ijcnn1", "positive_classes": (1,)},
    "mushrooms": {"source": "mushrooms", "positive_classes": (1,)},
    "phishing": {"source": "phishing", "positive_classes": (1,)},
    "newsgroups": {"source": "newsgroups", "positive_classes": (1,)},
    "spambase": {"source": "spambase", "positive_classes": (1,)},
    "connect4": {"source": "connect4", "positive_classes": (2,)},  # a win
    "usps": {"source": "usps", "positive_classes": (0, 2, 4, 6, 8)},
}
TABLES = (
    *("a9a", "ijcnn1", "mushrooms", "phishing", "newsgroups"),
    *("spambase", "connect4", "usps"),
)
_DEFAULTS = {"num_labeled": 1000, "num_support": 500}
_OF_EIGHT_PIXELS = {"flip": False, "padding": 1, "crop_area": 0.5, "align_crop_area": 0.5}
# Random views of digits: a mirrored digit is no digit, the published shift by an eighth of an
# image's side is one pixel of eight, and a fifth of its area four.
_VIEWS = {
    "digits": _OF_EIGHT_PIXELS,
    "digits-imbalanced": _OF_EIGHT_PIXELS,
    "mnist": {"flip": False},
}
# Views that a method keeps on every task. With smaller shifts HolisticPU learns P by heart before
# the scores of U part (docs/results/defaults.md).
_OWN_VIEWS = {"holistic_pu": ("padding",)}
OWN_SUPPORT = 60
"""Clean examples on one's own rows, half of them known negatives: enough on the digits
(docs/results/lagam.md)."""


def parse(
    argument: str, *, own_methods: bool = False, **accepted: tuple[str, ...] | None
) -> dict[str, str]:
    """Reads `key=value,key=value`; a missing key takes the first accepted value.

    Args:
      argument: what follows the colon in `--config=FILE:...`.
      own_methods: whether the key `method` takes the dotted name of a module of one's own, too.
      **accepted: accepted values of every key, the default first; None takes any text, '' by
        default.

    Returns:
      A value for every key.

    Raises:
      ValueError: naming the key, the value and what is accepted.
    """
    chosen = {key: values[0] if values else "" for key, values in accepted.items()}
    for part in filter(None, argument.split(",")):
        key, equals, value = part.partition("=")
        if key not in accepted:
            keys = ", ".join(accepted) or "none"
            raise ValueError(f"config argument {part!r} is unknown; accepted keys: {keys}")
        if not equals:
            value = ", ".join(accepted[key] or ("TEXT",))
            raise ValueError(f"config argument {key} has no value; accepted: {key}={value}")
        if own_methods and key == "method" and value not in accepted[key]:
            if value in methods.names():
                methods.module(value)  # a file that cannot be read is in no list, and says why here
            if methods.is_own(value):
                accepted[key] = (*accepted[key], value)
        if accepted[key] is not None and value not in accepted[key]:
            raise ValueError(
                f"config argument {key} is {value!r}; accepted: {', '.join(accepted[key])}"
            )
        chosen[key] = value
    return chosen


def set_task(config: ml_collections.ConfigDict, task: str) -> None:
    """Fills in the data section for one of `TASKS`, and the random views that its images allow.

    A table's rows are not augmented.
    """
    config.data.update(_DEFAULTS | TASKS[task])
    method = config.method
    if task in TABLES and "augment" in method:
        method.augment = False
    own = _OWN_VIEWS.get(method.name, ())
    views = _VIEWS.get(task, {}).items()
    method.update({name: x for name, x in views if name in method and name not in own})


def suit_gradpu(config: ml_collections.ConfigDict) -> None:
    """Gives GradPU on images a network without batch norm and pixels in [0, 1].

    An input gradient of one example is not defined under batch norm, and the weight `alpha` of the
    penalty goes with such pixels: standardised ones are penalised ten times less.
    """
    if config.model.name in ("small_cnn", "cnn9", "cnn13"):
        config.model.options.batch_norm = False
    config.data.scaling = "unit"


def hold_out(config: ml_collections.ConfigDict, task: str) -> None:
    """Holds out 500 examples, of digits 100, for a method whose epoch or first stage is chosen.

    Nothing is held out for others, and where labels are taken in the order of files. With
    `data.num_validation=0` the last epoch counts.

    Args:
      config: with its method and task set; changed.
      task: its name.
    """
    name = config.method.name
    rules = methods.selection(name), config.method.get("pretrain_selection", "last")
    if set(rules) != {"last"} and config.data.sampling != "file_order":
        config.data.num_validation = 100 if task.startswith("digits") else 500


def own_rows(
    argument: str, *, source: str, num_epochs: int, **accepted: tuple[str, ...]
) -> tuple[ml_collections.ConfigDict, dict[str, str]]:
    """What one's own table and one's own folder share: P and U from one place, and nothing else.

    Args:
      argument: what follows the colon; method = nnpu or another that needs no hidden label, which
        may be a module of one's own. One that needs clean examples of both classes gets
        `OWN_SUPPORT` of those whose class is known.
      source: name of the data source.
      num_epochs: of nnPU; the other methods keep their own.
      **accepted: other keys of the argument, as `parse` takes them.

    Returns:
      The configuration, and a value for every key.
    """
    names = ("nnpu", *(x for x in methods.for_own_rows(has_support=True) if x != "nnpu"))
    try:
        chosen = parse(argument, own_methods=True, method=names, **accepted)
    except ValueError as error:
        if not set(methods.names()) & set(re.findall(r"method=(\w+)", argument)) - set(names):
            raise
        raise ValueError(f"{error}, which need no hidden label") from error
    method = chosen["method"]
    config = config_lib.default_config(method)
    config.data.update(
        {
            "source": source,
            "positive_classes": (),
            "num_labeled": 0,
            "num_support": 0,
            "holdout": 0.2,
            "prior": "auto",
        }
    )
    config.method.update(methods.own_rows(method))
    if methods.needs_negatives(method, config.method):
        config.data.num_support = OWN_SUPPORT
        if "support_batch_size" in config.method:
            config.method.support_batch_size = OWN_SUPPORT
    if method == "nnpu":
        config.method.num_epochs = num_epochs
    return config, chosen
