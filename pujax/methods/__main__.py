"""The command `pujax methods [NAME]`: all methods in a line each, or the fields of one."""

import json
import pathlib
import sys
from typing import Any

from absl import flags

from pujax import catalogue, methods, usage
from pujax.checks import one_of, require
from pujax.console import message, run_command


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = flags.FlagValues()
    flags.DEFINE_bool("json", False, "json", flag_values=values)

    def show(names: list[str]) -> int:
        require(len(names) < 2, "NAME", " ".join(names), "one method, or none for all")
        message(_of_one(names[0], values.json) if names else _of_all(values.json))
        return 0

    return run_command(argv, values, lambda: usage.text("methods", argv[0]), show)


def _of_all(as_json: bool) -> str:
    entries = catalogue.methods()
    if catalogue.unreadable():
        sys.stderr.write(f"{catalogue.unreadable()}\n")
    if as_json:
        return _json([_record(entry) for entry in entries])
    rows = ((entry.name, f"{entry.summary} [{entry.kind}]") for entry in entries)
    return catalogue.lines(rows, indent=0)


def _of_one(name: str, as_json: bool) -> str:
    if not methods.is_own(name):
        one_of("NAME", name, methods.names())
    module = methods.module(name)
    fields = module.default_config().to_dict()
    del fields["name"]
    entry = catalogue.entry(name, pathlib.Path(str(module.__file__)))
    if as_json:
        return _json(_record(entry) | {"fields": fields})
    rows = catalogue.lines((field, repr(fields[field])) for field in sorted(fields))
    return (
        f"{entry.name}: {entry.summary} [{entry.kind}]\n"
        f"Fields and their defaults, set by --config.method.FIELD=VALUE:\n{rows}"
    )


def _record(entry: catalogue.Entry) -> dict[str, Any]:
    return entry._asdict() | {"kind": entry.kind}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
