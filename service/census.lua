#!lua flags=no-writes,allow-oom
-- Length, entries ever added and entries pending of each stream; a stream that does not exist counts as empty.
-- Here and not in the client, since XINFO STREAM would send the first and the last entry along.
-- KEYS streams   ARGV 1 group
local counts = {}
for i, key in ipairs(KEYS) do
    local length, added, pending = 0, 0, 0
    local info = redis.pcall('XINFO', 'STREAM', key)
    if not info.err then
        for j = 1, #info, 2 do
            if info[j] == 'length' then
                length = info[j + 1]
            elseif info[j] == 'entries-added' then
                added = info[j + 1]
            end
        end
        local summary = redis.pcall('XPENDING', key, ARGV[1])
        pending = summary.err and 0 or summary[1]
    end
    counts[i] = {length, added, pending}
end
return counts
