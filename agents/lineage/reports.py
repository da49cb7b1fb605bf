"""What is reported about a run, and its form as an event of OpenLineage."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

import msgspec

from arrester.agents.lineage.datasets import Dataset
from arrester.domain.events import FinalResponse

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, RunEvent
    from openlineage.client.facet_v2 import JobFacet, RunFacet

#: Identifies the sender in each event.
PRODUCER: Final = "urn:arrester:agent"
State = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]


class ParentRun(msgspec.Struct, frozen=True):
    """The run that started the Spark application, such as a task of Airflow."""

    namespace: str
    job: str
    run: UUID


class StageResult(msgspec.Struct, frozen=True):
    """The failed records of a stage in a run so far."""

    stage: str
    failed: int
    #: The strongest response to one of them.
    response: FinalResponse


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at one time."""

    state: State
    at: datetime
    run: UUID
    namespace: str
    #: `flights.departures`
    job: str
    streaming: bool
    spark: str
    parent: ParentRun | None
    inputs: list[Dataset]
    outputs: list[Dataset]
    #: One for each stage.
    results: list[StageResult]
    #: Why it failed.
    error: str | None = None


def run_event(report: Report) -> RunEvent:
    """Return a report as an event of OpenLineage."""
    from openlineage.client import event_v2

    return event_v2.RunEvent(
        eventTime=report.at.isoformat(),
        eventType=event_v2.RunState[report.state],
        producer=PRODUCER,
        run=event_v2.Run(runId=str(report.run), facets=_run_facets(report)),
        job=event_v2.Job(namespace=report.namespace, name=report.job, facets=_job_facets(report)),
        inputs=[_input(each, report.results) for each in report.inputs],
        outputs=[event_v2.OutputDataset(*each) for each in report.outputs],
    )


def _run_facets(report: Report) -> dict[str, RunFacet]:
    from openlineage.client import facet_v2
    from openlineage.client.generated import test_run

    facets: dict[str, RunFacet] = {
        "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet(
            version=report.spark, name="spark", producer=PRODUCER
        ),
        # A source without a known name has no dataset that could have the results.
        "test": test_run.TestRunFacet(
            tests=[
                test_run.TestExecution(
                    name=_name(each),
                    status="fail" if each.failed else "pass",
                    severity=_severity(each),
                    type="failed_records",
                    expected="0",
                    actual=str(each.failed),
                )
                for each in report.results
            ],
            producer=PRODUCER,
        ),
    }
    if report.parent is not None:
        parent = facet_v2.parent_run
        facets["parent"] = parent.ParentRunFacet(
            run=parent.Run(runId=str(report.parent.run)),
            job=parent.Job(namespace=report.parent.namespace, name=report.parent.job),
            producer=PRODUCER,
        )
    if report.error is not None:
        facets["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(
            message=report.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    return facets


def _job_facets(report: Report) -> dict[str, JobFacet]:
    from openlineage.client import facet_v2

    job_type = facet_v2.job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if report.streaming else "BATCH",
        integration="SPARK",
        jobType="PIPELINE",
        producer=PRODUCER,
    )
    return {"jobType": job_type}


def _input(dataset: Dataset, results: list[StageResult]) -> InputDataset:
    """Return an input with the failed records of each stage."""
    from openlineage.client import event_v2, facet_v2

    quality = facet_v2.data_quality_assertions_dataset
    assertions = quality.DataQualityAssertionsDatasetFacet(
        assertions=[
            quality.Assertion(
                assertion="failed_records",
                success=not each.failed,
                severity=_severity(each),
                name=_name(each),
                expected="0",
                actual=str(each.failed),
            )
            for each in results
        ],
        producer=PRODUCER,
    )
    return event_v2.InputDataset(*dataset, inputFacets={"dataQualityAssertions": assertions})


def _name(result: StageResult) -> str:
    return f"failed records at {result.stage}"


def _severity(result: StageResult) -> str:
    """Return whether failed records stop something: a task, or the run."""
    return "warn" if result.response is FinalResponse.CONTINUE else "error"
