"""`make truth`: pages, REST and metrics of the running product show no two different numbers.

Run it beside `make up`, from the same clone. It reads everything in one transaction of the
product's database, so the product may be under load, and keeps nothing that it writes there.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from tests.shown_numbers import NUMBER, Numbers, whole, words

if TYPE_CHECKING:
    from django.test import Client

#: The numbers of an application in REST, and what they count.
FIELDS = {
    "paused": "PAUSED tasks",
    "dead": "DEAD tasks",
    "held": "held records",
    "failed": "failed records",
    "instances": "live instances",
    "lost": "LOST instances",
    "groups": "error groups",
    "open_commands": "open commands",
}
STOPPED = ("PAUSED", "DEAD")
STATUSES = (*STOPPED, "RUNNING")
#: What the tiles of the overview count.
TILES = ("DEAD tasks", "PAUSED tasks", "held records", "LOST instances", "open commands")
METRICS = {
    'arrester_tasks{application="NAME",status="RUNNING"}': "RUNNING tasks",
    'arrester_tasks{application="NAME",status="PAUSED"}': "PAUSED tasks",
    'arrester_tasks{application="NAME",status="DEAD"}': "DEAD tasks",
    'arrester_failed_records_total{application="NAME"}': "failed records",
    'arrester_instances_alive{application="NAME"}': "live instances",
    'arrester_instances_lost{application="NAME"}': "LOST instances",
}
#: The outcomes of records in the metrics of pipelines, and their fields in REST.
OUTCOMES = {
    "read": "records_in",
    "written": "records_out",
    "failed": "failed",
    "skipped": "skipped",
    "held": "held",
    "drained": "drained",
}
ALL = "all applications"
#: Pages of single tasks and error groups that are read of each application.
MOST_DETAILS = 40


def differences(client: Client) -> tuple[list[str], int]:
    """Return the differences between all places, and how many numbers were compared."""
    numbers = Numbers(client)
    totals: Counter[str] = Counter()
    for each in numbers.json("/api/v1/applications")["results"]:
        name = each["name"]
        for field, what in FIELDS.items():
            numbers.add(what, name, "/api/v1/applications", each[field])
            totals[what] += each[field]
        of_application(numbers, name, each["sequence"])
        stopped = of_tasks(numbers, name)
        of_groups(numbers, name, stopped)
        of_dialog(numbers, name)
        of_page(numbers, name)
        of_pipelines(numbers, name)
    for what, number in totals.items():
        numbers.add(what, ALL, "/api/v1/applications", number)
    of_all(numbers)
    return numbers.differences(), numbers.compared


def of_application(numbers: Numbers, name: str, position: int) -> None:
    """Add the numbers of an application that REST and metrics have, now and as of its end."""
    for url in (f"/api/v1/applications/{name}", f"/api/v1/applications/{name}?as_of=@{position}"):
        one = numbers.json(url)
        for field, what in FIELDS.items():
            numbers.add(what, name, url, one[field])
    url = f"/api/v1/applications/{name}/instances"
    instances = numbers.json(url)["results"]
    numbers.add("live instances", name, url, len(instances))
    numbers.add("LOST instances", name, url, sum(each["lost"] for each in instances))
    url = f"/api/v1/commands?application={name}"
    waiting = [each for each in numbers.rows(url) if each["status"] in ("ISSUED", "DELIVERED")]
    numbers.add("open commands", name, url, len(waiting))
    lines = dict(each.rsplit(" ", 1) for each in numbers.html("/metrics").splitlines())
    for metric, what in METRICS.items():
        numbers.add(what, name, "/metrics", int(float(lines[metric.replace("NAME", name)])))


def of_tasks(numbers: Numbers, name: str) -> Counter[str]:
    """Add the numbers of an application's tasks; return how many each error group has stopped."""
    url = f"/api/v1/tasks?application={name}"
    tasks = numbers.rows(url)
    for status in STATUSES:
        number = sum(each["status"] == status for each in tasks)
        numbers.add(f"{status} tasks", name, url, number)
    for status in STOPPED:
        page = f"/tasks?application={name}&state={status}"
        numbers.add(f"{status} tasks", name, page, rows_of_page(numbers, page))
    numbers.add("held records", name, url, sum(each["held"] for each in tasks))
    numbers.add("tasks with held records", name, url, sum(each["held"] > 0 for each in tasks))
    url = f"/api/v1/held?application={name}"
    holding = numbers.rows(url)
    numbers.add("held records", name, url, sum(each["held"] for each in holding))
    numbers.add("tasks with held records", name, url, len(holding))
    for each in tasks[:MOST_DETAILS]:
        place = f"/tasks/{each['id']}"
        page = words(numbers.html(place))
        for what, pattern in (("held", "Held records"), ("failed", "Failed records each once")):
            numbers.add(f"{what} records", each["id"], "/api/v1/tasks", each[what])
            numbers.add_found(
                f"{what} records", each["id"], place, f"{pattern} {NUMBER} [FP]", page
            )
    stopped = [each for each in tasks if each["status"] in STOPPED and each["failure"]]
    return Counter(each["failure"]["fingerprint"] for each in stopped)


def of_dialog(numbers: Numbers, name: str) -> None:
    """Add the number of tasks that can be resumed together."""
    dry = numbers.post("/api/v1/resume", {"application": name, "dry_run": True})
    numbers.add("tasks to resume", name, "/api/v1/resume", len(dry["results"]) + dry["left"])
    page = f"/resume/ask?application={name}"
    text = words(numbers.html(page))
    found = (rf"Resume {NUMBER} task", rf"{NUMBER} more tasks? (?:is|are) PAUSED")
    parts = [re.search(pattern, text) for pattern in found]
    numbers.add("tasks to resume", name, page, sum(whole(each[1]) for each in parts if each))


def rows_of_page(numbers: Numbers, url: str) -> int:
    """Return the number of rows of all pages of the list of tasks."""
    count, query = 0, ""
    while True:
        html = numbers.html(url + query)
        count += len(re.findall(r'<tr id="task-[0-9a-f]{32}"', html))
        older = re.search(r'href="\?[^"]*\bafter=([^"&]+)[^"]*">Older<', html)
        if older is None:
            return count
        query = f"&after={unescape(older[1])}"


def of_groups(numbers: Numbers, name: str, stopped: Counter[str]) -> None:
    """Add the numbers of an application's error groups, of its groups with stopped tasks first."""
    url = f"/api/v1/errors?application={name}&status=all"
    groups = numbers.rows(url)
    numbers.add("error groups", name, url, len(groups))
    numbers.add("failed records", name, url, sum(each["count"] for each in groups))
    groups.sort(key=lambda each: -stopped[each["fingerprint"]])
    for each in groups[:MOST_DETAILS]:
        fingerprint = each["fingerprint"]
        of = f"{name} {fingerprint}"
        numbers.add("stopped tasks", of, "/api/v1/tasks", stopped[fingerprint])
        page = f"/errors/{name}/{quote(fingerprint)}"
        numbers.add_found(
            "stopped tasks",
            of,
            page,
            rf"Tasks stopped by this error {NUMBER}",
            words(numbers.html(page)),
        )
    page = f"/errors?application={name}&state=all&sort=-count"
    html = numbers.html(page)
    known = {each["fingerprint"]: each for each in groups}
    for fingerprint, row in re.findall(rf'<tr id="group-{name}-([^"]+)">(.*?)</tr>', html, re.S):
        of, each = f"{name} {unescape(fingerprint)}", known[unescape(fingerprint)]
        numbers.add("failed records", of, url, each["count"])
        numbers.add_found(
            "failed records", of, page, rf'data-word="records?"><b>(?:about )?{NUMBER}', row
        )
        numbers.add("stopped tasks", of, "/api/v1/tasks", stopped[each["fingerprint"]])
        numbers.add_found("stopped tasks", of, page, rf"{NUMBER} tasks? stopped", row)


def of_page(numbers: Numbers, name: str) -> None:
    """Add the numbers of an application's own page and of its lists."""
    url = f"/applications/{name}"
    html = numbers.html(url)
    text = words(html)
    numbers.add_found("failed records", name, url, rf"{NUMBER} failed record", text)
    numbers.add_found("held records", name, url, rf"Held records {NUMBER}", text)
    numbers.add_found("live instances", name, url, rf"24 hours .*? Instances {NUMBER}", text)
    for status in STATUSES:
        numbers.add_found(f"{status} tasks", name, url, rf"{NUMBER} tasks? {status}", text)
    cards = re.findall(r'class="small muted">[\d,]+ tasks?(?: · ([\d,]+) held)?<', html)
    numbers.add("held records", name, f"{url}, pipelines", sum(map(whole, filter(None, cards))))
    url = f"/held?application={name}"
    text = words(numbers.html(url))
    numbers.add_found("held records", name, url, rf"{NUMBER} records? held in order", text)
    found = rf"held in order by {NUMBER} task"
    numbers.add_found("tasks with held records", name, url, found, text)


def of_pipelines(numbers: Numbers, name: str) -> None:
    """Add what flowed through the pipelines of an application, by minutes, runs and in total."""
    url = f"/api/v1/pipelines?application={name}"
    metrics = numbers.html("/metrics")
    row_of = dict(
        re.findall(
            rf'<tr id="pipeline-{name}-([a-z0-9.-]+?)-[^"]*">(.*?)</tr>',
            numbers.html("/pipelines"),
            re.S,
        )
    )
    for each in numbers.rows(url):
        pipeline = each["pipeline"]
        of, path = f"{name}/{pipeline}", f"{name}/{pipeline}"
        page = words(numbers.html(f"/pipelines/{path}"))
        numbers.add("held records", of, url, each["held"])
        numbers.add_found("held records", of, f"/pipelines/{path}", rf"Held now {NUMBER}", page)
        held = rf'data-word="held">{NUMBER}<'
        if pipeline in row_of:
            numbers.add_found("held records", of, "/pipelines", held, row_of[pipeline])
        since = f"{datetime.now(UTC) - timedelta(days=30):%Y-%m-%dT%H:00Z}"
        series = f"/api/v1/pipelines/{path}/series?since={since}&step=3600"
        steps = numbers.json(series)["results"]
        for outcome, field in OUTCOMES.items():
            label = f'application="{name}",outcome="{outcome}",pipeline="{pipeline}"'
            found = re.search(rf"^arrester_pipeline_records_total{{{label}}} (\S+)$", metrics, re.M)
            total = int(float(found[1])) if found else 0
            numbers.add(f"records that were {outcome}", of, "/metrics", total)
            numbers.add(
                f"records that were {outcome}", of, series, sum(step[field] for step in steps)
            )
        runs = f"/api/v1/pipelines/{path}/runs?limit=500"
        flows = [run["flow"] for run in numbers.json(runs)["results"] if run["flow"]]
        numbers.add("records that were read", of, runs, sum(flow["records_in"] for flow in flows))
        sums = {field: sum(step[field] for step in steps) for field in OUTCOMES.values()}
        numbers.add("records", of, "read and drained", sums["records_in"] + sums["drained"])
        gone = sums["records_out"] + sums["skipped"] + sums["held"]
        numbers.add("records", of, "written, skipped and held", gone)


def of_all(numbers: Numbers) -> None:
    """Add the numbers of the pages of all applications."""
    html = numbers.html("/")
    for tile in re.findall(r'<a class="tile[^>]*>(.*?)</a>', html, re.S):
        number, _, label = words(re.sub(r'<b title="([\d,]+)">[^<]*', r"\1", tile)).partition(" ")
        for what in TILES:
            if what.lower() == label.lower():
                numbers.add(what, ALL, "/", whole(number))
        if label.startswith("Failures, "):
            numbers.add("failures", "the overview", "tile", whole(number))
    chart = re.search(r'id="rate">.*?<b class="number small">([\d,]+)<', html, re.S)
    if chart is not None:
        numbers.add("failures", "the overview", "chart", whole(chart[1]))
    rows = re.findall(
        r'<tr id="application-([^"]+)">(.*?)</tr>', numbers.html("/applications"), re.S
    )
    for name, row in rows:
        for status in STATUSES:
            found = rf"{NUMBER} tasks? {status}"
            numbers.add_found(f"{status} tasks", name, "/applications", found, words(row))
        held = rf'</td>\s*<td class="number wide">{NUMBER}</td>'
        numbers.add_found("held records", name, "/applications", held, row)
    numbers.add_found("problems", ALL, "title of /", rf"<title>\({NUMBER}\)", html)
    numbers.add_found("problems", ALL, "/", rf"{NUMBER} items? needs? attention", words(html))
    text = words(numbers.html("/held"))
    numbers.add_found("held records", ALL, "/held", rf"{NUMBER} records? held in order", text)
    text = words(numbers.html("/errors?state=all"))
    for status in ("UNRESOLVED", "RESOLVED", "MUTED"):
        url = f"/api/v1/errors?status={status}"
        numbers.add(f"{status} error groups", ALL, url, len(numbers.rows(url)))
        found = rf"\b{status.capitalize()} {NUMBER}"
        numbers.add_found(f"{status} error groups", ALL, "/errors", found, text)


def main() -> int:
    """Compare the numbers of the running product; return 1 if any differ."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "arrester.controlplane.settings")
    import django

    django.setup()
    from django.contrib.auth.models import Group, User
    from django.db import connection, transaction
    from django.test import Client

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        client = Client(SERVER_NAME="127.0.0.1")
        user = User.objects.create(username=f"truth-{uuid4()}")
        user.groups.add(Group.objects.get_or_create(name="admin")[0])
        client.force_login(user)
        different, compared = differences(client)
        transaction.set_rollback(True)
    for line in different:
        print(line)
    print(f"{compared:,} numbers compared, {len(different)} differences")
    return 1 if different or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
