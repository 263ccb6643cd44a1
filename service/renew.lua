#!lua flags=allow-oom
-- Renew a worker's hold on entries, so that nobody claims them; what is settled or somebody else's stays as it is.
-- An entry that was deleted while pending is left alone: XCLAIM would take it from its worker, who still has the body.
-- KEYS 1 input   ARGV 1 group, 2 consumer, 3... entry ids
-- Returns how many were renewed.
local input, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local renewed = 0
for i = 3, #ARGV do
    local id = ARGV[i]
    local pending = redis.call('XPENDING', input, group, id, id, 1, consumer)
    if #pending == 1 and #redis.call('XRANGE', input, id, id) == 1 then
        redis.call('XCLAIM', input, group, consumer, 0, id, 'JUSTID')
        renewed = renewed + 1
    end
end
return renewed
