"""Interrupts a call at one chosen point, exactly where Python would run the handler of a signal.

CPython runs handlers in the main thread, and only at some bytecodes: at the entry of a function, after a call of
built-in code, at a jump backward. So a tracer counts bytecodes, and before the chosen one it makes a signal pending. It
does so by an attribute, because a call would be a point at which the handler runs, in the tracer itself.
"""

from __future__ import annotations

import _thread
import dis
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

SIGNAL: Final = signal.SIGUSR2
_QUIET_NAMES: Final = """
    LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_CLOSURE STORE_FAST STORE_DEREF POP_TOP PUSH_NULL PRECALL KW_NAMES
    IS_OP COPY SWAP NOP RESUME RETURN_VALUE BUILD_TUPLE BUILD_LIST BUILD_MAP MAKE_FUNCTION UNPACK_SEQUENCE CACHE
    JUMP_FORWARD POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE MAKE_CELL COPY_FREE_VARS
    POP_JUMP_FORWARD_IF_NOT_NONE PUSH_EXC_INFO POP_EXCEPT RERAISE CHECK_EXC_MATCH
"""
QUIET: Final = {dis.opmap[name] for name in _QUIET_NAMES.split() if name in dis.opmap}
"""Bytecodes at which no other code can begin to run."""


class Interruption(BaseException):
    """What the handler raises."""


class _Pending(int):
    """A signal's number; to read `now` makes it pending."""

    now = property(_thread.interrupt_main)


class Interrupter:
    """Counts the points of a call, or interrupts it at one of them. Used in the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self.where = ""
        self.raised: Interruption | None = None
        self._target = 0
        self._signal = _Pending(SIGNAL)
        self._codes: dict[Any, bytes] = {}
        self._is_armed = False
        self._before = signal.signal(SIGNAL, self._handle)

    def close(self) -> None:
        signal.signal(SIGNAL, self._before)

    def run(self, call: Callable[[], object], target: int = 0) -> bool:
        """Call it, interrupted at the point with this number, if it has so many; whether it was interrupted.

        The exception is kept, as it is in an `except`: its traceback has the frames and the generators of the call.
        """
        self.count, self._target, self.where, self.raised = 0, target, "", None
        self._is_armed = True
        sys.settrace(self._trace)
        try:
            call()
            return False
        except Interruption as raised:
            self.raised = raised
            return True
        finally:
            self._is_armed = False  # first: the handler may run after the next call
            sys.settrace(None)

    def _handle(self, _signum: int, frame: FrameType | None) -> None:
        if not self._is_armed:
            return
        self._is_armed = False
        self.where = "".join(traceback.format_stack(frame, 6))
        raise Interruption

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 (what a tracer is)
        if event == "call":
            if frame.f_code is Interrupter._handle.__code__:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return self._trace
        if event == "opcode":
            code = frame.f_code
            raw = self._codes.get(code)
            if raw is None:
                raw = self._codes[code] = code.co_code
            if raw[frame.f_lasti] not in QUIET:
                self.count += 1
                if self.count == self._target:
                    sys.settrace(None)
                    self._signal.now  # noqa: B018 (see the module)
                    return None
        return self._trace
