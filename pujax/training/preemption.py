"""Clean stops: a first SIGINT or SIGTERM makes the loop save and end, a second ends it at once."""

import logging
import signal
import threading
from types import FrameType

_LOG = logging.getLogger(__name__)


class StopRequest:
    """Context manager that turns signals into a flag.

    Attributes:
      signal: number of the signal received, 0 while there is none.
    """

    def __init__(self):
        self.signal = 0
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        # Python allows signal handlers only in the main thread; elsewhere nothing is caught.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        _LOG.info("%s: saving and stopping (again to stop now)", signal.Signals(number).name)
        self.signal = number
        self._restore()
