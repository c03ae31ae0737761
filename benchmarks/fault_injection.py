"""Faults injected for real into runs of the digits, counted: bit flips and kills.

    python benchmarks/fault_injection.py [--flips=24] [--kills=10] [--seed=0]

Every flipped bit is in the newest of two checkpoints of a finished run, half of them in its largest
file and the others anywhere; the run then goes on and must end with the rows, to the bit, that it
has without. Kills are SIGKILLs at random moments, half of them while a checkpoint is being written;
the same command then goes on, to the same rows. A run that ended before its kill is counted apart.
The status is 1 unless every run ends with those rows.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_COMMAND = [
    *("train.py", "--config=configs/baseline.py:method=naive,backbone=mlp"),
    *("--config.method.num_epochs=6", "--config.run.checkpoint_every=1"),
    *("--config.run.figures=False", "--config.run.tensorboard=off"),
]


def start(folder: pathlib.Path, *flags: str) -> subprocess.Popen:
    """Begins or goes on with the run in a folder."""
    return subprocess.Popen(
        [sys.executable, *_COMMAND, f"--workdir={folder}", *flags],
        cwd=_REPOSITORY,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rows(folder: pathlib.Path) -> list[dict]:
    """Rows of metrics without times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    timing = ("seconds", "examples_per_second")
    return [{k: v for k, v in json.loads(x).items() if k not in timing} for x in lines]


def finish(folder: pathlib.Path, straight: list[dict]) -> tuple[str, str]:
    """Goes on to the end; says how it ended, and what it said about a checkpoint."""
    process = start(folder)
    text = process.communicate()[0]
    said = [line for line in text.splitlines() if "checkpoint" in line]
    if process.returncode:
        return f"refused with status {process.returncode}", text.splitlines()[-1]
    return ("same rows" if rows(folder) == straight else "OTHER ROWS"), "; ".join(said)


def main(argv: list[str]) -> int:
    """Injects, counts and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=24)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    draw = random.Random(options.seed)
    counts: dict[str, int] = {}

    def note(fault: str, ending: str, said: str) -> None:
        seen = "said so" if "damaged" in said else "silent"
        name = f"{fault}: {ending}, {seen}"
        counts[name] = counts.get(name, 0) + 1
        print(f"{name}   {said[:150]}", flush=True)

    with tempfile.TemporaryDirectory() as place:
        base = pathlib.Path(place)
        began = time.monotonic()
        process = start(base / "straight")
        text = process.communicate()[0]
        if process.returncode:
            raise SystemExit(f"the run that nothing befalls failed:\n{text}")
        seconds = time.monotonic() - began
        straight = rows(base / "straight")
        start(base / "stopped", "--config.run.stop_after_epoch=4").communicate()
        for number in range(options.flips):
            folder = base / f"flip{number}"
            shutil.copytree(base / "stopped", folder)
            steps = sorted((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))
            files = [x for x in sorted(steps[-1].rglob("*")) if x.is_file() and x.stat().st_size]
            largest = max(files, key=lambda path: path.stat().st_size)
            path = largest if number % 2 == 0 else draw.choice(files)
            content = bytearray(path.read_bytes())
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(content)
            fault = "bit of the largest file" if path == largest else "bit of another file"
            note(fault, *finish(folder, straight))
            shutil.rmtree(folder)
        for number in range(options.kills):
            folder, in_save = base / f"kill{number}", number % 2 == 0
            process = start(folder)
            if in_save:
                name = "*.orbax-checkpoint-tmp*"
                while process.poll() is None and not list(folder.glob(f"checkpoints/{name}")):
                    time.sleep(0.001)
                time.sleep(draw.random() * 0.05)
            else:
                time.sleep(draw.random() * seconds)
            process.kill()
            process.communicate()
            fault = f"SIGKILL {'in a save' if in_save else 'at any time'}"
            if process.returncode != -signal.SIGKILL:
                fault = "ended before its SIGKILL"
            note(fault, *finish(folder, straight))
            shutil.rmtree(folder)
    print("\n" + "\n".join(f"{count:4} x {name}" for name, count in sorted(counts.items())))
    return int(not all("same rows" in name for name in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
