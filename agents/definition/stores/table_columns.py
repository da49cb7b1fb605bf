"""Compare the columns of rows with those of the table that they are appended to."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import types as T

from arrester.agents.arguments import nearest
from arrester.domain.errors import InvalidValue


def missing_columns(
    sink: str,
    rows: T.StructType,
    table: T.StructType,
    *,
    fits: Callable[[T.DataType, T.DataType], bool],
    adds: bool = False,
    otherwise: str = "",
) -> list[T.StructField]:
    """Return the columns of the table that the rows lack.

    Raises InvalidValue for a column with a type that does not fit, and, unless the sink `adds` it,
    for one that the table lacks; `otherwise` names what else is allowed.
    """
    columns = {each.name.lower(): each for each in table}
    for given in rows:
        column = columns.pop(given.name.lower(), None)
        if column is None and not adds:
            hint = nearest(given.name, table.names) or f": {', '.join(table.names)}"
            allowed = f"a column of the table{hint}{otherwise}"
            raise InvalidValue(f"{sink}: column", given.name, allowed)
        if column is not None and not fits(given.dataType, column.dataType):
            kind, wanted = given.dataType.simpleString(), column.dataType.simpleString()
            allowed = f"{wanted}, the type in the table; cast it in .columns"
            raise InvalidValue(f"{sink}: column {given.name}", kind, allowed)
    return list(columns.values())
