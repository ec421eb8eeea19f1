-- The options of a job, of which the service takes one, and the time by which it is to have ended.
--
-- Loaded by outrider_metadata.lua, under whose rules it stands: texts to values, in time that is in proportion
-- to their length. What the service reads of them is in outrider/metadata/notation/job_options.py.

return function(shown, checks)

local options = {}
local MOST_OPTIONS = 16
local MOST_BYTES = 4096 -- of all of a job's
local MOST_MEMORY_MIB = 2 ^ 24
local KEYS = { "nodes", "time", "cpus", "memory", "image", "digest" }
local IS_KEY = {}
for _, key in ipairs(KEYS) do IS_KEY[key] = true end
local MIB = { M = 1, MiB = 1, MB = 1, G = 1024, GiB = 1024, GB = 1024 }

-- The memory of a node in MiB; nil and what is wrong.
function options.memory_of(text)
  local amount, unit = text:match("^([1-9][0-9]*)([A-Za-z]+)$")
  local factor = MIB[unit or ""]
  if not amount or #amount > 9 or not factor or tonumber(amount) * factor > MOST_MEMORY_MIB then
    return nil, shown(text) .. " is not the memory of a node: write one like 800MiB or 16GiB"
  end
  return tonumber(amount) * factor
end

-- How often each key is said, with the last value of each; nil and what is wrong.
local function parts_of(value)
  local found = {}
  for part in value:gmatch("[^ \t]+") do
    local key, said = part:match("^([a-z]+)=([!-~]+)$")
    if not key then return nil, shown(part) .. " is not of the form key=value, as in nodes=2 time=60" end
    if not IS_KEY[key] then
      return nil, shown(key) .. " is not a key of a job's option: use " .. table.concat(KEYS, ", ")
    end
    if found[key] then return nil, key .. " is given twice: give it once" end
    found[key] = said
  end
  return found
end

-- The size of an option, its minutes and its image; nil and what is wrong.
function options.of(value)
  local found, wrong = parts_of(value)
  if not found then return nil, wrong end
  for _, key in ipairs({ "nodes", "time" }) do
    if not found[key] then return nil, key .. " is missing: write one like nodes=2 time=60" end
  end
  for _, key in ipairs({ "nodes", "cpus" }) do
    local count = found[key]
    if count and (#count > 5 or not count:find("^[1-9][0-9]*$")) then
      return nil, shown(count) .. " is not a number of " .. (key == "cpus" and "processors of a node" or key)
        .. " from 1 to 99999"
    end
  end
  local amount, unit = found.time:match("^([1-9][0-9]*)([a-z]*)$")
  if not amount or #amount > 6 or unit ~= "" and unit ~= "m" and unit ~= "min" and unit ~= "h" then
    return nil, shown(found.time) .. " is not a time: write minutes, or one like 90m or 2h"
  end
  local memory
  if found.memory then memory, wrong = options.memory_of(found.memory) end
  for _, key in ipairs({ "image", "digest" }) do wrong = wrong or found[key] and checks[key](found[key]) end
  if found.digest and not found.image then wrong = wrong or "digest has no effect without image" end
  if wrong then return nil, wrong end
  return { nodes = tonumber(found.nodes), minutes = tonumber(amount) * (unit == "h" and 60 or 1),
    cpus = tonumber(found.cpus), memory = memory, image = found.image }
end

local DAY_S = 86400
local UNITS_S = { m = 60, h = 3600, d = DAY_S }

-- The days from 1970 to a day: a year begins in March, so that its last day is a leap day.
local function days_to(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  local before = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return before + math.floor((153 * (month - 3) + 2) / 5) + day - 719469
end

-- The instant that a text means here and now: now+3h, 18:00, 2026-01-31T14:00, with seconds and Z if need be.
function options.instant_of(text, now_s)
  local count, unit = text:match("^now%+([1-9][0-9]*)([mhd])$")
  if count then return #count <= 5 and now_s + tonumber(count) * UNITS_S[unit] or nil end
  local hour, minute = text:match("^([0-2][0-9]):([0-5][0-9])$")
  if hour then
    if tonumber(hour) > 23 then return nil end
    local parts = os.date("*t", now_s)
    parts.hour, parts.min, parts.sec, parts.isdst = tonumber(hour), tonumber(minute), 0, nil
    local at_s = os.time(parts)
    if at_s > now_s then return at_s end
    parts.day, parts.isdst = parts.day + 1, nil
    return os.time(parts)
  end
  local head, tail = text:sub(1, 16), text:sub(17)
  local year, month, day, h, m =
    head:match("^(2[0-9][0-9][0-9])%-([01][0-9])%-([0-3][0-9])T([0-2][0-9]):([0-5][0-9])$")
  local second, zone = tail:match("^:?([0-5]?[0-9]?)(Z?)$")
  if not year or not second or #second == 1 or (#second == 2) ~= (tail:sub(1, 1) == ":") then return nil end
  local said = { year = tonumber(year), month = tonumber(month), day = tonumber(day), hour = tonumber(h),
    min = tonumber(m), sec = tonumber(second) or 0 }
  local at_s = zone == "Z" and days_to(said.year, said.month, said.day) * DAY_S + said.hour * 3600
    + said.min * 60 + said.sec
    or os.time({ year = said.year, month = said.month, day = said.day, hour = said.hour, min = said.min,
      sec = said.sec })
  -- What no calendar has, os.time takes for a day that follows.
  local again = at_s and os.date(zone == "Z" and "!*t" or "*t", at_s)
  for part, value in pairs(said) do if not again or again[part] ~= value then return nil end end
  return at_s
end

-- The value's one form in the record.
function options.instant(at_s)
  return os.date("!%Y-%m-%dT%H:%M:%SZ", at_s)
end

-- What two options may not have both: the longer one would never be taken.
local function size_of(option)
  return string.format("%d %d %d %s", option.nodes, option.cpus or 0, option.memory or 0, option.image or "")
end

-- What is wrong with a job's options together; nil if nothing is.
local function together(values)
  local by_size, first, bytes = {}, options.of(values.option[1]), 0
  for number, value in ipairs(values.option) do
    local option = options.of(value)
    for _, key in ipairs({ "cpus", "memory" }) do
      if (option[key] == nil) ~= (first[key] == nil) then
        return string.format("option %d: %s is in some options only: give it in each, or in none", number, key)
      end
    end
    bytes = bytes + #value
    local size = size_of(option)
    if by_size[size] then
      return string.format("option %d: it has the size of option %d: keep the shorter one", number, by_size[size])
    end
    by_size[size] = number
  end
  if #values.option > MOST_OPTIONS then
    return string.format("there are %d options: at most %d are read", #values.option, MOST_OPTIONS)
  end
  if bytes > MOST_BYTES then
    return string.format("the options have %d bytes, and at most %d are read: shorten them", bytes, MOST_BYTES)
  end
  if values.run then return "option and run: vm contradict each other, since a machine has one node" end
end

-- What contradicts one another in a job's values; nil if nothing does.
function options.contradiction(values)
  if values.option then return together(values) end
end

-- What is wrong with what a job is said to be worth; nil if nothing is.
function options.wrong_value(value)
  local whole, part = value:match("^([0-9]+)%.?([0-9]*)$")
  if not whole or #whole > 9 or #part > 3 or value:sub(-1) == "." or whole:find("^0[0-9]") then
    return shown(value) .. " is not a value: write a number from 0 to 999999999, like 12.5"
  end
end

return options
end
