#!lua flags=allow-oom
-- Forget consumers that are gone. XGROUP DELCONSUMER drops what a consumer still has pending, so only the empty ones go,
-- and in one step with the look at them.
-- KEYS 1 input   ARGV 1 group, 2 a consumer that stops now or empty, 3 idle ms after which any other counts as gone
local retired = 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local facts = {}
    for i = 1, #consumer, 2 do
        facts[consumer[i]] = consumer[i + 1]
    end
    if facts.pending == 0 and (facts.name == ARGV[2] or facts.idle > tonumber(ARGV[3])) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], facts.name)
        retired = retired + 1
    end
end
return retired
