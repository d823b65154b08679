"""`flintlog serve STORE`: runs a store as a master, a slave, or a member of a ledger's group, until SIGTERM or SIGINT.

A node that fails ends the process with its error, so that a supervisor can start it again.

flintlog serve orders --role master --port 10911 --ha-port 10912
flintlog serve copy --role slave --ha-master 10.0.0.7:10912
flintlog serve orders --ledger-group g --ledger-id n0 --ledger-peers "n0-10.0.0.7:40911;n1-10.0.0.8:40911;…"
"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import LocalPath, config_option, output_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintlog.replication.ha.node import HaNode
    from flintlog.replication.ledger.store_node import LedgerStoreNode
    from flintlog.store.options.store_config import StoreConfig

_LOOK_S: Final = 0.5


@click.command()
@click.argument("store", type=LocalPath(file_okay=False, path_type=Path))
@click.option(
    "--role",
    type=click.Choice(["master", "slave"]),
    help="Whether the store takes puts and sends its log, or follows a master.",
)
@click.option("--ledger-group", metavar="GROUP", help="The ledger's group whose member this is, instead of a role.")
@click.option("--ledger-peers", metavar="ID-HOST:PORT;…", help="All members of the group, this one too.")
@click.option("--ledger-id", metavar="ID", help="Which of the members this is.")
@click.option("--ledger-fast", is_flag=True, help="Elect within two seconds: for groups without Java members.")
@click.option(
    "--ledger-brokers",
    metavar="ID-HOST:PORT;…",
    help="Members that are Java brokers: asked for topics, groups and offsets while they lead.",
)
@click.option(
    "--ledger-new", is_flag=True, help="The group is new, or this member's old log is given up: it votes without a log."
)
@click.option("--ha-master", metavar="HOST:PORT", help="The master's HA port, for a slave.")
@click.option("--master-remoting", metavar="HOST:PORT", help="The master's other port; else one below its HA port.")
@click.option("--cut-to-master", is_flag=True, help="Let a slave cut messages that its master does not have.")
@click.option(
    "--without-comparing", is_flag=True, help="Let a slave follow a master of which only the HA port can be reached."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=10911, show_default=True, help="The port for requests.")
@click.option("--ha-port", type=click.IntRange(0, 65535), help="The port a master sends its log on; else haListenPort.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics on this port.")
@config_option
@output_option
def serve(
    store: Path,
    role: str | None,
    ledger_group: str | None,
    ledger_peers: str | None,
    ledger_id: str | None,
    ledger_fast: bool,
    ledger_new: bool,
    ledger_brokers: str | None,
    ha_master: str | None,
    master_remoting: str | None,
    cut_to_master: bool,
    without_comparing: bool,
    host: str,
    port: int,
    ha_port: int | None,
    metrics_port: int | None,
    config: StoreConfig,
    output: Output,
) -> int:
    """Run the store in directory STORE as a master, a slave or a ledger's member until SIGTERM.

    A broker.conf decides with brokerRole whether a master's puts wait for its slaves; it may name a ledger's group too.
    """
    from flintlog.replication.ha.node import HaNode as Node

    if role is None:
        member = _member_config(store, config, ledger_group, ledger_peers, ledger_id)
        node = _make_member(store, member, ledger_brokers, fast=ledger_fast, new=ledger_new, host=host, port=port)
        return _run(node, host, metrics_port, lambda metrics: _say_member(node, member, store, host, output, metrics))
    if ledger_group or ledger_peers or ledger_id or ledger_brokers or ledger_new:
        raise click.UsageError("a store is a master, a slave, or a ledger's member: --role or --ledger-…")
    if (role == "slave") != (ha_master is not None):
        raise click.UsageError("--ha-master belongs to --role slave, and a slave needs it")
    changes: dict[str, Any] = {} if ha_port is None else {"ha_listen_port": ha_port}
    if ha_master is not None:
        changes |= {"broker_role": "SLAVE", "ha_master_address": ha_master}
    elif config.broker_role == "SLAVE":
        changes["broker_role"] = "ASYNC_MASTER"
    master = Node(
        store,
        config.with_changes(**changes),
        host=host,
        port=port,
        master_remoting=master_remoting,
        cut_to_master=cut_to_master,
        compare_logs=not without_comparing,
    )
    return _run(master, host, metrics_port, lambda metrics: _say_where(master, store, host, output, metrics))


def _member_config(
    store: Path, config: StoreConfig, group: str | None, peers: str | None, member: str | None
) -> StoreConfig:
    """The options of a member: those that were given, and those that its directory has."""
    from flintlog.disk.media.local import LocalMedium
    from flintlog.store.paths import StorePaths, with_found_member
    from flintlog.store.settings.written_with import fit_options

    given = {"dledger_group": group, "dledger_peers": peers, "dledger_self_id": member}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    medium = LocalMedium()
    found = with_found_member(store, config.with_changes(enable_dledger_commit_log=True, **changes), medium)
    found = fit_options(found, StorePaths.of(store, found), medium)
    options = (
        ("dledger_group", "--ledger-group"),
        ("dledger_peers", "--ledger-peers"),
        ("dledger_self_id", "--ledger-id"),
    )
    missing = [option for name, option in options if not getattr(found, name)]
    if len(missing) == len(options):
        raise click.UsageError("name a --role, or --ledger-group, --ledger-peers and --ledger-id")
    if missing:
        raise click.UsageError(f"no file of the store says {' and '.join(missing)}: name them")
    return found


def _make_member(
    store: Path, config: StoreConfig, brokers: str | None, *, fast: bool, new: bool, host: str, port: int
) -> LedgerStoreNode:
    from flintlog.replication.ledger.store_node import LedgerStoreNode, parse_peers

    known = parse_peers(brokers or "")
    return LedgerStoreNode(store, config, fast=fast, host=host, port=port, brokers=known, new_group=new)


def _run(node: HaNode | LedgerStoreNode, host: str, metrics_port: int | None, say: Callable[[int | None], None]) -> int:
    """Run a node until SIGTERM or SIGINT, or until it fails; calls `say` with the metrics' port once it listens."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as ending:
        ending.callback(node.stop)
        node.start()
        metrics = None
        if metrics_port is not None:
            from flintlog.replication.prometheus import MetricsServer

            metrics = MetricsServer(node, host, metrics_port)
            ending.callback(metrics.stop)
        say(None if metrics is None else metrics.port)
        while not stop.wait(_LOOK_S):
            if node.failure is not None:
                raise node.failure
    return ExitCode.FINE


def _say_member(
    node: LedgerStoreNode, config: StoreConfig, store: Path, host: str, output: Output, metrics_port: int | None
) -> None:
    group, member = config.dledger_group, config.dledger_self_id
    if isinstance(output, TableOutput):
        measured = "" if metrics_port is None else f", metrics on http://{host}:{metrics_port}/metrics"
        address = node.node.config.peers[node.node.config.self_id]
        click.echo(f"{member} of {group}, {store}: status on {host}:{node.port}, ledger on {address}{measured}")
    else:
        ports = {"port": node.port, "metrics_port": metrics_port}
        output.record({"group": group, "id": member, "store": str(store), "host": host, **ports})


def _say_where(node: HaNode, store: Path, host: str, output: Output, metrics_port: int | None) -> None:
    """Print one line, or one value, as soon as the node listens: its starter may wait for that."""
    role, ha_port = node.config.broker_role, None if node.is_slave else node.ha_port
    if isinstance(output, TableOutput):
        sends = "" if ha_port is None else f", log on {host}:{ha_port}"
        measured = "" if metrics_port is None else f", metrics on http://{host}:{metrics_port}/metrics"
        click.echo(f"{role} of {store}: requests on {host}:{node.port}{sends}{measured}")
    else:
        ports = {"port": node.port, "ha_port": ha_port, "metrics_port": metrics_port}
        output.record({"role": role, "store": str(store), "host": host, **ports})
