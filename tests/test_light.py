"""What a program pays for a store: modules, time, and which packages it can do without.

Time is CPU time, the least of several runs, with the bytecode already written. Modules are counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import flintlog

HEAVY = frozenset({"pyarrow", "pyspark", "numpy", "pandas", "asyncio", "ssl", "multiprocessing", "click", "rich"})
MOST_MODULES_OF_THE_IMPORT = 150
MOST_MODULES_OF_A_PUT_AND_GET = 420
MOST_CPU_S = 0.1

OPEN = """
from flintlog import Message, StoreConfig, open_store
small = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400, services={services})
store = open_store("orders-store", small)
"""
PUT_AND_GET = f"""{OPEN.format(services="()")}
with store:
    store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"]))
    assert [message.body for message in store.get("orders", 0, 0).messages] == [b"42 pieces"]
    assert len(store.query("orders", "o-17")) == 1
"""
WITHOUT_ARROW = "import sys; sys.modules['pyarrow'] = sys.modules['pyspark'] = None\n"


def _python(code: str, folder: Path, settings: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(flintlog.__file__).parents[1]), **(settings or {})}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _modules(code: str, folder: Path) -> set[str]:
    return set(_python(f"{code}\nimport sys; print(*sys.modules)", folder).split())


def test_importing_the_names_imports_no_running_store(tmp_path: Path) -> None:
    found = _modules("from flintlog import Message, StoreConfig, open_store", tmp_path)
    assert not found & {*HEAVY, "flintlog.store.engine", "flintlog.store.store", "flintlog.services", "socket"}
    assert len(found) <= MOST_MODULES_OF_THE_IMPORT


def test_a_put_and_a_get_import_neither_columns_nor_spark_nor_services(tmp_path: Path) -> None:
    found = _modules(PUT_AND_GET, tmp_path)
    assert not found & {*HEAVY, "flintlog.services", "flintlog.pipeline", "flintlog.replication", "flintlog.remoting"}
    assert len(found) <= MOST_MODULES_OF_A_PUT_AND_GET


def test_importing_open_store_takes_a_tenth_of_a_second_at_most(tmp_path: Path) -> None:
    code = "import time; a = time.process_time(); from flintlog import open_store; print(time.process_time() - a)"
    written = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    taken_s = [float(_python(code, tmp_path, written)) for _ in range(6)]
    assert min(taken_s[1:]) <= MOST_CPU_S


def test_columns_name_their_extra_where_pyarrow_is_missing(tmp_path: Path) -> None:
    asked = "    try: store.scan()\n    except Exception as error: print(type(error).__name__, error)\n"
    said = _python(WITHOUT_ARROW + PUT_AND_GET + asked, tmp_path)
    assert said == "MissingExtra columns need pyarrow (pip install 'flintlog[arrow]')\n"


def test_commands_name_the_extra_that_they_lack(tmp_path: Path) -> None:
    code = f"""{WITHOUT_ARROW}{PUT_AND_GET}
from flintlog.cli import main
sys.stderr = sys.stdout
for line in (["stats", "orders-store", "--by", "topic"], ["pipeline", "verify", "orders-store"]):
    print(main.run(line))
"""
    by_topic, first, on_spark, second = _python(code, tmp_path).splitlines()
    assert "columns need pyarrow" in by_topic and "flintlog[arrow]" in by_topic
    assert "this command needs py" in on_spark and "flintlog[spark]" in on_spark
    assert first == second == "2"


def test_transactions_are_found_again_without_pyarrow(tmp_path: Path) -> None:
    opened = WITHOUT_ARROW + OPEN.format(services={"transaction"}) + "service = store.service('transaction')\n"
    left = "import os; service.begin(Message('orders', b'42 pieces', keys=['o-17'])); os._exit(0)"
    assert _python(opened + left, tmp_path) == ""
    found = "print([each.message.body for each in service.undecided()]); store.close()"
    assert _python(opened + found, tmp_path) == "[b'42 pieces']\n"
