"""The script by which an agent appends batches to its stream of events in one step.

The server loads it into Redis: the Redis users of agents may run it, but may load no script.
"""

from __future__ import annotations

#: KEYS: stream, confirmed set, memory limit. ARGV: last entry, its batch, limits of entries and of
#: bytes, spool, form of the confirmation, then batch and events.
#: A memory that the Redis user may not read is not limited: Redis itself refuses.
APPEND = """
if ARGV[1] ~= '' then
  local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
  local kept = #found == 1 and found[1][2][2] == ARGV[2]
  if not kept and redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 0 then
    return {'LOST'}
  end
end
local answer = {'DONE'}
if #ARGV < 7 then
  return answer
end
local entries_left = tonumber(ARGV[3]) - redis.call('XLEN', KEYS[1])
local usage = redis.pcall('MEMORY', 'USAGE', KEYS[1])
local bytes = tonumber(ARGV[4]) - (type(usage) == 'number' and usage or 0)
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
local empty = redis.call('XLEN', KEYS[1]) == 0
for i = 7, #ARGV, 2 do
  if entries_left <= 0 or (bytes <= 0 and not (empty and i == 7)) then
    answer[1] = 'FULL'
    break
  end
  answer[#answer + 1] = redis.call('XADD', KEYS[1], '*',
    'batch', ARGV[i], 'spool', ARGV[5], 'confirmation', ARGV[6], 'events', ARGV[i + 1])
  entries_left, bytes = entries_left - 1, bytes - #ARGV[i + 1]
end
return answer
"""
