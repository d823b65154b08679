"""`flintlog pipeline verify STORE`: what `flintlog verify` finds, on all cores or a cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.mend.verify import show_verification
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import output_option, progress_option, store_config_option
from flintlog.cli.pipeline.commands import session, session_options

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_KIND_COLUMNS = ("id", "severity", "count", "first_file", "first_offset", "remedy")

_GOES_ON = "nothing was changed; run it again"


@click.command("verify")
@click.argument("store")
@click.option("--quick", is_flag=True, help="The last log file, file names and lengths, side files.")
@session_options
@store_config_option
@progress_option
@output_option
def verify(
    store: str, quick: bool, master: str | None, conf: dict[str, str], config: StoreConfig | None, output: Output
) -> int:
    """Prove the store in STORE (a directory, or a URI), or say what is wrong with it and where. Nothing is changed."""
    from flintlog.maintenance.inspect.store_files import look_at
    from flintlog.pipeline.verify import count_kinds
    from flintlog.pipeline.verify import verify as run
    from flintlog.pipeline.views.store_place import place_of

    root, medium, _ = place_of(store)
    look_at(root, config, medium)  # before anyone waits for Spark to start
    with session(master, conf) as spark, output.progress("checking the log", _GOES_ON, "tasks") as progress:
        answer = run(spark, store, config=config, mode="quick" if quick else "full", progress=progress)
    show_verification(answer, root, output)
    if answer.findings and isinstance(output, TableOutput):
        output.rows([asdict(kind) for kind in count_kinds(answer.findings)], _KIND_COLUMNS, "by kind")
    return ExitCode.FINDINGS if answer.findings else ExitCode.FINE
