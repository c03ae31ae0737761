"""Mutation testing of the parts that decide numbers: small changes of the code that tests must see.

`pip install cosmic-ray==8.7.0`, then `python benchmarks/mutation.py` prints, for every part, the
mutants that cosmic-ray makes, how many a seeded sample tried, and the survivors as differences.
`--parts risks meta` takes some parts, `--sample N` another number per part (0: all of them).

The code is changed in a copy of the tree, never in the tree itself. Each mutant is tested in a
process of its own, forked after the libraries are imported and before pujax is. Only the tests
that are listed here for the changed file are run, so that a survivor may still be seen by others.
"""

import argparse
import dataclasses
import difflib
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Shifts and bitwise operators in the place of arithmetic, and arithmetic in the place of bitwise
# operators, fail with a TypeError on floating-point numbers and in annotations: they test nothing.
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow")
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")
_TIER = ("-m", "not slow and not thorough and not aot")


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of the code.

    Attributes:
      sources: folder or file below `pujax`.
      sample: mutants to try.
      tests: test files of the whole part.
      own_tests: whether a source file `x.py` has only `tests` and its own `tests_x.py`.
      selected: tests of these names only, as `-k` of pytest; '' for all.
    """

    sources: str
    sample: int
    tests: tuple[str, ...]
    own_tests: str = ""
    selected: str = ""


PARTS = {
    "risks": Part("risks", 60, ("tests/test_risks.py",), "tests/test_risks_{}.py"),
    "meta": Part("meta", 40, ("tests/test_meta.py",), "tests/test_meta_{}.py"),
    "contrastive": Part(
        "contrastive",
        40,
        (
            "tests/test_contrastive.py",
            "tests/test_contrastive_alignment.py",
            "tests/test_contrastive_views.py",
            "tests/test_contrastive_blocks.py",
        ),
    ),
    "priors": Part("priors", 40, (), "tests/priors/test_{}.py"),
    "metrics": Part("metrics", 40, ("tests/test_metrics.py",), "tests/test_metrics_{}.py"),
    "calibration": Part("calibration.py", 30, ("tests/test_calibration.py",)),
    "significance": Part("significance.py", 20, ("tests/test_significance.py",)),
    "mutual_info": Part("mutual_info", 30, ("tests/test_mutual_info.py",)),
    "classic": Part("methods/classic.py", 20, ("tests/methods/test_classic.py",)),
    "audit": Part(
        "audit",
        30,
        (
            "tests/audit/test_checks.py",
            "tests/audit/test_numbers.py",
            "tests/audit/test_check_command.py",
        ),
    ),
    "verdict": Part(
        "reports/verdict.py",
        30,
        ("tests/reports/test_verdict.py", "tests/reports/test_comparison.py"),
    ),
    "splits": Part(
        "data/splits",
        30,
        (
            "tests/data/test_labeling.py",
            "tests/data/test_pu_labels.py",
            "tests/data/test_dataset.py",
            "tests/data/test_subset.py",
        ),
    ),
    "written_numbers": Part(
        "data/readers/written_numbers.py", 30, ("tests/data/test_written_numbers.py",)
    ),
    "batching": Part("data/batching.py", 30, ("tests/data/test_batching.py",)),
    "train_loop": Part(
        "training/train_loop.py",
        12,
        ("tests/training/test_seed_axis.py", "tests/training/test_loop_never_waits.py"),
        selected="the_loop_gives or call_sends or fetched or before_the_next",
    ),
    "train_step": Part(
        "training/train_step.py",
        12,
        ("tests/training/test_seed_axis.py", "tests/training/test_few_kernels.py"),
        selected="the_loop_gives or undoes or keys_of or many_steps or beyond or every_call",
    ),
    "checkpoint": Part(
        "training/checkpoint.py",
        12,
        ("tests/training/test_experiment.py", "tests/faults/test_checkpoint_damage.py"),
        selected="never_saved or is_named or checksum or position or good or not_finite or cores",
    ),
}


def tests_of(part: Part, source: pathlib.Path) -> list[str]:
    """Test files for a changed file, those of its own first."""
    if not part.own_tests:
        return list(part.tests)
    own = part.own_tests.format(source.stem)
    if (ROOT / own).exists():
        return [own, *part.tests]
    others = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob(part.own_tests.format("*")))
    return [*part.tests, *others]


def is_tried(operator: str) -> bool:
    """Whether mutants of an operator of cosmic-ray are worth a run."""
    if not operator.startswith("core/ReplaceBinaryOperator_"):
        return True
    before, after = operator.split("_")[1:]
    return (before in _ARITHMETIC) == (after in _ARITHMETIC)


def mutants_of(source: pathlib.Path) -> list[tuple[str, int]]:
    """Operator and occurrence of every mutant of a file."""
    from cosmic_ray import ast, plugins

    nodes = list(ast.ast_nodes(ast.get_ast_from_path(source)))
    mutants = []
    for name in sorted(filter(is_tried, plugins.operator_names())):
        operator_class = plugins.get_operator(name)
        if operator_class.arguments():
            continue
        operator = operator_class()
        count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
        mutants += [(name, occurrence) for occurrence in range(count)]
    return mutants


def run_tests(
    copy: pathlib.Path, part: Part, tests: list[str], limit: float, *, is_mutant: bool = True
) -> tuple[bool, str]:
    """Whether the tests pass in `copy`, within `limit` seconds, and their output."""
    log = copy / "mutation.log"
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.setpgid(0, 0)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(copy)
            sys.dont_write_bytecode = is_mutant  # of the unchanged code only, for the others
            os.environ["PYTHONPATH"] = str(copy)
            sys.path[:] = [str(copy), *(p for p in sys.path if p not in ("", str(ROOT)))]
            import pytest

            selected = ["-k", part.selected] if part.selected else []
            status = int(pytest.main([*_OPTIONS, *_TIER, *selected, *tests]))
        finally:
            sys.stdout.flush()
            os._exit(status)
    until = time.monotonic() + limit
    while True:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            return code == 0, log.read_text(errors="replace")
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False, "out of time"
        time.sleep(0.05)


def try_part(name: str, part: Part, copy: pathlib.Path, seed: int, sample: int) -> dict:
    """Tries a sample of the mutants of a part; prints survivors as they are found."""
    from cosmic_ray import mutating, plugins

    source = ROOT / "pujax" / part.sources
    files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    mutants = [(path, *mutant) for path in files for mutant in mutants_of(path)]
    tried = mutants
    if 0 < sample < len(mutants):
        tried = random.Random(f"{seed} {name}").sample(mutants, sample)

    limits = {}
    killed = survived = 0
    for number, (path, operator_name, occurrence) in enumerate(tried, 1):
        tests = tests_of(part, path)
        if tuple(tests) not in limits:  # what the unchanged code takes, with a cold cache too
            start = time.monotonic()
            passes, output = run_tests(copy, part, tests, 1800, is_mutant=False)
            if not passes:
                raise SystemExit(f"tests of the unchanged code fail: {tests}\n{output[-3000:]}")
            limits[tuple(tests)] = 60 + 4 * (time.monotonic() - start)
        target = copy / path.relative_to(ROOT)
        before, times = target.read_text(), target.stat()
        operator = plugins.get_operator(operator_name)()
        after = mutating.mutate_code(before, operator, occurrence)
        try:
            target.write_text(after)
            start = time.monotonic()
            passes, _ = run_tests(copy, part, tests, limits[tuple(tests)])
        finally:
            target.write_text(before)
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        killed, survived = killed + (not passes), survived + passes
        seconds = time.monotonic() - start
        verdict = "survived" if passes else "killed"
        where = f"{path.relative_to(ROOT)} {operator_name.split('/')[1]} {occurrence}"
        print(f"{name} {number}/{len(tried)} {verdict} {seconds:.1f} s {where}", flush=True)
        if passes:
            lines = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
            print("\n".join(line for line in list(lines)[2:]), flush=True)
    return {"made": len(mutants), "tried": len(tried), "killed": killed, "survived": survived}


def main() -> None:
    """Tries the parts that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, help="mutants per part; 0 tries all")
    args = parser.parse_args()
    if args.sample is not None and args.sample < 0:
        parser.error(f"--sample is {args.sample}; accepted: a number from 0, which tries all")

    from tests import jax_settings

    jax_settings.apply(os.environ)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # Imported once, for all mutants; none of them starts threads or imports pujax.
    import flax.linen  # noqa: F401
    import jax  # noqa: F401
    import ml_collections  # noqa: F401
    import optax  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import pytest  # noqa: F401
    import sklearn.metrics  # noqa: F401

    for module in [module for module in sys.modules if module.split(".")[0] == "tests"]:
        del sys.modules[module]
    if any(module.split(".")[0] == "pujax" for module in sys.modules):
        raise SystemExit("pujax is imported too early; mutants would not be seen")

    rows = {}
    with tempfile.TemporaryDirectory(prefix="mutation") as folder:
        copy = pathlib.Path(folder) / "tree"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache")
        )
        for name in args.parts:
            part = PARTS[name]
            sample = part.sample if args.sample is None else args.sample
            rows[name] = try_part(name, part, copy, args.seed, sample)
    print(f"{'part':12} {'made':>6} {'tried':>6} {'killed':>6} {'survived':>8}")
    for name, row in rows.items():
        print(f"{name:12} {row['made']:6} {row['tried']:6} {row['killed']:6} {row['survived']:8}")


if __name__ == "__main__":
    main()
