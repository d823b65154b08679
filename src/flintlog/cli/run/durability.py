"""What a configuration promises about acknowledged messages, in plain words."""

from __future__ import annotations

from flintlog.store.options.store_config import StoreConfig


def describe_durability(config: StoreConfig) -> str:
    """Say what an acknowledged message survives.

    >>> describe_durability(StoreConfig()).split(":")[0]
    'Synchronous flush'
    """
    return " ".join([_describe_flush(config), *_describe_replicas(config)])


def _describe_flush(config: StoreConfig) -> str:
    if config.flush == "sync":
        return (
            "Synchronous flush: an acknowledged message is on disk and survives a crash of the process, a crash of the "
            "system and a loss of power, as long as the disk keeps what it says it has written."
        )
    losing_s = max(config.flush_interval_commit_log, config.flush_commit_log_thorough_interval) / 1000
    flush = (
        f"a crash of the system or a loss of power may take the messages of the last {losing_s:g} s, "
        f"or more if the disk is slow."
    )
    if not config.transient_store_pool_enable:
        return f"Asynchronous flush: an acknowledged message survives a crash of the process; {flush}"
    gathering_s = max(config.commit_interval_commit_log, config.commit_commit_log_thorough_interval) / 1000
    return (
        f"Asynchronous flush with gathered writes: a crash of the process may take the messages of the last "
        f"{gathering_s:g} s; {flush}"
    )


def _describe_replicas(config: StoreConfig) -> list[str]:
    if config.broker_role == "SLAVE":
        return ["This store is a slave: it takes no puts and holds what its master sent."]
    if config.enable_dledger_commit_log:
        return ["The log is a ledger: a put also waits until a majority of the group has the message."]
    if config.waits_for_replicas:
        return [f"A put also waits until {_count(config.in_sync_replicas - 1)} the message."]
    if config.waits_in_name_only:
        asked = config.in_sync_replicas
        return [f"SYNC_MASTER waits for no slave with in_sync_replicas {asked}: it counts the master, set 2 or more."]
    return []


def _count(replicas: int) -> str:
    return "1 replica has" if replicas == 1 else f"{replicas} replicas have"
