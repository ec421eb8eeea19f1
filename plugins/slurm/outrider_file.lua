-- A workspace file, as far as a job in a queue is made of it: its image, name and roles, and of its deployment
-- options, finish_by and value. How many nodes and for how long says the command itself.
--
-- Loaded by outrider_cli.lua inside sbatch, srun and salloc. No reader of YAML: mappings below one another or
-- in braces, lists in brackets on one line or with hyphens, which is how people write them. What is written
-- in another way is refused by its name; `outrider check` knows all of it.

return function(metadata)

local shown = metadata.shown
local KEYS_OF_IMAGE = {
  uri = "image", digest = "digest", size = "size", format = "format", private = "private",
}
local OF_OPTION = { nodes = true, duration = true, instances_per_node = true, cpus = true, memory = true, image = true }
local UNITS_S = { w = 604800, d = 86400, h = 3600, m = 60, s = 1 }
local UNIT_OF = {
  week = "w", weeks = "w", day = "d", days = "d", hour = "h", hours = "h", min = "m", minute = "m", minutes = "m",
  sec = "s", second = "s", seconds = "s",
}
for unit in pairs(UNITS_S) do UNIT_OF[unit] = unit end
local MOST_DIGITS, MOST_BYTES = 10, 100 -- of a duration

local function add_of_image(found, at, key, value)
  if KEYS_OF_IMAGE[key] then metadata.add(found, at, KEYS_OF_IMAGE[key], metadata.value_of(value)) end
end

-- The minutes of a duration, rounded up as the service does: 90, 2h30m, 90s, 1:30:00. Nil if it is none.
local function minutes_of(text)
  if #text > MOST_BYTES then return nil end
  for digits in text:gmatch("%d+") do if #digits > MOST_DIGITS then return nil end end
  if text:find("^%d+$") then return tonumber(text) end
  local hours, minutes, seconds = text:match("^(%d+):(%d+):(%d+)$")
  if not hours then minutes, seconds = text:match("^(%d+):(%d+)$") end
  local sum_s = minutes and (tonumber(hours or 0) * 60 + tonumber(minutes)) * 60 + tonumber(seconds)
  if not minutes then
    local last_s, rest = math.huge, text
    sum_s = 0
    while rest ~= "" do
      local count, word, more = rest:match("^(%d+)%s*([a-z]+)%s*(.*)$")
      local unit_s = UNITS_S[UNIT_OF[word]]
      if not unit_s or unit_s >= last_s then return nil end
      sum_s, last_s, rest = sum_s + tonumber(count) * unit_s, unit_s, more
    end
  end
  return math.ceil(sum_s / 60)
end

-- The memory of a node in MiB, rounded up; nil if it has no full unit.
local function mebibytes_of(text)
  if not text:find("[KMGTkmgt][Ii]?[Bb]$") then return nil end
  return math.ceil(metadata.bytes(text) / 2 ^ 20)
end

-- What stands in braces: `key: value` with commas between, and perhaps a mapping in one of them. Nil if not.
local function in_braces(text)
  local found, plain = {}, text
  local key, inner = text:match("([a-z_]+):%s*({[^{}]*})")
  if key then
    found[key] = in_braces(inner:sub(2, -2))
    if not found[key] then return nil end
    local first, last = text:find("[a-z_]+:%s*{[^{}]*}")
    plain = text:sub(1, first - 1) .. text:sub(last + 1)
  end
  for item in plain:gmatch("[^,]+") do
    local name, value = item:match("^%s*([a-z_]+):%s+(.-)%s*$")
    if name and not found[name] then found[name] = metadata.value_of(value)
    elseif item:find("%S") then return nil end
  end
  return found
end

-- The line of a job that an option of the file is; nil and what is wrong.
local function line_of(option, deployment)
  for key, value in pairs(option) do
    if not OF_OPTION[key] then return nil, shown(key) .. " is not known in an option of a job's file" end
    if key ~= "image" and type(value) ~= "string" then return nil, key .. ": is no text" end
  end
  if option.instances_per_node and option.instances_per_node ~= "1" then
    return nil, "instances_per_node: a job has one instance on each node: leave it out, or reserve the workspace"
  end
  local minutes = minutes_of(option.duration or "")
  if not minutes then return nil, "duration: " .. shown(option.duration or "") .. " is not read: write one like 90m or 2h30m" end
  local words = { "nodes=" .. (option.nodes or ""), string.format("time=%d", minutes) }
  if deployment.has.cpus then words[#words + 1] = "cpus=" .. (option.cpus or deployment.said.cpus or "1") end
  local memory = deployment.has.memory and (option.memory or deployment.said.memory)
  if memory then
    local amount = mebibytes_of(memory)
    if not amount then return nil, "memory: " .. shown(memory) .. " is not read: write one like 512MiB or 16GiB" end
    words[#words + 1] = string.format("memory=%dMiB", amount)
  end
  local image = option.image or {}
  if type(image) ~= "table" or option.image and not image.uri then return nil, "image: write image: {uri: ADDRESS}" end
  for key, value in pairs(image) do
    local is_said = key == "uri" or key == "digest" or key == "private" and value == deployment.private
    if not is_said then
      return nil, "image: " .. key .. ": an option says uri and digest of its image, and the rest as the workspace's"
    end
  end
  for _, key in ipairs({ "uri", "digest" }) do
    if image[key] then words[#words + 1] = (key == "uri" and "image=" or "digest=") .. image[key] end
  end
  for _, word in ipairs(words) do if word:find("%s") then return nil, shown(word) .. " has a blank in it" end end
  return table.concat(words, " ")
end

-- One more line of a list of options with hyphens, into the option that it belongs to; what is wrong, if anything.
local function add_listed(list, indent, line)
  local dash, rest = line:match("^( *%-%s+)(.*)$")
  if dash then
    list[#list + 1] = { at = nil, values = {}, indent = #dash }
    local braces = rest:match("^{(.*)}%s*$") or rest:match("^{(.*)}%s+#.*$")
    if rest:sub(1, 1) == "{" then
      list[#list].values = braces and in_braces(braces)
      return not list[#list].values and shown(rest) .. " is not read: write it as a mapping on one line" or nil
    end
    line, indent = (" "):rep(#dash) .. rest, #dash
  end
  local option = list[#list]
  local key, value = line:match("^ *([a-z_]+):%s*(.*)$")
  if not option or not key then return shown(line) .. " is not read: write options as - {nodes: 2, duration: 60m}" end
  local into = option.values
  if indent > option.indent then
    into = option.inner
  elseif metadata.value_of(value) == "" then
    option.inner = {}
    into[key] = option.inner
    return
  end
  if not into then return shown(line) .. " is not read: it is indented further than its option" end
  local braces = value:match("^{(.*)}%s*$")
  into[key] = braces and in_braces(braces) or metadata.value_of(value)
end

-- The options in brackets on one line; nil if they are not read.
local function in_brackets(text)
  local inner = metadata.value_of(text):match("^%[(.*)%]$")
  if not inner then return nil end
  local list = {}
  local rest = inner:gsub("%b{}", function(braces)
    list[#list + 1] = { values = in_braces(braces:sub(2, -2)) }
    return ""
  end)
  if rest:find("[^%s,]") then return nil end
  for _, each in ipairs(list) do if not each.values then return nil end end
  return list
end

-- One line of the deployment. What else is in it is the command's to say.
local function add_of_deployment(deployment, at, indent, line)
  local key, value = line:match("^ *([a-z_]+):%s*(.*)$")
  local is_listed = line:find("^ *%-%s")
  if is_listed and deployment.in_options or indent > deployment.indent then
    if not deployment.in_options then return end
    local why = add_listed(deployment.options, indent, line)
    if why then deployment.wrong = deployment.wrong or { at = at, why = why } end
    local last = deployment.options[#deployment.options]
    if last then last.at = last.at or at end
    return
  end
  deployment.in_options = false
  if not key then return end
  if key == "options" and metadata.value_of(value) == "" then
    deployment.in_options = true
  elseif key == "options" then
    local list = in_brackets(value)
    if not list then deployment.wrong = { at = at, why = "they are not read: write them in one line, or each behind a hyphen" } end
    for _, each in ipairs(list or {}) do each.at = at end
    deployment.options = list or {}
  else
    deployment.said[key], deployment.at[key] = metadata.value_of(value), at
  end
end

-- What of a deployment a job has: its options, when it has to end, what it is worth. One that begins at a time
-- or waits for an event is a reservation's, and a job has only its image.
local function hand_on(found, deployment)
  if deployment.said.start or deployment.said.open_from then return end
  deployment.private = "false"
  for _, entry in ipairs(found.entries) do if entry.key == "private" then deployment.private = entry.value end end
  for _, each in ipairs(deployment.options) do
    for key in pairs(each.values) do deployment.has[key] = true end
  end
  if deployment.wrong then
    metadata.blame(found, deployment.wrong.at .. ": options: " .. deployment.wrong.why)
    return
  end
  for number, each in ipairs(deployment.options) do
    local line, why = line_of(each.values, deployment)
    if line then metadata.add(found, each.at, "option", line)
    else metadata.blame(found, string.format("%s: option %d: %s", each.at, number, why)) end
  end
  for _, key in ipairs({ "finish_by", "value" }) do
    local value = deployment.said[key]
    if value then
      -- The filter knows the short words of units.
      local count, word = value:match("^now%+(%d+)%s*([a-z]+)$")
      if key == "finish_by" and count and UNIT_OF[word] then value = "now+" .. count .. UNIT_OF[word] end
      metadata.add(found, deployment.at[key], (key:gsub("_", "-")), value)
    end
  end
end

local OF_ROLE = { name = true, hosts = true, cpus = true, memory = true }
local NOT_OF_ROLE = {
  addresses = "machines of a job have 10.211.0.1 and on, in the order of their roles",
  files = "machines of a job have the files of its working folder",
  user_data = "name a file of the working folder in a line of the script, #OUTRIDER role: NAME user-data=FILE",
  gpus = "machines have none",
}

-- The line of a job that a role of the file is; nil and what is wrong.
local function line_of_role(role)
  for key, value in pairs(role) do
    if NOT_OF_ROLE[key] then return nil, key .. ": " .. NOT_OF_ROLE[key] .. ": leave it out" end
    if key == "image" then
      for inner in pairs(type(value) == "table" and value or {}) do
        if inner ~= "uri" and inner ~= "digest" then
          return nil, "image: " .. inner .. ": a role says uri and digest of its image, and the rest as the workspace's"
        end
      end
      if type(value) ~= "table" or not value.uri then return nil, "image: write image: {uri: ADDRESS}" end
    elseif not OF_ROLE[key] or type(value) ~= "string" then return nil, shown(key) .. " is not known in a role of a job's file" end
  end
  local words = { role.name or "" }
  if role.hosts then words[#words + 1] = "hosts=" .. role.hosts:gsub("%s", "") end
  if role.cpus then words[#words + 1] = "cpus=" .. role.cpus end
  local amount = role.memory and mebibytes_of(role.memory)
  if role.memory and not amount then
    return nil, "memory: " .. shown(role.memory) .. " is not read: write one like 512MiB or 16GiB"
  end
  if amount then words[#words + 1] = string.format("memory=%dMiB", amount) end
  if role.image then words[#words + 1] = "image=" .. role.image.uri end
  if role.image and role.image.digest then words[#words + 1] = "digest=" .. role.image.digest end
  return table.concat(words, " ")
end

-- One line below `roles:`; what is wrong is kept with the list. What stands deeper belongs to a key that is refused.
local function add_of_roles(roles, at, depth, line)
  local is_item = line:find("^ *%-%s") ~= nil
  roles.depth = roles.depth or depth
  if is_item and depth > roles.depth or roles.wrong then return end
  local why = add_listed(roles, depth, line)
  local last = roles[#roles]
  if last then last.at = last.at or at end
  if why and not (last and (last.values.files or last.values.user_data or last.values.addresses)) then
    roles.wrong = { at = at, why = why }
  end
end

local function hand_on_roles(found, roles)
  if roles.wrong then metadata.blame(found, roles.wrong.at .. ": roles: " .. roles.wrong.why) return end
  for number, each in ipairs(roles) do
    local line, why = line_of_role(each.values)
    if line then metadata.add(found, each.at, "role", line)
    else metadata.blame(found, string.format("%s: role %d: %s", each.at, number, why)) end
  end
end

-- The statement in a workspace file. A job in a reservation has its size from that, and its image alone counts.
return function(path, text, is_reserved)
  local found = metadata.statement(path)
  local number, section, section_indent, keys_indent = 0, nil, nil, nil
  local deployment = { options = {}, at = {}, has = {}, said = {} }
  local roles, in_roles = {}, false
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do
    number = number + 1
    if #line > metadata.limits.line then
      metadata.blame(found, string.format("%s:%d: is longer than %d bytes: divide it", path, number,
        metadata.limits.line))
      return found
    end
    local blanks, key, value = line:match("^( *)([A-Za-z_]+):%s*(.*)$")
    local at = path .. ":" .. number
    local indent = blanks and #blanks
    if indent == 0 then
      section, keys_indent, section_indent = key, nil, nil
      for _, inner in ipairs(key == "deployment" and not is_reserved and { "options", "finish_by", "value" } or {}) do
        if value:find(inner .. ":", 1, true) then
          metadata.blame(found, at .. ": " .. inner .. " is not read here: write each key of the deployment in its own line")
        end
      end
    elseif section == "metadata" and in_roles and line:find("%S") and not line:find("^%s*#")
      and (#line:match("^ *") > keys_indent or line:find("^ *%-%s")) then
      add_of_roles(roles, at, #line:match("^ *"), line)
    elseif key and section == "metadata" then
      keys_indent = keys_indent or indent
      in_roles = key == "roles" and indent == keys_indent
      if in_roles and metadata.value_of(value) ~= "" then
        roles.wrong = { at = at, why = "they are not read: write each behind a hyphen, in lines of its own" }
      end
      if indent == keys_indent then
        section_indent = nil
        if key == "data" then
          metadata.blame(found, at .. ": data: is not read of a file: name data images in lines of the script, "
            .. "#OUTRIDER data: ADDRESS")
        end
        if key == "name" then metadata.add(found, at, "name", metadata.value_of(value)) end
        if key == "image" then
          section_indent = indent
          for item in (value:match("^{(.*)}") or ""):gmatch("[^,]+") do
            local inner, content = item:match("^%s*([a-z]+):(.*)$")
            if inner then add_of_image(found, at, inner, content) end
          end
        end
      elseif section_indent then
        add_of_image(found, at, key, value)
      end
    elseif section == "deployment" and line:find("^ *[^ #]") then
      local depth = #line:match("^ *")
      deployment.indent = deployment.indent or depth
      add_of_deployment(deployment, at, depth, line)
    end
  end
  hand_on_roles(found, roles)
  if #found.entries == 0 then
    metadata.blame(found, path .. ": no image is found in it: outrider check " .. path .. " says what is wrong")
  end
  if not is_reserved then hand_on(found, deployment) end
  return found
end

end
