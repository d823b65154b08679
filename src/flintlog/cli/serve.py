"""`flintlog serve STORE`: runs a store as a master or a slave until it is told to stop (SIGTERM, SIGINT).

flintlog serve orders --role master --port 10911 --ha-port 10912
flintlog serve copy --role slave --ha-master 10.0.0.7:10912
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.parameters import config_option

if TYPE_CHECKING:
    from flintlog.store.config import StoreConfig


@click.command()
@click.argument("store", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--role",
    type=click.Choice(["master", "slave"]),
    required=True,
    help="Whether the store takes puts and sends its log, or follows a master.",
)
@click.option("--ha-master", metavar="HOST:PORT", help="The master's HA port, for a slave.")
@click.option("--master-remoting", metavar="HOST:PORT", help="The master's other port; else one below its HA port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=10911, show_default=True, help="The port for requests.")
@click.option("--ha-port", type=click.IntRange(0, 65535), help="The port a master sends its log on; else haListenPort.")
@config_option
def serve(
    store: Path,
    role: str,
    ha_master: str | None,
    master_remoting: str | None,
    host: str,
    port: int,
    ha_port: int | None,
    config: StoreConfig,
) -> int:
    """Run the store in directory STORE as a master or a slave until SIGTERM.

    A broker.conf decides with brokerRole whether a master's puts wait for its slaves.
    """
    from flintlog.replication.ha.node import HaNode

    if (role == "slave") != (ha_master is not None):
        raise click.UsageError("--ha-master belongs to --role slave, and a slave needs it")
    changes: dict[str, Any] = {} if ha_port is None else {"ha_listen_port": ha_port}
    if ha_master is not None:
        changes |= {"broker_role": "SLAVE", "ha_master_address": ha_master}
    elif config.broker_role == "SLAVE":
        changes["broker_role"] = "ASYNC_MASTER"
    node = HaNode(store, config.with_changes(**changes), host=host, port=port, master_remoting=master_remoting)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    node.start()
    try:
        sends = "" if node.is_slave else f", log on {host}:{node.ha_port}"
        click.echo(f"{node.config.broker_role} of {store}: requests on {host}:{node.port}{sends}")
        stop.wait()
    finally:
        node.stop()
    return ExitCode.FINE
