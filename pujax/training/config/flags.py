"""The command line: `--config=FILE[:key=value,...] --workdir=DIR --config.section.field=value`."""

import os
import re
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from pujax import methods


def parse(argv: list[str]) -> tuple[ml_collections.ConfigDict, str, str]:
    """Reads the command line.

    Args:
      argv: program name and arguments.

    Returns:
      `(config, workdir, name)`: workdir is '' where none was given, name is that of the file.

    Raises:
      ValueError: naming the flag and what is wrong with it.
    """
    values = flags.FlagValues()
    config = config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    workdir = flags.DEFINE_string("workdir", "", "Folder of the run.", flag_values=values)
    flags.DEFINE_bool("help", False, "Shows this text.", short_name="h", flag_values=values)
    try:
        rest = values(argv)
        if config.value is not None:
            config.value.keys()  # a file that could not be read says so at its first use
    except flags.Error as error:
        # An error inside a config file arrives as a traceback in the message; its end says it.
        text = str(error).strip().splitlines()[-1].removeprefix("ValueError: ")
        raise ValueError(f"command line: {text}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(_bad_override(argv, error)) from error
    except OSError as error:
        raise ValueError(
            f"--config is {_config_path(argv)!r}, which cannot be read; accepted: the path of a "
            "Python file as in configs/"
        ) from error
    if values.help or values["config"].value is None:
        raise ValueError(
            "usage: python train.py --config=configs/NAME.py[:key=value,...] [--workdir=DIR] "
            "[--config.SECTION.FIELD=VALUE ...]"
        )
    if len(rest) > 1:
        raise ValueError(f"command line: {rest[1:]} is not understood; options begin with --")
    flag: Any = values["config"]
    file = flag.config_filename.split(":")[0]
    return config.value, workdir.value, os.path.splitext(os.path.basename(file))[0]


def _config_path(argv: list[str]) -> str:
    """The file that `--config` names, without its argument."""
    for index, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name in ("--config", "-config"):
            return (value or "".join(argv[index + 1 : index + 2])).split(":")[0]
    return ""


def _bad_override(argv: list[str], error: Exception) -> str:
    """Names the override that the config has no field for, or that has the wrong type."""
    text = str(error)
    unknown = re.search(r"'(\w+)", text)
    for argument in argv[1:]:
        name, _, value = argument.lstrip("-").partition("=")
        field = name.removeprefix("config.")
        if name.startswith("config.") and unknown and unknown[1] in field.split("."):
            new = methods.RENAMED.get(field.removeprefix("method."))
            if new:
                return f"{field} was renamed; accepted: method.{new}={value}"
            hint = re.search(r'Did you mean "(\w+)"', text)
            also = f" (did you mean {hint[1]!r}?)" if hint else ""
            return (
                f"{field} is not a field of the config{also}, so it cannot be {value!r}; accepted: "
                "the fields in pujax/training/config/__init__.py and the method's default_config()"
            )
    return f"command line: {text}"
