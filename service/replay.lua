#!lua
-- Send one dead letter back to the input it came from: once, since the letter goes in the same step.
-- The record stands in a stream of its own: a row among the metrics would unsettle the loss balance.
--
-- KEYS 1 dead letters, 2 ops, 3 live input, 4 batch input
-- ARGV 1 letter id, 2 operator, 3 most replays of one snapshot, 4 entries allowed in the input (0: any number)
-- Returns {'REPLAYED', entry id}, {'GONE', ''}, {'KEPT', why} or {'FULL', entries}
local dead, ops, live, batch = unpack(KEYS)
local id, operator, most_replays, most_entries = unpack(ARGV)

for _, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= 'stream' then
        return redis.error_reply('BADTYPE ' .. key .. ' is a ' .. found)
    end
end

local found = redis.call('XRANGE', dead, id, id)
if #found == 0 then
    return {'GONE', ''}
end

local OURS = {
    _code = true, _detail = true, _attempts = true, _source = true, _snapshot_id = true, _sha256 = true, _size = true,
    _replayable = true, _replays = true,
}
local entry, about = {}, {}
local fields = found[1][2]
for i = 1, #fields, 2 do
    if OURS[fields[i]] then
        about[fields[i]] = fields[i + 1]
    else
        entry[#entry + 1], entry[#entry + 2] = fields[i], fields[i + 1]
    end
end
if about._replayable == 'no' or #entry == 0 then
    return {'KEPT', 'it is not whole'}
end
local replays = (tonumber(about._replays) or 0) + 1
if replays > tonumber(most_replays) then
    return {'KEPT', 'it was replayed ' .. replays - 1 .. ' times'}
end

local input = live
if string.sub(about._source or '', 1, #batch + 1) == batch .. ' ' then
    input = batch
end
local entries = redis.call('XLEN', input)
if most_entries ~= '0' and entries >= tonumber(most_entries) then
    return {'FULL', tostring(entries)}
end

entry[#entry + 1], entry[#entry + 2] = '_replays', replays
local reference = redis.call('XADD', input, '*', unpack(entry))
redis.call(
    'XADD', ops, '*', 'act', 'replay', 'letter', id, 'entry', input .. ' ' .. reference, 'code', about._code or '',
    'snapshot_id', about._snapshot_id or '', 'source', about._source or '', 'replays', replays, 'by', operator
)
redis.call('XDEL', dead, id)
return {'REPLAYED', reference}
