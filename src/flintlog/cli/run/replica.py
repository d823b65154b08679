"""`flintlog replica status HOST:PORT`: role, positions and lag of a node and its peers, asked over its port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, Row
from flintlog.cli.parameters import output_option

if TYPE_CHECKING:
    from flintlog.replication.status import NodeStatus

_COLUMNS = ("node", "role", "term", "log_start", "log_end", "committed", "lag_bytes", "in_sync", "trouble")


@click.group()
def replica() -> None:
    """Ask nodes that `flintlog serve` runs, or brokers of RocketMQ's, about their replication."""


@replica.command()
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@output_option
def status(addresses: tuple[str, ...], output: Output) -> int:
    """Show the node at each HOST:PORT (its port for requests), then a master's slaves or a leader's peers.

    A node that does not answer has a row with its trouble, and the exit code is 3. It is 1 if a node reports trouble,
    or a slave is not in contact with its master.
    """
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise click.UsageError(f"{address!r} is no HOST:PORT")
    import asyncio

    found = asyncio.run(_ask_all(addresses))
    output.rows((row for address, answer in found for row in rows_of(address, answer)), _COLUMNS)
    answers = [answer for _, answer in found]
    if any(isinstance(answer, str) for answer in answers):
        return ExitCode.CANNOT_READ
    return ExitCode.FINDINGS if any(map(_is_in_trouble, answers)) else ExitCode.FINE


def _is_in_trouble(answer: NodeStatus | str) -> bool:
    if isinstance(answer, str) or answer.trouble is not None:
        return True
    is_alone = answer.master_address is not None and not answer.is_connected
    return is_alone or any(not each.is_in_sync for each in answer.replicas)


async def _ask_all(addresses: tuple[str, ...]) -> list[tuple[str, NodeStatus | str]]:
    """Each node's status, or why there is none."""
    import asyncio

    return list(zip(addresses, await asyncio.gather(*map(_ask, addresses)), strict=True))


async def _ask(address: str) -> NodeStatus | str:
    from flintlog.errors import PeerFailed
    from flintlog.remoting.client import RemotingClient
    from flintlog.remoting.codes import GET_BROKER_HA_STATUS, SUCCESS
    from flintlog.remoting.frame import Command
    from flintlog.replication.status import parse_status

    client = RemotingClient(address)
    try:
        reply = await client.call(Command(GET_BROKER_HA_STATUS))
        if reply.code != SUCCESS:
            return f"{address} answers with {reply.code}: {reply.remark}"
        return parse_status(reply.body)
    except PeerFailed as failure:
        return str(failure)
    finally:
        await client.close()


def rows_of(address: str, answer: NodeStatus | str) -> Iterator[Row]:
    """The node itself, then each slave or peer; for a node that did not answer, one row with the reason."""
    if isinstance(answer, str):
        yield {**dict.fromkeys(_COLUMNS), "node": address, "trouble": answer}
        return
    is_slave = answer.master_address is not None
    yield {
        "node": address,
        "role": answer.role,
        "term": answer.term,
        "log_start": answer.log_start,
        "log_end": answer.log_end,
        "committed": answer.committed,
        "lag_bytes": None,
        "in_sync": answer.is_connected if is_slave else None,
        "trouble": answer.trouble,
    }
    for each in answer.replicas:
        yield {
            "node": each.address,
            "role": "SLAVE" if answer.term is None else "PEER",
            "term": None,
            "log_start": None,
            "log_end": each.acknowledged,
            "committed": None,
            "lag_bytes": each.lag_bytes,
            "in_sync": each.is_in_sync,
            "trouble": None,
        }
