"""A CIFAR pickle is a program: whatever it is, the interpreter survives, and nothing is run.

Every program here runs in a process of its own, since those that this is about crashed it.
"""

import io
import os
import pathlib
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from pujax.data.readers import cifar_batches, cifar_pickle

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
ARRAY = RECONSTRUCT + b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R"
KIND = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
PLAIN = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def entry(value, key=b"U\x04data"):
    """A dictionary of one entry, as a program."""
    return b"\x80\x02}(" + key + value + b"u."


def state(*parts):
    """A tuple of values, given to what is on top of the stack."""
    return b"(" + b"".join(parts) + b"tb"


def array_of(kind):
    """An array of 2 x 3072 bytes whose type is made by a program."""
    content = b"T\x00\x18\0\0" + b"x" * 6144
    return ARRAY + state(b"K\x01", b"K\x02M\x00\x0c\x86", kind, b"\x89", content)


# Types whose state says that elements are pointers, fields or subarrays.
FORGED = {
    "objects": state(b"K\x03", b"U\x01|", b"NNN", b"K\x08K\x08K\x3f"),
    "itemsize": state(b"K\x03", b"U\x01|", b"NNN", b"J\x00\x00\x00\x7fK\x01K\x00"),
    "negative": state(b"K\x03", b"U\x01|", b"NNN", b"J\x00\x00\x00\x80K\x01K\x00"),
    "fields": state(b"K\x03", b"U\x01|N", b"U\x01a\x85", b"}U\x01aK\x07s", b"K\x01K\x01K\x10"),
    "subarray": state(b"K\x03", b"U\x01|", KIND + b"K\x7f\x85\x86NN", b"K\x01K\x01K\x00"),
    "metadata": state(b"K\x04", b"U\x01|", b"NNN", b"K\x01K\x01K\x00", b"}"),
    "order": state(b"K\x03", b"U\x02<<", b"NNN", b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00"),
    "one number": b"K\x03b",
    "nothing": b"Nb",
}
PROGRAMS = {f"type: {name}": entry(array_of(KIND + forged)) for name, forged in FORGED.items()}
PROGRAMS |= {
    "code O": entry(array_of(KIND.replace(b"u1", b"O8") + PLAIN)),
    "code V": entry(array_of(KIND.replace(b"u1", b"V8") + PLAIN)),
    "code of fields": entry(array_of(b"cnumpy\ndtype\nU\x05u1,O8\x85R" + PLAIN)),
    "type is an array": entry(array_of(ARRAY)),
    "array without content": entry(ARRAY),
    "array of another length": entry(
        ARRAY + state(b"K\x01", b"K\x02M\x00\x0c\x86", KIND + PLAIN, b"\x89", b"U\x01x")
    ),
    "array of negative sides": entry(
        ARRAY + state(b"K\x01", b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", KIND, b"\x89", b"U\x01x")
    ),
    "array twice": entry(
        ARRAY + 2 * state(b"K\x01", b"K\x01K\x01\x86", KIND + PLAIN, b"\x89", b"U\x01x")
    ),
    "state of a function": entry(RECONSTRUCT + b"}U\x08__code__Nsb"),
    "state of a class": entry(b"cnumpy\nndarray\n}U\x01aK\x01sb"),
    "state of slots": entry(b"cnumpy\nndarray\nN}U\x05_nameU\x05dtypes\x86b"),
    "dtype called with itself": entry(b"cnumpy\ndtype\ncnumpy\ndtype\n\x85R"),
    "encode with another codec": entry(b"c_codecs\nencode\nX\x01\0\0\0aU\x03zip\x86R"),
    "nested tuples as a key": b"\x80\x02})" + b"\x85" * 500_000 + b"K\x01s.",
    "nested lists": entry(b"]" * 500_000 + b"a" * 499_999),
    "memo of gigabytes": entry(b"K\x01r" + struct.pack("<I", 2**31)),
    "memo of gigabytes, in text": entry(b"K\x01p4294967295\n"),
    "bytes of gigabytes": entry(b"T\xff\xff\xff\x7f"),
    "bytearray": entry(b"\x96" + struct.pack("<Q", 2**40)),
    "negative bytes": entry(b"T\xff\xff\xff\xff"),
    "frame of gigabytes": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"}.",
    "number of many digits": entry(b"I" + b"9" * 100_000 + b"\n"),
    "lists of lists of lists": entry(
        b"]("
        + b"K\x00" * 1000
        + b"eq\x01"
        + b"]("
        + b"h\x01" * 1000
        + b"eq\x02]("
        + b"h\x02" * 1000
        + b"e",
        key=b"U\x06labels",
    ),
    "new object": entry(b"cnumpy\nndarray\n)\x81"),
    "persistent": entry(b"Pabc\n"),
    "extension": entry(b"\x82\x01"),
    "stop at once": b"\x80\x02.",
    "nothing": b"",
    "no dictionary": b"\x80\x02].",
    "getattr": entry(b"cbuiltins\ngetattr\nU\x01aU\x05upper\x86R"),
    "attribute of a name": entry(b"cnumpy\ndtype.__new__\n)R"),
}


def test_no_program_crashes_the_interpreter_or_is_taken_for_a_batch(tmp_path):
    """One process for all: the last one that it names is the one that crashed it."""
    (tmp_path / "programs").write_bytes(pickle.dumps(PROGRAMS))
    code = """
import io, pickle, resource, sys
from pujax.data.readers import cifar_batches, cifar_pickle
programs = pickle.load(open(sys.argv[1], "rb"))
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**29, size + 2**29))
for name, program in programs.items():
    print(name, flush=True)
    try:
        if "lists" in name:  # which are values as any other, and no labels
            cifar_batches.read_python(io.BytesIO(program), "FILE", label_keys=("labels",))
        cifar_pickle.read(program)
    except ValueError as error:
        assert len(str(error).splitlines()) == 1, error
    else:
        raise AssertionError("it was read")
"""
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "programs"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = run.stdout.splitlines()
    assert run.returncode == 0, f"{names[-1:]}: status {run.returncode}\n{run.stderr[-2000:]}"
    assert names == list(PROGRAMS)


def test_what_the_forged_types_are_put_into_is_read_with_a_plain_one():
    """Otherwise the programs above would be refused for something else."""
    found = cifar_pickle.read(entry(array_of(KIND + PLAIN)))["data"]
    np.testing.assert_array_equal(found, np.full((2, 3072), ord("x"), np.uint8))


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("kind", ["u1", ">i2", "<i4", "i8", ">u8", "?"])
def test_arrays_of_plain_numbers_are_read_whatever_their_order(kind, protocol):
    values = np.asfortranarray(np.arange(6).reshape(2, 3).astype(kind))
    found = cifar_pickle.read(
        pickle.dumps({b"a": values, b"b": values[0].copy()}, protocol=protocol)
    )
    np.testing.assert_array_equal(found["a"], values)
    np.testing.assert_array_equal(found["b"], values[0])


@pytest.mark.parametrize("labels", [[1, 2.0], [1, -1], [1, 2**40], ["a", "b"], np.ones(2), None])
def test_labels_that_are_no_class_ids_are_refused(labels):
    batch = {"data": np.zeros((2, 3072), np.uint8), "labels": labels}
    content = io.BytesIO(pickle.dumps(batch, protocol=2))
    with pytest.raises(ValueError, match="FILE"):
        cifar_batches.read_python(content, "FILE", label_keys=("labels",))
