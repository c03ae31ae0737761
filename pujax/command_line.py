"""What the command lines of all commands share: an option is given once, errors have one form."""

import difflib
import re
from collections.abc import Iterator, Sequence

from absl import flags


def check_once(argv: Sequence[str], values: flags.FlagValues | None = None) -> None:
    """Requires that no option is given twice with different values, of which the last would count.

    Args:
      argv: program name and arguments.
      values: the options that there are: those that may be repeated by design are left out, and
        `--NAME` and `--noNAME` are values of the option NAME where it is a boolean. None where
        they are not known yet: an option that another one follows is then taken for a boolean.

    Raises:
      ValueError: naming the option and both values.
    """
    known: dict[str, str] = {}
    for name, value in _options(argv[1:], values):
        if values is not None and name in values and isinstance(values[name], flags.MultiFlag):
            continue
        if name == "flagfile":  # absl reads all of them
            continue
        if known.setdefault(name, value) != value:
            raise ValueError(
                f"--{name} is {known[name]!r} and {value!r}; accepted: every option once"
            )


def _options(words: Sequence[str], values: flags.FlagValues | None) -> Iterator[tuple[str, str]]:
    """Names and values of options, in order."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if word == "--":
            return
        if not word.startswith("-") or not name:
            continue
        if equals:
            yield name, value
        elif _is_boolean(name, values):
            yield name, "true"
        elif name.startswith("no") and _is_boolean(name[2:], values):
            yield name[2:], "false"
        elif values is None and (not rest or rest[0].startswith("--")):  # a boolean, most likely
            yield name, "true"
        else:
            yield name, rest.pop(0) if rest else ""


def _is_boolean(name: str, values: flags.FlagValues | None) -> bool:
    return values is not None and name in values and bool(values[name].boolean)


def describe(error: BaseException, values: flags.FlagValues) -> str:
    """An error in one line; those of a flag say what is accepted, which absl's do not.

    Args:
      error: of any type.
      values: the options that there are.
    """
    text = " ".join(str(error).split())
    if isinstance(error, flags.UnrecognizedFlagError):
        known = [name for name in values if name != "h"]
        near = difflib.get_close_matches(error.flagname, known, n=1)
        hint = f" (did you mean --{near[0]}?)" if near else ""
        accepted = ", ".join(f"--{name}" for name in sorted(known))
        return f"--{error.flagname} is not an option of this command{hint}; accepted: {accepted}"
    wrong = re.match(r"flag --(\w+)=(.*?): ", text)
    if isinstance(error, flags.IllegalFlagValueError) and wrong and wrong[1] in values:
        return f"--{wrong[1]} is {wrong[2]!r}; accepted: {_accepted(values[wrong[1]])}"
    lacking = re.fullmatch(r"Missing value for flag --(\w+)", text)
    if isinstance(error, flags.Error) and lacking:
        return f"--{lacking[1]} has no value; accepted: --{lacking[1]}=VALUE"
    return text


def _accepted(flag: flags.Flag) -> str:
    if flag.boolean:
        return "true or false"
    low = getattr(flag.parser, "lower_bound", None)
    return "an integer" if low is None else f"an integer from {low}"
