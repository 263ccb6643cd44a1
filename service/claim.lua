#!lua flags=allow-oom
-- Take over one entry that nobody has touched for a while, and count the isolated attempt that is about to be made.
-- One that was deleted while pending can never be settled: it leaves the group, and a metrics row in the same step.
-- KEYS 1 input, 2 metrics, 3 attempts
-- ARGV 1 group, 2 entry id, 3 consumer, 4 idle ms, 5 metrics rows kept (0: all)
-- Returns the number of attempts begun, this one included, and the entry's fields; 0 for an entry that vanished;
-- nothing when somebody else has it or has settled it.
local input, metrics, attempts = unpack(KEYS)
local group, id, consumer, idle, kept = unpack(ARGV)

local TYPES = {'stream', 'stream', 'hash'}
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= TYPES[i] then
        return redis.error_reply('BADTYPE ' .. key .. ' is a ' .. found)
    end
end

if #redis.call('XPENDING', input, group, 'IDLE', idle, id, id, 1) == 0 then
    return nil
end
local found = redis.call('XRANGE', input, id, id)
if #found == 1 then
    redis.call('XCLAIM', input, group, consumer, idle, id, 'JUSTID')
    return {redis.call('HINCRBY', attempts, input .. ' ' .. id, 1), found[1][2]}
end

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
redis.call('XACK', input, group, id)
return {0}
