"""Creates, starts and stops the services of one store.

In a plain store they run from its opening to its shutdown. In a ledger's member new ones run each time it leads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import cast

from flintlog.errors import InvalidConfig, ServiceNotEnabled
from flintlog.store.put.appender import Appender
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.runtime.jobs import Background, Job
from flintlog.store.runtime.service import HOMES, HasFigures, Service


class ServiceRuns:
    """The services that the option `services` names. One thread starts and stops them; any may call the rest."""

    def __init__(self, host: ServiceHost, background: Background, appender: Appender) -> None:
        self._host = host
        self._config = host.store.config
        self._background = background
        self._appender = appender
        self._services: dict[str, Service] = {}
        self._jobs: list[Job] = []

    def start(self) -> None:
        """Start all services, and let puts use them."""
        for name in sorted(self._config.services):
            service = _make(name, self._host)
            service.start()
            self._services[name] = service
        for name, service in self._services.items():
            self._jobs.append(self._background.add(name, service.run_due))
        self._appender.services = self._services

    def stop(self) -> None:
        """Stop all services, even if one of them fails to stop. A second call does nothing."""
        self._appender.services = {}
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            self._background.remove(job)
        services, self._services = self._services, {}
        with ExitStack() as stack:
            for service in reversed(services.values()):
                stack.callback(service.stop)

    def get(self, name: str) -> Service:
        """A running service, by its name in the configuration."""
        if not isinstance(name, str) or name not in HOMES:
            raise InvalidConfig(f"there is no service {name!r}", advice=", ".join(HOMES))
        found = self._services.get(name)
        if found is None:
            advice = f"open the store with services={{{name!r}}}"
            if name in self._config.services:
                advice = "it runs in a store that is open for writing; in a group, on its leader"
            raise ServiceNotEnabled(f"the service {name!r} does not run", advice=advice)
        return found

    def figures(self) -> dict[str, str]:
        """The figures of those that have some."""
        found: dict[str, str] = {}
        for service in tuple(self._services.values()):
            if isinstance(service, HasFigures):
                found.update(service.running_stats())
        return found


def _make(name: str, host: ServiceHost) -> Service:
    module, _, kind = HOMES[name].partition(":")
    return cast(Callable[[ServiceHost], Service], getattr(import_module(module), kind))(host)
