"""The command line: `--config=FILE[:key=value,...] --workdir=DIR --config.section.field=value`.

In place of FILE stands the name of a configuration of pujax, too.
"""

import ast
import contextlib
import difflib
import os
import re
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from pujax import command_line, configs, methods, models

_CONFIG = ("--config", "-config")
_OPTIONS = "config.model.options."
_CONFIGS = (ml_collections.ConfigDict, ml_collections.FrozenConfigDict)
BOOLEANS = {"true": True, "false": False}
_ACCEPTED = {
    "invalid literal for int": "a whole number",
    "could not convert string to float": "a number",
    "Non-boolean argument": "true or false",
}
"""What a field accepts, by what the parser of its flag says of something else."""


def parse(argv: list[str]) -> tuple[ml_collections.ConfigDict, str, str]:
    """Reads the command line.

    Args:
      argv: program name and arguments.

    Returns:
      `(config, workdir, name)`: workdir is '' where none was given, name is that of the file.

    Raises:
      ValueError: naming the flag and what is wrong with it.
    """
    command_line.check_once(argv)
    argv, options = _model_options(_with_files(argv))
    values = flags.FlagValues()
    config = config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    workdir = flags.DEFINE_string("workdir", "", "Folder of the run.", flag_values=values)
    flags.DEFINE_bool("help", False, "Shows this text.", short_name="h", flag_values=values)
    try:
        rest = values(argv)
        if config.value is not None:
            # A file that could not be read says so at the first use of its value.
            if not (hasattr(config.value, "keys") and isinstance(config.value, _CONFIGS)):
                raise ValueError(
                    f"--config={_config_path(argv)}: get_config returns a "
                    f"{type(config.value).__name__}; accepted: a file {configs.RETURNS_ONE}"
                )
            _set_options(config.value, options)
    except flags.Error as error:
        if not _config_path(argv) and any(word.startswith("--config.") for word in argv):
            raise ValueError(f"--config is missing; accepted: {configs.accepted()}") from error
        if isinstance(error, flags.UnrecognizedFlagError):
            raise ValueError(_unknown_option(argv, error.flagname)) from error
        # An error inside a config file arrives as a traceback in the message; its end says it.
        text = str(error).strip().splitlines()[-1]
        text = re.sub(r"^(ValueError|[\w.]+\.UnusableMethod): ", "", text)
        raise ValueError(_bad_value(text)) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(_bad_override(argv, error)) from error
    except OSError as error:
        raise ValueError(
            f"--config is {_config_path(argv)!r}, which cannot be read; accepted: "
            f"{configs.accepted()}"
        ) from error
    except ImportError as error:
        raise ValueError(
            f"--config is {_config_path(argv)!r}: {error}; accepted: a file that imports"
        ) from error
    except ValueError:  # of a file that asks pujax for what cannot be, which it names
        raise
    except Exception as error:
        raise configs.failure("--config", _config_path(argv), error, "that runs") from error
    if values.help or values["config"].value is None:
        raise ValueError(
            "usage: pujax train --config=NAME|configs/NAME.py[:key=value,...] [--workdir=DIR] "
            "[--config.SECTION.FIELD=VALUE ...] (`pujax train --help` says more)"
        )
    if len(rest) > 1:
        raise ValueError(f"command line: {rest[1:]} is not understood; options begin with --")
    flag: Any = values["config"]
    file = flag.config_filename.split(":")[0]
    return config.value, workdir.value, os.path.splitext(os.path.basename(file))[0]


def _with_files(argv: list[str]) -> list[str]:
    """The arguments with the file in place of the name of a configuration of pujax.

    Raises:
      ValueError: for a name that is neither.
    """
    words, takes_next = list(argv), False
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word == "--":
            break
        if takes_next:
            words[index] = configs.find(word)
        elif equals and name in _CONFIG:
            words[index] = f"{name}={configs.find(value)}"
        takes_next = word in _CONFIG and not takes_next
    return words


def _model_options(argv: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Takes `--config.model.options.NAME=VALUE` out of the arguments.

    Which options there are depends on the network and not on what a file lists, so that flags made
    of a file's fields would refuse the others.

    Returns:
      `(arguments, options)`: the others, and `(name, text)` of these.

    Raises:
      ValueError: for one without a value.
    """
    rest: list[str] = []
    options: list[tuple[str, str]] = []
    words = iter(argv)
    for word in words:
        name, equals, text = word.partition("=")
        field = name.lstrip("-")
        if word == "--":
            rest += [word, *words]
        elif name.startswith("-") and field.startswith(_OPTIONS):
            value = text if equals else next(words, None)
            if value is None or not field.removeprefix(_OPTIONS).isidentifier():
                raise ValueError(f"command line: {word}; accepted: --{_OPTIONS}NAME=VALUE")
            options.append((field.removeprefix(_OPTIONS), value))
        else:
            rest.append(word)
    return rest, options


def _set_options(config: ml_collections.ConfigDict, options: list[tuple[str, str]]) -> None:
    """Sets options of the network; its name may be changed on the command line, too.

    Raises:
      ValueError: for one that the network does not have, or a value that it does not accept.
    """
    if not options:
        return
    given = {}
    for name, text in options:
        given[name] = BOOLEANS.get(text.lower(), text)
        if given[name] is text:
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                given[name] = ast.literal_eval(text)
    if config.model.name in models.NAMES:  # another one is refused, or known later ('saved')
        models.check_options(config.model.name, given)
    config.model.options = ml_collections.ConfigDict(config.model.options.to_dict() | given)


def _config_path(argv: list[str]) -> str:
    """The file that `--config` names, without its argument."""
    for index, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name in _CONFIG:
            return (value or "".join(argv[index + 1 : index + 2])).split(":")[0]
    return ""


def _unknown_option(argv: list[str], name: str) -> str:
    """Names an option that there is not, and the field of the configuration that it may mean."""
    config = _as_in_file([word for word in argv if word.lstrip("-").partition("=")[0] != name])
    if _has(config, name):
        return f"--{name} is not an option of this command; accepted: --config.{name}=VALUE"
    near = difflib.get_close_matches(name, ("config", "workdir", "help"), n=1)
    found = [f"config.{field}" for field in _namesakes(config, name)] + near
    hint = f" (did you mean {' or '.join(f'--{x}' for x in found)}?)" if found else ""
    return (
        f"--{name} is not an option of this command{hint}; accepted: --config, --workdir, --help "
        "and --config.SECTION.FIELD"
    )


def _namesakes(config: ml_collections.ConfigDict | None, field: str) -> list[str]:
    """The fields of any section that have the last name of a field."""
    name = field.rpartition(".")[2]
    if config is None:
        return []
    sections = [x for x in sorted(config) if isinstance(config[x], ml_collections.ConfigDict)]
    top = [name] if name in config and name not in sections else []
    return top + [f"{section}.{name}" for section in sections if name in config[section]]


def _bad_value(text: str) -> str:
    """A flag's error in the form of `checks`, where the value of a field is not of its type."""
    for reason, accepted in _ACCEPTED.items():
        found = re.match(rf"flag --config\.([\w.]+)=(.*): \W*{reason}", text)
        if found:
            return f"{found[1]} is {found[2]!r}; accepted: {accepted}"
    return f"command line: {text}"


def _bad_override(argv: list[str], error: Exception) -> str:
    """Names the override that the config has no field for, or that has the wrong type."""
    text = str(error)
    config = _as_in_file(argv)
    unknown = re.search(r"'(\w+)", text)
    for argument in argv[1:]:
        name, _, value = argument.lstrip("-").partition("=")
        field = name.removeprefix("config.")
        # The error tells one part of the name, which fields of other sections may have, too.
        is_named = name.startswith("config.") and unknown and unknown[1] in field.split(".")
        if is_named and not _has(config, field):
            new = methods.RENAMED.get(field.removeprefix("method."))
            if new:
                return f"{field} was renamed; accepted: method.{new}={value}"
            section = field.rpartition(".")[0]
            namesakes = _namesakes(config, field)
            if namesakes and _has(config, section or namesakes[0]):  # else the section is wrong
                return (
                    f"{field} is not a field of the config, so it cannot be {value!r}; accepted: "
                    + " or ".join(f"config.{other}" for other in namesakes)
                    + ", a field of that name in another section"
                )
            hint = re.search(r'Did you mean "(\w+)"', text)
            also = f" (did you mean {hint[1]!r}?)" if hint else ""
            return (
                f"{field} is not a field of the config{also}, so it cannot be {value!r}; accepted: "
                + _fields_of(config, field.partition(".")[0])
            )
    return f"command line: {text}"


def _fields_of(config: ml_collections.ConfigDict | None, section: str) -> str:
    """The fields of a section, or the sections."""
    found = config.get(section) if config is not None else None
    if isinstance(found, ml_collections.ConfigDict):
        return ", ".join(sorted(found))
    return ", ".join(sorted(config)) if config is not None else "fields of the configuration"


def _as_in_file(argv: list[str]) -> ml_collections.ConfigDict | None:
    """The config without what the command line changes; None where the file cannot be read."""
    values = flags.FlagValues()
    path = [word for word in argv if not word.lstrip("-").startswith("config.")]
    config = config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=path)
    with contextlib.suppress(Exception):  # whatever a file raises
        values(path, known_only=True)
        return config.value
    return None


def _has(config: ml_collections.ConfigDict | None, field: str) -> bool:
    """Whether a config has a field, named by its sections and itself."""
    for part in field.split("."):
        if not isinstance(config, ml_collections.ConfigDict) or part not in config:
            return False
        config = config[part]
    return True
