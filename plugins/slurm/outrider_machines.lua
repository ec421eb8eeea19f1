-- Jobs whose script runs in virtual machines: why one cannot as it was submitted, and what it is given.
--
-- Loaded by outrider_submit.lua inside slurmctld, under whose rules it stands. A site without machines sets
-- `outrider_machines = false` before that file is loaded.

return function(metadata, read, no_values)

local machines = {}
local PROGRAM = "/usr/lib/outrider/machine"
local QEMU_MIB = 256 -- what QEMU takes beside its guest's memory
local LEAST_MIB, MOST_MIB = 32, 2 ^ 24
local SIGUSR1 = 10
local FIRST_LINE = { scratch = "scratch", ["disk-rate"] = "disk", ["network-rate"] = "network" }

-- A number of the job's that somebody has set, or nil.
local function set(job_desc, name)
  local number = read(job_desc, name)
  if type(number) == "number" and not no_values[number] then return number end
end

-- Whether a text of the job's is there and not empty.
local function set_text(job_desc, name)
  local text = read(job_desc, name)
  return type(text) == "string" and text ~= ""
end

-- The roles of a job, each with what it gives its machines, and how many machines they are together.
local function roles_of(job_desc, values)
  local found, count = {}, 0
  local has_cpus = false
  for number, value in ipairs(values.role or {}) do
    found[number] = metadata.roles.of(value)
    count = count + #found[number].hosts
    has_cpus = has_cpus or found[number].cpus ~= nil
  end
  for _, role in ipairs(found) do
    if has_cpus then role.cpus = role.cpus or set(job_desc, "cpus_per_task") or 1 end
    role.memory = role.memory or set(job_desc, "min_mem_per_node")
  end
  return found, count
end

-- What contradicts the roles in the size that was asked for; nil if nothing does.
local function wrong_size(job_desc, count)
  local tasks, each = set(job_desc, "num_tasks"), set(job_desc, "ntasks_per_node")
  for _, name in ipairs({ "min_nodes", "max_nodes" }) do
    local nodes = set(job_desc, name)
    if nodes and nodes ~= count then
      return string.format("role: the roles have %d machines, each on a node of its own, and --nodes says %d: "
        .. "leave --nodes out", count, nodes)
    end
  end
  if tasks and tasks ~= count or each and each > 1 then
    return string.format("role: a job with roles has one task on each of its %d nodes: leave --ntasks out, or use "
      .. "--cpus-per-task", count)
  end
end

-- Why a job cannot run in a virtual machine as it was submitted; nil if it can.
function machines.obstacle(job_desc, values)
  if outrider_machines == false then return "run: vm: this site has no virtual machines for jobs: leave it out" end
  if not read(job_desc, "script") then
    return "run: vm: only a job with a script can run in a machine: use sbatch, or leave it out"
  end
  local roles, count = roles_of(job_desc, values)
  local why = values.role and wrong_size(job_desc, count)
  if why then return why end
  if values["network-rate"] and math.max(count, set(job_desc, "max_nodes") or 1, set(job_desc, "min_nodes") or 1) < 2 then
    return "network-rate: the machine of a job of one node has no network: leave it out"
  end
  local least, most = math.huge, 0
  for _, role in ipairs(values.role and roles or { { memory = set(job_desc, "min_mem_per_node") } }) do
    least, most = math.min(least, role.memory or 0), math.max(most, role.memory or 0)
  end
  if least < LEAST_MIB or most > MOST_MIB then
    return string.format("run: vm: say how much memory the machine has: write --mem, %d MB or more", LEAST_MIB)
  end
  local _, further = metadata.images.numbers(values)
  local what = further > 0 and (values.data and "data" or "role: image")
  local own = values.data and "data" or "the role's image"
  if what and set_text(job_desc, "reservation") then
    return what .. ": data images and images of roles come to the nodes of jobs that wait, not to a reservation's: "
      .. "leave out --reservation, or " .. own
  end
  if what and set_text(job_desc, "array_inx") then
    return what .. ": the jobs of an array have one image: leave out --array, or " .. own
  end
  if read(job_desc, "warn_signal") == SIGUSR1 then
    return "run: vm: --signal=USR1 would suspend the machine: choose another signal"
  end
end

-- Gives a job the size of its roles: a node for each machine, as large as the largest, since all nodes of a
-- job of Slurm's have the same.
local function give_size(job_desc, roles, count)
  local cpus, memory = 0, 0
  for _, role in ipairs(roles) do
    cpus, memory = math.max(cpus, role.cpus or 0), math.max(memory, role.memory)
  end
  if cpus == 0 then cpus = set(job_desc, "cpus_per_task") or 1 end
  job_desc.min_nodes, job_desc.max_nodes, job_desc.num_tasks = count, count, count
  job_desc.cpus_per_task, job_desc.min_cpus = cpus, count * cpus
  job_desc.min_mem_per_node = memory
end

-- The lines by which the job's first machine knows its data images and roles.
local function lines_of(values, roles)
  local lines, numbers = {}, metadata.images.numbers(values)
  for _, name in ipairs(metadata.images.names(values)) do lines[#lines + 1] = "#!data " .. name .. "\n" end
  for place, role in ipairs(roles) do
    local words = { "#!role " .. role.name, "hosts=" .. table.concat(role.hosts, ","),
      string.format("memory=%d", role.memory) }
    if role.cpus then words[#words + 1] = string.format("cpus=%d", role.cpus) end
    if role["user-data"] then words[#words + 1] = "user-data=" .. role["user-data"] end
    if numbers[place] > 0 then words[#words + 1] = string.format("image=%d", numbers[place]) end
    lines[#lines + 1] = table.concat(words, " ") .. "\n"
  end
  return table.concat(lines)
end

-- What the job is given beside its machine's memory, and the script's new first line: the program that
-- runs the script in a machine. The memory that its user has asked for is the guest's.
function machines.give(job_desc, values)
  local roles, count = roles_of(job_desc, values)
  if values.role then give_size(job_desc, roles, count) end
  local memory = read(job_desc, "min_mem_per_node")
  local options = string.format("run=vm,memory=%d", memory)
  if values.boot then options = options .. ",boot=" .. values.boot end
  for key, name in pairs(FIRST_LINE) do
    if values[key] then options = options .. string.format(",%s=%.0f", name, metadata.bytes(values[key])) end
  end
  if values.lease then options = options .. ",lease=" .. values.lease end
  if values.data then options = options .. string.format(",data=%d", #values.data) end
  if values.role then options = options .. string.format(",roles=%d", #roles) end
  job_desc.min_mem_per_node = memory + QEMU_MIB
  job_desc.script = "#!" .. PROGRAM .. " " .. options .. "\n" .. lines_of(values, roles) .. job_desc.script
end

return machines
end
