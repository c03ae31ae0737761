"""Decoded examples of a prepared tensorflow-datasets split, read without TensorFlow."""

import os
from collections.abc import Iterator
from typing import Any

from pujax.data.readers import download, tfds_builder


def examples(builder: Any, split: str) -> Iterator[dict[str, Any]]:
    """Yields the examples of a split in stored order.

    Args:
      builder: a `tfds.core.DatasetBuilder` whose data are prepared.
      split: for example 'train' or 'train[:80%]'.

    Yields:
      Feature name to NumPy value.

    Raises:
      MissingDataError: a package that the stored format needs is missing.
      ValueError: the format cannot be read without TensorFlow, or a file is truncated.
    """
    stored = builder.info.file_format.value
    if stored == "tfrecord":
        for instruction in builder.info.splits[split].file_instructions:
            for record in _tfrecords(os.fspath(instruction.filename), instruction):
                yield builder.info.features.deserialize_example_np(record)
    elif stored in ("array_record", "parquet"):
        needed = {"array_record": "array_record", "parquet": "pyarrow"}[stored]
        if not tfds_builder.has_package(needed):
            raise download.MissingDataError(
                f"{builder.info.full_name} is stored as {stored}: pip install {needed}",
                reason=f"no package {needed}",
            )
        yield from builder.as_data_source(split)
    else:
        raise ValueError(
            f"{builder.info.full_name} is stored as {stored}; accepted: array_record, parquet or "
            f"tfrecord; prepare it again with file_format='array_record'"
        )


def _tfrecords(path: str, instruction: Any) -> Iterator[bytes]:
    """The records of one file that a split asks for.

    A record is its length in 8 bytes, a checksum of that in 4, the content, and a checksum of it
    in 4. The checksums (CRC-32C, slow without a compiled package) are not verified.
    """
    stop = instruction.skip + instruction.take
    size = os.path.getsize(path)
    with open(path, "rb") as stream:
        for row in range(stop):
            head = stream.read(12)
            length = int.from_bytes(head[:8], "little")
            is_whole = len(head) == 12 and length + 4 <= size - stream.tell()
            content = stream.read(length + 4) if is_whole else b""
            if not is_whole:
                raise ValueError(f"{path} is truncated: {row} records, expected at least {stop}")
            if row >= instruction.skip:
                yield content[:-4]
