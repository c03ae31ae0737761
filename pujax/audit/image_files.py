"""Images that cannot be read, and test images that training sees."""

from collections.abc import Mapping, Sequence

from pujax.audit.base import WARNING, Finding, listed


def check(damaged: Mapping[str, Sequence[str]], test_copies: Sequence[str]) -> list[Finding]:
    """Findings of the files of a folder of images.

    Args:
      damaged: names of images that cannot be read, by role ('positive', ...).
      test_copies: names of test images that are copies of training images.
    """
    findings = []
    count = sum(map(len, damaged.values()))
    if count:
        findings.append(
            Finding(
                "damaged",
                WARNING,
                f"{count:,} image{'s' * (count != 1)} cannot be read",
                tuple(
                    f"{len(names):,} are {role}: {listed(names)}" for role, names in damaged.items()
                ),
                "repair or remove them, or train with --config.data.unreadable=skip; all other "
                "findings are without them",
                {"images": {role: list(files) for role, files in damaged.items()}},
            )
        )
    if test_copies:
        findings.append(
            Finding(
                "test_copies",
                WARNING,
                f"{len(test_copies):,} test images are copies of training images",
                (f"the same bytes: {listed(test_copies)}",),
                "remove them from one of the two, or the test says too much",
                {"images": list(test_copies)},
            )
        )
    return findings
