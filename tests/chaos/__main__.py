"""`make chaos`: run the product under a seeded schedule of faults, and check each record.

Files of records come in all the time, an operator clicks, and processes, connections and disks
fail at random. At the end each record is in the sink or a dead letter exactly once, in order per
task; each accepted command has an answer; the counts of all lists agree, the flow has each record
once, and the views are those that the log gives.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.chaos import clocks, faults, noisy_neighbour
from tests.chaos.operator import Operator
from tests.chaos.product import Product
from tests.chaos.records import APPLICATION, BAD, Records
from tests.e2e.stack import eventually
from tests.patience import PATIENCE_SECONDS

#: The most files that wait: more would only make the end longer.
_WAITING_FILES, _SHORT_WAITING_FILES = 20, 6
#: How long the records and the counts may take at the end: in general, and in the short form.
_CALM_SECONDS, _SHORT_CALM_SECONDS = 900, PATIENCE_SECONDS


#: Print the sums of the flow.
_FLOW = """
from django.db.models import Sum
from arrester.controlplane.models import FlowHour
names = ("records_in", "records_out", "skipped", "held", "drained")
sums = FlowHour.objects.aggregate(**{f"sum_{name}": Sum(name) for name in names})
print(*(sums[f"sum_{name}"] or 0 for name in names))
"""


def main(arguments: list[str]) -> int:
    """Run one schedule, print the result, and return 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=300, help="how many faults (300)")
    parser.add_argument("--seed", type=int, default=Random().randrange(10**6))
    parser.add_argument("--short", action="store_true", help="some faults of different kinds")
    parser.add_argument(
        "--noisy-neighbour", action="store_true", help="one application against another instead"
    )
    parser.add_argument(
        "--attack", action="append", default=[], choices=noisy_neighbour.ATTACKS,
        help="of a noisy neighbour; default: all",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    # So that the product is stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    os.environ |= {
        "ARRESTER_SECRET_KEY": "only for chaos " * 4,
        "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings",
    }
    with tempfile.TemporaryDirectory(prefix="arrester-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "home").mkdir(mode=0o711)
        has_disk = not options.noisy_neighbour and faults.mount_small_disk(folder / "home")
        product = Product(folder=folder, has_clocks=not options.noisy_neighbour)
        try:
            if options.noisy_neighbour:
                return noisy_neighbour.run(product, options.attack)
            return _run(product, Random(options.seed), options, has_disk=has_disk)
        finally:
            product.stop()
            if has_disk:
                faults.unmount(folder / "home")


def _run(product: Product, chance: Random, options: argparse.Namespace, *, has_disk: bool) -> int:
    kinds = dict(faults.FAULTS)
    if clocks.is_available():
        kinds |= faults.CLOCKS
    if has_disk:
        kinds[faults.FULL_DISK] = (faults.fill_disk, 2)
    planned = [each for each in faults.SHORT if each in kinds] if options.short else []
    records = Records(folder=product.folder, chance=Random(chance.random()))
    operator = Operator(product=product, chance=Random(chance.random()))
    records.add()
    product.start()
    product.start_driver()
    ended = threading.Event()
    waiting = _SHORT_WAITING_FILES if options.short else _WAITING_FILES
    feeder = threading.Thread(target=_feed, args=(records, ended, waiting))
    feeder.start()
    injected: Counter[str] = Counter()
    #: The micro-batches at the last fault of the driver: it needs time for the next one.
    committed = -1
    try:
        eventually(lambda: records.written(), what="the first rows")
        for number in range(len(planned) or options.faults):
            has_progress = records.committed > committed
            names = [each for each in kinds if has_progress or each not in faults.OF_DRIVER]
            if planned:
                names = [planned[number]]
            [kind] = chance.choices(names, [kinds[each][1] for each in names])
            kinds[kind][0](product, chance)
            injected[kind] += 1
            if kind in faults.OF_DRIVER:
                committed = records.committed
            if not product.driver_is_running:
                product.start_driver()
            if options.short or chance.random() < 0.5:
                operator.act()
            print(
                f"{number + 1} {kind}: {len(records.values)} records", file=sys.stderr, flush=True
            )
            time.sleep(chance.uniform(0, 1 if options.short else 4))
    finally:
        ended.set()
        feeder.join()
    seconds = _SHORT_CALM_SECONDS if options.short else _CALM_SECONDS
    violations = _calm(product, records, operator, seconds=seconds)
    _print(injected, records, operator, violations)
    return 1 if violations else 0


def _feed(records: Records, ended: threading.Event, waiting: int) -> None:
    while not ended.wait(0.7):
        if records.files - 2 * records.committed < waiting:
            records.add()


def _calm(product: Product, records: Records, operator: Operator, *, seconds: float) -> list[str]:
    """Repair the cause, resume all tasks, and return what is violated when nothing moves."""
    (product.folder / "repaired").touch()
    for name in ("driver", "server"):
        product.clock(name).set(0)

    def is_calm() -> bool:
        if not product.driver_is_running:
            product.start_driver()
        return operator.resume_all() and records.are_complete()

    found = []
    try:
        eventually(is_calm, what="all records are somewhere", seconds=seconds, every=2)
    except AssertionError as exc:
        found.append(str(exc))
    found += records.violations()
    expected = sum(value == BAD for value in records.values.values())
    try:
        eventually(
            lambda: len(set(product.failure_counts(APPLICATION).values())) == 1,
            what="the counts agree",
            seconds=seconds,
        )
    except AssertionError:
        found.append(f"the counts differ: {product.failure_counts(APPLICATION)}")
    failures = product.all_of("/api/v1/failures")
    bad = sum(
        each["count"] for each in failures if each["failure"]["stage"].startswith("deserialize")
    )
    if bad != expected:
        found.append(f"{bad} bad records are counted, of {expected}")
    found += _flow_violations(product, records, seconds=seconds)
    quarantined = product.all_of("/api/v1/quarantine")
    if quarantined:
        found.append(f"{len(quarantined)} entries are quarantined: {quarantined[0]}")
    found += operator.check(seconds=seconds)
    try:
        product.manage("rebuild", "--verify")
    except AssertionError as exc:
        found.append(f"the views differ from the log: {exc}")
    return found


def _flow_violations(product: Product, records: Records, *, seconds: float) -> list[str]:
    """Return what is wrong with the flow: each record is read once, and has one outcome."""
    dead_letters = len(records.dead_letters())
    expected = [len(records.values), len(records.values) - dead_letters, dead_letters]

    def flow() -> list[int]:
        printed = product.manage("shell", "-v", "0", "-c", _FLOW)
        read, written, skipped, held, drained = map(int, printed.split()[-5:])
        return [read, written, skipped] if held == drained else []

    try:
        # A minute is reported when it is over.
        eventually(lambda: flow() == expected, what="the flow", seconds=seconds, every=5)
    except AssertionError:
        return [f"the flow is {flow()}: read, written, skipped; it is to be {expected}"]
    return []


def _print(
    injected: Counter[str], records: Records, operator: Operator, violations: list[str]
) -> None:
    for kind, count in sorted(injected.items()):
        print(f"| {kind} | {count} |")
    print(
        f"{injected.total()} faults; {len(records.values)} records; "
        f"{len(operator.accepted)} commands, {operator.double_clicks} of them clicked twice, "
        f"{operator.failed_requests} requests failed; {len(violations)} violations"
    )
    for each in violations:
        print(f"VIOLATION: {each}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
