local later = at ~= nil
local reply, names, found = {run, version or '0', {}}, {}, {}
local first, last = list()
for i = first, last do
	if later and (forgotten() or written()[ARGV[i]]) then return false end
	names[#names + 1] = ARGV[i]
end
local count = #names
while place < #ARGV do
	local from, to, last, limit, loose = arg(), arg(), arg() == '1', tonumber(arg()), arg() == '1'
	local some
	if last then
		some = redis.call('ZREVRANGEBYLEX', keys, '(' .. to, '[' .. from, 'LIMIT', 0, limit)
	else
		some = redis.call('ZRANGEBYLEX', keys, '[' .. from, '(' .. to, 'LIMIT', 0, limit)
	end
	if #some == limit then
		if last then from = some[limit] else to = some[limit] .. '\0' end
	end
	if later and not loose and (forgotten() or writtenIn(from, to)) then return false end
	for _, key in ipairs(some) do names[#names + 1] = key end
	reply[#reply + 1] = some
end
for i = 1, #names, page do
	local some = redis.call('HMGET', values, unpack(names, i, math.min(i + page - 1, #names)))
	for _, value in ipairs(some) do found[#found + 1] = value end
end
for i = 1, count do
	if not found[i] and redis.call('ZSCORE', keys, names[i]) then found[i] = '' end
end
reply[3] = found
return reply
