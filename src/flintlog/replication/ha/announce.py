"""Telling a master whose connection is whose: RocketMQ's HA protocol knows no names.

    request ANNOUNCE_REPLICA   address (our end of the HA connection), store (who we are)       reply   nothing

A slave says it before its first report. A connection that broke without the master's knowing stays open there for a
while; the newest one of a store ends the others, so that none of its acknowledgements counts twice.

A store is its host and directory, which two processes never run at once: a copied directory is another one.
"""

from __future__ import annotations

import os
import socket
from collections import OrderedDict
from typing import Final

from flintlog.errors import InvalidConfig, PeerFailed
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.codes import ANNOUNCE_REPLICA, REQUEST_CODE_NOT_SUPPORTED, SUCCESS
from flintlog.remoting.frame import Command
from flintlog.replication.ha.slave_connection import SlaveLine
from flintlog.replication.ha.master import HaMaster

_MOST_NAMES: Final = 256
_MOST_CHARACTERS: Final = 4096


async def announce(client: RemotingClient, address: str, path: str | os.PathLike[str]) -> None:
    """The slave's side; a master that does not know the request counts connections."""
    reply = await client.call(Command(ANNOUNCE_REPLICA, fields={"address": address, "store": _name_of(path)}))
    if reply.code not in (SUCCESS, REQUEST_CODE_NOT_SUPPORTED):
        raise PeerFailed(f"{client.address} does not take our name: {reply.remark}")


def _name_of(path: str | os.PathLike[str]) -> str:
    return f"{socket.gethostname()}:{os.path.realpath(path)}"


class Announced:
    """The master's side: the newest names, for connections that are open or about to be."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._stores: OrderedDict[str, str] = OrderedDict()
        master.on_opened = self.end_others

    async def answer(self, request: Command) -> Command:
        address, store = request.fields.get("address", ""), request.fields.get("store", "")
        if not address or not store or len(address) + len(store) > _MOST_CHARACTERS:
            raise InvalidConfig("an address and a store are needed")
        self._stores[address] = store
        self._stores.move_to_end(address)
        if len(self._stores) > _MOST_NAMES:
            self._stores.popitem(last=False)
        for line in self._master.lines:
            if line.address == address:
                self.end_others(line)
        return request.reply(SUCCESS)

    def end_others(self, newest: SlaveLine) -> None:
        """Close what the store of this connection has open besides, from the same host."""
        store = self._stores.get(newest.address)
        for line in self._master.lines:
            is_same = store is not None and line.host == newest.host and self._stores.get(line.address) == store
            if is_same and line is not newest:
                line.close("its store is connected anew")
