"""Which values the failed records of an error group have, beside those of other groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.controlplane import store
from arrester.controlplane.queries.failure_history.error_groups import (
    GroupFilter,
    group,
    groups,
)
from arrester.domain.events import RecordFailed, StoredEvent
from arrester.domain.state.states import GroupState

#: The newest records of the group that are compared, and the newest of all other groups.
EXAMPLES = 200
_OTHER_GROUPS = 10
#: The most frequent values of a field that are returned, and the most fields.
_VALUES, _FIELDS = 5, 60
#: Longer values are cut.
_LENGTH = 200


class FieldValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a field, and how many records have it."""

    value: str
    share: Annotated[float, Meta(description="Of the records of this group.")]
    other_share: Annotated[
        float | None, Meta(description="Of the records of other groups; null: there are none.")
    ]


class FieldStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a field in the failed records of a group."""

    name: Annotated[str, Meta(description="The path of the field.")]
    missing_share: Annotated[float, Meta(description="Of records in which it is NULL or missing.")]
    other_missing_share: float | None
    distinct: Annotated[int, Meta(description="The number of different values.")]
    values: Annotated[tuple[FieldValue, ...], Meta(description="The most frequent ones.")]
    #: Of its numbers; None: it has other values.
    least: float | None
    greatest: float | None
    other_least: float | None
    other_greatest: float | None
    #: The lengths of its texts.
    shortest: int
    longest: int
    #: From 0 to 1: the greatest difference of shares between this group and the others.
    difference: Annotated[
        float, Meta(description="The greatest difference of a share from that of other groups.")
    ]


class GroupFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a group, those that differ most from other groups first."""

    examples: Annotated[int, Meta(description="The newest records of the group with a payload.")]
    other_examples: Annotated[int, Meta(description="Those of other groups of its application.")]
    fields: tuple[FieldStatistics, ...]


def group_fields(application: str, fingerprint: str) -> GroupFields:
    """Return the statistics of the newest examples of a group; raise NotFound.

    They are compared with the newest examples of the newest other groups of the application. The
    time does not depend on the number of failures.
    """
    state = group(application, fingerprint).state
    own = _records([state], limit=EXAMPLES)
    newest = groups(GroupFilter(application=application), limit=_OTHER_GROUPS + 1).rows
    others = [each for each in newest if each.fingerprint != fingerprint][:_OTHER_GROUPS]
    # The same number of each, so that a frequent group does not hide the others.
    other = [
        record
        for each in others
        for record in _records([each], limit=max(1, EXAMPLES // len(others)))
    ]
    return GroupFields(
        examples=len(own), other_examples=len(other), fields=tuple(_statistics(own, other))
    )


#: The values of a record by the paths of its fields, as texts.
_Record = Mapping[str, str]


def _records(states: Sequence[GroupState], *, limit: int) -> list[_Record]:
    """Return the newest records of some groups."""
    keys = [(each.application, each.fingerprint) for each in states]
    found = store.read_failures(store.FailureQuery(groups=keys), limit=limit).events
    events = [each for each in found if isinstance(each.event.data, RecordFailed)]
    return [record for each in store.with_bodies(events) if (record := _record(each))]


def _record(failure: StoredEvent) -> _Record:
    body = failure.event.body
    return dict(store.record_fields(body)) if body is not None else {}


def _statistics(own: Sequence[_Record], other: Sequence[_Record]) -> list[FieldStatistics]:
    values, other_values = _by_field(own), _by_field(other)
    found = [
        _of_field(name, values[name], other_values.get(name, []), len(own), len(other))
        for name in values
    ]
    found.sort(key=lambda each: (-each.difference, each.name))
    return found[:_FIELDS]


def _by_field(records: Iterable[_Record]) -> dict[str, list[str]]:
    values: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        for name, value in record.items():
            values[name].append(value)
    return dict(values)


def _of_field(
    name: str, values: Sequence[str], other: Sequence[str], size: int, other_size: int
) -> FieldStatistics:
    counts, other_counts = Counter(values), Counter(other)

    def share(count: int) -> float | None:
        return count / other_size if other_size else None

    frequent = [
        FieldValue(
            value=value if len(value) <= _LENGTH else f"{value[:_LENGTH]}…",
            share=count / size,
            other_share=share(other_counts[value]),
        )
        for value, count in counts.most_common(_VALUES)
    ]
    missing, other_missing = 1 - len(values) / size, share(other_size - len(other))
    numbers, other_numbers = _numbers(values), _numbers(other)
    shares = [(each.share, each.other_share) for each in frequent] + [(missing, other_missing)]
    return FieldStatistics(
        name=name,
        missing_share=missing,
        other_missing_share=other_missing,
        distinct=len(counts),
        values=tuple(frequent),
        least=min(numbers, default=None),
        greatest=max(numbers, default=None),
        other_least=min(other_numbers, default=None),
        other_greatest=max(other_numbers, default=None),
        shortest=min(map(len, values)),
        longest=max(map(len, values)),
        difference=max(abs(own - (rest or 0.0)) for own, rest in shares) if other_size else 0.0,
    )


def _numbers(values: Sequence[str]) -> list[float]:
    """Return the values as numbers; none if one of them is no number."""
    numbers = []
    for value in values:
        try:
            number = float(value)
        except ValueError:
            return []
        if number - number != 0:  # infinite, or no number
            return []
        numbers.append(number)
    return numbers
