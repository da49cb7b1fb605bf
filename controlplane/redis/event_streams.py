"""Read and delete entries of the streams of events. Reads are bounded: a foreign entry may be as
large as Redis permits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from redis import Redis
from redis.client import Pipeline

from arrester.controlplane.redis.redis_client import StreamEntry
from arrester.domain.wire import limits

#: The most bytes of entries that are read at once, and of one entry. Of a larger one the beginnings
#: of its first fields are read.
READ_BYTES = ENTRY_BYTES = limits.ENTRY_BYTES
CUT_FIELDS, CUT_BYTES = 16, 64 * 2**10
#: The first field of a cut entry: its number of bytes.
CUT_FROM = b"cut-from"

#: KEYS: stream. ARGV: begin, number, bytes, bytes of an entry, number of cut fields, their bytes.
_READ = """
local answer, begin, left = {}, ARGV[1], tonumber(ARGV[3])
for i = 1, tonumber(ARGV[2]) do
  local found = redis.call('XRANGE', KEYS[1], begin, '+', 'COUNT', 1)
  if #found == 0 then
    break
  end
  local id, fields, size = found[1][1], found[1][2], 0
  for j = 1, #fields do
    size = size + #fields[j]
  end
  if size > tonumber(ARGV[4]) then
    local cut = {'cut-from', string.format('%.0f', size)}
    size = 0
    for j = 1, math.min(#fields, 2 * tonumber(ARGV[5])) do
      cut[j + 2] = string.sub(fields[j], 1, tonumber(ARGV[6]))
      size = size + #cut[j + 2]
    end
    fields = cut
  end
  if i > 1 and size > left then
    break
  end
  left = left - size
  answer[i] = {id, fields}
  begin = '(' .. id
end
return answer
"""

#: KEYS: stream.
_ENDS = """
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return {redis.call('XLEN', KEYS[1]), first and first[1] or false, last and last[1] or false}
"""

#: KEYS: streams, each with a second key. A key of another type is no stream.
_WAITING = """
local waiting = {}
for i = 1, #KEYS, 2 do
  local length = redis.pcall('XLEN', KEYS[i])
  if type(length) == 'number' and length > 0 and redis.call('EXISTS', KEYS[i + 1]) == 0 then
    waiting[#waiting + 1] = KEYS[i]
  end
end
return waiting
"""

#: KEYS: stream.
_LAST_ID = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local information = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #information, 2 do
  if information[i] == 'last-generated-id' then
    return information[i + 1]
  end
end
"""

#: KEYS: stream. ARGV: each entry's id, its first field, and that field's value.
_DELETE = """
for i = 1, #ARGV, 3 do
  local found = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])
  local value, size = nil, 0
  if #found == 1 then
    local fields = found[1][2]
    for j = 1, #fields, 2 do
      size = size + #fields[j] + #fields[j + 1]
      if fields[j] == ARGV[i + 1] then
        value = fields[j + 1]
      end
    end
  end
  local is_cut = ARGV[i + 1] == 'cut-from' and string.format('%.0f', size) == ARGV[i + 2]
  if value == ARGV[i + 2] or is_cut then
    redis.call('XDEL', KEYS[1], ARGV[i])
  end
end
"""


class StreamEnds(NamedTuple):
    """The number of entries of a stream, and the ids of the first and last one."""

    length: int
    first: str | None
    last: str | None


def read(redis: Redis | Pipeline, stream: str, *, begin: str = "-", count: int) -> Any:
    """Read entries from `begin` on, at most READ_BYTES, but at least one; see `decoded`."""
    limits = (count, READ_BYTES, ENTRY_BYTES, CUT_FIELDS, CUT_BYTES)
    return redis.eval(_READ, 1, stream, begin, *map(str, limits))


def decoded(answer: Any) -> list[StreamEntry]:
    """Return the entries of a read."""
    return [
        (id.decode(), dict(zip(fields[::2], fields[1::2], strict=True))) for id, fields in answer
    ]


def send_ends(pipe: Pipeline, stream: str) -> None:
    """Request the ends of a stream, without the content of its entries."""
    pipe.eval(_ENDS, 1, stream)


def ends(answer: Any) -> StreamEnds:
    """Return the ends of a stream."""
    length, first, last = answer
    return StreamEnds(int(length), *(each and each.decode() for each in (first, last)))


def read_ends(redis: Redis, stream: str) -> StreamEnds:
    """Return the ends of a stream, without the content of its entries."""
    return ends(redis.eval(_ENDS, 1, stream))


def delete(pipe: Pipeline, stream: str, entries: Iterable[StreamEntry]) -> None:
    """Delete entries from a stream, unless their ids now belong to other entries.

    A Redis that was emptied meanwhile assigns an id again: within one millisecond, or if its clock
    goes back. A batch other than the one read has not been folded.
    """
    arguments = [part for id, fields in entries for part in (id, *next(iter(fields.items())))]
    pipe.eval(_DELETE, 1, stream, *arguments)


def waiting(redis: Redis, streams: Mapping[str, str]) -> list[str]:
    """Return the streams that have entries and whose other key, their value, does not exist.

    Blocking reads would end sooner, but bring entries with them, which may be very large.
    """
    keys = [key for pair in streams.items() for key in pair]
    answer: Any = redis.register_script(_WAITING)(keys=keys)
    return [name.decode() for name in answer]


def last_id(redis: Redis, stream: str) -> str | None:
    """Return the last id assigned by a stream; None if there is no stream."""
    # In a script, since the answer of XINFO contains the first and the last entry.
    id: Any = redis.eval(_LAST_ID, 1, stream)
    return None if id is None else str(id.decode())
