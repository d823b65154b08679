# The native kernel has the names and signatures of its plain twin.

from flintlog.kernel.reference import *  # noqa: F403
