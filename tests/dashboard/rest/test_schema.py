"""The OpenAPI document: what generated clients and people need of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from arrester.dashboard.rest import schema

#: A range of times has the names of its filters.
RANGE = {"since", "until"}
METHODS = {"get", "post", "delete"}


@cache
def document() -> Any:
    return schema._document()


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, item in document()["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method]


def properties() -> Iterator[tuple[str, str, Any]]:
    for name, about in document()["components"]["schemas"].items():
        for inner, described in about.get("properties", {}).items():
            yield name, inner, described


def test_everything_is_described() -> None:
    for path, method, operation in operations():
        assert operation["description"], (path, method)
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (path, method, parameter["name"])
    for name, inner, about in properties():
        assert about.get("description"), f"{name}.{inner}"


def test_names_follow_the_rules() -> None:
    for path, method, operation in operations():
        assert path.startswith("/api/v1/")
        assert len(operation["tags"]) == 1
        content = operation["responses"].get("200", {}).get("content", {})
        for about in content.values():
            name = about["schema"].get("$ref", "").rpartition("/")[2]
            inner = document()["components"]["schemas"].get(name, {}).get("properties", {})
            is_list = {"results", "next"} <= inner.keys()
            assert about["schema"].get("type") != "array", (path, "a list has results and next")
            if method == "get":
                assert operation["operationId"].endswith("_list") == is_list, path
    for name, inner, about in properties():
        if about.get("format") == "date-time":
            assert inner.endswith("_at") or inner in RANGE, f"{name}.{inner}"
        if "position" in inner:
            assert "log" not in about["description"], f"{name}.{inner}"
        if "sequence" in inner:
            assert "log" in about["description"], f"{name}.{inner}"


def test_each_body_has_one_media_type_and_each_token_is_a_bearer() -> None:
    for path, method, operation in operations():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        assert all(len(body.get("content", ())) <= 1 for body in bodies), (path, method)
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert set(answer["content"]) == {"application/problem+json"}, (path, status)
    schemes = document()["components"]["securitySchemes"]
    assert schemes["token"] == {"type": "http", "scheme": "bearer"}
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch("[a-z_]+", each) for each in ids)


def test_requests_have_no_unknown_names_and_no_blank_texts() -> None:
    schemas = document()["components"]["schemas"]
    token = schemas["NewToken"]
    assert token["additionalProperties"] is False
    assert token["properties"]["name"]["minLength"] == 1
    assert token["properties"]["name"]["pattern"] == r"\S"
    assert schemas["NewAgentCredential"]["properties"]["application"]["pattern"].startswith("^[a-z")
    assert token["properties"]["applications"]["minItems"] == 1
    assert "additionalProperties" not in schemas["Failure"]
    assert schemas["Failure"]["properties"]["record_key"]["nullable"]
    assert "minLength" not in schemas["Command"]["properties"]["actor"]
