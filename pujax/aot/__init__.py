"""Compiles a run for devices that are not there, and says what each of its programs costs."""

from pujax.aot.compilation import OutOfMemoryError, compile_all

__all__ = ["OutOfMemoryError", "compile_all"]
