local frees, wrote = arg() == '1', arg()
if forgotten() then return 0 end
local first, last = list()
for i = first, last do
	if written()[ARGV[i]] then return 0 end
end
first, last = list()
for i = first, last, 2 do
	if writtenIn(ARGV[i], ARGV[i + 1]) then return 0 end
end
first, last = list()
for i = first, last, 2 do redis.call('PUBLISH', ARGV[i], ARGV[i + 1]) end
local time = redis.call('TIME')
local clock = time[1] * 1e6 + time[2]
if not born or clock < now - horizon then
	born, now = string.format('%.0f', clock), 0
	redis.call('DEL', recent)
end
now = math.max(clock, now + 1)
version = string.format('%.0f', now)
local function forget()
	redis.call('ZREMRANGEBYSCORE', recent, '-inf', '(' .. string.format('%.0f', now - horizon))
end
if frees then forget() end
redis.call('HSET', state, 'born', born, 'version', version)
if not frees then forget() end
local function each(command, key, all, first, last)
	local sum = 0
	for i = first, last, page do
		sum = sum + redis.call(command, key, unpack(all, i, math.min(i + page - 1, last)))
	end
	return sum
end
local function remove(...)
	each('ZREM', keys, ...)
	each('HDEL', values, ...)
end
first, last = list()
for i = first, last, 2 do
	repeat
		local some = redis.call('ZRANGEBYLEX', keys, '[' .. ARGV[i], '(' .. ARGV[i + 1],
			'LIMIT', 0, page)
		redis.call('ZADD', recent, version, cmsgpack.pack(some))
		remove(some, 1, #some)
	until #some == 0
end
remove(ARGV, list())
local function add(first, last, step)
	local scored = {}
	for i = first, last, step do
		scored[#scored + 1], scored[#scored + 2] = '0', ARGV[i]
	end
	return each('ZADD', keys, scored, 1, #scored)
end
first, last = list()
if add(first, last, 1) <= last - first then each('HDEL', values, ARGV, first, last) end
first, last = list()
if each('HSET', values, ARGV, first, last) > 0 then add(first, last, 2) end
redis.call('ZADD', recent, version, wrote)
return 1
