"""The records of the chaos: their input, and where each of them is at the end."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

APPLICATION, PIPELINE = "chaos", "records"
SCHEMA = "task STRING, position BIGINT, value STRING"
#: Values: written, dead-lettered, or PAUSED until the cause is repaired or an operator skips it.
GOOD, BAD, STOP = "good", "bad", "stop"
_CHANCES = {GOOD: 0.95, BAD: 0.045, STOP: 0.005}
TASKS = tuple("abcdefgh")

Place = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Records:
    """All records so far, by task and position."""

    folder: Path
    chance: Random
    values: dict[Place, str] = field(default_factory=dict)
    files: int = 0
    _next: Counter[str] = field(default_factory=Counter)

    def add(self) -> None:
        """Add a file of some records, atomically."""
        lines = []
        for _ in range(self.chance.randint(20, 200)):
            task = self.chance.choice(TASKS)
            [value] = self.chance.choices(list(_CHANCES), list(_CHANCES.values()))
            place = task, self._next[task]
            self._next[task] += 1
            self.values[place] = value
            lines.append(json.dumps({"task": task, "position": place[1], "value": value}))
        (self.folder / "in").mkdir(exist_ok=True)
        draft = self.folder / "draft.json"
        draft.write_text("\n".join(lines))
        draft.rename(self.folder / "in" / f"{self.files:06d}.json")
        self.files += 1

    def written(self) -> list[Place]:
        """Return the records in the sink, by its numbers."""
        found: list[Place] = []
        for part in sorted((self.folder / "sink").glob("number=*"), key=_number):
            if (part / "_SUCCESS").exists():
                rows = pq.read_table(part, columns=["task", "position"]).to_pylist()
                found += sorted((row["task"], row["position"]) for row in rows)
        return found

    def dead_letters(self) -> list[Place]:
        """Return the records in complete folders of dead letters."""
        found: list[Place] = []
        for complete in (self.folder / "dead-letters").glob("day=*/*/_SUCCESS"):
            for part in complete.parent.glob("*.parquet"):
                rows = pq.ParquetFile(part).read(columns=["task", "position"]).to_pylist()
                found += [(row["task"], row["position"]) for row in rows]
        return found

    @property
    def committed(self) -> int:
        """The number of micro-batches that Spark has committed."""
        # Spark deletes old files of the folder.
        files = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return 1 + max((int(each.name) for each in files), default=-1)

    def are_complete(self) -> bool:
        """Whether each record is somewhere."""
        return len({*self.written(), *self.dead_letters()}) == len(self.values)

    def violations(self) -> list[str]:
        """Return what is lost, doubled, in the wrong place or out of order."""
        written, dead = Counter(self.written()), Counter(self.dead_letters())
        found = []

        def report(what: str, places: list[Place]) -> None:
            if places:
                found.append(f"{len(places)} records {what}, such as {places[:5]}")

        report("are lost", [each for each in self.values if not written[each] and not dead[each]])
        report("are in the sink twice", [each for each, n in written.items() if n > 1])
        report("are dead letters twice", [each for each, n in dead.items() if n > 1])
        report("are in both", [each for each in written if dead[each]])
        values = self.values
        report("are dead letters, though good", [each for each in dead if values[each] == GOOD])
        report("are in the sink, though bad", [each for each in written if values[each] == BAD])
        by_task = defaultdict(list)
        for task, position in self.written():
            by_task[task].append(position)
        disordered = [(task, 0) for task, all in by_task.items() if all != sorted(all)]
        report("(tasks) are out of order", disordered)
        return found


def _number(part: Path) -> int:
    return int(part.name.partition("=")[2])
