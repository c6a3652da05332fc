local frees = arg() == '1'
if forgotten() then return 0 end
for _, key in ipairs(list()) do
	if written()[key] then return 0 end
end
local spans = list()
for i = 1, #spans, 2 do
	if writtenIn(spans[i], spans[i + 1]) then return 0 end
end
local notices = list()
for i = 1, #notices, 2 do redis.call('PUBLISH', notices[i], notices[i + 1]) end
local time = redis.call('TIME')
local clock = time[1] * 1e6 + time[2]
if not born or clock < now - horizon then
	born, now = string.format('%.0f', clock), 0
	redis.call('DEL', recent)
end
now = math.max(clock, now + 1)
local function forget()
	redis.call('ZREMRANGEBYSCORE', recent, '-inf', '(' .. string.format('%.0f', now - horizon))
end
if frees then forget() end
redis.call('HSET', state, 'born', born, 'version', string.format('%.0f', now))
forget()
local wrote = {}
local function each(command, key, all)
	local sum = 0
	for i = 1, #all, 4000 do
		sum = sum + redis.call(command, key, unpack(all, i, math.min(i + 3999, #all)))
	end
	return sum
end
local function note(all, step)
	for i = 1, #all, step do wrote[#wrote + 1] = all[i] end
end
local function remove(all)
	note(all, 1)
	each('ZREM', keys, all)
	each('HDEL', values, all)
end
local function add(all, step)
	local scored = {}
	for i = 1, #all, step do
		scored[#scored + 1], scored[#scored + 2] = 0, all[i]
	end
	return each('ZADD', keys, scored)
end
local clears = list()
for i = 1, #clears, 2 do
	repeat
		local some = redis.call('ZRANGEBYLEX', keys, '[' .. clears[i], '(' .. clears[i + 1],
			'LIMIT', 0, 4000)
		remove(some)
	until #some == 0
end
remove(list())
local void, set = list(), list()
note(void, 1)
note(set, 2)
if add(void, 1) < #void then each('HDEL', values, void) end
if each('HSET', values, set) > 0 then add(set, 2) end
redis.call('ZADD', recent, now, cmsgpack.pack(wrote))
return 1
