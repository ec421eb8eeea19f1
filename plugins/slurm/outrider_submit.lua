-- The submit filter: marks and holds jobs that want a workspace, and guards them afterwards.
--
-- Runs inside slurmctld, which holds locks meanwhile: no waiting, and no input or output but that one empty
-- file is opened and closed, by which the service hears of a new job. Offers two
-- functions to a site's job_submit.lua: outrider_job_submit(job_desc, partitions, uid) and
-- outrider_job_modify(job_desc, job_record, partitions, uid). Both give slurm.SUCCESS or
-- slurm.ERROR and never raise. A job that says nothing to Outrider passes untouched, also when
-- this code fails; a job that does is refused with a sentence when it cannot be managed.
-- What a statement may say is outrider_metadata.lua's; when a job starts is the service's.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or ""
local metadata = dofile(folder .. "outrider_metadata.lua")

local HELD_S = 365 * 86400
local MARK = '{"outrider":'
local HINT = '{"outrider-hint":'
local STOPPED = '"stopped":true' -- in a record: held by its priority. No text of a user's has it, but for \"
local SAVED = ',"saved":[' -- in a record: its machine is saved, and what is left of its time stands there
local CARRIED = "outrider-record="
local OPTION = "_SLURM_SPANK_OPTION_outrider_workspace="
local MOST_SPANK_VARIABLES = 256
local MOST_NOTE_BYTES = 65536
local MOST_NAME_BYTES = 255
local WAKE = "/run/outrider/wake"
local OPTIONS = "OUTRIDER_OPTIONS" -- of the environment: the nodes of each option, in order
local QUEUES = "/etc/outrider/queues"
local MOST_QUEUES_BYTES = 8192
local NO_VALUES = { [0] = true, [65534] = true, [4294967294] = true }

-- Who may change managed jobs beside root, by uid; a site sets it before or after loading, e.g. to
-- { [64030] = true } for SlurmUser. While nothing is set it is everybody but the job's owner: Slurm
-- itself lets nobody but operators and account coordinators touch the jobs of others.
local function managers()
  return outrider_managers
end

local function tell(sentence)
  slurm.log_user("%s", "outrider: " .. sentence)
end

local function field(record, name)
  return record[name]
end

-- A field, or nil where this version of Slurm has none or cannot give it.
local function read(record, name)
  local is_read, value = pcall(field, record, name)
  if is_read then return value end
end

local machines = dofile(folder .. "outrider_machines.lua")(metadata, read, NO_VALUES)

-- What the SPANK option --workspace= was given, or nil.
local function option_of(job_desc)
  local variables = read(job_desc, "spank_job_env")
  if not variables then return nil end
  for index = 0, MOST_SPANK_VARIABLES do
    local variable = read(variables, index)
    if type(variable) ~= "string" then return nil end
    if variable:sub(1, #OPTION) == OPTION then return variable:sub(#OPTION + 1) end
  end
end

-- What a batch job's environment says, or nil. Slurm hands over none of other jobs', and would write an
-- error into its log for each that is asked.
local function variable_of(job_desc)
  if type(read(job_desc, "script")) ~= "string" then return nil end
  local environment = read(job_desc, "environment")
  return environment and read(environment, metadata.VARIABLE) or nil
end

local function is_file(text)
  return text:sub(-5):find("%.ya?ml$") ~= nil
end

-- Whether a word stands in what is looked at of a text; longer ones are refused elsewhere.
local function has(text, word, most)
  return type(text) == "string" and text:sub(1, most or metadata.limits.text):find(word, 1, true) ~= nil
end

-- What the job says, or nil, and in words what of it does not count: an option counts more than a comment, that more
-- than the script's lines, and the environment, which jobs inherit from whoever submits them, only where nothing
-- else is said. A workspace file was read by the filter of the client.
local function statement_of(job_desc)
  local option, comment, script = option_of(job_desc), read(job_desc, "comment"), read(job_desc, "script")
  local by_comment = type(comment) == "string" and metadata.of_comment(comment) or nil
  local is_of_file = option ~= nil and is_file(option)
  if is_of_file and not by_comment then
    local missing = metadata.statement("--workspace")
    metadata.blame(missing, "--workspace: " .. metadata.shown(option)
      .. " was not read, since this cluster's commands have no filter for it: write image=ADDRESS instead")
    return missing, {}
  end
  local found, words = metadata.channels.merged({
    [1] = option and not is_of_file and metadata.of_text(option, "--workspace") or nil,
    [2] = by_comment,
    [3] = type(script) == "string" and metadata.of_script(script) or nil,
  })
  return found or metadata.of_variable(variable_of(job_desc)), words
end

-- Whether anything at all in a job sounds like Outrider: for when nothing finer can be said.
local function sounds_managed(job_desc)
  return option_of(job_desc) ~= nil or has(read(job_desc, "comment"), "outrider:")
    or has(read(job_desc, "script"), "#OUTRIDER", metadata.limits.head)
    or metadata.of_variable(variable_of(job_desc)) ~= nil
end

-- Whether a reservation, or each of several, has a name as Outrider gives them: WORKSPACE-NUMBER, maybe with an
-- occurrence's number or a role behind a dot. Which of them there are is not known here: a site's own that is
-- called so is not told apart.
local function may_be_ours(reservation)
  if #reservation > metadata.MOST_COMMENT_BYTES then return false end
  for name in (reservation .. ","):gmatch("([^,]*),") do
    if not name:find("%-%d+$") and not name:find("%-%d+%.[A-Za-z0-9][A-Za-z0-9._-]*$") then return false end
  end
  return true
end

-- The comment without the client's word in front of it, and whether there was one. Whoever writes it by
-- hand is held all the same, only in the other way.
local function comment_of(job_desc)
  local comment = read(job_desc, "comment")
  if type(comment) ~= "string" or comment:sub(1, #metadata.STOP) ~= metadata.STOP then return comment, false end
  return comment:sub(#metadata.STOP + 2), true
end

-- Whether a reservation is a piece of a lease, whose jobs go on in the next one.
local function is_piece(reservation)
  return type(reservation) == "string" and reservation:find("%-%d+%.p%d+$") ~= nil
end

-- Why a job cannot be requeued for a reservation, as its user says it can; nil if it can.
local function unyielding(job_desc, is_held)
  if not is_held and not is_piece(read(job_desc, "reservation")) then
    return "preemptible: a job in a reservation makes way for nobody: leave it out"
  end
  if not read(job_desc, "script") then
    return "preemptible: only a job with a script can be requeued: use sbatch, or leave it out"
  end
  if read(job_desc, "requeue") == 0 then
    return "preemptible and --no-requeue contradict each other: leave one out"
  end
end

-- Why a job cannot have several sizes as it was submitted; nil if it can.
local function no_sizes(job_desc, is_held)
  if not is_held then return "option: a job in a reservation has nodes enough: leave it out" end
  if not read(job_desc, "script") then return "option: only a job with a script has options: use sbatch" end
  local tasks, nodes = read(job_desc, "num_tasks"), read(job_desc, "min_nodes")
  local most = type(nodes) == "number" and not NO_VALUES[nodes] and nodes or 1
  local each = read(job_desc, "ntasks_per_node")
  if type(tasks) == "number" and not NO_VALUES[tasks] and tasks > most
    or type(each) == "number" and not NO_VALUES[each] and each > 1 then
    return "option: a job with options has one task on each node: leave --ntasks out, or use --cpus-per-task"
  end
end

-- Lets a job have the size of its first option until the service has chosen, and tells it of all. False of
-- an array, which keeps its own.
local function give_size(job_desc, values)
  local array = read(job_desc, "array_inx")
  if type(array) == "string" and array ~= "" then
    tell("option: the jobs of an array keep the size that it is submitted with")
    return false
  end
  local first = metadata.options.of(values.option[1])
  local cpus = first.cpus or read(job_desc, "cpus_per_task")
  if type(cpus) ~= "number" or NO_VALUES[cpus] then cpus = 1 end
  if first.cpus then job_desc.cpus_per_task = cpus end
  if first.memory then job_desc.min_mem_per_node = first.memory end
  job_desc.min_nodes, job_desc.max_nodes, job_desc.num_tasks = first.nodes, first.nodes, first.nodes
  job_desc.min_cpus, job_desc.time_limit = first.nodes * cpus, first.minutes
  local counts = {}
  for _, value in ipairs(values.option) do counts[#counts + 1] = tostring(metadata.options.of(value).nodes) end
  local environment = read(job_desc, "environment")
  if environment then environment[OPTIONS] = table.concat(counts, " ") end
  return true
end

-- A job that another one submits does not inherit its options.
local function forget_options(job_desc)
  local environment = read(job_desc, "script") and read(job_desc, "environment")
  if environment and read(environment, OPTIONS) then environment[OPTIONS] = "" end
end

-- Why a job cannot be managed that is right in itself; nil if it can.
local function obstacle(job_desc, is_held)
  local comment, is_stopped = comment_of(job_desc)
  if is_held and is_stopped and read(job_desc, "priority") == 0 then
    return "--hold together with --deadline or --test-only cannot wait for an image: leave --hold out"
  end
  if comment and #comment > metadata.MOST_COMMENT_BYTES then
    return string.format("the comment has %d bytes: a job with a workspace may have %d", #comment,
      metadata.MOST_COMMENT_BYTES)
  end
  if read(job_desc, "cron_job") then
    return "a scrontab entry cannot have a workspace: let it run sbatch with a script that has"
  end
  local part = read(job_desc, "het_job_offset")
  if type(part) == "number" and not NO_VALUES[part] or part == 0 then
    return "a heterogeneous job cannot have a workspace: submit its parts as jobs of their own"
  end
  local immediate = read(job_desc, "immediate")
  if is_held and type(immediate) == "number" and immediate == 1 then
    return "--immediate cannot wait for an image: leave it out, or use a reservation"
  end
  local reservation = read(job_desc, "reservation")
  if not is_held and not may_be_ours(reservation) then
    return "reservation " .. metadata.shown(reservation) .. " is not made by Outrider, so no image comes to its "
      .. "nodes: leave out --reservation, or reserve with outrider reserve"
  end
end

-- AdminComment of a new job: a sentence for people, and the record that the service goes on with.
local function record(values, sentence, begin_s, is_stopped, is_sized)
  local text = metadata.json(metadata.canonical(values))
  local begins = begin_s and string.format(',"begin":%d', begin_s) or ""
  local stopped = is_stopped and ',"held":true,' .. STOPPED or ""
  local sized = is_sized and ',"option":1' or ""
  return "outrider: " .. sentence .. " " .. MARK .. '1,"metadata":' .. text .. sized .. stopped .. begins .. "}"
end

-- Until the service has put a ticket into its place, this word says that there has to be one: whoever
-- lets the job go before, its nodes know that it waits for an image.
local function with_no_ticket(comment)
  if comment and comment:find(CARRIED, 1, true) == 1 then return comment end
  local own = comment and comment ~= "" and comment .. " " or ""
  return own .. metadata.TICKET .. "none"
end

-- What stands behind the last slash of an address that something follows.
local function last_part(address)
  local plain = address:match("^.*[^/]") or address
  return plain:match("^.*/(.*)$") or plain
end

-- Lets the service look at once. The file lies in memory, in a folder that is root's, and nothing is read
-- from it: to open it takes microseconds whether or not there is a service, and waits for nobody. A site
-- whose service has another folder sets `outrider_wake` before or after loading; false is for none.
local function wake()
  if outrider_wake == false then return end
  local file = io.open(outrider_wake or WAKE, "rb")
  if file then file:close() end
end

local function manage(job_desc, statement, words)
  local values, faults = metadata.checked(statement)
  local reservation = read(job_desc, "reservation")
  local is_held = reservation == nil or reservation == ""
  local why = #faults == 0 and (obstacle(job_desc, is_held)
    or values.preemptible and values.preemptible ~= "no" and unyielding(job_desc, is_held)
    or values.option and no_sizes(job_desc, is_held)
    or values.run and machines.obstacle(job_desc, values))
  if why then faults[1] = why end
  for _, fault in ipairs(faults) do tell(fault) end
  if #faults > 0 then return slurm.ERROR end
  for _, each in ipairs(words) do tell(each) end

  if values.run then machines.give(job_desc, values) end
  local deadline_s = read(job_desc, "deadline")
  if not values["finish-by"] and type(deadline_s) == "number" and not NO_VALUES[deadline_s] then
    values["finish-by"] = metadata.options.instant(deadline_s)
  end
  local is_sized = values.option and give_size(job_desc, values)
  if not values.option then forget_options(job_desc) end
  local begin_s = read(job_desc, "begin_time")
  if type(begin_s) ~= "number" or NO_VALUES[begin_s] then begin_s = nil end
  local comment, is_stopped = comment_of(job_desc)
  if is_held then
    job_desc.admin_comment = record(values, "waits to be planned", begin_s, is_stopped, is_sized)
    if is_stopped then job_desc.priority = 0 else job_desc.begin_time = os.time() + HELD_S end
    pcall(wake)
  else
    job_desc.admin_comment = record(values, "waits for its reservation", begin_s)
  end
  job_desc.comment = with_no_ticket(comment)
  -- A job goes back to the queue if its image is not there when it would start.
  if read(job_desc, "requeue") == slurm.NO_VAL16 and read(job_desc, "script") then job_desc.requeue = 1 end
  local image = metadata.shown(last_part(values.image))
  tell(is_held and "the job starts when " .. image .. " is on its nodes"
    or "the job uses " .. image .. " in reservation " .. reservation:sub(1, MOST_NAME_BYTES))
  return slurm.SUCCESS
end

-- What nobody may hand in: texts that only the service writes, or that are too long to look for them.
local function forged(job_desc)
  local noted = read(job_desc, "admin_comment")
  if has(read(job_desc, "comment"), metadata.TICKET) then
    return "a comment must not have " .. metadata.TICKET .. " in it, which only the service writes: leave it out"
  end
  if has(noted, MARK, MOST_NOTE_BYTES) then
    return "an AdminComment must not have " .. MARK .. " in it, which only the service writes: leave it out"
  end
  if noted and #noted > MOST_NOTE_BYTES then
    return string.format("the AdminComment has %d bytes, and at most %d are read: shorten it", #noted, MOST_NOTE_BYTES)
  end
end

-- The partition that a job goes to: the first of several, or the cluster's own if it names none.
local function partition_of(job_desc, partitions)
  local named = read(job_desc, "partition")
  if type(named) == "string" and named ~= "" then return named:sub(1, MOST_NAME_BYTES):match("^[^,]*") end
  for name, each in pairs(type(partitions) == "table" and partitions or {}) do
    if read(each, "flag_default") == 1 then return read(each, "name") or name end
  end
end

-- Whether a partition is one of those in which Outrider starts all jobs: a small file of JSON names them, each
-- in quotation marks. It is written when they are taken over, and emptied when they are handed back. A site that
-- has it elsewhere sets `outrider_queues_file`.
local function is_in_turn(partition)
  local file = partition and io.open(outrider_queues_file or QUEUES, "rb")
  if not file then return false end
  local text = file:read(MOST_QUEUES_BYTES) or ""
  file:close()
  return text:find('"' .. partition .. '"', 1, true) ~= nil
end

-- Holds a job without an image in a partition in which Outrider starts all jobs.
local function queue(job_desc, partitions)
  local reservation = read(job_desc, "reservation")
  if reservation ~= nil and reservation ~= "" or read(job_desc, "priority") == 0 then return slurm.SUCCESS end
  local partition = partition_of(job_desc, partitions)
  if not is_in_turn(partition) then return slurm.SUCCESS end
  local immediate, part = read(job_desc, "immediate"), read(job_desc, "het_job_offset")
  local why
  if type(immediate) == "number" and immediate == 1 then
    why = "--immediate cannot wait for its turn in partition " .. partition .. ": leave it out"
  elseif type(part) == "number" and not NO_VALUES[part] or part == 0 then
    why = "a heterogeneous job cannot wait for its turn in partition " .. partition .. ": name another partition"
  end
  if why then return tell(why) or slurm.ERROR end
  local begin_s = read(job_desc, "begin_time")
  local begins = type(begin_s) == "number" and not NO_VALUES[begin_s] and string.format(',"begin":%d', begin_s) or ""
  job_desc.admin_comment = "outrider: waits for its turn " .. MARK .. "1" .. begins .. "}"
  local far_s = os.time() + HELD_S
  job_desc.begin_time = far_s
  pcall(wake)
  return slurm.SUCCESS
end

-- Tells the service what image a script seems to want, where a site sets `outrider_hints` before or after
-- loading. The job is not ours: it is neither held nor changed in anything else.
local function hint(job_desc)
  local script = read(job_desc, "script")
  if not outrider_hints or type(script) ~= "string" or read(job_desc, "admin_comment") then return end
  local address = metadata.noticed(script)
  local text = address and metadata.json("image: " .. address)
  if not text then return end
  job_desc.admin_comment = "outrider: its image is brought if there is time " .. HINT .. text .. "}"
  wake()
end

local function submit(job_desc, partitions)
  local why = forged(job_desc)
  if why then
    tell(why)
    return slurm.ERROR
  end
  local statement, words = statement_of(job_desc)
  if statement then return manage(job_desc, statement, words) end
  hint(job_desc)
  return queue(job_desc, partitions)
end

function outrider_job_submit(job_desc, partitions)
  local is_done, answer = pcall(submit, job_desc, partitions)
  if is_done then return answer end
  local is_judged, is_managed = pcall(sounds_managed, job_desc)
  pcall(slurm.log_error, "%s", "outrider: submit filter: " .. tostring(answer))
  if is_judged and not is_managed then return slurm.SUCCESS end
  pcall(tell, "the submit filter failed, so the job is not accepted: tell your administrators, or leave "
    .. "the workspace out")
  return slurm.ERROR
end

local function is_set(value)
  return value ~= nil and not NO_VALUES[value]
end

-- What of a change belongs to the service alone; nil if nothing does.
local function protected(job_desc, job_record)
  local comment = read(job_desc, "comment")
  local noted = read(job_record, "admin_comment")
  local is_managed = has(noted, MARK, MOST_NOTE_BYTES)
  if has(comment, metadata.TICKET) then return "Comment" end
  if not is_managed then
    if type(comment) == "string" and metadata.of_comment(comment) then
      return "Comment, since a workspace is given when a job is submitted,"
    end
    return nil
  end
  if comment ~= nil then return "Comment" end
  if read(job_desc, "admin_comment") ~= nil then return "AdminComment" end
  if is_set(read(job_desc, "begin_time")) then return "StartTime" end
  if read(job_desc, "reservation") ~= nil then return "ReservationName" end
  local state = read(job_record, "job_state")
  local is_pending = type(state) ~= "number" or state % 256 == 0
  if is_pending and has(noted, STOPPED, MOST_NOTE_BYTES) then
    -- A release, and in 22.05 also another nice value, would give it a priority.
    local priority = read(job_desc, "priority")
    if type(priority) == "number" and priority ~= slurm.NO_VAL then return "Priority" end
    if is_set(read(job_desc, "nice")) then return "Nice" end
  end
  if is_pending and has(noted, SAVED, MOST_NOTE_BYTES) and is_set(read(job_desc, "time_limit")) then
    return "TimeLimit, of which a suspended machine has what was left,"
  end
  if is_pending and read(job_desc, "req_nodes") ~= nil then return "ReqNodeList" end
  if is_pending and read(job_desc, "exc_nodes") ~= nil then return "ExcNodeList" end
end

local function is_manager(job_record, uid)
  if uid == 0 then return true end
  if managers() then return managers()[uid] == true end
  local owner = read(job_record, "user_id")
  return type(owner) == "number" and owner ~= uid
end

-- Whether a change binds a managed job to a reservation that is certainly none of ours: nobody may.
local function strands(job_desc, job_record)
  local reservation = read(job_desc, "reservation")
  return type(reservation) == "string" and reservation ~= "" and not may_be_ours(reservation)
    and has(read(job_record, "admin_comment"), MARK .. '1,"metadata":', MOST_NOTE_BYTES)
end

local function modify(job_desc, job_record, uid)
  if strands(job_desc, job_record) then
    tell("reservation " .. metadata.shown(read(job_desc, "reservation")) .. " is not made by Outrider, so no image "
      .. "comes to its nodes: the job stays where it is")
    return slurm.ERROR
  end
  if is_manager(job_record, uid) then return slurm.SUCCESS end
  local what = protected(job_desc, job_record)
  if not what then return slurm.SUCCESS end
  tell(what .. " of a job with a workspace is the service's: cancel the job and submit it again")
  return slurm.ERROR
end

function outrider_job_modify(job_desc, job_record, _, uid)
  local is_done, answer = pcall(modify, job_desc, job_record, uid)
  if is_done then return answer end
  pcall(slurm.log_error, "%s", "outrider: modify filter: " .. tostring(answer))
  local is_managed = has(read(job_record, "admin_comment"), MARK, MOST_NOTE_BYTES)
  return is_managed and uid ~= 0 and slurm.ERROR or slurm.SUCCESS
end

return metadata
