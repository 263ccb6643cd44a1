#!lua flags=allow-oom
-- Take over entries that nobody has touched for a while. One that was deleted while pending can never be settled: the
-- server forgets it with this claim, so its metrics row is written in the same step.
-- KEYS 1 input, 2 metrics, 3 attempts
-- ARGV 1 group, 2 consumer, 3 idle ms, 4 cursor, 5 count, 6 metrics rows kept (0: all)
-- Returns the next cursor, the ids claimed and the ids that vanished.
local input, metrics, attempts = unpack(KEYS)
local group, consumer, idle, cursor, count, kept = unpack(ARGV)

local found = redis.call('TYPE', metrics).ok
if found ~= 'none' and found ~= 'stream' then
    return redis.error_reply('BADTYPE ' .. metrics .. ' is a ' .. found)
end

local claim = redis.call('XAUTOCLAIM', input, group, consumer, idle, cursor, 'COUNT', count, 'JUSTID')
for _, id in ipairs(claim[3]) do
    local row = cjson.encode({
        status = 'vanished',
        entry_id = id,
        snapshot_id = '',
        conversation_id = '',
        workload = '',
        worker = consumer,
    })
    if kept == '0' then
        redis.call('XADD', metrics, '*', '__data__', row)
    else
        redis.call('XADD', metrics, 'MAXLEN', '~', kept, '*', '__data__', row)
    end
    redis.call('HDEL', attempts, input .. ' ' .. id)
end
return claim
