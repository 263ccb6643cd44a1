#!lua
-- Admit one snapshot, once: add it to its input unless its id is known or the input holds as much as it may.
-- No allow-oom: a full server refuses producers first, while workers settle on.
--
-- KEYS 1 input, 2 admitted marker, 3 done marker
-- ARGV 1 entries allowed in the input, 2 bytes allowed in it (0: any number), 3 marker ttl in ms (0: no marker),
--      4 fingerprint of the messages, or empty, 5... the fields of the entry
-- Returns {'ADMITTED', entry id}, {'KNOWN', entry id or settled reference} or, when the one that is known had another
-- fingerprint, {'OTHER_ARRAY', the same}; LANE_FULL is an error, so that nobody can take it for success.
local input, admitted, done = unpack(KEYS)
local most_entries, most_bytes, marker_ttl, fingerprint = unpack(ARGV, 1, 4)
local SAMPLES = '20' -- entries measured for the estimate of bytes: 30 microseconds, and about 5 % off

local TYPES = {'stream', 'string', 'string'}
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= TYPES[i] then
        return redis.error_reply('BADTYPE ' .. key .. ' is a ' .. found)
    end
end

if marker_ttl ~= '0' then
    local settled = redis.call('GET', done)
    -- A dead snapshot may be mended and sent again under its own id.
    if not (settled and string.sub(settled, 1, 5) == 'dead:') then
        local known = settled or redis.call('GET', admitted)
        if known and not settled then
            redis.call('PEXPIRE', admitted, marker_ttl) -- a write, so that a WAIT after it means something
        end
        if known then
            local reference, first = string.match(known, '^(%S*) ?(%x*)$')
            local is_other = first ~= '' and fingerprint ~= '' and first ~= fingerprint
            return {is_other and 'OTHER_ARRAY' or 'KNOWN', reference or known}
        end
    end
end

local entries = redis.call('XLEN', input)
if most_entries ~= '0' and entries >= tonumber(most_entries) then
    return redis.error_reply('LANE_FULL ' .. entries .. ' entries, the limit is ' .. most_entries)
end
local bytes = most_bytes ~= '0' and redis.call('MEMORY', 'USAGE', input, 'SAMPLES', SAMPLES) or 0
if most_bytes ~= '0' and bytes >= tonumber(most_bytes) then
    return redis.error_reply('LANE_FULL about ' .. bytes .. ' bytes, the limit is ' .. most_bytes)
end

local id = redis.call('XADD', input, '*', unpack(ARGV, 5))
if marker_ttl ~= '0' then
    redis.call('SET', admitted, id .. ' ' .. fingerprint, 'PX', marker_ttl)
end
return {'ADMITTED', id}
