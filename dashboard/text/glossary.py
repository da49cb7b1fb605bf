"""The terms of the product, as in docs/glossary.md."""

from __future__ import annotations

TERMS = {
    "agent": "The `Agent` object in a Spark driver, with its threads.",
    "agent credential": "A password of the Redis user of an application's agents.",
    "alert": "A condition that needs a person, such as a paused task; open until the condition "
    "ends.",
    "alert rule": "Which alerts are sent to which channel, how often, and when.",
    "application": "A name that groups instances, pipelines and tasks; one event log each.",
    "as of": "The state at an earlier time or log position, such as `flights@283`.",
    "atomic sink": "A sink whose failed call leaves nothing behind.",
    "base": "Verified states at a log position; older events may be dropped.",
    "body": "Record and stack trace of an event, stored apart so that they can be erased.",
    "channel": "An address that messages about alerts are sent to: mail, Slack, PagerDuty, a "
    "webhook.",
    "command": "A request of a person or program to an application: ISSUED, DELIVERED, then "
    "APPLIED, REFUSED, EXPIRED or CANCELLED.",
    "confined": "An account or token without a role on all applications; it sees only the "
    "applications of its roles.",
    "counted only": "A failure that is in the counters, without its record and trace.",
    "dead letter": "A skipped record, stored with its error for later use.",
    "discard": "Decide that a dead letter is not processed again, with a reason.",
    "redrive": "Process dead letters once more, mended or not.",
    "dismissed task": "A stopped task that a person hides because no run processes it; not counted "
    "until an agent reports it.",
    "drain": "Process the held records of a task that continues.",
    "error group": "Failures with the same fingerprint: stage, condition or class, innermost "
    "cause, field and top frame.",
    "failing record": "A record that fails when it is processed alone.",
    "fast path": "One Spark plan evaluates and writes a micro-batch. If the sink stages its rows, "
    "it goes on after a failed record.",
    "fencing": "An older run of a checkpoint is refused when a newer run has claimed it.",
    "fold": "Apply events to states; the only way in which a state changes.",
    "held record": "A record of a paused or dead task, stored beside the checkpoint until it runs.",
    "instance": "One `Agent` in one driver process.",
    "journal": "Files beside the checkpoint with the decisions of each micro-batch.",
    "latched": "The application is shut down; agents that start do not run.",
    "live checkpoint": "The newest checkpoint of a pipeline: the one on which a run started last. "
    "Only its tasks are counted.",
    "log": "All events of an application, in order, in PostgreSQL.",
    "log position": "The number of an event in its log, in the field `sequence`: `flights@283` is "
    "log position 283.",
    "masked field": "A redacted field whose value only the server reads; a person reveals it with "
    "a reason.",
    "outage": "Many records of one micro-batch fail with one cause.",
    "outbox": "Journal entries whose events are not sent yet.",
    "owner": "The person or team that takes care of an error group: its assignee, else the one of "
    "the first owner rule that matches.",
    "owner rule": "Patterns of application, pipeline and stage, and the owner of what matches "
    "them.",
    "pause offset": "The position at which a task is PAUSED; that record and later ones are held.",
    "pending-fold key": "The Redis key of a stream that is to be folded.",
    "policy": "What a stage answers to failures: CONTINUE, RETRY, PAUSE or FAIL.",
    "position": "The number of a record in its task, such as an offset in Kafka. That of an event "
    "is a log position.",
    "quarantine": "Invalid or too old entries from agents, stored unchanged.",
    "reported in full": "A failure with its record and trace.",
    "rollout": "A command for all tasks that a cause has stopped, issued task by task in waves: "
    "one, 10%, the rest. It ends when a task stops again.",
    "run": "One execution of a pipeline at a checkpoint, with an epoch.",
    "run lock": "The lock that serialises micro-batches, drains of held records and commands of a "
    "run.",
    "self-healing failure": "A failure that Spark repairs; no record is its cause.",
    "server key": "The public key with which an agent verifies commands, states and confirmations "
    "of the server.",
    "sink probe": "A call of a sink without visible result, to find the records that it refuses.",
    "slow path": "Evaluate, ask handlers, store the decision, then call the sink.",
    "spool": "Local files with events that the server has not confirmed.",
    "stage": "A step of a pipeline as policies name it: `source`, `deserialize`, `process:<name>`, "
    "`produce`. Failures of the script outside a run have the stage `driver`.",
    "staging table": "A table with the rows of one call of `.write_jdbc`, until a transaction "
    "inserts them.",
    "task": "The unit that pauses by itself, such as a partition or a customer.",
    "test of a record": "The running pipeline runs its steps once on a held record or dead "
    "letter, changed or not, without the sink.",
    "thread": "A pipeline's run within an instance, as Kafka Streams' stream thread.",
    "tolerance": "How many failed records of a task are skipped before FAIL.",
    "view": "A table of states derived from the log. In `dashboard/`, a view of Django; in the "
    "schema `confined`, one of PostgreSQL.",
}
