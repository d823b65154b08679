"""A web application whose requests become messages: POST /orders is answered when its order is on disk.

One process, one event loop, the standard library: `aput` waits for the disk without holding up the loop, and requests
that wait at the same time share a sync. A consumer bills the orders in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
REQUESTS = 40


class Application:
    """Takes orders and shows them by their keys."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, and answer it."""
        method, path, _ = (await reader.readline()).decode().split()
        length = 0
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        status, answer = await self.route(method, path, await reader.readexactly(length))
        text = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(text), text))
        await writer.drain()
        writer.close()

    async def route(self, method: str, path: str, body: bytes) -> tuple[bytes, object]:
        """What a request gives: a status and a value."""
        if (method, path) == ("POST", "/orders"):
            order = json.loads(body)
            receipt = await self._store.aput(Message("orders", body, keys=[order["id"]], tags="new"))
            return b"201 Created", {"offset": receipt.queue_offset}
        found = await asyncio.to_thread(self._store.query, "orders", path.removeprefix("/orders/"))
        return (b"200 OK", json.loads(found[0].body)) if found else (b"404 Not Found", None)


async def request(port: int, method: str, path: str, value: object = None) -> tuple[int, object]:
    """What a client does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b"" if value is None else json.dumps(value).encode()
    writer.write(b"%s %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (method.encode(), path.encode(), len(body), body))
    head, _, text = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(text)


async def serve(store: Store) -> None:
    """Serve, and be a few clients at once."""
    server = await asyncio.start_server(Application(store).answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        orders = [{"id": f"o-{number}", "pieces": number} for number in range(REQUESTS)]
        answers = await asyncio.gather(*(request(port, "POST", "/orders", order) for order in orders))
        print("created:", sum(status == 201 for status, _ in answers))
        print("asked for o-17:", await request(port, "GET", "/orders/o-17"))
        print("asked for o-99:", await request(port, "GET", "/orders/o-99"))


def bill(store: Store) -> None:
    """Read every order once; what was not acknowledged comes again after a restart."""
    pieces = count = 0
    with store.consumer("billing", "orders", timeout_s=20) as consumer:
        for message in consumer:
            pieces, count = pieces + json.loads(message.body)["pieces"], count + 1
            consumer.acknowledge(message)
            if count == REQUESTS:
                break
    print(f"billed: {pieces} pieces of {count} orders")


def main() -> None:
    """Run both in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store", CONFIG) as store:
        billing = threading.Thread(target=bill, args=(store,))
        billing.start()
        asyncio.run(serve(store))
        billing.join()


if __name__ == "__main__":
    main()
