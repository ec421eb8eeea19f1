-- The client's filter: says early what is wrong with a workspace, reads its file, and tells when
-- the image can be there.
--
-- Runs in sbatch, srun and salloc as their user, who can go round it: what must hold is
-- outrider_submit.lua's. Offers outrider_cli_pre_submit(options, offset) to a site's
-- cli_filter.lua; it gives slurm.SUCCESS, or slurm.ERROR for a workspace with faults. Its own
-- trouble never stops a submission, and a job without metadata is not even looked at twice.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local metadata = dofile(folder .. "outrider_metadata.lua")
local of_file = dofile(folder .. "outrider_file.lua")(metadata)

local MOST_FILE_BYTES = 65536
local MOST_OPTION_BYTES = 64
local MOST_WAIT_S = 2
local SOON_S = 90
local NOW_S = 5 -- the service and this command read their clocks one after the other

local function field(record, name)
  return record[name]
end

-- An option, or nil where it is not set, not known to this version, or not a text.
local function read(options, name)
  local is_read, value = pcall(field, options, name)
  return is_read and type(value) == "string" and value ~= "" and value or nil
end

local function tell(sentence)
  slurm.log_info("%s", "outrider: " .. sentence)
end

-- The beginning of a regular file; nil if it cannot be read. A pipe, which has been read by now, would
-- have to be waited for: opened for both directions it is not, and then it cannot be sought in.
local function beginning(path)
  local file = io.open(path, "r+b") or io.open(path, "rb")
  if not file then return nil end
  local is_regular, size = pcall(file.seek, file, "end")
  local text
  if is_regular and size then
    file:seek("set", 0)
    text = file:read(MOST_FILE_BYTES)
  end
  file:close()
  return text
end

local function is_file(text)
  return text:sub(-5):find("%.ya?ml$") ~= nil
end

-- The statement of a workspace file, to be handed on in the comment, which slurmctld sees.
local function of_workspace(path, is_reserved)
  local text = beginning(path)
  if text then return of_file(path, text, is_reserved) end
  local found = metadata.statement(path)
  metadata.blame(found, path .. ": cannot be read: name a workspace file that you can read, or an image")
  return found
end

-- Whether this is a step of a job that there is already: its image has been taken care of. What nobody set
-- has a word for that, and no number.
local function is_step(options)
  if read(options, "type") ~= "srun" then return false end
  return os.getenv("SLURM_JOB_ID") ~= nil or (read(options, "jobid") or ""):find("^%d") ~= nil
end

-- Whether slurmctld is not shown the environment: only of batch jobs, and of those what --export leaves.
local function hides_environment(options)
  local export = read(options, "export")
  return read(options, "type") ~= "sbatch" or export ~= nil and export ~= "ALL" or os.getenv("SBATCH_EXPORT") ~= nil
end

-- What sbatch is given to run, or nil.
local function script_of(options)
  local is_listed, path = pcall(function() return options.argv[1] end)
  return read(options, "wrap") or is_listed and type(path) == "string" and beginning(path) or nil
end

-- The keys of a statement.
local function keys_of(statement)
  local keys = {}
  for _, entry in ipairs(statement.entries) do keys[entry.key] = true end
  return keys
end

-- What the job says, as slurmctld reads it; and which keys have to be handed on, if any have to.
local function statement_of(options)
  local known, of_plugin = pcall(field, options, "spank")
  known, of_plugin = pcall(field, known and of_plugin or {}, "outrider")
  local option = known and of_plugin and read(of_plugin, "workspace")
  local comment = read(options, "comment")
  local by_comment = comment and metadata.of_comment(comment)
  local script = read(options, "type") == "sbatch" and script_of(options)
  local by_option, keys
  if option and is_file(option) then
    by_option = of_workspace(option, read(options, "reservation") ~= nil)
    keys = keys_of(by_option)
    if by_comment then
      metadata.blame(by_option, option .. ": the comment names an image, too: keep one of them")
    end
  elseif option then
    by_option = metadata.of_text(option, "--workspace")
  end
  local found = metadata.channels.merged({
    [1] = by_option, [2] = by_comment or nil, [3] = script and metadata.of_script(script) or nil,
  })
  if found then return found, keys end
  found = metadata.of_variable(os.getenv(metadata.VARIABLE))
  return found, found and hides_environment(options) and keys_of(found) or nil
end

-- The values of some keys in the comment's form: image=…;digest=…. Nil if one has a semicolon, which divides there.
local function in_a_comment(values, keys)
  local parts, handed = {}, {}
  for key in pairs(keys) do handed[key] = values[key] end
  for line in (metadata.canonical(handed) .. "\n"):gmatch("([^\n]*)\n") do
    if line:find(";", 1, true) then return nil end
    parts[#parts + 1] = line:gsub(": ", "=", 1)
  end
  return "outrider:" .. table.concat(parts, ";")
end

-- What of a decision in JSON is a whole number.
local function number_of(answer, key)
  return tonumber(answer:match('"' .. key .. '"%s*:%s*(%d+)'))
end

-- Whether there is a service to be asked. A socket is known by how it cannot be opened: ENXIO.
local function is_served()
  if os.getenv("OUTRIDER_SERVER") then return true end
  local file, _, code = io.open(os.getenv("OUTRIDER_SOCKET") or "/run/outrider/outriderd.sock", "rb")
  if file then file:close() end
  return code == 6
end

-- Asks the service when nodes with this image could start; nil without an answer.
-- Every word was checked to have no quotation mark in it.
local function asked(values, options)
  local nodes = (read(options, "nodes") or "1"):sub(1, MOST_OPTION_BYTES):match("^(%d+)") or "1"
  local limit = (read(options, "time") or ""):sub(1, MOST_OPTION_BYTES):match("^[0-9:-]+$")
  if not limit or (tonumber(limit:match("^(%d+)-")) or 0) > 365 then limit = "60" end
  local words = { "timeout", MOST_WAIT_S, "outrider", "plan", "--json", "--timeout", MOST_WAIT_S,
    "--image", values.image, "--nodes", nodes, "--duration", limit, "--start", "now+1minute" }
  for _, key in ipairs({ "digest", "size" }) do
    if values[key] then words[#words + 1] = "--" .. key; words[#words + 1] = values[key] end
  end
  if values.private == "true" then words[#words + 1] = "--private" end
  for position, word in ipairs(words) do words[position] = "'" .. word .. "'" end
  local pipe = io.popen("command -v outrider >/dev/null && exec " .. table.concat(words, " ") .. " 2>/dev/null </dev/null")
  local answer = pipe and pipe:read(MOST_FILE_BYTES)
  if pipe then pipe:close() end
  return answer
end

-- When the image can be there, in words; nil if nobody knows.
local function forecast(values, options)
  -- Of a job with options nobody knows yet which size it gets.
  if values.option or values.image:find("'", 1, true) or not is_served() then return nil end
  local answer = asked(values, options) or ""
  local fault = answer:match("^%-%-image: ([^\n]+)")
  if fault then return "its image cannot be fetched as it is named, so the job stays held: " .. fault end
  local result = answer:match('"result"%s*:%s*"(%a+)"')
  local at_s = number_of(answer, result == "accepted" and "ready_s" or "earliest_start_s")
  if result == "refused" and not at_s then
    local reason = answer:match('"reason"%s*:%s*"([^"]+)"')
    return reason and answer:find('"cause"%s*:%s*"pool"') and "its image cannot come to any nodes: " .. reason
  end
  if not result or not at_s then return nil end
  local ahead_s = at_s - os.time()
  if result == "accepted" and answer:find('"transfers"%s*:%s*%[%s*%]') and ahead_s < NOW_S then
    return "its image is on nodes already"
  end
  if ahead_s < SOON_S then return string.format("its image can be there in about %d s", math.max(1, ahead_s)) end
  return string.format("its image can be there about %s, in %d min",
    os.date(ahead_s < 72000 and "%H:%M" or "%Y-%m-%d %H:%M", at_s), math.max(1, math.floor(ahead_s / 60 + 0.5)))
end

-- Whether a begin a year ahead would be in the way: Slurm refuses a deadline before it from 24.11 on, and
-- names it as the start that --test-only asks for. slurmctld's filter is shown neither option.
local function needs_begin(options)
  local deadline = read(options, "deadline")
  return deadline ~= nil and deadline ~= "Unknown" or read(options, "test-only") == "set"
end

local function pre_submit(options)
  if is_step(options) then return slurm.SUCCESS end
  local statement, keys = statement_of(options)
  if not statement then return slurm.SUCCESS end
  local values, faults = metadata.checked(statement)
  local text = #faults == 0 and keys and in_a_comment(values, keys)
  if #faults == 0 and keys and not text then
    faults[1] = statement.channel .. ": an address with a semicolon cannot be handed on: write it as %3B"
  end
  for _, fault in ipairs(faults) do tell(fault) end
  if #faults > 0 then return slurm.ERROR end
  local comment = read(options, "comment")
  if text then comment = comment and comment .. " " .. text or text end
  if needs_begin(options) then comment = metadata.STOP .. (comment and " " .. comment or "") end
  if comment then options.comment = comment end
  local is_told, words = pcall(forecast, values, options)
  if is_told and words then tell(words) end
  return slurm.SUCCESS
end

function outrider_cli_pre_submit(options)
  local is_done, answer = pcall(pre_submit, options)
  return is_done and answer or slurm.SUCCESS
end

return metadata
