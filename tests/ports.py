"""Free TCP ports."""

from __future__ import annotations

import random
import socket

#: Below the range from which a system gives ports to connections and to servers that ask for any,
#: as the JVMs of other tests do: such a port may be taken before our server binds it.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port that is free, and that no process gets unasked."""
    # Not of the seeded generator: test processes beside this one draw too.
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port found from {_PORTS.start} to {_PORTS.stop}")
