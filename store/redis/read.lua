local later = at ~= nil
local reply, found = {run, version or '0'}, {}
for i, key in ipairs(list()) do
	if later and (forgotten() or written()[key]) then return false end
	found[i] = redis.call('HGET', values, key)
	if not found[i] and redis.call('ZSCORE', keys, key) then found[i] = '' end
end
reply[3] = found
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
	local page = {}
	for first = 1, #some, 4000 do
		local last = math.min(first + 3999, #some)
		for i, value in ipairs(redis.call('HMGET', values, unpack(some, first, last))) do
			page[#page + 1], page[#page + 2] = some[first + i - 1], value or ''
		end
	end
	reply[#reply + 1] = page
end
return reply
