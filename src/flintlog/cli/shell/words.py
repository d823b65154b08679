"""The words of `flintlog shell`, and the command line that each stands for.

A word runs a command of `flintlog` with the store filled in. `cat orders 3 --limit 5` is
`flintlog cat STORE --topic orders --queue 3 --limit 5`: bare words take the place of the options that are typed most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from flintlog.cli.completion import COMPLETE_VARIABLE, PROGRAM
from flintlog.cli.group import root

HELP, EXIT = "help", "exit"


@dataclass(frozen=True, slots=True)
class Word:
    """A word: the beginning of its command line, and the options that bare words stand for, in their order."""

    command: tuple[str, ...]
    usage: str
    about: str
    places: tuple[str, ...] = ()
    has_store: bool = True


_ONE_MESSAGE = ("--topic", "--queue", "--offset")
WORDS: Mapping[str, Word] = {
    "topics": Word(("ls", "topics"), "", "List the topics: queues, messages, bytes, lag."),
    "queues": Word(("ls", "queues"), "", "List the queues, with their offsets."),
    "groups": Word(("ls", "groups"), "", "List the offset of each group in each queue."),
    "cat": Word(("cat",), "[TOPIC [QUEUE]]", "Show messages, in log order.", ("--topic", "--queue")),
    "get": Word(("get",), "TOPIC QUEUE OFFSET", "Show one message; also get @PLACE, --key or --id.", _ONE_MESSAGE),
    "lag": Word(("stats", "--by", "group"), "", "Say what waits for each group, and since when."),
    "verify": Word(("verify",), "", "Prove the store, or say what is wrong and where."),
    "explain": Word(("get",), "FINDING", "Say what a finding means; otherwise as get.", _ONE_MESSAGE),
}
_FINDING = Word(("explain",), "FINDING", "Say what a finding means.", has_store=False)


@dataclass(frozen=True, slots=True)
class Target:
    """The store that all words are about, and the options that all take."""

    store: str
    options: tuple[str, ...] = ()
    config: str | None = None

    def line(self, word: Word, rest: Sequence[str]) -> Line:
        """The command line of a word and of what follows it."""
        start = [*word.command, *self.options]
        if word.has_store:
            start += [self.store, *(() if self.config is None else ("--config", self.config))]
        with_value = _options_with_a_value(word)
        places, awaits_value = list(word.places), False
        for part in rest:
            if awaits_value or part.startswith("-"):
                awaits_value = not awaits_value and part in with_value
                start.append(part)
            elif part.startswith("@") and word.places == _ONE_MESSAGE:
                start += ["--physical", part[1:]]
            else:
                start += [places.pop(0), part] if places else [part]
        return Line(start, places[0] if places else None, awaits_value)


class Line(NamedTuple):
    """A command line. `awaits_value`: its last part is an option without its value."""

    arguments: list[str]
    next_place: str | None
    awaits_value: bool


def meaning(name: str, rest: Sequence[str]) -> Word:
    """The word of this name. `explain` with one bare word, or with none, is about findings."""
    bare = [part for part in rest if not part.startswith("-")]
    is_finding = len(bare) == len(rest) <= 1 and not "".join(bare).startswith("@")
    return _FINDING if name == "explain" and is_finding else WORDS[name]


def command_of(word: Word) -> click.Command:
    """The click command that a word runs."""
    command = root.get_command(click.Context(root), word.command[0])
    assert command is not None
    return command


def _options_with_a_value(word: Word) -> set[str]:
    options = (option for option in command_of(word).params if isinstance(option, click.Option))
    return {name for option in options if not (option.is_flag or option.count) for name in option.opts}


def completions(before: str, target: Target) -> Iterator[CompletionItem]:
    """What may stand at the end of a line, in place of its last, incomplete word."""
    words = split_arg_string(before)
    incomplete = words.pop() if words and not before[-1].isspace() else ""
    if not words or words == [HELP]:
        own = {} if words else {HELP: "Say what the words do.", EXIT: "Leave; Ctrl-D does too."}
        about = {**{name: word.about for name, word in WORDS.items()}, **own}
        yield from (CompletionItem(name, help=about[name]) for name in about if name.startswith(incomplete))
    elif words[0] in WORDS:
        name, *rest = words
        meant = [_FINDING, WORDS[name]] if name == "explain" and not rest else [meaning(name, rest)]
        for word in meant:
            yield from _values(word, rest, incomplete, target)


def _values(word: Word, rest: Sequence[str], incomplete: str, target: Target) -> Iterable[CompletionItem]:
    line = target.line(word, rest)
    arguments = line.arguments
    if not line.awaits_value and not incomplete.startswith("-") and word.has_store:
        if line.next_place is None:
            return []
        arguments = [*arguments, line.next_place]
    return ShellComplete(root, {}, PROGRAM, COMPLETE_VARIABLE).get_completions(arguments, incomplete)
