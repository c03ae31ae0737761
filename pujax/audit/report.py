"""An audit as text and as JSON: the same findings in the same order."""

import textwrap
from typing import Any

from pujax import reading
from pujax.audit import Audit

_WIDTH = 100


def text(audit: Audit) -> str:
    """The findings and the recommendation for a person."""
    lines = [audit.described, *(_wrapped(note, "") for note in audit.notes), ""]
    for one in audit.findings:
        lines.append(_wrapped(f"{one.severity.upper()}: {one.title}", ""))
        lines += [_wrapped(sentence, "  - ") for sentence in one.evidence]
        lines += [_wrapped(f"What to do: {one.advice}.", "  "), ""]
    if not audit.findings:
        lines += ["No findings.", ""]
    advised = audit.recommendation
    lines.append(f"RECOMMENDED: {advised.method or 'nothing to train yet'}")
    lines += [_wrapped(f"First: {sentence}.", "  ") for sentence in advised.first]
    lines += [f"  {advised.command}"] * bool(advised.command)
    lines += [_wrapped(f"Reason: {sentence}.", "  ") for sentence in advised.reasons]
    lines += ["", *(_wrapped(f"Not checked: {sentence}.", "") for sentence in audit.not_checked)]
    return "\n".join(lines)


def document(audit: Audit) -> dict[str, Any]:
    """The same for programs, of types that JSON has."""
    return {
        "data": audit.described,
        "notes": list(audit.notes),
        "status": audit.status,
        "findings": [
            {
                "name": one.name,
                "severity": one.severity,
                "title": one.title,
                "evidence": list(one.evidence),
                "advice": one.advice,
                "numbers": dict(one.numbers),
            }
            for one in audit.findings
        ],
        "recommendation": audit.recommendation._asdict(),
        "not_checked": list(audit.not_checked),
    }


def is_document(path: str) -> bool:
    """Whether a file holds a `document`.

    Raises:
      OSError: it cannot be opened.
    """
    return reading.is_json_object(path, {"findings", "recommendation", "not_checked"})


def _wrapped(sentence: str, indent: str) -> str:
    after = " " * len(indent)
    return textwrap.fill(
        sentence, _WIDTH, initial_indent=indent, subsequent_indent=after, break_long_words=False
    )
