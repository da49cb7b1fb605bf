"""One process with many simulated agents: `python -m benchmarks.fleet_agents FIRST LAST …`.

It prints `ready`, then sends at the rate of each line of its input, until the input ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from random import Random

from arrester.controlplane import signing
from benchmarks import fleet_load
from tests.simulated_agent import SimulatedAgent


def main(first: int, last: int, instances: int, tasks: int) -> None:
    """Run the agents of the applications from `first` to `last`."""
    folder = Path(os.environ["ARRESTER_SPOOL"])
    agents = [
        SimulatedAgent(
            fleet_load.application(number),
            redis_url=os.environ["REDIS_URL"],
            server_key=signing.public_key(),
            spool=folder / f"instance-{instance}",
            tasks=tasks,
        )
        for number in range(first, last)
        for instance in range(instances)
    ]
    for agent in agents:
        agent.start()
    print("ready", flush=True)
    load, ended = fleet_load.Load(), threading.Event()
    sender = threading.Thread(target=_send, args=(agents, load, ended))
    sender.start()
    for line in sys.stdin:
        load.set(line)
    ended.set()
    sender.join()
    waiting = sum(agent.connection.spool.events for agent in agents)
    print(f"{sum(len(agent.failed) for agent in agents)} {waiting}", flush=True)
    # The kernel closes hundreds of connections faster than their threads do.
    os._exit(0)


def _send(agents: list[SimulatedAgent], load: fleet_load.Load, ended: threading.Event) -> None:
    """Let each agent put a batch every second, at a moment of its own."""
    random = Random(os.getpid())
    due = [(time.monotonic() + random.random(), random.random()) for _ in agents]
    while not ended.wait(0.005):
        now = time.monotonic()
        for number, agent in enumerate(agents):
            at, left = due[number]
            if now < at:
                continue
            wanted = load.of(agent.application) + left
            if int(wanted):
                agent.fail(int(wanted))
            due[number] = at + fleet_load.PUT_SECONDS, wanted - int(wanted)


if __name__ == "__main__":
    import django

    django.setup()
    main(*map(int, sys.argv[1:]))
