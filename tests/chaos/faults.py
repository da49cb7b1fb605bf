"""The kinds of faults; each takes some seconds at most, and ends by itself."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
from redis import Redis, RedisError

from arrester.domain.identity import redis_keys
from tests.chaos.product import PARTS, Product
from tests.chaos.records import APPLICATION

Fault = Callable[[Product, Random], object]


def kill_driver(product: Product, _: Random) -> None:
    if product.driver_is_running:
        product.kill("driver")
    product.start_driver()


def kill_python_worker(product: Product, chance: Random) -> None:
    if workers := product.python_workers():
        with suppress(psutil.NoSuchProcess):
            chance.choice(workers).kill()


def kill(part: str) -> Fault:
    def kill_part(product: Product, chance: Random) -> None:
        if found := product.processes(part):
            # One of several processes, such as a backend of PostgreSQL or a child of Celery.
            with suppress(psutil.NoSuchProcess):
                chance.choice([found[0], chance.choice(found)]).kill()

    return kill_part


def suspend(part: str) -> Fault:
    def suspend_part(product: Product, chance: Random) -> None:
        with product.suspended(part):
            time.sleep(chance.uniform(0.2, 6))

    return suspend_part


def _redis(product: Product) -> Redis:
    return Redis.from_url(product.home.urls(product.home.known_credentials()).redis)


def empty_redis(product: Product, _: Random) -> None:
    with _redis(product) as redis, suppress(RedisError):
        redis.flushall()


def damage_redis(product: Product, chance: Random) -> None:
    """Kill Redis, and damage the newest of its append-only files."""
    if found := product.processes("Redis"):
        with suppress(psutil.NoSuchProcess):
            found[0].kill()
    files = sorted(
        product.home.redis_data.rglob("*.incr.aof"), key=lambda each: each.stat().st_mtime
    )
    if files:
        with files[-1].open("r+b") as file:
            size = file.seek(0, 2)
            file.seek(chance.randrange(size + 1))
            file.write(chance.randbytes(20))


def repeat_delivery(product: Product, _: Random) -> None:
    """Add the newest entry of the application's stream again."""
    stream = redis_keys.events(APPLICATION)
    with _redis(product) as redis, suppress(RedisError):
        for _, fields in redis.xrevrange(stream, count=1):
            redis.xadd(stream, fields)


def cut_connection(product: Product, chance: Random) -> None:
    product.proxy.cut()
    time.sleep(chance.uniform(0, 5))
    product.proxy.is_cut = False


def slow_connection(product: Product, chance: Random) -> None:
    product.proxy.delay_seconds = chance.uniform(0.05, 1)
    time.sleep(chance.uniform(1, 5))
    product.proxy.delay_seconds = 0.0


def fill_disk(product: Product, chance: Random) -> None:
    """Fill the disk of the servers, which is a small one of its own."""
    ballast = product.home.path / "ballast"
    with suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
    time.sleep(chance.uniform(1, 6))
    ballast.unlink()


def jump_clock(name: str) -> Fault:
    """Set a clock to a wrong time of up to five hours, or to the right one."""

    def jump(product: Product, chance: Random) -> None:
        clock = product.clock(name)
        offset = int(10 ** chance.uniform(0.5, 4.25))
        clock.set(chance.choice([offset, -offset] if clock.is_right else [offset, -offset, 0]))

    return jump


#: How often each kind occurs, in relation to the others.
FAULTS: dict[str, tuple[Fault, int]] = {
    "driver killed": (kill_driver, 4),
    "Python worker of Spark killed": (kill_python_worker, 4),
    **{f"{part} killed": (kill(part), 3) for part in PARTS},
    **{f"{part} suspended": (suspend(part), 2) for part in (*PARTS, "driver")},
    "Redis emptied": (empty_redis, 2),
    "Redis killed, its file damaged": (damage_redis, 2),
    "batch delivered twice": (repeat_delivery, 4),
    "connection cut": (cut_connection, 4),
    "connection slow": (slow_connection, 3),
}
FULL_DISK = "disk full"
#: They need libfaketime. The clock of the server is that of web, wake and workers.
CLOCKS: dict[str, tuple[Fault, int]] = {
    f"clock of the {name} jumps": (jump_clock(name), 4) for name in ("driver", "server")
}
#: Those of the short form, in this order.
SHORT = (
    "connection cut",
    "clock of the server jumps",
    "worker killed",
    "batch delivered twice",
    "clock of the driver jumps",
    "Redis killed, its file damaged",
    "driver killed",
    "PostgreSQL killed",
)
OF_DRIVER = ("driver killed", "driver suspended", "Python worker of Spark killed")


def mount_small_disk(folder: Path) -> bool:
    """Mount a disk of 700 MB; return False if this user may not."""
    command = ["mount", "-t", "tmpfs", "-o", "size=700m,mode=711", "tmpfs", str(folder)]
    return (
        bool(shutil.which("mount"))
        and not subprocess.run(command, check=False, capture_output=True).returncode
    )


def unmount(folder: Path) -> None:
    """Unmount the disk."""
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
