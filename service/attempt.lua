#!lua flags=allow-oom
-- Count an isolated attempt at a suspect before it is made, or take one back that was not the suspect's to answer for;
-- only while the entry is this consumer's.
-- KEYS 1 input, 2 attempts   ARGV 1 group, 2 entry id, 3 consumer, 4 '1' or '-1'
-- Returns the number of attempts begun and the entry's fields; nothing when the entry is somebody else's, settled or gone.
local input, attempts = KEYS[1], KEYS[2]
local group, id, consumer, change = unpack(ARGV)
local pending = redis.call('XPENDING', input, group, id, id, 1, consumer)
local found = #pending == 1 and redis.call('XRANGE', input, id, id) or {}
if #found == 0 then
    return nil
end
return {redis.call('HINCRBY', attempts, input .. ' ' .. id, change), found[1][2]}
