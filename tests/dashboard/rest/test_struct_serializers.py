"""Serializers that follow from structs: fields, descriptions, and errors at their definition."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from inspect import signature
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from django.core.exceptions import ImproperlyConfigured
from msgspec import UNSET, Meta, UnsetType
from rest_framework import serializers

from arrester.dashboard.rest.base import ListView, PageQuerySerializer, pop_filter, values
from arrester.dashboard.rest.field_types import A_TIME
from arrester.dashboard.rest.struct_serializers import FiniteField, StructSerializer
from arrester.dashboard.rest.urls import urlpatterns
from arrester.domain.errors import InvalidValue
from arrester.domain.identity.names import TaskDigest

Size = Annotated[int, Meta(ge=0)]


class Colour(StrEnum):
    RED = "RED"
    BLUE = "BLUE"


class Maker(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Balloon(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    maker: Maker | None = None
    colour: Colour = Colour.RED
    shape: Literal["round", "long"] | None = None
    size: Annotated[Size, Meta(description="In cubic metres.")] = 0
    height: float | None = None
    filled_at: datetime | UnsetType = UNSET
    labels: tuple[str, ...] = ()
    counts: dict[str, Size] = {}
    secret: str = "not public"

    @property
    def empty(self) -> bool:
        """Whether it has no gas."""
        return self.size == 0


class BalloonSerializer(StructSerializer):
    class Meta:
        struct = Balloon
        fields = (
            *("id", "maker.name", "colour", "shape", "size", "height", "filled_at", "labels"),
            *("counts", "hollow"),
        )
        sources = {"hollow": "empty"}
        help = {"id": "Unique."}


def serializer(struct: type, *names: str, **meta: Any) -> type[StructSerializer]:
    """Define a serializer of some fields."""
    inner = type("Meta", (), {"struct": struct, "fields": names, **meta})
    return type("SomeSerializer", (StructSerializer,), {"Meta": inner})


def test_only_the_listed_fields_are_public_and_in_order() -> None:
    id = UUID(int=7)
    at = datetime(2026, 11, 20, 9, tzinfo=UTC)
    full = Balloon(
        id=id, maker=Maker(name="ana"), colour=Colour.BLUE, shape="long", size=3, height=1.5,
        filled_at=at, labels=("a",), counts={"b": 2},
    )  # fmt: skip
    assert list(BalloonSerializer(full).data.items()) == [
        ("id", str(id)), ("name", "ana"), ("colour", "BLUE"), ("shape", "long"), ("size", 3),
        ("height", 1.5), ("filled_at", "2026-11-20T09:00:00Z"), ("labels", ["a"]),
        ("counts", {"b": 2}), ("hollow", False),
    ]  # fmt: skip


def test_what_is_none_or_unset_is_null() -> None:
    data = BalloonSerializer(Balloon(id=UUID(int=7))).data
    null = {name for name, value in data.items() if value is None}
    assert null == {"name", "shape", "height", "filled_at"}
    fields = BalloonSerializer().fields
    assert null == {name for name, field in fields.items() if field.allow_null}


def test_types_and_descriptions_are_those_of_the_struct() -> None:
    fields = BalloonSerializer().fields
    assert {name: type(field) for name, field in fields.items() if name != "filled_at"} == {
        "id": serializers.UUIDField,
        "name": serializers.CharField,
        "colour": serializers.ChoiceField,
        "shape": serializers.ChoiceField,
        "size": serializers.IntegerField,
        "height": FiniteField,
        "labels": serializers.ListField,
        "counts": serializers.DictField,
        "hollow": serializers.BooleanField,
    }
    assert isinstance(fields["filled_at"], serializers.DateTimeField)
    colour: Any = fields["colour"]
    assert list(colour.choices) == ["RED", "BLUE"]
    described = {name: field.help_text for name, field in fields.items() if field.help_text}
    assert described == {
        "id": "Unique.",
        "size": "In cubic metres.",
        "hollow": "Whether it has no gas.",
    }


def test_declared_fields_replace_derived_ones_and_follow_them_without_a_place() -> None:
    class Declared(StructSerializer):
        doubled = serializers.IntegerField(source="size")
        maker = serializer(Maker, "name")(allow_null=True)

        class Meta:
            struct = Balloon
            fields = ("maker", "size")

    class More(Declared):
        hollow = serializers.BooleanField(source="empty")

    data = More(Balloon(id=UUID(int=7), size=4)).data
    assert list(data.items()) == [("maker", None), ("size", 4), ("doubled", 4), ("hollow", False)]


@pytest.mark.parametrize(
    ("names", "meta", "problem"),
    [
        (("sise",), {}, "SomeSerializer.sise: Balloon has no field or property 'sise'; it has id,"),
        (("maker.age",), {}, "SomeSerializer.age: Maker has no field or property 'age'; it has na"),
        (
            ("maker",),
            {},
            "SomeSerializer.maker: no serializer field for .*Maker'>; declare one, or",
        ),
        (("size",), {"help": {"sise": "…"}}, "SomeSerializer.Meta.fields has no 'sise'"),
        (("size",), {"sources": {"sise": "size"}}, "SomeSerializer.Meta.fields has no 'sise'"),
    ],
)
def test_a_field_that_cannot_be_derived_is_an_error_of_its_definition(
    names: tuple[str, ...], meta: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=problem):
        serializer(Balloon, *names, **meta)


def test_without_a_docstring_the_description_is_that_of_the_struct() -> None:
    class Described(msgspec.Struct):
        """A described struct."""

    assert serializer(Described).__doc__ == "A described struct."


class BalloonFilter(msgspec.Struct, frozen=True, kw_only=True):
    colour: Annotated[Colour | None, Meta(description="Of the skin.")] = None
    task: TaskDigest | None = None
    since: datetime | None = None
    empty: bool = False
    groups: frozenset[str] | None = None


class BalloonQuerySerializer(PageQuerySerializer):
    sort = serializers.CharField(required=False, default="size")

    class Meta:
        struct = BalloonFilter
        exclude = ("groups",)


def test_the_parameters_of_a_list_are_its_page_its_filter_and_what_is_declared() -> None:
    fields = BalloonQuerySerializer().fields
    assert list(fields) == ["cursor", "limit", "colour", "task", "since", "empty", "sort"]
    assert not any(field.required or field.allow_null for field in fields.values())
    assert (fields["colour"].help_text, fields["task"].help_text) == (
        "Of the skin.",
        "The id of a task.",
    )


def test_the_values_of_a_request_become_the_filter() -> None:
    given = values(BalloonQuerySerializer, {"colour": "RED", "since": "2026-11-20T09:00Z"})
    since = datetime(2026, 11, 20, 9, tzinfo=UTC)
    wanted = pop_filter(BalloonQuerySerializer, given)
    assert wanted == BalloonFilter(colour=Colour.RED, since=since)
    assert given == {"limit": 50, "sort": "size"}


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"colour": "GREEN"}, "one of RED, BLUE"),
        ({"task": "JFK"}, "the id of a task, 32 hexadecimal digits"),
        ({"since": "yesterday"}, f"a time in ISO 8601: {A_TIME}"),
        ({"groups": "x"}, "one of cursor, limit, colour, task, since, empty, sort"),
        ({"empty": "maybe"}, "true or false"),
        ({"sort": " "}, "a text that is not blank"),
        ({"cursor": "a\0"}, "a text without NUL"),
    ],
)
def test_an_invalid_value_of_a_filter_is_named_with_what_is_allowed(
    given: dict[str, str], allowed: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        values(BalloonQuerySerializer, given)
    ((name, value),) = given.items()
    assert (refused.value.name, refused.value.value) == (name, value)
    assert refused.value.allowed == allowed


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        (serializers.UUIDField(), "x", "a UUID"),
        (serializers.IntegerField(), "x", "a whole number"),
        (serializers.FloatField(), "x", "a number"),
        (
            serializers.IntegerField(max_value=9),
            10,
            "Ensure this value is less than or equal to 9.",
        ),
    ],
)
def test_an_error_of_any_field_states_what_is_allowed(
    field: serializers.Field[Any, Any, Any, Any], value: object, allowed: str
) -> None:
    form = type("Form", (serializers.Serializer,), {"size": field})
    with pytest.raises(InvalidValue) as refused:
        values(form, {"size": value})
    assert (refused.value.name, refused.value.allowed) == ("size", allowed)


def test_a_field_of_a_filter_has_a_default() -> None:
    class WithoutDefault(msgspec.Struct, kw_only=True):
        size: int | None

    meta = type("Meta", (), {"struct": WithoutDefault})
    problem = "SizeSerializer.size: a field of a filter has a default"
    with pytest.raises(ImproperlyConfigured, match=problem):
        type("SizeSerializer", (PageQuerySerializer,), {"Meta": meta})


LISTS = [
    (view, each.pattern.converters)
    for each in urlpatterns
    if issubclass(view := getattr(each.callback, "view_class", object), ListView)
]


@pytest.mark.parametrize(("view", "path"), LISTS)
def test_every_list_takes_each_of_its_parameters(view: type[ListView], path: Any) -> None:
    struct = view.query.struct
    filters = () if struct is None else struct.__struct_fields__
    others = {*view.query().fields} - {*filters}
    signature(view.find).bind(view, *filters[:1], **dict.fromkeys([*others, *path]))
