#!lua flags=no-writes,allow-oom
-- One page of a stream with long values cut short here: a listing needs no bodies, and must not carry them around.
-- KEYS 1 stream   ARGV 1 first id, 2 last id, 3 most entries, 4 bytes kept of the body, 5 bytes kept of any other value
-- Returns for each entry its id, the size of its body, and its fields and values.
local MOST_VALUES = 256
local page = {}
for i, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
    local fields, size = {}, 0
    for j = 1, math.min(#entry[2], MOST_VALUES), 2 do
        local name, value = entry[2][j], entry[2][j + 1]
        local kept = ARGV[5]
        if name == '__data__' then
            size, kept = #value, ARGV[4]
        end
        fields[j], fields[j + 1] = string.sub(name, 1, ARGV[5]), string.sub(value, 1, kept)
    end
    page[i] = {entry[1], size, fields}
end
return page
