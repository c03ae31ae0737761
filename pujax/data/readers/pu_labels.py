"""Reads from one column who is a labelled positive, and from another what a row is called."""

import collections
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pujax.checks import one_of
from pujax.console import plural
from pujax.data.raw import UNKNOWN
from pujax.data.readers import columns, written_numbers
from pujax.data.readers.frames import Frame

POSITIVE = ("1", "true", "yes", "y", "positive", "pos", "p")
NEGATIVE = ("0", "false", "no", "n", "negative", "neg")
UNLABELED = ("", "unlabeled", "unlabelled", "unknown", "u")
MINUS = "-1"
"""A negative or an unlabeled row, by what else there is."""
_DEFAULTS = ("labels", "labeled", "label", "y")
_SHOWN = 6
_ID_NAME = re.compile(
    r"(?i:(^|[^a-z])(ids?|uuid|guid|key|index|nr|no|number|serial|ref|reference|unnamed: 0)$)"
    r"|(?i:^ids?([^a-z0-9]|$))|[a-z](Id|ID)$"  # ID1 to ID4 are genes
)
_COUNT_NAME = re.compile(r"(?i:(index|nr|no|number|unnamed: 0)$)")
_MIN_COUNTS = 1000
"""Different whole numbers from which on such a name is one of ids, not of a heat index."""
_MEASURED = (
    r"\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"  # 07:15:03
    r"|[1-9]\d{1,2}/[1-9]\d{1,2}"  # 120/80
    r"|[<>]=?\s*\d+(?:[.,]\d+)?"  # <0.5
)
"""Quantities that no other rule reads."""
_WITH_LETTERS = r"\d+[A-Za-z]+|[A-Za-z]+\d+"  # 349913599X among numbers, as in ISBN
_MIN_ROWS = 20
"""Rows below which a column may well be different in every row by chance."""
_NEARLY_ALL = 0.95
"""Share of the cells of an id that differ, above which the others are taken for mistakes."""
_MIN_NAMES = 20
"""Different values from which a column that is called like an id is one of names, not of kinds."""
_MIN_COLLISIONS = 5.0
"""Repeats expected among random integers, above which it is no chance that there are none."""


class Labels(NamedTuple):
    """Who is labelled.

    Attributes:
      values: int8 `[n]`: 1 labelled positive, 0 known negative, -1 unknown.
      column: name of the column.
      sentence: how its cells were read, for a person.
    """

    values: np.ndarray
    column: str
    sentence: str


class Ids(NamedTuple):
    """What the rows are called.

    Attributes:
      values: text `[n]` of dtype object, each once; None where the rows have no names.
      column: name of the column; None likewise.
      aside: columns that are no features because they name the rows, `column` among them.
      sentences: what a person should know of the choice; may be empty.
    """

    values: np.ndarray | None
    column: str | None
    aside: tuple[str, ...]
    sentences: tuple[str, ...]


def read(
    frame: Frame,
    column: str | None = None,
    *,
    positive: str | None = None,
    zero_is: str = "auto",
    others_are: str = "rows without a label as well, such as empty cells",
) -> Labels:
    """Reads the column of labels.

    Cells are compared in lower case, and 1.0 and 1,0 are 1. What is positive is 1, true, yes, y,
    positive, pos or p, or the value that `positive` names. Of what else there is, with
    `zero_is='auto'`:

    | other cells | are read as |
    |---|---|
    | 0 only, or only false, no, n, negative or neg | unlabeled |
    | -1 only | unlabeled |
    | empty, unlabeled, unknown or u only | unlabeled |
    | 0 (or false, ...) and any of empty, unlabeled, unknown, u, -1 | negative; the rest unlabeled |
    | -1 and any of empty, unlabeled, unknown, u, without 0 | negative; the rest unlabeled |
    | anything, where `positive` is given | unlabeled |

    The first line is what a table with known frauds and nothing else looks like: a 0 says that no
    fraud is known, not that there is none. Only where a third value stands for "unknown" does the
    file itself say that its 0 means more than that. Training on one's own rows takes known
    negatives as unlabeled rows, but for those of a support set (`data.num_support`).

    Args:
      frame: all rows, the column among them.
      column: its name; None is `labels`, `labeled`, `label` or `y` beside an array.
      positive: the value, in any case, that marks a positive.
      zero_is: 'negative' reads 0 (false, no, n, negative, neg, and -1 where there is none of these)
        as a known negative whatever else there is, 'unlabeled' as unlabeled; 'auto' as above.
      others_are: what the rows beside positives should be, for the message that there are none.

    Returns:
      `Labels`, with at least one 1 and at least one other value.

    Raises:
      ValueError: an unknown value, with the line where it is first; values of which it is doubtful
        what they mean, with their counts; a `positive` that stands for a missing cell; no positive;
        nothing but positives; no such column, with the most similar names.
    """
    one_of("zero_is", zero_is, ("auto", "negative", "unlabeled"))
    column = _default_column(frame) if column is None else columns.plain(column)
    cells = _cells(frame, column)
    counts = collections.Counter(cells)
    if positive is not None and positive.strip() in columns.MISSING:
        raise ValueError(
            f"positive is {positive!r}, which stands for a missing cell; accepted: another value "
            f"of the column {column!r} of {frame.path}, which holds {_shown(counts)}"
        )
    marks = (_normalised(positive.strip().lower()),) if positive is not None else POSITIVE
    found = [value for value in counts if value in marks]
    others = [value for value in counts if value not in marks]
    if positive is None:
        _check_values(frame, column, cells, counts)
    if len(found) > 1:
        raise ValueError(
            f"{_where(frame, column)} holds {_shown(counts)}; accepted: one value for positives "
            f"(name it: positive={found[0]!r})"
        )
    if not found:
        raise ValueError(
            f"{_where(frame, column)} has no positive: it holds {_shown(counts)}; accepted: "
            f"{'one of ' * (len(marks) > 1)}{', '.join(marks)} in at least one row"
        )
    if not others:
        raise ValueError(
            f"{_where(frame, column)} has nothing but positives: {_shown(counts)}; accepted: "
            f"{others_are}"
        )
    negative = _negatives(others, zero_is, given=positive is not None)
    if len(negative) > 1:
        raise ValueError(
            f"{_where(frame, column)} holds {_shown(counts)}; accepted: one value for negatives"
        )
    values = np.array(
        [1 if c in found else 0 if c in negative else UNKNOWN for c in cells], np.int8
    )
    missing = _missing_words(frame, column) if "" in counts else {}
    sentence = _sentence(column, counts, found[0], negative, zero_is, missing)
    return Labels(values, column, sentence)


def _default_column(frame: Frame) -> str:
    if not frame.is_table:
        for name in _DEFAULTS:
            if name in frame.beside:
                return name
    have = columns.listed(frame.names, most=20) or "none, as it holds features only"
    hint = "" if frame.is_table else " (an .npz may hold 'x' and 'labels')"
    raise ValueError(
        f"label is None; accepted: the name of a column of {frame.path}, which has {have}{hint}"
    )


def _cells(frame: Frame, column: str) -> list[str]:
    """The cells in lower case, '' where one is missing; whole numbers without a decimal point."""
    words = columns.text(frame.column(column, field="label")).fillna("").str.lower()
    return [_normalised(word) for word in words]


def _missing_words(frame: Frame, column: str) -> dict[str, int]:
    """What the cells hold that count as missing, such as '?' or NA, and how often."""
    cells = frame.column(column, field="label")
    gone = columns.text(cells).isna()
    words = cells[gone].astype(object).where(cells[gone].notna(), "").astype(str).str.strip()
    return dict(collections.Counter(words))


def _normalised(word: str) -> str:
    """A whole number without a decimal point and leading zeros; other words as they are."""
    whole = re.fullmatch(r"([+-]?\d+)(\.0*|,00?)?", word.replace(written_numbers.MINUS, "-"))
    return str(int(whole[1])) if whole else word


def _check_values(frame: Frame, column: str, cells: list[str], counts: collections.Counter) -> None:
    """Raises a ValueError for a value that has no known meaning."""
    known = {*POSITIVE, *NEGATIVE, *UNLABELED, MINUS}
    unknown = [value for value in counts if value not in known]
    if unknown:
        row = cells.index(unknown[0])
        raise ValueError(
            f"{frame.place(row)}, column {column!r} is {unknown[0]!r}; accepted: a label such as "
            "1, 0, -1, yes, no, positive, unlabeled or nothing, or the value that marks positives "
            f"as positive=...; the column holds {_shown(counts)}"
        )


def _negatives(others: list[str], zero_is: str, *, given: bool) -> list[str]:
    """Which of the values that are not positive stand for a known negative."""
    candidates = [value for value in others if value in NEGATIVE]
    unlabeled = [value for value in others if value in UNLABELED]
    if not candidates and MINUS in others:
        candidates = [MINUS]
    elif MINUS in others:
        unlabeled.append(MINUS)
    if zero_is == "unlabeled" or (zero_is == "auto" and given):
        return []
    if zero_is == "auto" and len(candidates) == 1 and not unlabeled:
        return []
    return candidates


def _sentence(
    column: str,
    counts: collections.Counter,
    found: str,
    negative: list[str],
    zero_is: str,
    missing: dict[str, int],
) -> str:
    verb = "row is" if counts[found] == 1 else "rows are"
    parts = [f"{counts[found]:,} {verb} {found!r} (labelled positive)"]
    rest = [value for value in counts if value != found]
    others: dict[str, int] = {}
    for value in rest:
        others |= {value: counts[value]} if value else missing
    for value in sorted(others, key=lambda value: -others[value])[:_SHOWN]:
        meaning = "known negative" if value in negative else "unlabeled"
        verb = "is" if others[value] == 1 else "are"
        parts.append(f"{others[value]:,} {verb} {_quoted(value)} ({meaning})")
    if len(others) > _SHOWN:
        parts.append(f"{sum(counts[v] for v in rest):,} in all are unlabeled")
    hint = ""
    doubtful = [value for value in rest if value in (*NEGATIVE, MINUS)]
    if negative:
        hint = "; known negatives train as unlabeled rows"
    elif zero_is == "auto" and doubtful:
        hint = f"; a {doubtful[0]!r} that stands for a known negative trains as unlabeled, too"
    return f"label {column!r}: {', '.join(parts)}{hint}"


def is_unknown(frame: Frame, column: str, *, positive: np.ndarray) -> np.ndarray:
    """Which cells of a column of classes say that the class is not known, bool `[n]`.

    They are empty, unlabeled and unknown; u and -1 where the other words are 0 (or false, no, n,
    negative, neg), and are other classes beside any other word.

    Args:
      frame: all rows.
      column: of the classes.
      positive: bool `[n]`, which cells are the word for positives, and are known.

    Raises:
      ValueError: no such column, with the most similar names.
    """
    cells = np.array(_cells(frame, column), object)
    others = {*cells[~positive]} - {*UNLABELED, MINUS}
    words = {*UNLABELED, MINUS} if others and others <= {*NEGATIVE} else {*UNLABELED} - {"u"}
    return np.array([cell in words for cell in cells], bool) & ~positive


def describe_known(frame: Frame, column: str, classes: np.ndarray) -> str:
    """How the labels of a test set were read, in a sentence.

    Args:
      frame: all rows.
      column: of the labels.
      classes: `[n]`, 1 for a positive row and 0 for a negative one.
    """
    counts = collections.Counter(zip(_cells(frame, column), classes.tolist(), strict=True))
    ordered = sorted(counts, key=lambda key: (-key[1], -counts[key]))
    parts = [
        f"{plural(counts[word, positive], 'row')} {word!r} {'positive' if positive else 'negative'}"
        for word, positive in ordered[:_SHOWN]
    ]
    if len(ordered) > _SHOWN:
        parts.append(
            f"{plural(sum(counts[key] for key in ordered[_SHOWN:]), 'row')} of other words"
        )
    return f"test label {column!r}: {', '.join(parts)}"


def _where(frame: Frame, column: str) -> str:
    return f"{frame.path}: the label {column!r}"


def _quoted(value: str) -> str:
    return repr(value) if value else "empty"


def _shown(counts: collections.Counter) -> str:
    most = counts.most_common(_SHOWN)
    shown = [f"{_quoted(value)} {'once' if n == 1 else f'{n:,} times'}" for value, n in most]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more:,} other values" if more else "")


def ids(
    frame: Frame, id_column: str | None = None, *, label: str | None = None, hint: str = ""
) -> Ids:
    """Reads what the rows are called.

    Without a name, columns are set aside whose cells are unique in every row and that look like
    identifiers: words or integers that are called like an id, or, in 20 rows or more, words without
    a space, and integers that count the rows or are so many in so small a range that chance would
    have repeated some. Dates and fractions never are, with a decimal comma neither, and numbers
    with a mark between thousands only if called like an id. The first whose name says that it is an
    id, else the first, names the rows. One that is called like an id and is different in nearly
    every row is an error, as it would tell the rows apart as a feature, unless another one that is
    called like an id, and not like a count of the rows, names them. One that is called like an id,
    holds 20 different names or whole numbers and is a feature all the same, is spoken of, but for
    `id_column=''`.

    Args:
      frame: all rows.
      id_column: its name; None looks for one, '' means that there is none.
      label: name of the label's column, which is no id.
      hint: what else is accepted where the ids of `id_column` are not.

    Raises:
      ValueError: no such column, with the most similar names; an id that is missing, or occurs
        twice, with its lines.
    """
    if id_column == "":
        return Ids(None, None, (), ())
    if id_column is not None:
        id_column = columns.plain(id_column)
        if id_column == label:
            raise ValueError(f"id_column is {id_column!r}, which is the label; accepted: another")
        words = columns.text(frame.column(id_column, field="id_column"))
        _check_ids(frame, id_column, words, accepted=hint)
        kept = kept_ids(frame, aside=(id_column, label))
        return Ids(words.to_numpy(object), id_column, (id_column,), kept)
    if frame.num_rows < 2:
        return Ids(None, None, (), ())
    found, doubtful, damaged = {}, [], []
    for name in frame.names:
        words = columns.text(frame.column(name, field="id_column"))
        if name == label:
            continue
        if words.isna().any() or not words.is_unique:
            if _is_damaged_id(frame, name, words):
                damaged.append(name)
            continue
        looks = _looks_like_ids(frame, name, words)
        if looks:
            found[name] = words
        elif looks is None and name not in frame.beside:  # what is beside an array is no feature
            doubtful.append(name)
    # A column that counts the rows, as pandas writes it into files, says nothing of the others.
    named = any(is_called_like_an_id(name) and not _COUNT_NAME.search(name) for name in found)
    for name in damaged:
        if not named or name in frame.beside:
            words = columns.text(frame.column(name, field="id_column"))
            _check_ids(frame, name, words, accepted="; id_column='' keeps it as a feature")
    sentences = [
        f"column {name!r} is different in every row and kept as a feature; id_column={name!r} if "
        "it names the rows"
        for name in doubtful
    ]
    if len(doubtful) > columns.FEW:
        sentences = [
            f"each of {len(doubtful):,} columns is different in every row and kept as a feature "
            f"({columns.listed(doubtful)}); id_column=NAME if one of them names the rows"
        ]
    sentences += kept_ids(frame, aside=(label, *found, *doubtful))
    if not found:
        return Ids(None, None, (), tuple(sentences))
    first = next((name for name in found if is_called_like_an_id(name)), next(iter(found)))
    names = columns.listed(list(found))
    sentences.insert(
        0,
        f"set aside as no feature, since different in every row: {names}; rows are called by "
        f"{first!r} (id_column='' keeps all columns)",
    )
    return Ids(found[first].to_numpy(object), first, tuple(found), tuple(sentences))


def is_called_like_an_id(name: str) -> bool:
    """Whether a column has a name such as `patient_id` or `index`."""
    return bool(_ID_NAME.search(name))


def kept_ids(frame: Frame, *, aside: Sequence[str | None] = ()) -> tuple[str, ...]:
    """What to say of columns that are called like an id and are features, a sentence each.

    Args:
      frame: all rows.
      aside: columns that are no features, or of which enough is said.
    """
    sentences, others = [], {*aside, *frame.beside}
    for name in frame.names:
        if name in others or not is_called_like_an_id(name):
            continue
        words = columns.text(frame.values[name])
        distinct = words.dropna().drop_duplicates()
        is_count = _COUNT_NAME.search(name) and distinct.str.fullmatch(r"[+-]?\d+").all()
        least = _MIN_COUNTS if is_count else _MIN_NAMES
        if len(distinct) < least or not _looks_like_ids(frame, name, distinct):
            continue
        why = ""
        if words.dropna().duplicated().any():
            why = ", as it holds some values more than once"
        elif words.isna().any():
            why = ", as some of its cells are empty"
        sentences.append(
            f"column {name!r} is called like an id and is kept as a feature{why}; leave it out if "
            "it names a person or a thing, as such a name says nothing of new rows"
        )
    return tuple(sentences)


def _is_damaged_id(frame: Frame, name: str, words: Any) -> bool:
    """Whether a column is called like an id and would be one but for a few of its cells."""
    present = words.dropna()
    if not is_called_like_an_id(name) or len(words) < _MIN_ROWS:
        return False
    distinct = present[~present.duplicated()]
    looks = _looks_like_ids(frame, name, distinct)
    return bool(looks) and len(distinct) >= _NEARLY_ALL * len(words)


def _check_ids(frame: Frame, column: str, words: Any, *, accepted: str = "") -> None:
    missing = np.flatnonzero(words.isna())
    if len(missing):
        cell = frame.column(column, field="id_column").iloc[missing[0]]
        is_word = isinstance(cell, str) and cell.strip()
        what = f"{cell.strip()!r}, which stands for an empty cell" if is_word else "empty"
        raise ValueError(
            f"{frame.place(missing[0])}, column {column!r} is {what}; accepted: an id in every row"
            + accepted
        )
    twice = np.flatnonzero(words.duplicated())
    if len(twice):
        value = words.iloc[twice[0]]
        first = int(np.flatnonzero(words == value)[0])
        where = frame.place(int(twice[0])).removeprefix(f"{frame.path}, ")
        raise ValueError(
            f"{frame.place(first)} and {where}: column {column!r} is {value!r} in both; accepted: "
            f"ids that occur once{accepted}"
        )


def _looks_like_ids(frame: Frame, name: str, words: Any) -> bool | None:
    """Whether a column names the rows by some of its cells, which differ; None where in doubt."""
    cells = frame.column(name, field="id_column")[words.index]
    numbers, wrong = columns.numbers(cells)
    named = is_called_like_an_id(name)
    is_code = wrong.any() and (
        words.str.match(r"0\d").any() or words[wrong].str.fullmatch(_WITH_LETTERS).all()
    )
    if (~wrong).mean() >= columns.MOST and not is_code:
        words, numbers = words[~wrong], numbers[~wrong]
        size = len(words)
        if not words.str.fullmatch(r"[+-]?\d+").all():
            return False
        width = numbers.max() - numbers.min() + 1
        repeats = size * (size - 1) / 2 / width
        is_dense = width == size or repeats >= _MIN_COLLISIONS
        return named or (size >= _MIN_ROWS and is_dense) or None
    if columns.date_formats(cells) or columns.usual_date_format(words):
        return False
    if written_numbers.is_likely(words):
        marks = written_numbers.of(words, decimal_comma=frame.decimal_comma).marks
        return named and not (marks and any(marks[0] in word for word in words))
    if not named and (words.str.fullmatch(_MEASURED).all() or columns.may_be_short_dates(words)):
        return None
    if named or not words.str.contains(r"\s").any():
        return named or len(words) >= _MIN_ROWS or None
    return False
