"""The command that compiles a run for devices that are not there; `--help` lists its options."""

import os
import sys
from typing import Any

import jax
from absl import flags as absl_flags

from pujax import command_line, files, usage
from pujax.aot import OutOfMemoryError, compile_all, report, topologies
from pujax.checks import require
from pujax.console import message
from pujax.training.config import flags


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    own = _flags()
    try:
        rest = own(argv, known_only=True)
        if own.help:
            message(usage.text("compile", argv[0]))
            return 0
        command_line.check_once(argv, own)
        name = own["topology"].value
        if not name:
            raise ValueError(f"--topology is missing; accepted: {topologies.ACCEPTED}")
        _check_writable(own)
        if not any(word.lstrip("-").partition("=")[0] == "config" for word in rest):
            raise ValueError("--config is missing; accepted: --config=configs/NAME.py")
        config, workdir, _ = flags.parse(rest)
        require(not workdir, "--workdir", workdir, "nothing, since no run is made")
        jax.config.update("jax_platforms", "cpu")
        result = _compile(config, topologies.find(name), own["hlo"].value or "")
        message(report.text(result))
        if own["json"].value:
            files.make_folder_of(own["json"].value)
            files.write_json(own["json"].value, result)
        lacking = [
            entry["out_of_memory"] for entry in result["programs"] if "out_of_memory" in entry
        ]
        if lacking:
            raise OutOfMemoryError("; ".join(lacking))
    except (ValueError, OSError, absl_flags.Error) as error:
        sys.stderr.write(f"{command_line.describe(error, own)}\n")
        return 2
    return 0


def _compile(config: Any, topology: topologies.Topology, hlo: str) -> dict[str, Any]:
    texts: list[str] = []

    def keep(name: str, text: str) -> None:
        texts.append(f"// {name}\n{text}")

    result = compile_all(
        config,
        topology,
        say=lambda text: print(text, file=sys.stderr, flush=True),
        keep_text=keep if hlo else lambda name, text: None,
    )
    if hlo:
        files.make_folder_of(hlo)
        files.replace_text(hlo, "\n".join(texts))
    return result


def _flags() -> absl_flags.FlagValues:
    values = absl_flags.FlagValues()
    absl_flags.DEFINE_string("topology", "", "topology", flag_values=values)
    absl_flags.DEFINE_string("hlo", "", "hlo", flag_values=values)
    absl_flags.DEFINE_string("json", "", "json", flag_values=values)
    absl_flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    return values


def _check_writable(values: absl_flags.FlagValues) -> None:
    """The files can be written: a compilation of minutes is not to end in vain."""
    for name in ("hlo", "json"):
        path = values[name].value or ""
        if path:
            files.check_writable(f"--{name}", path)
        if path and os.path.exists(path):
            accepted = "the name of a new file, or of an earlier result of pujax compile"
            require(_is_result(name, path), f"--{name}", path, accepted)
    path = values["json"].value
    is_other = not path or os.path.abspath(path) != os.path.abspath(values["hlo"].value or "")
    require(is_other, "--json", path, "another file than --hlo")


def _is_result(name: str, path: str) -> bool:
    """Whether a file is empty or what this command wrote under that option."""
    if not os.path.isfile(path):  # a pipe or a device
        return False
    if not os.path.getsize(path):
        return True
    if name == "json":
        return report.is_document(path)
    with open(path, errors="replace") as file:
        return file.readline(200).startswith("// ") and file.readline(200).startswith("HloModule")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
