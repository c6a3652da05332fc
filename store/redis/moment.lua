local keys, values, recent, state = unpack(KEYS)
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
local born, version = unpack(redis.call('HMGET', state, 'born', 'version'))
local run, now = tostring(id) .. ':' .. (born or ''), tonumber(version or 0)
local at, horizon, page, place = tonumber(ARGV[2]), 1e7, 4000, 2

local function arg()
	place = place + 1
	return ARGV[place]
end

local function list()
	local first = place + 2
	place = first + tonumber(arg()) - 1
	return first, place
end

local function forgotten()
	return ARGV[1] ~= run or at > now or at < now - horizon
end

local since
local function written()
	if not since then
		since = {}
		if at < now then
			for _, blob in ipairs(redis.call('ZRANGEBYSCORE', recent, '(' .. ARGV[2], '+inf')) do
				for _, key in ipairs(cmsgpack.unpack(blob)) do since[key] = true end
			end
		end
	end
	return since
end

local function less(a, b)
	for i = 1, math.min(#a, #b) do
		local x, y = string.byte(a, i), string.byte(b, i)
		if x ~= y then return x < y end
	end
	return #a < #b
end

local function writtenIn(from, to)
	for key in pairs(written()) do
		if not less(key, from) and less(key, to) then return true end
	end
	return false
end
