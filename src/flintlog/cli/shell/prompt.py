"""The shell at a terminal: a prompt with completion and history, on prompt_toolkit.

Ctrl-C ends the running word, or clears the line; Ctrl-D ends the shell. The history is one file for all stores, which
only its owner may read: lines may name keys.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.shortcuts import CompleteStyle

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.shell.session import Session
from flintlog.cli.shell.words import Target, completions

_LAST_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'?|"(?:[^"\\]|\\.)*"?)*$""")
"""As the user has typed it, with quotation marks."""


def run_at_terminal(session: Session, target: Target) -> int:
    """Read and run lines until `exit` or Ctrl-D."""
    prompt: PromptSession[str] = PromptSession(
        history=open_history(),
        completer=WordCompleter(target),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,  # completes before it takes the next key
    )
    name = Path(target.store).absolute().name
    while not session.is_over:
        try:
            if session.run(prompt.prompt(f"{name}> ")) == ExitCode.INTERRUPTED:
                sys.stderr.write("interrupted\n")
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
    return ExitCode.FINE


class WordCompleter(Completer):
    """Completes words, options, topics, groups and findings. An error while completing offers nothing."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        typed = _LAST_WORD.search(before)
        length = 0 if typed is None else len(typed[0])
        with suppress(Exception):  # a traceback would be printed into the line that the user types
            for item in completions(before, self._target):
                yield Completion(f"{shlex.quote(item.value)} ", -length, display=item.value)


def history_path() -> Path:
    """Where the history lies: `flintlog/shell-history` among the user's state."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "flintlog" / "shell-history"


def open_history() -> History:
    """The history of earlier sessions; of this one alone where the file cannot be written."""
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return _LastingHistory(str(path))


class _LastingHistory(FileHistory):
    def store_string(self, string: str) -> None:
        with suppress(OSError):  # a full disk must not end the shell
            super().store_string(string)
