"""An S3 server on loopback: moto in server mode, real HTTP, and a note of every request that it answered.

Real clients talk to it: pyarrow's, fsspec's, those of Spark's workers. It runs in a thread of the test's own process,
so a test can ask it what was read. `S3Server.variables` is the environment of every process that shall find it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pa_fs
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wsgi import ClosingIterator

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

REGION = "eu-central-1"
FOREIGN = ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN")
"""Variables of the developer's own that would lead elsewhere."""


@dataclass(slots=True)
class Request:
    """One request, with the bytes of its answer's body that were sent so far."""

    method: str
    path: str
    query: str
    range: str | None
    sent: int = 0

    @property
    def bucket(self) -> str:
        return self.path.split("/")[1]

    @property
    def is_read(self) -> bool:
        """Whether bytes of an object were asked for: neither a listing nor an object's facts alone."""
        return self.method == "GET" and self.path.count("/") > 1 and "list-type" not in self.query


@dataclass(slots=True)
class Traffic:
    """The requests of a while."""

    requests: list[Request] = field(default_factory=list)

    @property
    def reads(self) -> list[Request]:
        return [each for each in self.requests if each.is_read]

    @property
    def bytes_read(self) -> int:
        """How many bytes of objects were sent."""
        return sum(each.sent for each in self.reads)


class _SilentHandler(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Does nothing: the requests are noted already."""


class S3Server:
    """Where the server is; buckets are made by `make_bucket`, each test its own."""

    def __init__(self) -> None:
        self._seen: list[Request] = []
        self.closed: set[str] = set()
        """Buckets that nobody may see."""
        self._numbers = count()
        application: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._noting(application), threaded=True, request_handler=_SilentHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the clients, as AWS names it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "flint",
            "AWS_SECRET_ACCESS_KEY": "log",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    @property
    def files(self) -> pa_fs.S3FileSystem:
        """A client that does not ask the environment."""
        return pa_fs.S3FileSystem(
            access_key="flint",
            secret_key="log",
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )

    def make_bucket(self) -> str:
        """A bucket that no other test uses; its name."""
        name = f"bucket-{next(self._numbers)}"
        self.files.create_dir(name)
        return name

    def upload(self, folder: Path, *below: str) -> str:
        """Copy a directory into a bucket of its own, below these keys; its URI."""
        place = "/".join((self.make_bucket(), *below))
        pa_fs.copy_files(
            str(folder), place, source_filesystem=pa_fs.LocalFileSystem(), destination_filesystem=self.files
        )
        return f"s3://{place}"

    @contextmanager
    def traffic(self) -> Iterator[Traffic]:
        """The requests that were made inside, of all clients."""
        begin, seen = len(self._seen), Traffic()
        try:
            yield seen
        finally:
            seen.requests = self._seen[begin:]

    def _noting(self, application: WSGIApplication) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            request = Request(
                environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], environ.get("HTTP_RANGE")
            )
            self._seen.append(request)
            if "HTTP_AUTHORIZATION" not in environ or request.bucket in self.closed:
                return _denial(environ, start_response)
            return _counted(application(environ, start_response), request)

        return answer


def _denial(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """As S3 answers one who did not sign, or may not see a bucket; moto fails without a signature."""
    text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]


def _counted(body: Iterable[bytes], request: Request) -> Iterable[bytes]:
    def pieces() -> Iterator[bytes]:
        for piece in body:
            request.sent += len(piece)
            yield piece

    close: Any = getattr(body, "close", None)
    return ClosingIterator(pieces(), close)


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server, and its variables in this process's environment."""
    server = S3Server()
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in FOREIGN:
                patch.delenv(name, raising=False)
            for name, value in server.variables.items():
                patch.setenv(name, value)
            yield server
    finally:
        server.stop()
