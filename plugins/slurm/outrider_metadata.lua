-- What a job says of its workspace: found, read, checked and written in its one canonical form.
--
-- Loaded by outrider_submit.lua inside slurmctld and by outrider_cli.lua inside sbatch, srun
-- and salloc, so that both read the same. Pure functions from texts to values for Lua 5.1 to
-- 5.4: no input, no output, no state. What belongs to Slurm's own tables is not here.
--
-- A statement is { channel = WORDS, entries = { { at = WORDS, key = K, value = V } … },
-- faults = { SENTENCE … } }; checking one gives { key = value … } or more faults.
--
-- slurmctld serves nobody meanwhile. So each text is cut or refused by its length before anything
-- else looks at it, and every pattern takes time in proportion to what is left: it is anchored, or
-- has a fixed length, or nothing that repeats stands where a search can begin again.

local metadata = {}

-- How many bytes are looked at. A site sets others in `outrider_limits` before it loads this file.
metadata.limits = {
  head = 65536,       -- of a script: its first command has come by then
  searched = 1048576, -- of a script without a command in its head: so far for lines in the wrong place
  line = 4096,        -- of a line of it
  text = 4096,        -- of a comment, an option, a field
}
for name in pairs(metadata.limits) do
  local own = type(outrider_limits) == "table" and outrider_limits[name]
  if type(own) == "number" and own >= 1024 and own <= 2 ^ 22 then metadata.limits[name] = math.floor(own) end
end
local limits = metadata.limits

metadata.MOST_ENTRIES = 32
metadata.MOST_FAULTS = 10
metadata.MOST_ADDRESS_BYTES = 2048
metadata.MOST_COMMENT_BYTES = 800 -- so that Slurm's 1024 hold it with the ticket
metadata.TICKET = "outrider-ticket="
metadata.VARIABLE = "OUTRIDER_IMAGE_WANTED" -- of the environment: what counts where a job itself says nothing
metadata.STOP = "outrider-hold=priority" -- in front of a comment: the client asks for such a hold

local KEYS = {
  "image", "digest", "size", "format", "private", "name", "run", "boot", "preemptible", "checkpoint",
  "grace", "option", "finish-by", "value", "scratch", "disk-rate", "network-rate", "lease", "role", "data",
}
local SEVERAL = { option = true, role = true, data = true } -- keys that may stand in more than one line
local SIGNALS = { USR1 = true, USR2 = true, INT = true, HUP = true, TERM = true }
local GRACE_UNITS = { s = true, m = true, min = true, h = true }
local FORMATS = {
  qcow2 = true, raw = true, squashfs = true, sif = true, bundle = true, file = true, layers = true,
}
local UNITS = {
  [""] = 1, B = 1, K = 1e3, M = 1e6, G = 1e9, T = 1e12, KB = 1e3, MB = 1e6, GB = 1e9, TB = 1e12,
  KIB = 2 ^ 10, MIB = 2 ^ 20, GIB = 2 ^ 30, TIB = 2 ^ 40,
}
local MOST_BYTES = 2 ^ 60
local MOST_SIZE_BYTES = 40
local MOST_JSON_BYTES = 65536
local MOST_SHOWN = 60

-- A foreign text for a message: quoted, on one line, printable, not too long.
function metadata.shown(text)
  local cut = text:sub(1, MOST_SHOWN):gsub("[^\32-\126]", function(byte)
    return string.format("\\x%02x", byte:byte())
  end)
  return '"' .. cut .. (#text > MOST_SHOWN and '…"' or '"')
end
local shown = metadata.shown

-- A text without the blanks around it.
local function trimmed(text)
  local first = text:find("%S")
  return first and text:match("^.*%S", first) or ""
end

-- A value without the remark that begins it or follows a blank, and without its quotation marks.
function metadata.value_of(text)
  text = trimmed(text)
  local remark = text:byte() == 35 and 1 or text:find("[ \t]#")
  if remark then text = trimmed(text:sub(1, remark - 1)) end
  local first = text:sub(1, 1)
  local is_quoted = #text > 1 and (first == '"' or first == "'") and text:sub(-1) == first
  return is_quoted and text:sub(2, -2) or text
end

-- The lines of a script that count: like Slurm's own, those before the first command. Gives the
-- statement, or nil if there is none. A script without any costs two searches in its head.
function metadata.of_script(script)
  local head = "\n" .. script:sub(1, limits.head)
  local command = head:find("\n[ \t\r\v\f]*[^# \t\r\v\f\n]")
  local found, number, counted = nil, 0, 0
  local mark = head:find("\n#OUTRIDER", 1, true)
  while mark and (not command or mark < command) do
    local word_end = mark + 9 -- in the script, which begins a byte later than the head
    if not script:find("^[A-Za-z0-9_]", word_end) then -- a longer word is somebody else's
      number, counted = number + #head:sub(counted + 1, mark):gsub("[^\n]+", ""), mark
      found = found or metadata.statement("the script")
      metadata.of_line(found, script:sub(word_end, word_end + limits.line), number)
      if found.is_full then return found end
    end
    mark = head:find("\n#OUTRIDER", mark + 1, true)
  end
  -- Comments and nothing else up to here: nobody looks further, so nothing may hide there.
  if not command and #script > limits.head
    and script:sub(limits.head - 8, limits.searched):find("\n#OUTRIDER", 1, true) then
    found = found or metadata.statement("the script")
    metadata.blame(found, string.format(
      "a #OUTRIDER line stands beyond the first %d KiB of the script: move it to the beginning",
      limits.head / 1024))
  end
  return found
end

-- One #OUTRIDER line, without this word, added to a statement. What follows the line may follow.
function metadata.of_line(found, rest, number)
  local at = "line " .. number
  local line_end = rest:find("\n", 1, true)
  if line_end then
    rest = rest:sub(1, line_end - 1)
  elseif #rest > limits.line then
    metadata.blame(found, string.format("%s: is longer than %d bytes: shorten it, for instance by the image's "
      .. "name in the catalogue", at, limits.line))
    return
  end
  local key, value = rest:match("^[ \t]+([A-Za-z0-9_-]+)[ \t]*:(.*)$")
  if not key then
    metadata.blame(found, at .. ": " .. shown(trimmed("#OUTRIDER" .. rest))
      .. " says nothing: write a line like #OUTRIDER image: https://host/image.qcow2")
    return
  end
  metadata.add(found, at, key, metadata.value_of(value))
end

-- What stands after `outrider:` in a comment, from a word of its own to the end; nil if nothing.
function metadata.of_comment(comment)
  if #comment > limits.text then return metadata.of_text(comment, "the comment") end
  local from = 1
  while true do
    local first, last = comment:find("outrider:", from, true)
    if not first then return nil end
    if first == 1 or comment:find("^[%s,;]", first - 1) then
      return metadata.of_text(comment:sub(last + 1), "the comment")
    end
    from = last + 1
  end
end

-- ADDRESS, or key=value;key=value, with or without the address alone in front.
function metadata.of_text(text, channel)
  local found = metadata.statement(channel)
  if #text > limits.text then
    metadata.blame(found, string.format("%s: has %d bytes, and at most %d are read: shorten it",
      channel, #text, limits.text))
    return found
  end
  local position = 0
  for part in (text .. ";"):gmatch("([^;]*);") do
    position = position + 1
    part = trimmed(part)
    local key, value = part:match("^([A-Za-z_-]+)=(.*)$")
    if key then
      metadata.add(found, channel, key, value)
    elseif position == 1 and part ~= "" then
      metadata.add(found, channel, "image", part)
    elseif part ~= "" then
      metadata.blame(found, channel .. ": " .. shown(part)
        .. " is not of the form key=value: write for instance image=https://host/image.qcow2;size=2GiB")
    end
    if found.is_full then return found end
  end
  return found
end

-- What the variable says, if it says anything: it is there to be emptied, too.
function metadata.of_variable(text)
  if type(text) ~= "string" or not text:sub(1, limits.text):find("%S") and #text <= limits.text then return nil end
  return metadata.of_text(text, metadata.VARIABLE)
end

local STARTERS = { "apptainer", "singularity" }
local VERBS = { exec = true, run = true, shell = true, start = true }

-- An address that stands for itself: of a registry or a server, without what a shell would make of it.
local function plain_address(word)
  local text = word:gsub("^[\"']", "")
  local rest = text:find("[\"';]")
  if rest then text = text:sub(1, rest - 1) end
  return #text <= metadata.MOST_ADDRESS_BYTES and text:find("^[a-z]+://[A-Za-z0-9._~:/@%%+=-]+$") and text or nil
end

-- The image that a script's first lines start something in, by --container-image= or by Apptainer's commands, or
-- nil. It is a guess, which nothing but a transfer may follow from.
function metadata.noticed(script)
  for line in (script:sub(1, limits.head) .. "\n"):gmatch("([^\n]*)\n") do
    local is_short = #line <= limits.line
    local at, past = nil, nil
    if is_short then at, past = line:find("--container-image=", 1, true) end
    if at then
      local address = line:match("^%S+", past + 1)
      if address and address:find("^[A-Za-z0-9]") and not address:find("://", 1, true) then
        address = "docker://" .. address:gsub("#", "/", 1)
      end
      if address and plain_address(address) then return plain_address(address) end
    end
    local is_started, is_verb = false, false
    for word in (is_short and (line:find(STARTERS[1], 1, true) or line:find(STARTERS[2], 1, true))
      and not line:find("^%s*#") and line or ""):gmatch("%S+") do
      local name = word:match("[^/]*$")
      if is_verb and plain_address(word) then return plain_address(word) end
      is_verb = is_verb or is_started and VERBS[word] == true
      is_started = is_started or name == STARTERS[1] or name == STARTERS[2]
    end
  end
end

function metadata.statement(channel)
  return { channel = channel, entries = {}, faults = {}, is_full = false }
end

function metadata.blame(statement, sentence)
  if #statement.faults < metadata.MOST_FAULTS then
    statement.faults[#statement.faults + 1] = sentence
  end
  statement.is_full = statement.is_full or #statement.faults >= metadata.MOST_FAULTS
end

function metadata.add(statement, at, key, value)
  if #statement.entries >= metadata.MOST_ENTRIES then
    metadata.blame(statement, at .. ": more than " .. metadata.MOST_ENTRIES .. " keys: write each once")
    statement.is_full = true
    return
  end
  statement.entries[#statement.entries + 1] = { at = at, key = key, value = value }
end

local checks = {}
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
metadata.options = dofile(folder .. "outrider_options.lua")(shown, checks)
metadata.roles = dofile(folder .. "outrider_roles.lua")(shown, metadata.options.memory_of, checks)
metadata.channels = dofile(folder .. "outrider_channels.lua")(metadata, function(key) return SEVERAL[key] end)
metadata.images = dofile(folder .. "outrider_images.lua")(shown, checks, metadata.roles)

-- The same as the service takes for a URI, in fewer bytes.
function checks.image(value)
  if value == "" then return "is empty: write where the image is, or its name in the catalogue" end
  if #value > metadata.MOST_ADDRESS_BYTES then
    return string.format("is %d characters long, %d are allowed: use the image's name in the catalogue",
      #value, metadata.MOST_ADDRESS_BYTES)
  end
  local bad = value:match("[^A-Za-z0-9._~:/?#@!$&()*+,;=%%%[%]-]")
  if bad then
    return shown(bad) .. string.format(" cannot stand in an address: write it as %%%02X", bad:byte())
  end
  if not value:find("^[A-Za-z0-9]") then
    return shown(value) .. " does not begin with a letter or digit: write one like https://host/image.qcow2"
  end
  local scheme, rest = value:match("^(.-)://(.*)$")
  if scheme and not scheme:find("^[a-z][a-z0-9+.-]*$") then
    return shown(scheme) .. " is not a scheme of an address: write one like https"
  end
  if scheme and rest:match("^[^/]*"):find("@", 1, true) then
    return "has a user or a password in it, which everybody could read: leave it out"
  end
  local plain = value:gsub("%%2[Ee]", "."):gsub("%%2[Ff]", "/"):gsub("[?#]", "/")
  if ("/" .. plain .. "/"):find("/../", 1, true) then
    return shown(value) .. " has .. as a part: write where the image is without it"
  end
end

function checks.digest(value)
  if #value ~= 71 or not value:find("^sha256:[0-9a-f]+$") then
    return shown(value) .. " is not a digest: write sha256: and 64 hexadecimal digits in lower case"
  end
end

-- The bytes of a size; nil and what is wrong.
local function bytes_of(value)
  local amount, unit
  if #value <= MOST_SIZE_BYTES then amount, unit = value:match("^([0-9][0-9.]*) ?([A-Za-z]*)$") end
  local whole, part = (amount or ""):match("^([0-9]+)%.?([0-9]*)$")
  local factor = UNITS[(unit or ""):upper()]
  if not whole or amount:sub(-1) == "." or #whole > 19 or #part > 9 or not factor then
    return nil, shown(value) .. " is not a size: write bytes, or one like 600MB or 2GiB"
  end
  local bytes = tonumber(amount) * factor
  if bytes < 1 or bytes >= MOST_BYTES then return nil, shown(value) .. " is not between 1 byte and 1 EiB" end
  return math.floor(bytes)
end

function checks.size(value)
  return select(2, bytes_of(value))
end

function checks.format(value)
  if not FORMATS[value] then
    return shown(value) .. " is not a format: write qcow2, raw, squashfs, sif, bundle, file or layers"
  end
end

function checks.private(value)
  if value ~= "true" and value ~= "false" then return shown(value) .. " is not true or false" end
end

function checks.name(value)
  if #value > 63 or not value:find("^[A-Za-z0-9][A-Za-z0-9._-]*$") then
    return shown(value) .. " is not a name: use up to 63 letters, digits, dots, hyphens and underscores, "
      .. "a letter or digit first"
  end
end

function checks.preemptible(value)
  if value ~= "requeue" and value ~= "suspend" and value ~= "no" then
    return shown(value) .. " is not requeue, suspend or no"
  end
end

function checks.run(value)
  if value ~= "vm" then return shown(value) .. " is not vm" end
end

function checks.boot(value)
  if #value > 32 or not value:find("^[A-Za-z0-9][A-Za-z0-9._-]*$") then
    return shown(value) .. " is not the name of one of the site's kernels, or disk"
  end
end

-- What a machine has of its own, in bytes or bytes a second: how much at least, and at most.
metadata.AMOUNTS = {
  scratch = { 2 ^ 20, 2 ^ 44 }, ["disk-rate"] = { 2 ^ 16, 2 ^ 40 }, ["network-rate"] = { 2 ^ 16, 2 ^ 40 },
}
for key, bounds in pairs(metadata.AMOUNTS) do
  checks[key] = function(value)
    local bytes, wrong = bytes_of(value)
    if wrong then return wrong end
    if bytes < bounds[1] or bytes > bounds[2] then
      return shown(value) .. string.format(" is not between %.0f and %.0f bytes", bounds[1], bounds[2])
    end
  end
end

function checks.lease(value)
  if value ~= "interactive" then return shown(value) .. " is not interactive" end
end

function checks.checkpoint(value)
  if not SIGNALS[value] then return shown(value) .. " is not one of the signals: write USR1, USR2, INT, HUP or TERM" end
end

function checks.grace(value)
  local amount, unit
  if #value <= MOST_SIZE_BYTES then amount, unit = value:match("^([1-9][0-9]*)([a-z]+)$") end
  if not amount or #amount > 5 or not GRACE_UNITS[unit] then
    return shown(value) .. " is not a time: write one like 90s, 5m or 1h"
  end
end

function checks.option(value)
  local _, wrong = metadata.options.of(value)
  return wrong
end

function checks.role(value)
  return select(2, metadata.roles.of(value))
end

function checks.data(value)
  return select(2, metadata.images.of(value))
end

checks["finish-by"] = function(value)
  if not metadata.options.instant_of(value, 0) then
    return shown(value) .. " is not a time: write now+3h, 18:00, 2026-01-31T14:00 or 2026-01-31T14:00:00Z"
  end
end

function checks.value(value)
  return metadata.options.wrong_value(value)
end

-- What is wrong with values that are right each by itself; nil if nothing is.
local function contradiction(values)
  local why = metadata.options.contradiction(values)
  if why then return why end
  if values.preemptible == "suspend" and not values.run then
    return "preemptible is suspend, and only a job in a virtual machine can be suspended: write run: vm, too, "
      .. "or preemptible: requeue"
  end
  for _, key in ipairs({ "boot", "scratch", "disk-rate", "network-rate", "lease", "role", "data" }) do
    if values[key] and not values.run then
      return key .. " has no effect without run: vm: write that in a line of the script, or leave " .. key .. " out"
    end
  end
  why = values.role and metadata.roles.contradiction(values.role) or metadata.images.contradiction(values)
  if why then return why end
  if values.run and values.format and values.format ~= "qcow2" and values.format ~= "raw" then
    return "format is " .. values.format .. ", and a machine has disks: write qcow2 or raw"
  end
  if values.run and values.checkpoint == "USR1" then
    return "checkpoint is USR1, which suspends a machine: write USR2, INT, HUP or TERM"
  end
  if values.preemptible ~= "requeue" and (values.checkpoint or values.grace) then
    return (values.checkpoint and "checkpoint" or "grace") .. " has no effect without preemptible: requeue"
  end
  if values.grace and not values.checkpoint then
    return "grace has no effect without checkpoint, the signal that it begins with"
  end
end

-- A size that was checked, in bytes.
function metadata.bytes(value)
  return bytes_of(value) or 0
end

-- The values of a statement by key, and its faults; it is right if there are none.
function metadata.checked(statement)
  local values, faults = {}, statement.faults
  for _, entry in ipairs(statement.entries) do
    local check = checks[entry.key]
    local wrong
    if not check then
      wrong = "there is no such key; known are " .. table.concat(KEYS, ", ")
    elseif values[entry.key] and not SEVERAL[entry.key] then
      wrong = "is given twice: keep one"
    else
      wrong = check(entry.value)
    end
    if wrong then
      local key = check and entry.key or shown(entry.key)
      metadata.blame(statement, entry.at .. ": " .. key .. ": " .. wrong)
    end
    if SEVERAL[entry.key] then
      values[entry.key] = values[entry.key] or {}
      table.insert(values[entry.key], entry.value)
    elseif entry.key == "finish-by" and not wrong then
      values[entry.key] = metadata.options.instant(metadata.options.instant_of(entry.value, os.time()))
    else
      values[entry.key] = entry.value
    end
  end
  if not values.image and #faults == 0 then
    metadata.blame(statement, statement.channel .. ": image is missing: say where the image is")
  end
  local why = #faults == 0 and contradiction(values)
  if why then metadata.blame(statement, statement.channel .. ": " .. why) end
  return values, faults
end

-- Lines `key: value`, always in the same order.
function metadata.canonical(values)
  local lines = {}
  for _, key in ipairs(KEYS) do
    for _, value in ipairs(type(values[key]) == "table" and values[key] or { values[key] }) do
      lines[#lines + 1] = key .. ": " .. value
    end
  end
  return table.concat(lines, "\n")
end

-- A JSON string of any bytes that are UTF-8, in printable ASCII or UTF-8; nil if they are not, or too many.
function metadata.json(text)
  if #text > MOST_JSON_BYTES or not metadata.is_utf8(text) then return nil end
  local escaped = text:gsub('[%c"\\\127]', function(character)
    local byte = character:byte()
    if byte == 34 or byte == 92 then return "\\" .. character end
    if byte == 10 then return "\\n" end
    return string.format("\\u%04x", byte)
  end)
  return '"' .. escaped .. '"'
end

-- Whether these bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
function metadata.is_utf8(text)
  local position = 1
  while true do
    position = text:find("[\128-\255]", position)
    if not position then return true end
    local lead, second = text:byte(position, position + 1)
    local more, low, high = 0, 0x80, 0xBF
    if lead >= 0xC2 and lead <= 0xDF then more = 1
    elseif lead >= 0xE0 and lead <= 0xEF then
      more = 2
      if lead == 0xE0 then low = 0xA0 elseif lead == 0xED then high = 0x9F end
    elseif lead >= 0xF0 and lead <= 0xF4 then
      more = 3
      if lead == 0xF0 then low = 0x90 elseif lead == 0xF4 then high = 0x8F end
    end
    if more == 0 or not second or second < low or second > high then return false end
    for offset = 2, more do
      local byte = text:byte(position + offset)
      if not byte or byte < 0x80 or byte > 0xBF then return false end
    end
    position = position + more + 1
  end
end

return metadata
