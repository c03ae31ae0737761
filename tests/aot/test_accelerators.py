"""The published experiments compile for accelerators that are not there, and fit.

Minutes each; each in a process of its own, since a compiler's plugin must be found before JAX has
started, and with XLA's own flags instead of those of the tests.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXPERIMENTS = {
    "lagam": ["--config=configs/lagam_cifar.py", "--config.model.dtype=bfloat16"],
    "impulses": ["--config=configs/impulses.py:size=32", "--config.model.dtype=bfloat16"],
    "pu_mlc": [
        "--config=configs/pu_mlc_voc.py:precision=bfloat16",
        "--config.method.batch_size=96",
    ],
    "gradpu": ["--config=configs/gradpu.py", "--config.method.batch_size=256"],
}
COMPILERS = {"v5e:4x4": ("libtpu", "aot-tpu"), "h200": ("jax_cuda12_plugin", "aot-gpu")}

pytestmark = pytest.mark.aot


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("topology", COMPILERS)
def test_an_experiment_compiles_and_fits(tmp_path, topology, experiment):
    module, extra = COMPILERS[topology]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the compiler is not installed: pip install 'pujax[{extra}]'")
    output = tmp_path / "report.json"
    command = [sys.executable, "-m", "pujax.compile", f"--topology={topology}", f"--json={output}"]
    ours = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_COMPILATION_CACHE_DIR")
    result = subprocess.run(
        [*command, *EXPERIMENTS[experiment]],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name not in ours},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    report = json.loads(output.read_text())
    steps = [entry for entry in report["programs"] if entry["steps"]]
    assert steps and report["programs"][-1]["name"] == "predict"
    for entry in report["programs"]:
        assert entry["memory"]["fits"] and 0 < entry["memory"]["peak"] < entry["memory"]["limit"]
    for entry in steps:
        step = entry["per_step"]
        assert sum(step["flops"].values()) > 0 and step["by_part"]["backward"] > 0
        assert bool(step["collectives"]) == (topology != "h200")
