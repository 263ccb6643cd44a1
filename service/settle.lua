#!lua flags=allow-oom
-- Settle one entry: publish its result or keep it as a dead letter, add its metrics row, acknowledge it, delete it.
-- A script that fails keeps what it wrote, so every check comes before the first write. allow-oom: settling frees memory.
--
-- KEYS 1 input, 2 results, 3 metrics, 4 dead letters, 5 done marker, 6 fence, 7 attempts, 8 the result as a blob, if any
-- ARGV 1 group, 2 entry id, 3 marker ttl in ms (0: no marker), 4 sequence (empty: no fence), 5 fence ttl in ms,
--      6 results kept, 7 metrics rows kept (0: all), 8 metrics row, 9 short row without outcome and opening brace,
--      10 fingerprint of the messages, or empty
--      11 'result': 12 result (empty: it is the blob), 13 short result without outcome and opening brace, 14 snapshot id,
--                   15 ms for which the results stream outlives this result (0: for ever)
--      11 'late':   as 'result' without one: it was not pruned, since a newer one was there
--      11 'dead':   12 code, 13 detail, 14 attempts, 15 sha256 of an oversized body or empty, 16 its size,
--                   17 snapshot id
local input, results, metrics, dead, done, fence, attempts, blob = unpack(KEYS)
local group, id, marker_ttl, sequence, fence_ttl, results_kept, metrics_kept, row, short_row = unpack(ARGV, 1, 9)
local fingerprint, kind = unpack(ARGV, 10, 11)

local DUPLICATE = '{"status":"duplicate","reason":["already_settled"],'
local OTHER_ARRAY = '{"status":"duplicate","reason":["already_settled","other_array"],'
local SUPERSEDED = '{"status":"superseded","reason":["newer_settled"],'
local VANISHED = '{"status":"vanished",'
local KEPT_VALUES = 130 -- of a dead letter's fields: XADD takes its arguments from a stack of limited size
local KEPT_BYTES = 1024 -- of each field of an oversized entry

local TYPES = {'stream', 'stream', 'stream', 'stream', 'string', 'string', 'hash', 'string'}
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= TYPES[i] then
        return redis.error_reply('BADTYPE ' .. key .. ' is a ' .. found)
    end
end
if blob and redis.call('EXISTS', blob) == 0 then
    return redis.error_reply('NOBLOB ' .. blob) -- a full server took no blob; the result itself can still be settled
end

local function append(stream, kept, ...)
    if kept == '0' then
        return redis.call('XADD', stream, '*', ...)
    end
    return redis.call('XADD', stream, 'MAXLEN', '~', kept, '*', ...)
end

local function mark(reference)
    if marker_ttl ~= '0' then
        redis.call('SET', done, reference, 'PX', marker_ttl)
    end
end

-- Where the snapshot of this marker lies as a dead letter; it was replayed or mended since if it lies there no more.
local function grave(settled)
    return settled and string.match(settled, '^dead:(%S+)')
end

local function answer(...)
    local reference = append(results, results_kept, ...)
    if ARGV[15] ~= '0' then
        redis.call('PEXPIRE', results, ARGV[15])
    end
    return reference
end

-- A result that is not published needs no blob.
local function drop_blob()
    if blob then
        redis.call('DEL', blob)
    end
end

local function publish(settled)
    local result, short_result, snapshot_id = unpack(ARGV, 12, 14)
    if settled and not grave(settled) then
        drop_blob()
        local first = string.match(settled, ' (%x+)$') or fingerprint
        local outcome = first == fingerprint and DUPLICATE or OTHER_ARRAY
        row = outcome .. short_row
        return first == fingerprint and 'DUPLICATE' or 'OTHER_ARRAY', answer('__data__', outcome .. short_result)
    end
    local latest = sequence ~= '' and redis.call('GET', fence)
    if latest and tonumber(latest) >= tonumber(sequence) then
        drop_blob()
        row = SUPERSEDED .. short_row
        local reference = answer('__data__', SUPERSEDED .. short_result)
        mark(reference .. ' ' .. fingerprint)
        return 'SUPERSEDED', reference
    end
    if kind == 'late' then
        return 'NEEDED', '' -- the newer one came to nothing
    end
    local reference
    if blob then
        reference = answer('snapshot_id', snapshot_id, 'blob', blob)
    else
        reference = answer('__data__', result)
    end
    if sequence ~= '' then
        redis.call('SET', fence, sequence, 'PX', fence_ttl)
    end
    mark(reference .. ' ' .. fingerprint)
    return 'OK', reference
end

local function bury(settled)
    local buried = grave(settled)
    if buried and #redis.call('XRANGE', dead, buried, buried) > 0 then
        row = DUPLICATE .. short_row
        return 'DUPLICATE', settled
    end
    local found = redis.call('XRANGE', input, id, id)
    if #found == 0 then
        row = VANISHED .. short_row
        return 'VANISHED', ''
    end
    local code, detail, started, sha256, size, snapshot_id = unpack(ARGV, 12, 17)
    local fields, letter = found[1][2], {}
    for i = 1, math.min(#fields, KEPT_VALUES), 2 do
        if sha256 == '' or #fields[i] + #fields[i + 1] <= KEPT_BYTES then
            letter[#letter + 1], letter[#letter + 2] = fields[i], fields[i + 1]
        end
    end
    local why = {'_code', code, '_detail', detail, '_attempts', started, '_source', input .. ' ' .. id}
    why[#why + 1], why[#why + 2] = '_snapshot_id', snapshot_id
    if sha256 ~= '' then
        why[#why + 1], why[#why + 2] = '_sha256', sha256
        why[#why + 1], why[#why + 2] = '_size', size
    end
    if #letter < #fields then
        why[#why + 1], why[#why + 2] = '_replayable', 'no'
    end
    for _, value in ipairs(why) do
        letter[#letter + 1] = value
    end
    local reference = redis.call('XADD', dead, '*', unpack(letter))
    if buried or not settled then
        mark('dead:' .. reference .. ' ' .. code)
    end
    return 'DEAD', reference
end

local pending = redis.call('XPENDING', input, group, id, id, 1) -- raises NOGROUP, where XACK would just say 0
local settled = marker_ttl ~= '0' and redis.call('GET', done)
if #pending == 0 then
    return {'SETTLED', settled or ''} -- by another worker, or by this one and the reply was lost
end
local verdict, reference
if kind == 'dead' then
    verdict, reference = bury(settled)
else
    verdict, reference = publish(settled)
end
if verdict == 'NEEDED' then
    return {verdict, reference}
end
append(metrics, metrics_kept, '__data__', row)
redis.call('HDEL', attempts, input .. ' ' .. id)
redis.call('XACK', input, group, id)
redis.call('XDEL', input, id)
return {verdict, reference}
