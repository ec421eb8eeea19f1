-- Processor time of every function of Slurm's filters for texts of every kind and length.
--
-- Arguments: the folder of the plugins, a folder for files, a file with a line for each kind of text
-- (its name, and head, piece and tail in hexadecimal), the sizes, how often, the seconds after which longer
-- texts are not tried, and the names to be measured or none. Prints `function / kind`, size and seconds,
-- divided by tabs.

local folder, scratch, kinds_file, sizes_given = arg[1], arg[2], arg[3], arg[4]
local rounds, enough_s = tonumber(arg[5]), tonumber(arg[6])
local chosen = nil
for index = 7, #arg do chosen = chosen or {}; chosen[arg[index]] = true end
local NO_VAL, NO_VAL16 = 4294967294, 65534

slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = NO_VAL, NO_VAL16 = NO_VAL16, log_user = string.format,
  log_error = string.format, log_info = string.format }
local metadata = dofile(folder .. "/outrider_submit.lua")
local submit, modify = outrider_job_submit, outrider_job_modify
dofile(folder .. "/outrider_cli.lua")
-- The functions of the file that stands in for one that is broken.
local whole_dofile = dofile
dofile = function() error("broken") end
whole_dofile(folder .. "/job_submit.lua")
dofile = whole_dofile
local spare_submit, spare_modify = outrider_job_submit, outrider_job_modify

local SCRIPT = "#!/bin/sh\n#OUTRIDER image: http://h/a.qcow2\ntrue\n"
local MANAGED = 'outrider: x {"outrider":1}'
local OPTION = "_SLURM_SPANK_OPTION_outrider_workspace="
local function job(fields)
  local made = { begin_time = 0, requeue = NO_VAL16, immediate = 0, cron_job = false, het_job_offset = NO_VAL,
    user_id = 1000, script = SCRIPT }
  for key, value in pairs(fields) do made[key] = value end
  return made
end
local function checked(key)
  return function(text)
    local statement = metadata.statement("test")
    metadata.add(statement, "test", key, text)
    return metadata.checked(statement)
  end
end
local function write(name, text)
  local file = assert(io.open(scratch .. "/" .. name, "wb"))
  file:write(text)
  file:close()
  return scratch .. "/" .. name
end
local function client(options)
  options.type = options.type or "sbatch"
  return outrider_cli_pre_submit(options)
end

-- By name; what needs a file is given it before the clock is read.
local cases, prepared = {}, {}
for _, name in ipairs({ "of_script", "of_comment", "shown", "json", "is_utf8", "value_of", "noticed", "of_variable" }) do
  cases["metadata." .. name] = metadata[name]
end
cases["metadata.of_script, behind its first line"] = function(text) metadata.of_script("#!/bin/sh\n" .. text) end
cases["metadata.of_script, in a line"] = function(text)
  metadata.of_script("#!/bin/sh\n#OUTRIDER image: " .. text .. "\ntrue\n")
end
cases["metadata.of_script, in a key"] = function(text) metadata.of_script("#OUTRIDER " .. text) end
cases["metadata.of_script, behind the word"] = function(text) metadata.of_script("#OUTRIDER" .. text) end
cases["metadata.noticed, behind a command"] = function(text) metadata.noticed("apptainer exec " .. text) end
cases["metadata.noticed, in a quotation"] = function(text) metadata.noticed("apptainer exec 'a://" .. text) end
cases["metadata.noticed, behind the option"] = function(text) metadata.noticed("--container-image=" .. text) end
cases["metadata.of_line"] = function(text) metadata.of_line(metadata.statement("test"), text, 1) end
cases["metadata.of_line, in a value"] = function(text)
  metadata.of_line(metadata.statement("test"), " image: " .. text, 1)
end
cases["metadata.of_comment, behind the word"] = function(text) metadata.of_comment("outrider:" .. text) end
cases["metadata.of_text"] = function(text) metadata.of_text(text, "test") end
cases["metadata.of_text, in a value"] = function(text) metadata.of_text("image=" .. text, "test") end
cases["metadata.add"] = function(text) metadata.add(metadata.statement("test"), "test", text, text) end
cases["metadata.blame"] = function(text) metadata.blame(metadata.statement("test"), text) end
cases["metadata.statement"] = function(text) metadata.statement(text) end
cases["metadata.bytes"] = function(text) metadata.bytes(text) end
cases["metadata.canonical"] = function(text) metadata.canonical({ image = text }) end
for _, key in ipairs({ "image", "digest", "size", "format", "private", "name" }) do
  cases["metadata.checked, " .. key] = checked(key)
end
cases["metadata.checked, a key"] = function(text) checked(text)("x") end
for _, key in ipairs({ "script", "comment", "admin_comment" }) do
  cases["submit, " .. key] = function(text) submit(job({ [key] = text })) end
  cases["spare submit, " .. key] = function(text) spare_submit(job({ [key] = text })) end
  cases["modify, " .. key] = function(text) modify(job({ [key] = text }), { user_id = 1000 }, {}, 1000) end
end
cases["submit, reservation"] = function(text) submit(job({ reservation = text })) end
cases["submit, image"] = function(text) submit(job({ script = "#OUTRIDER image: " .. text .. "\n" })) end
cases["submit, name"] = function(text) submit(job({ script = SCRIPT:gsub("true", "#OUTRIDER name: " .. text:gsub("%%", "%%%%")) })) end
cases["submit, option"] = function(text) submit(job({ spank_job_env = { [0] = OPTION .. text } })) end
cases["submit, option of a file"] = function(text) submit(job({ spank_job_env = { [0] = OPTION .. text .. ".yaml" } })) end
cases["submit, foreign option"] = function(text) submit(job({ spank_job_env = { [0] = text } })) end
cases["spare submit, option"] = function(text) spare_submit(job({ spank_job_env = { [0] = text } })) end
cases["submit, failing"] = function(text)
  local sound = metadata.checked
  metadata.checked = function() error("planted") end
  submit(job({ comment = text, script = text }))
  metadata.checked = sound
end
for name, change in pairs({ modify = modify, ["spare modify"] = spare_modify }) do
  cases[name .. ", record"] = function(text) change(job({}), { user_id = 1000, admin_comment = text }, {}, 1000) end
  cases[name .. ", managed"] = function(text)
    change(job({ comment = text }), { user_id = 1000, admin_comment = MANAGED }, {}, 1000)
  end
end
cases["client, comment"] = function(text) client({ comment = text }) end
cases["client, wrap"] = function(text) client({ wrap = text }) end
cases["client, option"] = function(text) client({ spank = { outrider = { workspace = text } } }) end
cases["client, nodes and time"] = function(text) client({ comment = "outrider:a", nodes = text, time = text }) end
cases["client, name of a script"] = function(text) client({ argv = { "/nowhere/" .. text } }) end
prepared["client, script"] = { "script.sh", "", "", function(path) client({ argv = { path } }) end }
for name, head in pairs({ ["a file"] = "", ["an image of a file"] = "metadata:\n  image:\n    uri: ",
  ["braces of a file"] = "metadata:\n  image: {", ["a name of a file"] = "metadata:\n  name: " }) do
  prepared["client, " .. name] = { "workspace.yaml", head, name == "braces of a file" and "}\n" or "\n",
    function(path) client({ spank = { outrider = { workspace = path } } }) end }
end

-- Nothing that sees a text is left out.
local covered = {}
for name in pairs(cases) do covered[name:match("^metadata%.([a-z_0-9]+)") or name] = true end
for name, value in pairs(metadata) do
  if type(value) == "function" and not covered[name] then error("not measured: metadata." .. name) end
end

local function unhex(text)
  return (text:gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))
end
local kinds = {}
for line in io.lines(kinds_file) do
  local name, head, piece, tail = line:match("^([^\t]*)\t(%x*)\t(%x*)\t(%x*)$")
  kinds[#kinds + 1] = { name = name, head = unhex(head), piece = unhex(piece), tail = unhex(tail) }
end

-- The least of several; a text is not tried longer where it took too long already.
local function measured(name, size, text, run)
  local best = nil
  for _ = 1, rounds do
    local begin_s = os.clock()
    run(text)
    local seconds = os.clock() - begin_s
    best = math.min(best or seconds, seconds)
    if seconds > 4 * enough_s then break end
  end
  print(name .. "\t" .. size .. "\t" .. string.format("%.6f", best))
  return best > enough_s
end

for _, kind in ipairs(kinds) do
  local is_over = {}
  for digits in sizes_given:gmatch("%d+") do
    local size = tonumber(digits)
    local text = kind.head .. kind.piece:rep(math.floor((size - #kind.head - #kind.tail) / #kind.piece)) .. kind.tail
    for name, run in pairs(cases) do
      local label = name .. " / " .. kind.name
      if not is_over[name] and (not chosen or chosen[label]) then is_over[name] = measured(label, size, text, run) end
    end
    for name, prepare in pairs(prepared) do
      local label = name .. " / " .. kind.name
      if not is_over[name] and (not chosen or chosen[label]) then
        local path = write(prepare[1], prepare[2] .. text .. prepare[3])
        is_over[name] = measured(label, size, path, prepare[4])
      end
    end
  end
end
