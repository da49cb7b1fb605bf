"""Masked fields are encrypted to the server, within the size limit of a record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from arrester.agents.failures.payload import RECORD_BYTES, Redaction, Reveal
from arrester.domain.events import Body
from arrester.domain.wire.sealed_fields import MaskedFields, NotSealedForUs, unseal

SEED = bytes(range(32))
KEY = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()


def body(row: dict[str, Any], **rules: Any) -> Body:
    redaction = Redaction(reveal=Reveal("flights", KEY), **({"drop": ("pin", "$.card.no")} | rules))
    return redaction.body(row, stack=None)


def opened(found: Body, *, application: str = "flights", seed: bytes = SEED) -> MaskedFields:
    assert found.sealed is not None
    return unseal(found.sealed, application=application, seed=seed)


def pairs(found: Body) -> list[tuple[str, Any]]:
    return [(each.path, each.value) for each in opened(found).fields]


def test_the_server_reads_what_is_masked() -> None:
    row = {
        "pin": 4711,
        "card": {"no": ["1", None], "city": "Vienna"},
        "payload": json.dumps({"Pins": {"a": "x\ud83d"}, "open": 1}),
    }
    found = body(row)
    assert found.record == {"card": {"city": "Vienna"}, "payload": '{"open": 1}'}
    assert pairs(found) == [
        ("pin", 4711),
        ("card.no", ["1", None]),
        ("payload.Pins", {"a": "x?"}),
    ]
    assert b"4711" not in (found.sealed or b"")
    # Each box has a key of its own.
    assert body(row).sealed != found.sealed


def test_all_fields_that_are_not_allowed_are_masked() -> None:
    assert pairs(body({"a": 1, "b": "2"}, drop=(), only=("a",))) == [("b", "2")]


def test_nothing_is_encrypted_without_masked_fields_or_the_setting() -> None:
    assert body({"open": 1}).sealed is None
    assert Redaction(drop=("pin",)).body({"pin": 1}, stack=None).sealed is None


def test_only_the_server_reads_it_and_for_its_application() -> None:
    found = body({"pin": 1})
    assert found.sealed is not None
    with pytest.raises(NotSealedForUs):
        opened(found, application="orders")
    with pytest.raises(NotSealedForUs):
        opened(found, seed=bytes(32))
    for place in (0, 40, -1):
        changed = bytearray(found.sealed)
        changed[place] ^= 1
        with pytest.raises(NotSealedForUs):
            unseal(bytes(changed), application="flights", seed=SEED)
    for short in (b"", found.sealed[:20], bytes(60)):
        with pytest.raises(NotSealedForUs):
            unseal(short, application="flights", seed=SEED)


def test_fields_beyond_the_limit_of_a_record_are_masked_only() -> None:
    large = "x" * (RECORD_BYTES - 100)
    found = body({"pin1": "a", "pin2": large, "pin3": large, "pin4": "b"})
    assert [each.path for each in opened(found).fields] == ["pin1", "pin2", "pin4"]
    assert opened(found).omitted == 1
    assert len(found.sealed or b"") < RECORD_BYTES + 200
    found = body({"open": large, "pin": "y" * 200})
    assert opened(found) == MaskedFields(omitted=1)
