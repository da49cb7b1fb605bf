"""A filter of Spark's log lines about writes that Arrester aborts or cancels on purpose.

Spark logs the same expected abort up to six times, with traces of 200 lines. The filter denies
warnings and errors of a few loggers, only if they belong to such an abort. It sets no level.
Janino, which Spark has for its generated code, compiles it in the JVM of the driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class

_log = logging.getLogger("arrester.thread")

#: The beginning of the mark of an abort, which is in the message of its exception or the tag of its
#: jobs.
_MARK: Final = "arrester-abort-"
#: The beginnings of the names of loggers to which Spark logs a failed or cancelled job.
_LOGGERS: Final = (
    "org.apache.spark.api.python",
    "org.apache.spark.TaskContext",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources",
    "org.apache.spark.sql.execution.python",
    "org.apache.spark.util.Utils",
    # For lines of tasks whose stage is aborted.
    "org.apache.hadoop.",
)
_attach_lock = threading.Lock()
#: The name of the filter in log4j's configuration.
_COMPONENT: Final = "arrester-log-filter"
_CLASS: Final = "ArresterLogFilter"
_SOURCE: Final = """
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.filter.AbstractFilter;
import org.apache.spark.TaskContext;

public class ArresterLogFilter extends AbstractFilter {
    private static final String[] LOGGERS = {@LOGGERS@};
    private static final int CAUSES = 20;
    private static final int ABORTS = 10000;
    private final Pattern mark = Pattern.compile("@MARK@[0-9a-f]{32}");
    private final Pattern stage = Pattern.compile(" in (stage [0-9]+)");
    private final Pattern ofTask = Pattern.compile(
        "Job: .*, Task: .*, Task attempt .* aborted[.]|Job job_[0-9_]+ aborted[.]"
        + "|Abort(ing|ed) commit for partition .*|Could not delete .*");
    private final Pattern ofStage = Pattern.compile(
        ".*; aborting job|.*TaskKilled .Stage cancelled.*|.*Incomplete task .*interrupted.*",
        Pattern.DOTALL);
    /** The marks of aborts that were logged, and their stages and tasks. */
    private final Set aborted = ConcurrentHashMap.newKeySet();
    /** The mark of the write of a thread of the driver. */
    private final Map writes = new ConcurrentHashMap();

    public void begin(String abort) {
        writes.put(Long.valueOf(Thread.currentThread().getId()), abort);
    }

    public void end(String abort) {
        writes.remove(Long.valueOf(Thread.currentThread().getId()));
        aborted.remove(abort);
    }

    public void expect(int stage) {
        aborted.add("stage " + stage);
    }

    public Filter.Result filter(LogEvent event) {
        if (!event.getLevel().isMoreSpecificThan(Level.WARN)) {
            return Filter.Result.NEUTRAL;
        }
        try {
            return isOfSpark(event) && isOfAbort(event)
                ? Filter.Result.DENY : Filter.Result.NEUTRAL;
        } catch (RuntimeException e) {
            return Filter.Result.NEUTRAL;
        }
    }

    private boolean isOfSpark(LogEvent event) {
        String name = event.getLoggerName();
        for (int n = 0; name != null && n < LOGGERS.length; n++) {
            if (name.startsWith(LOGGERS[n])) {
                return true;
            }
        }
        return false;
    }

    private boolean isOfAbort(LogEvent event) {
        String text = event.getMessage().getFormattedMessage();
        TaskContext task = TaskContext.get();
        if (hasMark(text) || hasMark(event.getThrown()) || isKilled(task)) {
            addAborted(task, text);
            return true;
        }
        if (event.getThrown() != null) {
            return false;
        }
        if (task != null) {
            return aborted.contains("task " + task.taskAttemptId())
                && ofTask.matcher(text).matches();
        }
        if (text.startsWith("Data source write support ")) {
            Object write = writes.get(Long.valueOf(Thread.currentThread().getId()));
            return write != null && aborted.contains(write);
        }
        return ofStage.matcher(text).matches() && aborted.contains(stageIn(text));
    }

    /** Whether this task is killed because its stage was aborted. */
    private boolean isKilled(TaskContext task) {
        return task != null && task.isInterrupted()
            && (aborted.contains("stage " + task.stageId())
                || hasMark(String.valueOf(task.getKillReason())));
    }

    private void addAborted(TaskContext task, String text) {
        if (aborted.size() > ABORTS) {
            aborted.clear();
        }
        if (task != null) {
            aborted.add("task " + task.taskAttemptId());
            aborted.add("stage " + task.stageId());
        } else {
            aborted.add(stageIn(text));
        }
    }

    private String stageIn(String text) {
        Matcher matcher = stage.matcher(text);
        return matcher.find() ? matcher.group(1) : "none";
    }

    private boolean hasMark(Throwable thrown) {
        for (int n = 0; thrown != null && n < CAUSES; n++) {
            if (hasMark(thrown.getMessage())) {
                return true;
            }
            thrown = thrown.getCause();
        }
        return false;
    }

    private boolean hasMark(String text) {
        if (text == null) {
            return false;
        }
        Matcher matcher = mark.matcher(text);
        if (!matcher.find()) {
            return false;
        }
        aborted.add(matcher.group());
        return true;
    }
}
""".replace("@MARK@", _MARK).replace("@LOGGERS@", ", ".join(f'"{name}"' for name in _LOGGERS))


def abort_mark() -> str:
    """Return a new text that identifies an abort to the filter."""
    return f"{_MARK}{uuid4().hex}"


class LogFilter:
    """The filter in a driver's JVM. If it cannot be attached, Spark logs all lines."""

    def __init__(self, spark: SparkSession) -> None:
        self._filter = _attached_filter(spark)
        #: The thread whose writes are announced. It is kept since each call to the JVM takes time.
        self._thread: int | None = None

    def begin(self, mark: str) -> None:
        """Announce writes of this thread whose abort has this mark."""
        if self._filter is not None and self._thread != threading.get_ident():
            self._filter.begin(mark)
            self._thread = threading.get_ident()

    def end(self, mark: str) -> None:
        """End the announcement after an exception. Later lines without the mark pass the filter."""
        self._thread = None
        if self._filter is not None:
            self._filter.end(mark)

    def expect(self, stages: Iterable[int]) -> None:
        """Announce the cancellation of running stages: not all lines about it have the mark."""
        if self._filter is not None:
            for stage in stages:
                self._filter.expect(stage)


def _attached_filter(spark: SparkSession) -> Any:
    """Return the filter in log4j's configuration, attached if it is not there yet.

    None if it cannot be attached.
    """
    try:
        jvm: Any = spark._jvm
        loader = jvm_class(jvm, "org.apache.spark.util.Utils").getSparkClassLoader()
        manager = jvm_class(jvm, "org.apache.logging.log4j.LogManager")
        context = manager.getContext(loader, False)
        configuration = context.getConfiguration()
        with _attach_lock:
            log_filter = configuration.getComponent(_COMPONENT)
            if log_filter is None:
                log_filter = _new_filter(jvm, loader)
                log_filter.start()
                # Mostly the root's. New configurations of these loggers would show INFO lines.
                logger_configs = [configuration.getLoggerConfig(name) for name in _LOGGERS]
                for config in {str(each.getName()): each for each in logger_configs}.values():
                    config.addFilter(log_filter)
                configuration.addComponent(_COMPONENT, log_filter)
        return log_filter
    except Exception:  # another logging library, or another version of it
        _log.debug("Spark's lines about expected aborts cannot be filtered", exc_info=True)
        return None


def _new_filter(jvm: Any, loader: Any) -> Any:
    compiler = jvm_class(jvm, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    return compiler.getClassLoader().loadClass(_CLASS).newInstance()
