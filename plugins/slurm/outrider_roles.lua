-- The roles of a job's virtual machines: how many of each, what they are called, how large they are.
--
--     role: head cpus=4 memory=8GiB
--     role: worker count=3 memory=2GiB user-data=worker.yaml
--
-- Loaded by outrider_metadata.lua, under whose rules it stands: texts to values, in time that is in proportion
-- to their length. outrider/metadata/notation/role_lines.py reads the same.

return function(shown, memory_of, of_image)

local roles = {}
local MOST_ROLES, MOST_HOSTS = 16, 1024
local MOST_CPUS, LEAST_MEMORY_MIB = 255, 32
local MOST_LABEL, MOST_PATH, MOST_DIGITS = 63, 255, 6
local KEYS = { "count", "hosts", "cpus", "memory", "user-data", "image", "digest" }
local IS_KEY = {}
for _, key in ipairs(KEYS) do IS_KEY[key] = true end

local function is_label(text)
  return #text <= MOST_LABEL and text:find("^[A-Za-z0-9][A-Za-z0-9-]*$") ~= nil and text:sub(-1) ~= "-"
end

-- A number that is written as it is counted; nil if it is none, or too large.
local function number_of(text, most)
  if #text > MOST_DIGITS or not text:find("^[1-9][0-9]*$") or tonumber(text) > most then return nil end
  return tonumber(text)
end

-- Adds the names of one item of a set, n7 or n[1-3,07]; nil and what is wrong.
local function add_names(names, item)
  local before, ranges, after = item:match("^([A-Za-z0-9-]*)%[([0-9,-]+)%]([A-Za-z0-9-]*)$")
  local texts = before and {} or { item }
  for range in (before and ranges .. "," or ""):gmatch("([^,]*),") do
    local first, last = range:match("^([0-9]+)%-([0-9]+)$")
    if not first then first, last = range:match("^[0-9]+$"), range:match("^[0-9]+$") end
    if not first or #first > MOST_DIGITS or #last > MOST_DIGITS or tonumber(first) > tonumber(last) then
      return nil, shown(range) .. " is not a range of numbers: write one like 1-3"
    end
    if tonumber(last) - tonumber(first) >= MOST_HOSTS then return nil, "it stands for too many hosts" end
    for number = tonumber(first), tonumber(last) do
      texts[#texts + 1] = before .. string.format("%0" .. #first .. "d", number) .. after
    end
    if #names + #texts > MOST_HOSTS then return nil, "it stands for too many hosts" end
  end
  for _, text in ipairs(texts) do
    if not is_label(text) then
      return nil, shown(text) .. " is not a host name: write letters, digits and hyphens, as in w[1-3]"
    end
    names[#names + 1] = text
  end
  if #names > MOST_HOSTS then return nil, "it stands for too many hosts" end
  return names
end

-- The host names of a set; nil and what is wrong.
local function names_of(set)
  local names, pieces, depth = {}, {}, 0
  for piece in (set .. ","):gmatch("[^,]*,") do
    pieces[#pieces + 1] = piece
    local _, opened = piece:gsub("%[", "")
    local _, closed = piece:gsub("%]", "")
    depth = depth + opened - closed
    if depth <= 0 then
      local _, wrong = add_names(names, table.concat(pieces):sub(1, -2))
      if wrong then return nil, wrong end
      pieces, depth = {}, 0
    end
  end
  if #pieces > 0 then return nil, shown(table.concat(pieces)) .. " has no end: write one like w[1-3]" end
  return names
end

local checks = {}

function checks.count(text)
  if not number_of(text, MOST_HOSTS) then
    return shown(text) .. " is not a number of machines from 1 to " .. MOST_HOSTS
  end
end

function checks.hosts(text)
  return select(2, names_of(text))
end

function checks.cpus(text)
  if not number_of(text, MOST_CPUS) then
    return shown(text) .. " is not a number of processors from 1 to " .. MOST_CPUS
  end
end

function checks.memory(text)
  local memory, wrong = memory_of(text)
  if wrong then return wrong end
  if memory < LEAST_MEMORY_MIB then return shown(text) .. " is too little: a machine has 32 MiB or more" end
end

checks["user-data"] = function(text)
  if #text > MOST_PATH or not text:find("^[A-Za-z0-9._/-]+$") or text:sub(1, 1) == "/"
    or ("/" .. text .. "/"):find("/../", 1, true) then
    return shown(text) .. " is not a file in the working folder: write its path from there"
  end
end

-- Those of a job's own image are known when a role is read.
function checks.image(text)
  return of_image.image(text)
end

function checks.digest(text)
  return of_image.digest(text)
end

-- A role: its name, its hosts, and what is said of each; nil and what is wrong.
function roles.of(value)
  local found, name = {}, nil
  for part in value:gmatch("[^ \t]+") do
    if not name then
      name = part
    else
      local key, said = part:match("^([a-z-]+)=([!-~]+)$")
      if not key then return nil, shown(part) .. " is not of the form key=value, as in count=3 memory=2GiB" end
      if not IS_KEY[key] then
        return nil, shown(key) .. " is not a key of a role: use " .. table.concat(KEYS, ", ")
      end
      if found[key] then return nil, key .. " is given twice: give it once" end
      local wrong = checks[key](said)
      if wrong then return nil, key .. ": " .. wrong end
      found[key] = said
    end
  end
  if not name or not is_label(name) then
    return nil, shown(name or "") .. " is not the name of a role: begin with one, as in worker count=3"
  end
  if found.count and found.hosts then return nil, "count and hosts say the same: leave one out" end
  if found.digest and not found.image then return nil, "digest has no effect without image" end
  local hosts = found.hosts and names_of(found.hosts) or {}
  local count = tonumber(found.count or 1)
  for number = 1, found.hosts and 0 or count do
    local host = count == 1 and name or name .. number
    if not is_label(host) then return nil, shown(name) .. " is too long for the name of " .. count .. " hosts" end
    hosts[number] = host
  end
  return { name = name, hosts = hosts, cpus = tonumber(found.cpus),
    memory = found.memory and memory_of(found.memory), ["user-data"] = found["user-data"], image = found.image,
    digest = found.digest }
end

-- What is wrong with a job's roles together; nil if nothing is.
function roles.contradiction(values)
  local named, taken, count = {}, {}, 0
  if #values > MOST_ROLES then return string.format("there are %d roles: at most %d are read", #values, MOST_ROLES) end
  for _, value in ipairs(values) do
    local role = roles.of(value)
    if named[role.name] then return "role " .. role.name .. " is given twice: give it once, with a count" end
    named[role.name] = true
    count = count + #role.hosts
    if count > MOST_HOSTS then return "the roles have too many hosts: at most " .. MOST_HOSTS end
    for _, host in ipairs(role.hosts) do
      if taken[host] then return "host " .. host .. " is in two roles: name each once" end
      taken[host] = true
    end
  end
end

return roles
end
