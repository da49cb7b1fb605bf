"""Serializers whose fields follow from a struct, as those of a ModelSerializer from a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers

from arrester.dashboard.rest.field_types import (
    ListedChoiceField,
    MomentField,
    choices,
    task_id_field,
)
from arrester.domain.identity.names import TaskDigest
from arrester.domain.state.states import if_set

Field = serializers.Field[Any, Any, Any, Any]
#: A class of fields, or a function that makes one.
FieldClass = Callable[..., Field]
_ALLOWED = (
    "str, bool, int, float, UUID, datetime, Literal, an enumeration,"
    " a tuple or list of these, or a dict of them by str"
)


class IfSet(serializers.Field[Any, Any, Any, Any]):
    """Base of a field, or of a nested serializer, that is null if its value is unset."""

    def get_attribute(self, instance: Any) -> Any:
        """Return the value; None if it is unset."""
        return if_set(super().get_attribute(instance))


class FiniteField(serializers.FloatField):
    """A number; null if it is infinite or none, which JSON does not have."""

    def to_representation(self, value: Any) -> Any:
        """Return the number."""
        return value if math.isfinite(value) else None


class Datum(NamedTuple):
    """The type and description of a field or property, at the end of a path from a struct."""

    type: Any
    #: Whether it may be None or unset.
    nullable: bool = False
    unset: bool = False
    description: str | None = None


class StructSerializer(serializers.Serializer[Any]):
    """Public fields of a struct, with its types and descriptions.

    class Meta:
        struct = TaskState
        fields = ("id", "id.pipeline", "held")  # only these are public, in this order
        sources = {"id": "id.digest"}  # the path to a value of another name
        help = {"held": "…"}  # in place of the description in the struct

    A path in `fields` has its last part as the public name. A declared field replaces the derived
    one; without a place in `fields` it comes after them.
    A description is that of `Annotated[…, msgspec.Meta(description=…)]`, or the docstring of a
    property; the docstring of the class is by default that of the struct. A value that is unset is
    null; the serializer of a nested struct that may be unset also extends `IfSet`.
    """

    field_classes: ClassVar[Mapping[Any, FieldClass]] = {
        str: serializers.CharField,
        TaskDigest: serializers.CharField,
        bool: serializers.BooleanField,
        int: serializers.IntegerField,
        float: FiniteField,
        UUID: serializers.UUIDField,
        datetime: serializers.DateTimeField,
    }
    choice_class: ClassVar[FieldClass] = serializers.ChoiceField
    #: That of `Meta`; None without one.
    struct: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the fields; raise ImproperlyConfigured for one that cannot be derived."""
        super().__init_subclass__(**kwargs)
        meta = vars(cls).get("Meta")
        if meta is None:
            return
        cls.struct = meta.struct
        cls.__doc__ = vars(cls).get("__doc__") or cls.struct.__doc__
        inherited: dict[str, Any] = {}
        for base in cls.__bases__:
            for name, field in getattr(base, "_declared_fields", {}).items():
                inherited.setdefault(name, field)
        declared = {
            name: field
            for name, field in cls._declared_fields.items()
            if inherited.get(name) is not field
        }
        paths = {path.rpartition(".")[2]: path for path in cls._paths(meta)}
        sources, help_texts = getattr(meta, "sources", {}), getattr(meta, "help", {})
        for name in [*sources, *help_texts]:
            if name not in paths:
                raise ImproperlyConfigured(f"{cls.__name__}.Meta.fields has no {name!r}")
        derived = {
            name: declared[name] if name in declared else cls._derived(meta, name, path)
            for name, path in (paths | sources).items()
            if name not in inherited
        }
        cls._declared_fields = inherited | derived | declared

    @classmethod
    def _paths(cls, meta: Any) -> Iterable[str]:
        """Return the paths of the fields that follow from the struct."""
        return tuple(meta.fields)

    @classmethod
    def _derived(cls, meta: Any, name: str, path: str) -> Field:
        """Return the serializer field of a field or property of the struct."""
        try:
            datum = _datum(cls.struct, path)
            field, options = cls._field(datum)
        except LookupError as exc:
            raise ImproperlyConfigured(f"{cls.__name__}.{name}: {exc.args[0]}") from None
        if path != name:
            options["source"] = path
        text = getattr(meta, "help", {}).get(name, datum.description)
        if text is not None:
            options["help_text"] = text
        return field(**options, **cls._options(name, datum))

    @classmethod
    def _options(cls, name: str, datum: Datum) -> dict[str, Any]:
        """Return the further arguments of a serializer field."""
        return {"allow_null": True} if datum.nullable else {}

    @classmethod
    def _field(cls, datum: Datum) -> tuple[FieldClass, dict[str, Any]]:
        """Return the class of the serializer field of a type, and its first arguments."""
        hint, origin = datum.type, get_origin(datum.type)
        options: dict[str, Any] = {}
        if hint in cls.field_classes:
            field = cls.field_classes[hint]
        elif origin is Literal:
            field, options = cls.choice_class, {"choices": get_args(hint)}
        elif isinstance(hint, type) and issubclass(hint, Enum):
            field, options = cls.choice_class, {"choices": choices(hint)}
        elif origin is list or (origin is tuple and get_args(hint)[1:] == (...,)):
            field, options = serializers.ListField, {"child": cls._child(get_args(hint)[0])}
        elif origin is dict and get_args(hint)[0] is str:
            field, options = serializers.DictField, {"child": cls._child(get_args(hint)[1])}
        else:
            raise LookupError(f"no serializer field for {hint!r}; declare one, or use {_ALLOWED}")
        if datum.unset and isinstance(field, type):
            field = type(field.__name__, (IfSet, field), {})
        return field, options

    @classmethod
    def _child(cls, hint: Any) -> Field:
        field, options = cls._field(_without_none(hint))
        return field(**options)


class FilterSerializer(StructSerializer):
    """The parameters of a list: fields of its filter, a struct whose fields have defaults.

    class Meta:
        struct = FailureFilter
        exclude = ("groups",)  # not parameters
        fields = ("id", *FailureFilter.__struct_fields__)  # only for another order
    """

    field_classes: ClassVar[Mapping[Any, FieldClass]] = {
        **StructSerializer.field_classes,
        datetime: MomentField,
        TaskDigest: task_id_field,
    }
    choice_class = ListedChoiceField

    @classmethod
    def _paths(cls, meta: Any) -> Iterable[str]:
        excluded = getattr(meta, "exclude", ())
        names = getattr(meta, "fields", cls.struct.__struct_fields__)
        return tuple(name for name in names if name not in excluded)

    @classmethod
    def _options(cls, name: str, datum: Datum) -> dict[str, Any]:
        fields = {field.name: field for field in msgspec.structs.fields(cls.struct)}
        if fields[name].required:
            raise ImproperlyConfigured(f"{cls.__name__}.{name}: a field of a filter has a default")
        if datum.nullable:
            return {"required": False}
        return {"required": False, "default": fields[name].default}


def _datum(struct: type, path: str) -> Datum:
    """Return what is at a path from a struct; it is nullable if a step of the path is."""
    datum, nullable = Datum(struct), False
    for name in path.split("."):
        datum = _member(datum.type, name)
        nullable = nullable or datum.nullable
    return datum._replace(nullable=nullable)


def _member(struct: Any, name: str) -> Datum:
    """Return a field or property; raise LookupError if the struct has none of this name."""
    hints = _hints(struct)
    if name in hints:
        return _without_none(hints[name])
    member = getattr(struct, name, None)
    if not isinstance(member, property) or member.fget is None:
        has = ", ".join(hints)
        raise LookupError(f"{struct.__name__} has no field or property {name!r}; it has {has}")
    datum = _without_none(get_type_hints(member.fget, include_extras=True)["return"])
    docstring = " ".join((member.__doc__ or "").split())
    return datum._replace(description=datum.description or docstring or None)


@cache
def _hints(struct: Any) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _without_none(hint: Any) -> Datum:
    """Return the type in a hint, without None, UNSET and annotations."""
    nullable = unset = False
    description: str | None = None
    while True:
        if get_origin(hint) is Annotated:
            # The outermost annotation is the last one.
            texts = [getattr(each, "description", None) for each in reversed(hint.__metadata__)]
            description = description or next(filter(None, texts), None)
        if hint in StructSerializer.field_classes:
            break
        if get_origin(hint) is Annotated:
            hint = hint.__origin__
        elif get_origin(hint) in (Union, UnionType):
            parts = get_args(hint)
            unset = unset or msgspec.UnsetType in parts
            rest = [each for each in parts if each not in (NoneType, msgspec.UnsetType)]
            nullable = nullable or len(rest) < len(parts)
            if len(rest) != 1:
                break
            (hint,) = rest
        else:
            break
    return Datum(hint, nullable, unset, description)
