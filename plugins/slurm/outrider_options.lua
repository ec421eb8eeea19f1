-- The options of a job, of which the service takes one, and the time by which it is to have ended.
--
-- Loaded by outrider_metadata.lua, under whose rules it stands: texts to values, in time that is in proportion
-- to their length. What the service reads of them is in outrider/metadata/notation/job_options.py.

return function(shown)

local options = {}
local MOST_OPTIONS = 16
local FIXED = { image = true, cpus = true, memory = true }

-- The nodes and minutes of an option; nil and what is wrong.
function options.of(value)
  local found = {}
  for part in value:gmatch("[^ \t]+") do
    local key, said = part:match("^([a-z]+)=(.+)$")
    if not key then return nil, shown(part) .. " is not of the form key=value, as in nodes=2 time=60" end
    if FIXED[key] then
      return nil, key .. " is the same for all options of a job: say it once, outside of them"
    end
    if key ~= "nodes" and key ~= "time" then
      return nil, shown(key) .. " is not known in an option of a job: there are nodes and time"
    end
    if found[key] then return nil, key .. " stands twice in it: say it once" end
    found[key] = said
  end
  for _, key in ipairs({ "nodes", "time" }) do
    if not found[key] then return nil, key .. " is missing: write one like nodes=2 time=60" end
  end
  if #found.nodes > 5 or not found.nodes:find("^[1-9][0-9]*$") then
    return nil, shown(found.nodes) .. " is not a number of nodes from 1 to 99999"
  end
  local amount, unit = found.time:match("^([1-9][0-9]*)([a-z]*)$")
  if not amount or #amount > 6 or unit ~= "" and unit ~= "m" and unit ~= "min" and unit ~= "h" then
    return nil, shown(found.time) .. " is not a time: write minutes, or one like 90m or 2h"
  end
  return { nodes = tonumber(found.nodes), minutes = tonumber(amount) * (unit == "h" and 60 or 1) }
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

-- What is wrong with a job's options together; nil if nothing is.
local function together(values)
  local by_nodes = {}
  for number, value in ipairs(values.option) do
    local nodes = options.of(value).nodes
    if by_nodes[nodes] then
      return string.format("option %d: another one has %d nodes, too: keep the shorter one", number, nodes)
    end
    by_nodes[nodes] = true
  end
  if #values.option > MOST_OPTIONS then
    return string.format("there are %d options: at most %d are read", #values.option, MOST_OPTIONS)
  end
  if values.run then return "option and run: vm contradict each other, since a machine has one node" end
end

-- What contradicts one another in a job's values; nil if nothing does.
function options.contradiction(values)
  if values.option then return together(values) end
  if values["finish-by"] then
    return "finish-by says nothing without options: write option: nodes=2 time=60, or leave it out"
  end
end

return options
end
