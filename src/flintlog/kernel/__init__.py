"""The few hot loops, in two kernels: `reference` defines the behaviour, `native` does the same fast.

The native kernel is used if it was built, unless FLINTLOG_KERNEL=reference asks for the other. `name` says which one
is in use.

Reasons and costs: docs/decisions/0002.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flintlog.kernel.types import INNER_BATCH as INNER_BATCH
from flintlog.kernel.types import KEY as KEY
from flintlog.kernel.types import LINK as LINK
from flintlog.kernel.types import MULTI_DISPATCH as MULTI_DISPATCH
from flintlog.kernel.types import ROW as ROW
from flintlog.kernel.types import ROW_PLACE as ROW_PLACE
from flintlog.kernel.types import Buffer as Buffer
from flintlog.kernel.types import ChainFault as ChainFault
from flintlog.kernel.types import ClosedFor as ClosedFor
from flintlog.kernel.types import Column as Column
from flintlog.kernel.types import Crc as Crc
from flintlog.kernel.types import DispatchStop as DispatchStop
from flintlog.kernel.types import Moves as Moves
from flintlog.kernel.types import QueueRun as QueueRun
from flintlog.kernel.types import Row as Row
from flintlog.kernel.types import ScanStop as ScanStop

# Both kernels have the names of `reference.__all__`, and no others are imported.
if TYPE_CHECKING or os.environ.get("FLINTLOG_KERNEL") == "reference":
    from flintlog.kernel.reference import *  # noqa: F403
else:
    try:
        from flintlog.kernel.native import *  # noqa: F403
    except ImportError:  # not built: no compiler was there at installation
        from flintlog.kernel.reference import *  # noqa: F403
