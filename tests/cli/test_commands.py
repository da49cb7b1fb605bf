"""Commands against a live server: lost answers, pages, names, roles and wrong values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest
import requests
from click.shell_completion import ShellComplete
from msgspec.structs import replace

from arrester.cli import client, draining, issue, main
from arrester.cli.commands import tail
from arrester.cli.connection import connection
from arrester.cli.exit_codes import NotApplied, Refused
from arrester.cli.session import Session
from arrester.controlplane import actions, queries
from arrester.controlplane.access.roles import TokenScope
from arrester.domain.events import RecordsHeld, RecordsRedriven
from arrester.domain.wire import dead_letter_columns
from tests.cli.conftest import Arrester, Output
from tests.dashboard.accounts import token
from tests.dashboard.story import POLICY, TYPO, Story, malformed
from tests.ports import free_port
from tests.terminal import terminal


def test_a_lost_answer_is_repeated_as_the_same_command(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = story.pauses("JFK")
    monkeypatch.setattr(client, "DELAY_SECONDS", 0.0)
    send = requests.Session.request
    lost: list[str] = []

    def lossy(self: Any, method: str, url: str, **options: Any) -> requests.Response:
        response = send(self, method, url, **options)
        if method == "POST" and not lost:
            lost.append(response.json()["id"])
            raise requests.ConnectionError("connection reset")
        return response

    monkeypatch.setattr(requests.Session, "request", lossy)
    done = arrester("resume", "flights/delays/JFK", "--json")
    assert done.code == 0, done.err
    [command] = queries.commands("flights", task=task.digest).rows
    assert json.loads(done.out)["id"] == str(command.id) == lost[0]


def test_a_lost_answer_to_a_new_token_is_not_repeated(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = requests.Session.request
    sent: list[str] = []

    def lossy(self: Any, method: str, url: str, **options: Any) -> requests.Response:
        sent.append(method)
        send(self, method, url, **options)
        raise requests.ConnectionError("connection reset")

    monkeypatch.setattr(requests.Session, "request", lossy)
    done = arrester("token", "create", "ci")
    assert (done.code, done.out, sent) == (4, "", ["POST"])
    assert "Whether the token was created is unknown" in done.err
    done = arrester("agent", "add", "flights")
    assert (done.code, done.out, sent) == (4, "", ["POST", "POST"])
    assert "Whether a credential was added is unknown" in done.err


def test_a_follower_misses_no_event_while_the_server_is_away(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = requests.Session.request
    monkeypatch.setattr(client, "ATTEMPTS", 1)

    def away(*_args: Any, **_options: Any) -> requests.Response:
        raise requests.ConnectionError("connection reset")

    steps = iter(["event", "away", "event", "back", "end"])

    def sleep(_seconds: float) -> None:
        match next(steps):
            case "event":
                story.pauses_by_hand("JFK", uuid4())
            case "away":
                monkeypatch.setattr(requests.Session, "request", away)
            case "back":
                monkeypatch.setattr(requests.Session, "request", send)
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr(tail, "sleep", sleep)
    before = queries.log_positions()["flights"]
    done = arrester("tail", "-f", "-n", "1", "--json")
    assert (done.code, done.err.count("connection reset; trying again")) == (0, 2)
    events = [json.loads(line)["sequence"] for line in done.out.splitlines()]
    assert events == list(range(before, queries.log_positions()["flights"] + 1))


def test_a_wait_ends_with_the_verdict(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def applies(key: str) -> None:
        [command] = queries.open_commands("flights")
        story.fetches(command.id)
        story.resumes(key, command.id, held=5)

    def resumes(key: str, *steps: Callable[[], object]) -> Output:
        story.pauses(key, held=5)
        following = iter([lambda: applies(key), *steps])
        monkeypatch.setattr(issue, "sleep", lambda _: next(following)())
        done = arrester("resume", f"flights/delays/{key}", "--wait")
        assert list(following) == []
        return done

    def holds(key: str, held: int) -> Callable[[], object]:
        return lambda: story.report(RecordsHeld(task=key, held=held))

    # Records of a later micro-batch are held before the failed record is processed.
    done = resumes("JFK", holds("JFK", 9), holds("JFK", 8))
    line = "flights/delays/JFK: RESUME_TASK APPLIED; no stop since; 8 held records left\n"
    assert done == (0, line, "")
    done = resumes("LGA", lambda: story.pauses("LGA", held=5))
    line = "flights/delays/LGA: RESUME_TASK APPLIED; failed again at position 151,974, attempt 2\n"
    assert (done.code, done.out) == (1, line)
    assert "is APPLIED, but its task failed again at position 151,974" in done.err

    story.pauses("EWR", held=5)
    words = ("resume", "flights/delays/EWR", "--id", str(uuid4()), "--json")
    assert arrester(*words).code == 0
    applies("EWR")
    done = arrester(*words, "--wait", "--timeout", "0s")
    assert done.code == 3
    assert json.loads(done.out)["verdict"] == {"outcome": "NO_STOP", "stop": None, "held": 5}
    assert "is APPLIED, but its task has processed no held record after 0s" in done.err


def test_a_drain_ends_when_no_record_is_held_or_the_task_stops_again(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(client.Client(connection(url=None, token=None, profile=None)), False)

    def drain(key: str, *steps: Callable[[], object], timeout: float = 60) -> None:
        story.skips(key, 1)
        story.report(RecordsHeld(task=key, held=1000))
        following = iter(steps)
        monkeypatch.setattr(draining, "sleep", lambda _: next(following)())
        draining.wait_until_drained(session, story.task(key).digest, key, timeout)
        assert list(following) == []

    def holds(key: str, held: int) -> Callable[[], object]:
        return lambda: story.report(RecordsHeld(task=key, held=held))

    with terminal(monkeypatch, "stderr") as written:
        drain("JFK", holds("JFK", 400), holds("JFK", 0))
        assert "\x1b[" in (bar := written()) and "0 of 1,000 held records" in bar
    with pytest.raises(Refused, match="LGA is PAUSED at position 151974 again; 40 records held"):
        drain("LGA", holds("LGA", 400), lambda: story.pauses("LGA", held=40))
    with pytest.raises(NotApplied, match="EWR still holds 1,000 records after 0s"):
        drain("EWR", timeout=0)


def test_a_list_is_the_json_of_rest_from_all_pages(
    arrester: Arrester, story: Story, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        story.pauses(f"gate-{number}")
    monkeypatch.setattr(client, "PAGE", 2)
    header = {"Authorization": f"Bearer {token('ben')}"}
    rest = requests.get(f"{server}/api/v1/tasks", headers=header, timeout=60).json()
    assert len(rest["results"]) == 5
    assert json.loads(arrester("tasks", "--json").out) == rest
    some = json.loads(arrester("tasks", "--json", "--limit", "3").out)
    assert some["results"] == rest["results"][:3]
    assert some["next"] is not None
    assert "gate-4" in arrester("tasks", "--limit", "5").out
    assert arrester("tasks", "--limit", "4").err == "4 rows; there are more: --limit 40\n"
    assert completed(["resume"], "flights/delays/gate-1") == ["flights/delays/gate-1"]
    assert completed(["tasks", "--application"], "f") == ["flights"]
    assert completed([], "re") == ["resume", "restart", "rebuild", "retain", "requeue"]
    monkeypatch.setenv("ARRESTER_TOKEN", "a" * 40)
    assert completed(["resume"], "f") == []


def test_no_row_of_a_record_has_the_message_of_another_one(
    arrester: Arrester, story: Story
) -> None:
    story.skips("EWR", 4)
    lines = {name: arrester(*name.split()).out for name in ("dead-letters list", "failures")}
    for text in lines.values():
        # One of the four was reported in full.
        assert text.count("CAST_INVALID_INPUT") == 1, text
    rows = json.loads(arrester("dead-letters", "list", "--json").out)["results"]
    shown = [arrester("dead-letters", "show", "flights", row["id"]).out for row in rows]
    assert ["CAST_INVALID_INPUT" in text for text in shown] == [False] * 3 + [True]
    assert arrester("tail", "-n", "3").out.count("CAST_INVALID_INPUT") == 1


def test_a_skip_asks_about_a_record_that_nothing_stores(arrester: Arrester, story: Story) -> None:
    skip = ("skip", "flights/delays/JFK", "--reason", "a typo")
    story.pauses("JFK")
    assert "becomes a dead letter in /data/dlq/flights, with your reason." in arrester(*skip).err
    stores_none = replace(POLICY, dead_letter_format=None, dead_letter_place=None)
    story.starts(policy=stores_none)
    done = arrester(*skip)
    assert done.code == 2 and "only in the log (without its masked fields), for 30" in done.err
    assert "this pipeline stores no dead letters (errors.dlq.enable)." in done.err
    assert "skipped records  LOST" in arrester(*skip, "--dry-run").out
    assert (
        "The changed record is processed in place of the failed one, which is only in the log"
        in (arrester("edit", *skip[1:], "--patch", '[{"op": "remove", "path": "/value"}]').err)
    )
    assert queries.commands().rows == ()


def test_a_discard_names_where_the_records_stay(arrester: Arrester, story: Story) -> None:
    story.skips("JFK", 3)
    discard = ("dead-letters", "discard", "flights", "--pipeline", "delays", "--reason", "x")
    asked = arrester(*discard)
    assert asked.code == 2 and asked.err.startswith(
        "arrester: Discard all dead letters of the filter that wait of flights? The records stay at"
        " their destination, such as /data/dlq/flights. The server lists them for 30 days after"
        " they were skipped. Without a terminal"
    )
    plan = arrester(*discard, "--dry-run").out
    assert "dead letters  3" in plan and "afterwards    The records stay" in plan
    assert queries.count_open_dead_letters(queries.DeadLetterFilter(), limit=9) == 3


def test_a_redrive_names_the_records_that_wait_for_stopped_tasks(
    arrester: Arrester, story: Story
) -> None:
    story.skips("LGA", 2)
    story.skips("JFK", 3)
    story.pauses("JFK")
    sentence = "3 wait for 1 stopped task: delays_JFK"
    redrive = ("dead-letters", "redrive", "flights", "--pipeline", "delays", "--reason", "x")
    assert f"waiting   {sentence}\n" in arrester(*redrive, "--dry-run").out
    assert f"that wait of flights? {sentence}. Without a terminal" in arrester(*redrive).err
    id = "01a217a4-0eaa-79db-b838-3a8389343c63"
    assert arrester(*redrive, "--yes", "--id", id).code == 0
    positions = range(900_000, 900_003)
    story.report(
        RecordsRedriven(
            task="JFK",
            count=3,
            first_position=positions[0],
            last_position=positions[-1],
            redrive=UUID(id),
            records=dead_letter_columns.pack_ids(positions=positions, ids=()),
        )
    )
    assert "3 redriven, 0 processed, 0 failed again" in arrester("show", id).out
    assert f"; {sentence}\n" in arrester("show", id).out
    done = arrester("cancel", id, "--reason", "enough")
    assert (done.code, done.out) == (
        0,
        "flights: REDRIVE CANCELLED: cancelled by ana: enough\n",
    )
    again = arrester("cancel", id)
    assert again.code == 1 and "it is CANCELLED" in again.err


def completed(words: list[str], begun: str) -> list[str]:
    completion = ShellComplete(main.arrester, {}, "arrester", "_ARRESTER_COMPLETE")
    return [each.value for each in completion.get_completions(words, begun)]


def test_a_name_of_several_tasks_is_refused_with_all_of_them(
    arrester: Arrester, story: Story
) -> None:
    orders = Story(application="orders")
    orders.starts()
    for each in (story, orders):
        each.pauses("JFK")
    for name in ("delays/JFK", "delays_JFK"):
        done = arrester("resume", name)
        assert done == (
            2,
            "",
            f"arrester: task '{name}' is ambiguous; allowed: one of flights/delays/JFK,"
            " orders/delays/JFK\n",
        )
    both = arrester("resume", "--error", TYPO.fingerprint)
    assert (both.code, "flights/1-" in both.err, "orders/1-" in both.err) == (2, True, True)
    assert queries.commands("flights").rows == queries.commands("orders").rows == ()
    assert arrester("resume", "orders/delays/JFK").code == 0
    odd = story.pauses("a/b\x1b[31m").digest
    shown = arrester("show", "flights/delays/a/b\x1b[31m").out
    assert odd in shown and "\x1b" not in shown and "a/b\\x1b[31m" in shown


def test_an_error_group_is_shown_with_its_cause_and_the_group_that_it_divides(
    arrester: Arrester, story: Story
) -> None:
    divided = malformed(
        inner_class="a.SparkRuntimeException",
        inner_condition="CANNOT_PARSE_JSON_FIELD",
        field="dep_delay",
    )
    for cause in (malformed(), divided):
        story.pauses("JFK", cause=cause)
    lines = arrester("show", divided.fingerprint).out.splitlines()
    shown = dict(line.split("  ", 1) for line in lines if "  " in line)
    values = {name: value.strip() for name, value in shown.items()}
    assert values["title"] == "JSON value of another type: dep_delay"
    assert values["innermost cause"] == "a.SparkRuntimeException CANNOT_PARSE_JSON_FIELD"
    assert values["field"] == "dep_delay"
    assert values["earlier group"] == malformed().fingerprint
    assert "innermost" not in arrester("show", malformed().fingerprint).out


def test_error_groups_and_tasks_are_listed_by_owner(arrester: Arrester, story: Story) -> None:
    task = story.pauses("JFK")
    rule = actions.OwnerRuleForm(owner="the team", application="flights")
    actions.save_owner_rule(None, rule, actor="ada")
    for listed, found in (("errors", TYPO.fingerprint), ("tasks", "flights/delays/JFK")):
        assert found in arrester(listed, "--owner", "the team").out
        assert found not in arrester(listed, "--owner", "none").out
    for name in (TYPO.fingerprint, task.digest):
        lines = arrester("show", name).out.splitlines()
        assert [line.split(maxsplit=1) for line in lines if line.startswith("owner")] == [
            ["owner", "the team"]
        ]


def test_wrong_values_are_one_line_and_change_nothing(
    arrester: Arrester, story: Story, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.pauses("JFK")
    monkeypatch.setattr(client, "DELAY_SECONDS", 0.0)
    away = f"http://127.0.0.1:{free_port()}"
    viewer, reader = token("ben"), token("ana", scope=TokenScope.READ)
    skip = ("skip", "flights/delays/JFK")
    for words, code, parts in (
        (("apps", "--url", "ftp://x"), 2, ["URL 'ftp://x'", "http://"]),
        (("apps", "--url", away), 4, [away, "Connection refused"]),
        (("apps", "--url", f"{server}/nowhere"), 1, ["404", "the URL of an Arrester server"]),
        (("apps", "--token", "a" * 40), 2, ["token", "…aaaa", server, "arrester login"]),
        (("tasks", "--state", "SLEEPY"), 2, ["status", "'SLEEPY'", "RUNNING, PAUSED"]),
        (("tasks", "--limit", "few"), 2, ["--limit", "'few'", "from 1 to 1,000,000"]),
        (("failures", "--since", "yesterday"), 2, ["since", "'yesterday'", "ISO 8601"]),
        (("pause", "flights/delays/JFK", "--for", "10x"), 2, ["--for", "'10x'", "10m"]),
        (("resume",), 2, ["TASK is missing", "--error FINGERPRINT"]),
        (("resume", "flights/delays/JFK", "--all", "flights"), 2, ["TASK", "--all"]),
        ((*skip, "--yes"), 2, ["--reason is missing"]),
        ((*skip, "--reason", "x"), 2, ["Skip the failed record of flights/delays/JFK", "--yes"]),
        ((*skip, "-r", "x", "-y", "--token", viewer), 1, ["requires the role operator"]),
        (("edit", "flights/delays/JFK", "--patch", "[", "-r", "x"), 2, ["--patch '['"]),
        (
            ("edit", "--error", TYPO.fingerprint, "--patch", "[]", "-r", "x", "-y"),
            2,
            ["JSON Patch"],
        ),
        (("shutdown", "flihgts", "-r", "x", "-y"), 1, ["'flihgts'", "nearest names: flights"]),
        (("restart", "--pipeline", "flights", "-y"), 2, ["APPLICATION/PIPELINE"]),
        ((*skip, "-r", "x", "-y", "--token", reader), 1, ["'tests'", "the scope operate"]),
        (("token", "revoke", "ada", "-y"), 2, ["'ada' is not a valid integer"]),
        (("token", "revoke", "99", "-y"), 1, ["requires the role admin"]),
        (("token", "create", "x", "--days", "400"), 2, ["--days", "400"]),
        (("token", "create", "x", "--never-expires"), 2, ["days", "for admins only"]),
        (("agent", "add", "flights"), 1, ["requires the role admin"]),
        (("agent", "remove", "1"), 2, ["Remove credential 1?", "--yes"]),
        (("show", "01a21772-fa78-7b78-a721-76a2df36b6c1"), 1, ["there is no command"]),
        (("nonsense",), 2, ["No such command"]),
    ):
        done = arrester(*words)
        assert (done.code, done.out) == (code, ""), (words, done)
        assert done.err.startswith("arrester: ") and done.err.count("\n") == 1, (words, done)
        assert [each for each in parts if each not in done.err] == [], (words, done)
    assert queries.commands("flights").rows == ()
    assert arrester("apps").code == 0


def test_a_key_that_has_not_failed_is_paused_by_its_name(arrester: Arrester, story: Story) -> None:
    done = arrester("pause", "flights/delays/cust/001", "--for", "10m", "--json")
    assert done.code == 0, done.err
    [command] = queries.commands("flights").rows
    assert (command.task, json.loads(done.out)["id"]) == (story.task("cust/001"), str(command.id))
    wrong = arrester("pause", "flights/delay/cust-001")
    assert wrong.code == 1
    assert "pipeline 'flights/delay' is unknown; nearest names: flights/delays" in wrong.err
    assert "task 'delays/x' is unknown" in arrester("pause", "delays/x").err


def test_a_task_that_no_run_processes_is_not_running(arrester: Arrester, story: Story) -> None:
    story.skips("JFK", 1)
    story.pauses("EWR")
    assert "RUNNING" in arrester("tasks", "--state", "RUNNING").out
    story.stops()
    states = dict(line.split()[:2] for line in arrester("tasks").out.splitlines()[1:])
    assert states == {"flights/delays/JFK": "NO_RUN", "flights/delays/EWR": "PAUSED"}
    assert "NO_RUN" in arrester("show", "flights/delays/JFK").out
    assert "flights/delays/JFK" in arrester("tasks", "--state", "NO_RUN").out


def test_a_position_finds_a_dead_letter_whose_record_was_only_counted(
    arrester: Arrester, story: Story
) -> None:
    story.skips("EWR", 3)
    done = arrester("find", "position:900001")
    assert "no record that matches" in done.out + done.err
    assert "flights/delays/EWR at 900,001: dead letter " in done.out
    assert "WAITING, counted only" in done.out
    [found] = json.loads(arrester("find", "key:UA1545", "--json").out)["results"]
    assert found["outcome"] == "DEAD_LETTER"
    assert arrester("find", "").code == 2


def test_find_names_what_cannot_be_searched_yet(
    arrester: Arrester, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.skips("EWR", 3)
    assert "cannot be searched" not in arrester("find", "key:UA1545").err
    get = client.Client.get

    def behind(self: client.Client, path: str, **parameters: Any) -> Any:
        page = get(self, path, **parameters)
        return {**page, "not_indexed": {"flights": 1_200}} if path == "records" else page

    monkeypatch.setattr(client.Client, "get", behind)
    done = arrester("find", "key:UA1545")
    assert "1,200 new events of flights cannot be searched yet" in done.err
    found = json.loads(arrester("find", "key:UA1545", "--json").out)
    assert found["not_indexed"] == {"flights": 1_200} and found["dead_letters"] == []


def test_an_export_is_a_whole_file_or_none(
    arrester: Arrester, story: Story, tmp_path: Path
) -> None:
    story.skips("EWR", 3)
    file = tmp_path / "events.parquet"
    done = arrester("export", str(file), "-a", "flights", "--type", "RecordFailed", "--json")
    assert (done.code, json.loads(done.out)["bytes"]) == (0, file.stat().st_size)
    assert pq.read_table(file).column("type").to_pylist() == ["RecordFailed"]
    for words, code, text in (
        ((str(tmp_path / "no.parquet"), "-a", "flight"), 1, "flight"),
        ((str(tmp_path / "no.parquet"), "--since", "noon"), 2, "a time in ISO 8601"),
        ((str(tmp_path / "no" / "folder"),), 2, "cannot be written: No such file"),
        ((str(tmp_path / "no.parquet"), "--url", "http://127.0.0.1:9"), 4, "refused"),
    ):
        refused = arrester("export", *words)
        assert (refused.code, text in refused.err) == (code, True), refused
    assert [each.name for each in tmp_path.glob("*.parquet*")] == ["events.parquet"]
