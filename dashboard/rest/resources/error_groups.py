"""REST: error groups: list, read, resolve, reopen, mute and assign them; their history."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from msgspec.structs import replace
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import actions, queries
from arrester.dashboard.rest import base, field_types
from arrester.dashboard.rest.access.audit import ActSerializer
from arrester.dashboard.rest.problems import PAST, PROBLEMS, REFUSED
from arrester.dashboard.rest.struct_serializers import StructSerializer
from arrester.domain import failure_text
from arrester.domain.errors import InvalidValue
from arrester.domain.events import StoredEvent
from arrester.domain.state.error_groups import PERIODS, GroupAct, GroupRequest
from arrester.domain.state.states import GroupState, GroupStatus, Mute

#: The columns that have another name in queries.
_NAMES = {"first_seen": "first_seen_at", "last_seen": "last_seen_at"}
_MUTE_NAMES = {"until": "ends_at"}
#: In place of a status: all of them.
ALL_STATES = "all"


class GroupQuerySerializer(base.ApplicationQuerySerializer, base.AsOfQuerySerializer):
    status = field_types.ListedChoiceField(
        [*field_types.choices(GroupStatus), ALL_STATES],
        required=False,
        default=GroupStatus.UNRESOLVED.value,
    )
    sort = field_types.SortField(
        {
            f"{sign}{_NAMES.get(column, column)}": f"{sign}{column}"
            for column in queries.SORTS
            for sign in ("-", "")
        },
        default="-last_seen_at",
    )

    class Meta:
        struct = queries.GroupFilter


class MuteSerializer(StructSerializer):
    class Meta:
        struct = Mute
        fields = ("ends_at", "failures", "period_seconds", "window_began_at", "window_count")
        sources = {"ends_at": "until", "window_began_at": "window_start"}


class ErrorGroupSerializer(StructSerializer):
    mute = MuteSerializer(allow_null=True)
    title = serializers.SerializerMethodField(
        help_text="The condition in words, with the field that Spark names; without one the class."
    )

    owner = serializers.SerializerMethodField(
        help_text="The assignee, else the owner that the owner rules name; null: none.",
    )

    class Meta:
        struct = GroupState
        fields = (
            *("application", "fingerprint", "pipeline", "stage", "exception_class", "condition"),
            *("other_classes", "inner_class", "inner_condition", "field", "message", "frame"),
            *("count", "estimated", "ended_runs", "earlier_fingerprint"),
            *(
                "first_seen_at",
                "last_seen_at",
                "status",
                "status_changed_at",
                "actor",
                "reason",
                "mute",
                "recurred",
                "notes",
                "assignee",
            ),
            "sequence",
        )
        sources = {
            "first_seen_at": "first_seen",
            "last_seen_at": "last_seen",
            "status_changed_at": "since",
        }

    def get_title(self, group: GroupState) -> str:
        """Return the title of the group on pages."""
        return failure_text.title(group)

    def get_owner(self, group: GroupState) -> str | None:
        """Return the owner of the group."""
        return base.owners_of(self).of_group(group)


class NewGroupActSerializer(serializers.Serializer[Any]):
    """An act on an error group; MUTE needs `ends_at`, or `failures` per period, or both.

    ASSIGN without `assignee` leaves the group to the owner rules.
    """

    id = serializers.UUIDField(required=False, help_text=base.AN_ID)
    act = field_types.ListedChoiceField(field_types.choices(GroupAct))
    reason = serializers.CharField(required=False, allow_null=True, max_length=1000)
    ends_at = field_types.MomentField(required=False, help_text="With MUTE: its end.")
    failures = serializers.IntegerField(required=False, min_value=1)
    period_seconds = field_types.ListedChoiceField(
        list(PERIODS.items()), required=False, help_text="Periods begin at multiples since 1970."
    )
    assignee = serializers.CharField(
        required=False, allow_null=True, help_text="With ASSIGN: a person or a team."
    )


class GroupKeySerializer(serializers.Serializer[Any]):
    """The key of an error group."""

    application = serializers.CharField()
    fingerprint = serializers.CharField()

    def to_internal_value(self, data: Any) -> Any:
        """Return the values; an unknown name is refused."""
        unknown = [name for name in data if name not in self.fields] if data else []
        if unknown and isinstance(data, dict):
            raise serializers.ValidationError({unknown[0]: [f"one of {', '.join(self.fields)}"]})
        return super().to_internal_value(data)


class NewGroupsActSerializer(NewGroupActSerializer):
    """An act on several error groups."""

    groups = serializers.ListField(
        child=GroupKeySerializer(), min_length=1, max_length=actions.MAX_GROUPS
    )


class ActedOnSerializer(StructSerializer):
    group = ErrorGroupSerializer(allow_null=True)

    class Meta:
        struct = actions.ActedOn
        fields = ("application", "fingerprint", "group", "refused")


class ActedOnManySerializer(serializers.Serializer[Any]):
    """The results for some error groups."""

    results = ActedOnSerializer(many=True)


class ErrorGroupsView(base.ListView):
    """Failed records by cause."""

    query = GroupQuerySerializer
    row = ErrorGroupSerializer

    def find(
        self,
        wanted: queries.GroupFilter,
        *,
        sort: str,
        as_of: queries.AsOf | None = None,
        **page: Any,
    ) -> queries.Page[GroupState]:
        """List error groups, by default UNRESOLVED ones, those with the newest failure first."""
        if wanted.status == ALL_STATES:
            wanted = replace(wanted, status=None)
        if as_of is None:
            return queries.groups(wanted, sort=sort, **page)
        application, status, text = wanted.application, wanted.status, wanted.text
        known = queries.GroupFilter(application=application, status=status, text=text)
        if sort != queries.NEWEST or wanted != known:
            allowed = "only together with application, status, text, cursor and limit"
            raise InvalidValue("as_of", str(as_of), allowed)
        return queries.as_of_state.groups(application, as_of, status=status, text=text, **page)


class OneErrorGroupView(base.RestView):
    """One cause."""

    @extend_schema(
        parameters=[base.AsOfQuerySerializer], responses={200: ErrorGroupSerializer} | PAST
    )
    def get(self, request: Request, application: str, fingerprint: str) -> Response:
        """Return one error group."""
        group = base.read(
            request, queries.group, queries.as_of_state.group, application, fingerprint
        )
        return Response(ErrorGroupSerializer(group.state).data)


class ActOnGroupView(base.RestView):
    """Resolve, reopen, mute, unmute or assign an error group."""

    @base.acts(NewGroupActSerializer, ErrorGroupSerializer, REFUSED)
    def post(self, request: Request, application: str, fingerprint: str) -> Response:
        """Act on an error group; return the group after the act.

        409 with `state` and `sequence` if its state forbids it.
        """
        given = base.values(NewGroupActSerializer, request.data)
        with base.renamed(_MUTE_NAMES):
            group = actions.act_on_group(application, _request(request, given, fingerprint))
        return Response(ErrorGroupSerializer(group).data)


class ActOnGroupsView(base.RestView):
    """Resolve, reopen, mute, unmute or assign many error groups."""

    @base.acts(NewGroupsActSerializer, ActedOnManySerializer, operation_id="errors_acts_many")
    def post(self, request: Request) -> Response:
        """Act on 1 to 100 error groups individually; return the result of each.

        A refusal of one does not affect the others: its `group` is null, and `refused` has the
        reason.
        """
        given = base.values(NewGroupsActSerializer, request.data)
        keys = [(each["application"], each["fingerprint"]) for each in given.pop("groups")]
        with base.renamed(_MUTE_NAMES):
            done = actions.act_on_groups(keys, _request(request, given, fingerprint=""))
        return Response(ActedOnManySerializer({"results": done}).data)


def _request(request: Request, given: dict[str, Any], fingerprint: str) -> GroupRequest:
    id, act = base.act_id(request, given), GroupAct(given.pop("act"))
    given.pop("id", None)
    of_act = {
        GroupAct.MUTE: {"ends_at", "failures", "period_seconds"},
        GroupAct.ASSIGN: {"assignee"},
    }
    for other, names in of_act.items():
        for name in sorted(names & given.keys()):
            if act is not other:
                raise InvalidValue(name, given[name], f"only with the act {other}")
    actor, until = request.user.get_username(), given.pop("ends_at", None)
    return GroupRequest(id=id, act=act, fingerprint=fingerprint, actor=actor, until=until, **given)


class GroupHistoryView(base.ListView):
    """The history of an error group."""

    row = ActSerializer

    def find(self, *, application: str, fingerprint: str, **page: Any) -> queries.Page[queries.Act]:
        """List the acts on an error group, the ends of its mutes, and its notes."""
        events = queries.group_history(application, fingerprint, **page)
        return queries.Page(rows=tuple(_act(each) for each in events.rows), next=events.next)


class FieldValueSerializer(StructSerializer):
    class Meta:
        struct = queries.FieldValue
        fields = ("value", "share", "other_share")


class FieldStatisticsSerializer(StructSerializer):
    values = FieldValueSerializer(many=True)

    class Meta:
        struct = queries.FieldStatistics
        fields = (
            *("name", "missing_share", "other_missing_share", "distinct", "values", "least"),
            *("greatest", "other_least", "other_greatest", "shortest", "longest", "difference"),
        )


class GroupFieldsSerializer(StructSerializer):
    """The values that the failed records of a group have, beside those of other groups."""

    # A name of DRF's, too.
    results = FieldStatisticsSerializer(many=True, source="fields")

    class Meta:
        struct = queries.GroupFields
        fields = ("examples", "other_examples", "results")


class GroupFieldsView(base.RestView):
    """The fields of an error group."""

    @extend_schema(responses={200: GroupFieldsSerializer} | PROBLEMS)
    def get(self, request: Request, application: str, fingerprint: str) -> Response:
        """Return the most frequent values of each field, those that differ most first.

        They are of the newest records of the group, and of other groups of its application.
        """
        found = queries.group_fields(application, fingerprint)
        return Response(GroupFieldsSerializer(found).data)


def _act(stored: StoredEvent) -> queries.Act:
    actor = getattr(stored.event.data, "actor", "")
    return queries.Act(at=stored.event.occurred_at, actor=actor, event=stored)
