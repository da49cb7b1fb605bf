"""The script by which an agent appends batches to its stream of events in one step.

The server loads it into Redis: the Redis users of agents may run it, but may load no script. They
may not read their stream: a read of all entries would occupy Redis, as often as they like.
"""

from __future__ import annotations

#: The most batches of one call.
MOST_BATCHES = 1000
_BEFORE_BATCHES = 6
#: KEYS: stream, confirmed set, memory limit, sent set. ARGV: last batch, limits of entries and of
#: bytes, spool, form of the confirmation, seconds of the sent set, then batch and events.
#: The sent set has the last batch, and is written after its entry: a Redis that has lost the entry
#: has lost it, too. A stream that was deleted is empty. If the answer of a call did not arrive, the
#: next one repeats its batches, and the sent set has one of them.
#: A memory that the Redis user may not read is not limited: Redis itself refuses.
APPEND = f"""
if #ARGV > {_BEFORE_BATCHES + 2 * MOST_BATCHES} then
  return redis.error_reply('ERR more than {MOST_BATCHES} batches')
end
local length = redis.call('XLEN', KEYS[1])
if ARGV[1] ~= '' then
  local kept = redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1
  if length > 0 then
    kept = kept or redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1
    for i = {_BEFORE_BATCHES + 1}, #ARGV, 2 do
      kept = kept or redis.call('SISMEMBER', KEYS[4], ARGV[i]) == 1
    end
  end
  if not kept then
    return {{'LOST'}}
  end
end
local answer = {{'DONE'}}
if #ARGV <= {_BEFORE_BATCHES} then
  return answer
end
local entries_left = tonumber(ARGV[2]) - length
local usage = redis.pcall('MEMORY', 'USAGE', KEYS[1])
local bytes = tonumber(ARGV[3]) - (type(usage) == 'number' and usage or 0)
local limit = redis.pcall('GET', KEYS[3])
local most = type(limit) == 'string' and tonumber(limit) or 0
if most > 0 then
  local memory = redis.pcall('MEMORY', 'STATS')
  for i = 1, #memory, 2 do
    if memory[i] == 'total.allocated' then
      bytes = math.min(bytes, most - memory[i + 1])
    end
  end
end
local last
for i = {_BEFORE_BATCHES + 1}, #ARGV, 2 do
  if entries_left <= 0 or (bytes <= 0 and not (length == 0 and not last)) then
    answer[1] = 'FULL'
    break
  end
  answer[#answer + 1] = redis.call('XADD', KEYS[1], '*',
    'batch', ARGV[i], 'spool', ARGV[4], 'confirmation', ARGV[5], 'events', ARGV[i + 1])
  entries_left, bytes, last = entries_left - 1, bytes - #ARGV[i + 1], ARGV[i]
end
if last then
  redis.call('UNLINK', KEYS[4])
  redis.call('SADD', KEYS[4], last)
  redis.call('EXPIRE', KEYS[4], ARGV[6])
end
return answer
"""
