#!lua flags=allow-oom
-- Count an isolated attempt at a suspect before it is made, if the entry is still this consumer's to run.
-- KEYS 1 input, 2 attempts   ARGV 1 group, 2 entry id, 3 consumer
-- Returns the number of attempts begun, this one included, or 0 when the entry is somebody else's or settled.
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
if #pending == 0 or pending[1][2] ~= ARGV[3] then
    return 0
end
return redis.call('HINCRBY', KEYS[2], KEYS[1] .. ' ' .. ARGV[2], 1)
