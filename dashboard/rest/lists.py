"""Lists by page: their parameters, and the view that answers and describes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from inspect import getdoc
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from arrester.controlplane import queries
from arrester.dashboard.rest import base
from arrester.dashboard.rest.base import A_LIMIT, LIMIT, MOST, SerializerClass
from arrester.dashboard.rest.struct_serializers import FilterSerializer


class PageQuerySerializer(FilterSerializer):
    """The page of a list."""

    cursor = serializers.CharField(required=False, help_text="`next` of the previous page.")
    limit = serializers.IntegerField(
        required=False, default=LIMIT, min_value=1, max_value=MOST, error_messages=A_LIMIT
    )


class ApplicationQuerySerializer(PageQuerySerializer):
    """The filter of a list by application."""

    application = serializers.CharField(required=False)


@cache
def page_of(row: SerializerClass) -> SerializerClass:
    """Return the serializer of a page of rows."""
    name = f"{row.__name__.removesuffix('Serializer')}Page"
    fields = {
        "results": row(many=True, source="rows"),
        "next": serializers.CharField(allow_null=True),
    }
    return type(name, (serializers.Serializer,), fields)


class ListView(base.RestView):
    """A list by page: `find` returns a page, and its docstring describes the endpoint.

    If the query has a struct, `find` receives it as its first argument. The other parameters that
    a request has, and the parts of its path, are arguments by name.
    """

    #: The parameters.
    query: ClassVar[type[FilterSerializer]] = PageQuerySerializer
    #: A row of the answer; or the answer, if it has more than rows.
    row: ClassVar[SerializerClass]
    page: ClassVar[SerializerClass | None] = None
    operation_id: ClassVar[str | None] = None
    #: Whether an unknown application is 404: an empty list for a misspelt name would look like
    #: success.
    checks_application: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the endpoint."""
        super().__init_subclass__(**kwargs)
        problems = base.PAST if "as_of" in cls.query().fields else base.PROBLEMS
        described = extend_schema(
            operation_id=cls.operation_id,
            description=getdoc(cls.find),
            parameters=[cls.query],
            responses={200: cls.page or page_of(cls.row)} | problems,
        )
        extend_schema_view(get=described)(cls)

    def find(self, *args: Any, **wanted: Any) -> queries.Page[Any]:
        """Return a page of rows."""
        raise NotImplementedError

    def context(self, rows: Sequence[Any], as_of: queries.AsOf | None) -> dict[str, Any]:
        """Return the context of the serializer of some rows."""
        return {}

    def get(self, request: Request, **key: Any) -> Response:
        """Return a page of the list."""
        wanted = base.values(self.query, request.query_params)
        if self.checks_application and "application" in wanted:
            queries.check_known(wanted["application"])
        as_of = base.pop_as_of(wanted)
        if as_of is not None:
            wanted["as_of"] = as_of
        filters = () if self.query.struct is None else (self.query.pop_filter(wanted),)
        found = self.find(*filters, **key, **wanted)
        page = self.page or page_of(self.row)
        return Response(page(found, context=self.context(found.rows, as_of)).data)
