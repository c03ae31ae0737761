"""`python -m pujax.compile` from a command line to a report, for simulated CPU devices."""

import inspect
import json
import os
import pathlib
import types

import jax
import pytest

from pujax import compile as command
from pujax.aot import compilation, problem, programs, report, topologies
from pujax.data import sources
from pujax.training import config as config_lib
from pujax.training import train_step

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"


def run(capsys, *options, config="gradpu.py:task=digits"):
    status = command.main(["compile", f"--config={CONFIGS / config}", *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def small(**sections):
    """A configuration on digits whose programs compile in seconds."""
    config = config_lib.default_config("nnpu")
    config.model.name = "mlp"
    config.method.batch_size = 64
    for name, fields in sections.items():
        config[name].update(fields)
    return config


def built(config, devices=2):
    return problem.build(config, topologies.find(f"cpu:{devices}").mesh)


def names_of(config, devices=2):
    found, notes = programs.all_programs(built(config, devices))
    return [(program.name, program.num_steps) for program in found], notes


@pytest.mark.thorough
def test_a_report_of_every_program(tmp_path, capsys):
    files = [f"--{kind}={tmp_path / f'all.{kind}'}" for kind in ("json", "hlo")]
    status, out, err = run(
        capsys, "--topology=cpu:2", *files, "--config.method.batch_size=64", "--config.seed=1"
    )
    assert status == 0 and "[1/2] train train" in err
    document = json.loads((tmp_path / "all.json").read_text())
    train, predict = document["programs"]
    # 1,442 training images less 60 of validation, in batches of 64.
    assert (train["name"], train["steps"], predict["name"]) == ("train train", 21, "predict")
    assert document["devices"] == 2 and document["facts"] is None
    step = train["per_step"]
    assert step["kernels"] == sum(step["by_kind"].values()) == sum(step["by_part"].values())
    assert step["collectives"]["all-reduce"]["bytes"] > 0
    assert train["memory"]["temporaries"] > 0 and predict["per_step"] is None
    assert (tmp_path / "all.hlo").read_text().count("\nENTRY ") == 2
    assert "a step: " in out and "step: backward" in out and "== predict" in out
    # The files are its own, and may be written again.
    assert command._is_result("json", str(tmp_path / "all.json"))
    assert command._is_result("hlo", str(tmp_path / "all.hlo"))


@pytest.mark.thorough
def test_products_of_a_network_by_hand():
    config = small(method={"num_epochs": 1, "augment": False})
    entry = compilation.compile_all(config, topologies.find("cpu:1"))["programs"][-1]
    assert entry["name"] == "predict"
    shapes = problem.stage_shapes(built(config, 1))[0].state.params
    sizes = [leaf.size for leaf in jax.tree.leaves(shapes) if leaf.ndim == 2]
    rows = len(sources.load("digits").test_labels)  # fewer than run.eval_batch_size
    # A product with one column may be a sum that the compiler does not call a product.
    found = sum(entry["per_call"]["flops"].values())
    assert found in (2 * rows * sum(sizes), 2 * rows * (sum(sizes) - min(sizes)))


@pytest.mark.thorough
def test_programs_of_stages_and_of_what_they_refresh():
    config = config_lib.default_config("lagam")
    config.data.update({"num_labeled": 100, "num_support": 60})
    config.method.update({"batch_size": 64, "support_batch_size": 32})
    found, notes = names_of(config)
    assert found == [
        ("train warmup", 21),
        *(("refresh main: embed", 0), ("refresh main: kmeans", 0)),
        ("refresh main: assign_clusters", 0),
        ("train main", 21),
        ("predict", 0),
    ]
    assert notes == []


def test_devices_that_do_not_divide_an_evaluation_share_fewer_rows_as_in_a_run():
    config = small(method={"batch_size": 63}, run={"eval_batch_size": 128})
    found, _ = programs.all_programs(built(config, devices=3))
    (predict,) = (program for program in found if program.name == "predict")
    assert jax.tree.leaves(predict.trace().in_avals)[-1].shape[0] == 126


def test_steps_of_a_call_are_those_of_an_accelerator():
    config = small(data={"source": "mnist"}, method={"batch_size": 250})
    assert names_of(config, 1)[0][0] == ("train train", 30)  # of 240 in an epoch
    config.run.steps_per_dispatch = 5
    assert names_of(config, 1)[0][0] == ("train train", 5)


@pytest.mark.thorough
def test_images_in_files_are_compiled_step_by_step():
    config = config_lib.default_config("pu_mlc")
    config.data.update({"source": "voc2007", "image_size": 32, "load_size": 40})
    config.model.update({"name": "resnet18_v1"})
    config.method.update({"batch_size": 8, "crop_sizes": (40, 32)})
    assert names_of(config)[0][0] == ("train train", 1)
    shapes = problem.stage_shapes(built(config))[0].data
    assert shapes.inputs.shape == (8, 32, 32, 3) and shapes.labeled.shape == (5011, 20)
    assert shapes.inputs.sharding.shard_shape(shapes.inputs.shape) == (4, 32, 32, 3)


def test_everything_that_decides_how_a_step_compiles_is_set_here():
    # `programs` has to give every one of them as a run on an accelerator does.
    known = {"stage", "mesh", "first_epoch", "streamed", "packed"}
    assert set(inspect.signature(train_step.make_train).parameters) == known


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--topology is missing; accepted: h200"),
        (["--topology=h9"], "--topology is 'h9'; accepted: h200"),
        (["--topology=cpu:3"], "the batch size of stage 'train' is 100, which 3 devices cannot"),
        (["--topology=cpu:2", "--json=/proc/x"], "--json is '/proc/x', but nothing can be"),
        (["--topology=cpu:2", "--json=/"], "--json is '/', a folder; accepted: a file"),
        (["--topology=cpu:2", "--hlo=/"], "--hlo is '/', a folder; accepted: a file"),
        (["--topology=cpu:2", "--hlo=x", "--json=./x"], "--json is './x'; accepted: another file"),
        (["--topology=cpu:2", "--workdir=x"], "--workdir is 'x'; accepted: nothing"),
        (["--topology=cpu:2", "--config.method.lr=3"], "method.lr is not a field"),
        (["--topology=cpu:2", "--config.data.source=table"], "data.source is 'table'"),
    ],
)
def test_errors_are_one_line(capsys, options, message):
    status, out, err = run(capsys, *options)
    assert status == 2 and out == "" and err.count("\n") == 1 and message in err


@pytest.mark.parametrize("option", ["json", "hlo"])
@pytest.mark.parametrize("content", ['{"programs": []}', "// a\nvoid main", "7,1\n", "\xff"])
def test_no_file_of_others_is_written_over(capsys, tmp_path, option, content):
    path = tmp_path / "valuable"
    path.write_text(content, "latin-1")
    status, out, err = run(capsys, "--topology=cpu:2", f"--{option}={path}")
    assert status == 2 and out == "" and err.count("\n") == 1
    assert f"--{option} is '{path}'; accepted: the name of a new file" in err
    assert path.read_text("latin-1") == content


def test_an_empty_file_may_be_written_over_and_a_device_may_not(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    assert command._is_result("json", str(empty)) and command._is_result("hlo", str(empty))
    assert not command._is_result("json", os.devnull)


def test_a_command_without_a_configuration_says_so(capsys):
    assert command.main(["compile", "--topology=cpu:2"]) == 2
    assert capsys.readouterr().err == ("--config is missing; accepted: --config=configs/NAME.py\n")


def test_help(capsys):
    assert command.main(["compile", "--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: python -m pujax.compile" in out and "v5e:4x4" in out


def test_labels_that_depend_on_the_images_are_drawn_at_random_and_said_so():
    config = small(data={"labeling": "pusb"})
    found = built(config)
    assert found.labeled == 100 and "data.labeling='pusb' needs the images" in found.notes[0]
    config = small(data={"prior": "auto"})
    assert "prior is taken to be 0.5" in built(config).notes[0]


class Refreshing:
    """Stands for a stage's refresh that looks at a number on the host."""

    def __call__(self, state, data, key, epoch=0):
        return state if float(data.support_labels.sum()) > 0 else None


def test_a_record_of_the_first_epoch_is_compiled_before_the_second():
    found = config_lib.default_config("holistic_pu")
    found.model.name = "mlp"
    found.method.batch_size = 64
    names, notes = names_of(found)
    assert ("refresh trend: probabilities", 0) in names
    assert [note.partition(":")[0] for note in notes] == ["refresh classify"]  # it cuts on the host


def test_a_refresh_that_decides_on_the_host_is_told():
    found = built(small())
    stage = found.method.stages[0]._replace(refresh=Refreshing())
    found = found._replace(method=found.method._replace(stages=(stage,)))
    listed, notes = programs.all_programs(found)
    assert [program.name for program in listed] == ["train train", "predict"]
    assert notes[0].startswith("refresh train: what it compiles is not known, since it looks at")


@pytest.mark.parametrize("fault", [AttributeError("no such thing"), TypeError("wrong shapes")])
def test_a_fault_of_a_refresh_is_no_note(fault):
    def refresh(state, data, key, epoch=0):
        raise fault

    found = built(small())
    stage = found.method.stages[0]._replace(refresh=refresh)
    with pytest.raises(type(fault), match=str(fault)):
        programs.all_programs(found._replace(method=found.method._replace(stages=(stage,))))


@pytest.mark.parametrize(
    ("message", "needed", "limit"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (128.00G) exceeds available HBM (15.75G). HLO",
            *(128.0, 15.75),
        ),
        ("Ran out of memory in memory space hbm. Used 21.3G of 15.75G hbm.", 21.3, 15.75),
    ],
)
def test_a_program_that_does_not_fit_says_by_how_much(monkeypatch, message, needed, limit):
    class Failing:
        def trace(self):
            return self

        def lower(self, **options):
            return self

        def compile(self, **options):
            raise jax.errors.JaxRuntimeError(message)

    program = programs.Program("train main", 1, Failing().trace)
    entry, text = compilation.compile_program(program, topologies.find("cpu:1"))
    assert text == "" and entry["out_of_memory"] == (
        f"train main needs {needed:.2f} GiB a device and {limit:.2f} GiB are there, "
        f"{needed - limit:.2f} GiB too few; take a smaller method.batch_size, more devices, or "
        "model.dtype=bfloat16"
    )
    shown = {"method": "m", "data": "d", "devices": 1, "topology": "t", "jax": "0", "facts": None}
    assert "DOES NOT FIT: train main needs" in report.text(
        shown | {"programs": [entry], "notes": ["this"]}
    )


@pytest.mark.thorough
def test_memory_that_is_too_small_fails_after_the_report(monkeypatch, capsys, tmp_path):
    facts = topologies.TPUS["v5e"]._replace(memory=10**4)
    find = topologies.find
    monkeypatch.setattr(
        topologies, "find", lambda name: find(name)._replace(facts=facts, options={})
    )
    status, out, err = run(
        capsys,
        *("--topology=cpu:1", f"--json={tmp_path / 'x.json'}", "--config.method.num_epochs=1"),
    )
    assert status == 2 and "does not fit 0 MB" in out and "roofline, an estimate" in out
    last = err.strip().splitlines()[-1]
    assert last.startswith("train train needs") and "run.eval_batch_size" in last
    assert json.loads((tmp_path / "x.json").read_text())["programs"][0]["out_of_memory"]


def test_what_must_be_in_memory_at_once():
    facts = topologies.TPUS["v5e"]._replace(memory=1000, usable=0.5)
    stats = types.SimpleNamespace(
        argument_size_in_bytes=300,
        output_size_in_bytes=250,
        alias_size_in_bytes=240,
        temp_size_in_bytes=150,
        generated_code_size_in_bytes=40,
    )
    topology = topologies.find("cpu:1")._replace(facts=facts)
    # Outputs that take the place of arguments need no room of their own.
    found = compilation.memory(stats, topology)
    assert (found["peak"], found["limit"], found["fits"]) == (500, 500, True)
    stats.temp_size_in_bytes += 1
    assert not compilation.memory(stats, topology)["fits"]
