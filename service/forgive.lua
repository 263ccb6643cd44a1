#!lua flags=allow-oom
-- Take back an attempt that was not the suspect's to answer for, if the entry is still this consumer's.
-- KEYS 1 input, 2 attempts   ARGV 1 group, 2 entry id, 3 consumer
-- Returns the number of attempts that still count, or nothing when the entry is somebody else's or settled.
local name = KEYS[1] .. ' ' .. ARGV[2]
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1, ARGV[3]) == 0 then
    return nil
end
if redis.call('HINCRBY', KEYS[2], name, -1) > 0 then
    return redis.call('HGET', KEYS[2], name)
end
redis.call('HDEL', KEYS[2], name)
return 0
