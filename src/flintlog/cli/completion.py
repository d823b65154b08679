"""`flintlog completion bash|zsh|fish`: the lines that make a shell complete commands, options, topics and groups.

On every tab the shell runs the program with the variable `COMPLETE_VARIABLE` set; `answer` then prints the completions.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import get_completion_class, shell_complete

from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import output_option

PROGRAM = "flintlog"
COMPLETE_VARIABLE = "_FLINTLOG_COMPLETE"

_INSTRUCTIONS: Mapping[str, str] = {
    "bash": """\
# Completion of flintlog for bash 4.4 and newer. For this shell:
#     eval "$(flintlog completion bash)"
# For every shell, that line in ~/.bashrc, or this output in a file:
#     flintlog completion bash > ~/.local/share/bash-completion/completions/flintlog
""",
    "zsh": """\
#compdef flintlog
# Completion of flintlog for zsh. For this shell, after compinit:
#     eval "$(flintlog completion zsh)"
# For every shell, that line in ~/.zshrc, or this output as _flintlog in a folder of $fpath:
#     flintlog completion zsh > "${fpath[1]}/_flintlog"
""",
    "fish": """\
# Completion of flintlog for fish. For this shell:
#     flintlog completion fish | source
# For every shell, this output in a file:
#     flintlog completion fish > ~/.config/fish/completions/flintlog.fish
""",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTRUCTIONS)))
@output_option
def completion(shell: str, output: Output) -> None:
    """Print what makes SHELL complete flintlog's commands, options, topics and groups; its first lines say how."""
    if isinstance(output, TableOutput):
        output.stream.write(script_of(shell))
    else:
        output.record({"shell": shell, "script": script_of(shell)})


def script_of(shell: str) -> str:
    """The script for one shell, with instructions."""
    from flintlog.cli.group import root

    maker = get_completion_class(shell)
    assert maker is not None
    made = maker(root, {}, PROGRAM, COMPLETE_VARIABLE)
    # Not `made.source()`: for bash it starts a bash to ask for its version.
    script = (made.source_template % made.source_vars()).strip().removeprefix("#compdef flintlog").strip()
    return f"{_INSTRUCTIONS[shell]}\n{script}\n"


def answer(instruction: str) -> int:
    """Print the words that may follow those on the shell's line; returns the exit code."""
    from flintlog.cli.group import root

    return shell_complete(root, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
