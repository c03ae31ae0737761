"""Devices by name, the errors that say what to do, and limits of time."""

import pytest

from pujax.aot import roofline, topologies
from pujax.aot.analysis import Totals


@pytest.mark.parametrize(
    "name",
    ["", "h300", "v5e", "v5e:4", "v5e:4x4x4", "v5p:4x4", "v4:0x2x2", "h200:0", "cpu:x", "V5E:2x2"],
)
def test_an_unknown_topology_lists_those_there_are(name):
    with pytest.raises(ValueError) as caught:
        topologies.find(name)
    text = str(caught.value)
    assert text.startswith(f"--topology is {name!r}; accepted: ") and "\n" not in text
    for known in (*topologies.GPUS, *topologies.TPUS, "cpu:N"):
        assert known in text


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("h100", "xla_cuda", "aot-gpu"), ("v6e:2x2", "libtpu", "aot-tpu")]
)
def test_a_missing_compiler_says_what_to_install(monkeypatch, name, module, extra):
    find = topologies.importlib.util.find_spec

    def without(wanted):
        return None if module in wanted else find(wanted)

    monkeypatch.setattr(topologies.importlib.util, "find_spec", without)
    with pytest.raises(ValueError, match=rf"not installed.*pip install 'pujax\[{extra}\]'"):
        topologies.find(name)


def test_a_cpu_as_several_devices():
    found = topologies.find("cpu:4")
    assert found.mesh.size == 4 and found.mesh.axis_names == ("data",)
    assert found.platform == "cpu" and found.facts is None
    with pytest.raises(ValueError, match="accepted: up to cpu:8"):
        topologies.find("cpu:9")


def test_facts_are_those_of_the_data_sheets():
    h200, v5e = topologies.GPUS["h200"], topologies.TPUS["v5e"]
    assert h200.peak["f32"] == h200.peak["bf16"] / 2 and v5e.peak["f32"] == v5e.peak["bf16"]
    assert 140e9 < h200.memory < 152e9 and "major: 9 minor: 0" in h200.description
    assert "core_count: 108 " in topologies.GPUS["a100"].description
    # A step of one operation per byte is bound by memory on all of them.
    for facts in (*topologies.GPUS.values(), *topologies.TPUS.values()):
        assert facts.peak["bf16"] / facts.bandwidth > 100


def test_limits_of_a_roofline_by_hand():
    facts = topologies.Facts(
        "a device",
        memory=1,
        usable=1.0,
        bandwidth=100.0,
        peak={"bf16": 50.0, "f32": 10.0},
        link=8.0,
        launch=0.5,
    )
    totals = Totals(
        launches=6.0,
        flops={"bf16": 100.0, "f32": 20.0, "f64": 10.0},
        num_bytes=700.0,
        collectives={
            "all-reduce": {"launches": 2.0, "bytes": 16.0},
            "all-gather": {"launches": 1.0, "bytes": 4.0},
            "collective-permute": {"launches": 1.0, "bytes": 2.0},
        },
    )
    found = roofline.limits(totals, facts, num_devices=4)
    assert found == {
        "multiplications": 2.0 + 2.0 + 1.0,
        "memory": 7.0,
        "launches": 3.0,
        # Three quarters of the data, of a sum twice; a permutation sends all of it.
        "exchange": (2 * 0.75 * 16 + 0.75 * 4 + 2) / 8,
        "longest": 7.0,
        "bound_by": "memory",
    }
    assert roofline.limits(totals, facts, num_devices=1)["exchange"] == 2 / 8
