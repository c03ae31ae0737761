"""Small runs to do harm to: the digits, a very small network, few epochs."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from pujax.training import config as config_lib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

FILE = """
from tests.faults import runs

def get_config(argument=""):
    return runs.small()
"""


def small(method="naive", **run):
    """A configuration that trains in a second and saves after every epoch."""
    config = config_lib.default_config(method)
    config.data.update({"num_labeled": 200, "num_support": 60})
    config.model.name, config.model.options = "mlp", {"hidden": (16,)}
    config.method.update({"num_epochs": 3, "batch_size": 128, "learning_rate": 0.005})
    config.run.update({"figures": False, "tensorboard": "off", "checkpoint_every": 1} | run)
    return config


def own_table(path, **run):
    """A configuration that trains on a file of 120 own rows, which is written, with figures."""
    rng = np.random.default_rng(0)
    labeled = np.arange(120) % 4 == 0
    x = rng.normal(size=[120, 2]) + 2 * labeled[:, None]
    lines = [f"{a},{b},{c:d}" for (a, b), c in zip(x.round(3), labeled, strict=True)]
    pathlib.Path(path).write_text("\n".join(["a,b,label", *lines, ""]))
    config = small(figures=True, **run)
    config.data = config_lib.default_config("naive").data
    own = {"source": "own_table", "path": str(path), "label": "label", "positive_classes": ()}
    config.data.update({"num_labeled": 0, "holdout": 0.25, "prior": 0.3} | own)
    config.method.update({"num_epochs": 1, "batch_size": 32})
    return config


def rows(folder):
    """Metrics without the wall-clock columns."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    timing = ("seconds", "examples_per_second")
    return [{k: v for k, v in json.loads(x).items() if k not in timing} for x in lines]


def start(tmp_path, workdir, *flags, devices=1, within=(), cache=True, **options):
    """`train.py` as a process of its own, on the configuration above.

    `within` is a command that runs this one; `cache` is whether it may keep compiled programs, of
    which a full disk or a limit leaves halves that JAX would find at every later start.
    """
    file = tmp_path / "small.py"
    file.write_text(FILE)
    command = [sys.executable, "train.py", f"--config={file}", f"--workdir={workdir}", *flags]
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }
    environment |= {} if cache else {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options = pipes | options
    return subprocess.Popen([*within, *command], cwd=REPOSITORY, env=environment, **options)


def finished(*args, **kwargs):
    """`start`, and what it wrote to the standard error once it has ended well."""
    process = start(*args, **kwargs)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 0, text
    return text


def flip(path, byte, bit):
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)
