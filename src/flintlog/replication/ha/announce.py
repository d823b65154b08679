"""Names a slave's connection to its master, because RocketMQ's HA protocol has no names.

    request ANNOUNCE_REPLICA   address (our end of the HA connection), store (our name)         reply   nothing

A slave announces itself before its first report. A connection that broke unnoticed stays open at the master for a
while. The newest connection of a store closes the others, so that no acknowledgement counts twice.

A store's name is its host and directory. Two processes never run one directory at once, and a copied directory has
another name.
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
from flintlog.replication.ha.master import HaMaster
from flintlog.replication.ha.slave_connection import SlaveConnection

_MOST_NAMES: Final = 256
_MOST_CHARACTERS: Final = 4096


async def announce(client: RemotingClient, address: str, path: str | os.PathLike[str]) -> None:
    """Announce this slave. A master that does not know the request counts connections instead."""
    reply = await client.call(Command(ANNOUNCE_REPLICA, fields={"address": address, "store": _name_of(path)}))
    if reply.code not in (SUCCESS, REQUEST_CODE_NOT_SUPPORTED):
        raise PeerFailed(f"{client.address} refused our name: {reply.remark}")


def _name_of(path: str | os.PathLike[str]) -> str:
    return f"{socket.gethostname()}:{os.path.realpath(path)}"


class Announced:
    """The master's table of names, by address. A name may arrive before or after its connection is accepted."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._stores: OrderedDict[str, str] = OrderedDict()
        master.on_opened = self.end_others

    async def answer(self, request: Command) -> Command:
        address, store = request.fields.get("address", ""), request.fields.get("store", "")
        if not address or not store or len(address) + len(store) > _MOST_CHARACTERS:
            raise InvalidConfig("an announcement needs an address and a store")
        self._stores[address] = store
        self._stores.move_to_end(address)
        if len(self._stores) > _MOST_NAMES:
            self._stores.popitem(last=False)
        for connection in self._master.connections:
            if connection.address == address:
                self.end_others(connection)
        return request.reply(SUCCESS)

    def end_others(self, newest: SlaveConnection) -> None:
        """Close the other connections of the same store and host."""
        store = self._stores.get(newest.address)
        for connection in self._master.connections:
            is_same = (
                store is not None and connection.host == newest.host and self._stores.get(connection.address) == store
            )
            if is_same and connection is not newest:
                connection.close("its store has a newer connection")
