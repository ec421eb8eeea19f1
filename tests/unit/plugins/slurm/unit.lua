-- The filter against a table that behaves like Slurm's own. Run with the folder of the plugins and a seed.
--
-- Prints a line for each claim that does not hold, and their number last.

local folder, seed = arg[1], tonumber(arg[2])
local NO_VAL, NO_VAL16 = 4294967294, 65534
local said = {}
slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = NO_VAL, NO_VAL16 = NO_VAL16,
  log_user = function(form, ...) said[#said + 1] = string.format(form, ...) end,
  log_error = function(form, ...) said.logged = string.format(form, ...) end,
}
local metadata = dofile(folder .. "/outrider_submit.lua")
local claims, failures = 0, 0

local function claim(words, holds)
  claims = claims + 1
  if not holds then
    failures = failures + 1
    print("not so: " .. words .. (said[1] and " [" .. table.concat(said, " | ") .. "]" or ""))
  end
end

-- A job as slurmctld shows it: what nobody set has a number that says so, what is unknown is nil.
local function job(fields)
  local made = { begin_time = 0, requeue = NO_VAL16, immediate = 0, cron_job = false,
    het_job_offset = NO_VAL, user_id = 1000 }
  for key, value in pairs(fields) do made[key] = value end
  return made
end

local function submit(fields)
  said = {}
  local made = type(fields) == "table" and getmetatable(fields) and fields or job(fields)
  return outrider_job_submit(made, {}, 1000), made
end

local function is_untouched(fields)
  local before = job(fields)
  local answer, after = submit(fields)
  for key, value in pairs(after) do if before[key] ~= value then return false end end
  for key in pairs(before) do if after[key] == nil then return false end end
  return answer == slurm.SUCCESS and #said == 0
end

local function metadata_of(made)
  return made.admin_comment and made.admin_comment:match('"metadata":"(.-[^\\])"')
end

local function refused(fields, words)
  local answer, made = submit(fields)
  local whole = table.concat(said, "\n")
  return answer == slurm.ERROR and made.admin_comment == nil and whole:find(words, 1, true) ~= nil
end

local HEAD = "#!/bin/sh\n"
local IMAGE = "#OUTRIDER image: http://h/a.qcow2\n"
local DIGEST = "sha256:" .. ("0123456789abcdef"):rep(4)

-- What says nothing passes untouched.
claim("a script without metadata is untouched", is_untouched({ script = HEAD .. "ls\n" }))
claim("an empty script is untouched", is_untouched({ script = "" }))
claim("a job without script is untouched", is_untouched({}))
claim("another comment is untouched", is_untouched({ comment = "ask for routrider:x" }))
claim("a longer word is untouched", is_untouched({ script = HEAD .. "#OUTRIDERS ride\nls\n" }))
claim("an indented line is untouched", is_untouched({ script = HEAD .. " " .. IMAGE .. "ls\n" }))
claim("a line after the first command is untouched",
  is_untouched({ script = HEAD .. "cat <<E\n" .. IMAGE .. "E\n" }))
claim("four megabytes after the first command are untouched",
  is_untouched({ script = HEAD .. "ls\n" .. IMAGE:rep(120000) }))
claim("a foreign SPANK option is untouched", is_untouched({ spank_job_env = { [0] = "_SLURM_SPANK_OPTION_x_y=z" } }))

-- In partitions in which Outrider starts all jobs, what says nothing is held, too.
local listed = os.tmpname()
local function list(text)
  local file = assert(io.open(listed, "wb"))
  file:write(text)
  file:close()
end
outrider_queues_file = listed
list('{"outrider starts":["batch","gang.x"]}\n')
local parts = { batch = { name = "batch", flag_default = 1 }, other = { name = "other", flag_default = 0 } }
local function to(partition, fields)
  local made = job(fields or {})
  made.partition = partition
  said = {}
  return outrider_job_submit(made, parts, 1000), made
end
local queued_answer, queued = to(nil)
claim("a job in a partition of ours is held for its turn", queued_answer == 0
  and math.abs(queued.begin_time - os.time() - 365 * 86400) < 60)
claim("it has a record without metadata", queued.admin_comment == 'outrider: waits for its turn {"outrider":1}')
claim("nothing is said of a ticket for it", queued.comment == nil)
claim("its user's own begin is kept", select(2, to("batch", { begin_time = 2000000000 })).admin_comment
  == 'outrider: waits for its turn {"outrider":1,"begin":2000000000}')
claim("the first of several partitions counts", select(2, to("gang.x,other")).admin_comment ~= nil
  and select(2, to("other,batch")).admin_comment == nil)
claim("the end of a name is no name", select(2, to("atch")).admin_comment == nil)
claim("dots are dots", select(2, to("gangyx")).admin_comment == nil)
claim("a word of the file is no partition", select(2, to("starts")).admin_comment == nil)
claim("a job in a reservation is not held for its turn", select(2, to("batch", { reservation = "x-1" })).admin_comment == nil)
claim("nor one that its user holds", select(2, to("batch", { priority = 0 })).admin_comment == nil)
claim("one that cannot wait is refused", (to("batch", { immediate = 1 })) == slurm.ERROR and #said == 1)
claim("and one of several parts", (to("batch", { het_job_offset = 0 })) == slurm.ERROR)
list('{"outrider starts":[]}\n')
claim("in partitions that were handed back nothing is held", select(2, to("batch")).admin_comment == nil)
os.remove(listed)
claim("without the file neither", select(2, to("batch")).admin_comment == nil)

-- What says something is marked, held and can go back to the queue.
local answer, made = submit({ script = HEAD .. "\n# words\n" .. IMAGE .. "#SBATCH -n1\n#OUTRIDER size: 2 GiB\n"
  .. "#OUTRIDER digest: " .. DIGEST .. " # of May\n#OUTRIDER private: \"true\"\nls\n#OUTRIDER image: late\n" })
claim("a right script is accepted", answer == slurm.SUCCESS)
claim("lines have one order", metadata_of(made)
  == "image: http://h/a.qcow2\\ndigest: " .. DIGEST .. "\\nsize: 2 GiB\\nprivate: true")
claim("a sentence stands before the record",
  made.admin_comment:find('^outrider: waits to be planned {"outrider":1,"metadata":"') ~= nil)
claim("it is held for a year", math.abs(made.begin_time - os.time() - 365 * 86400) < 60)
claim("it can be requeued", made.requeue == 1)
claim("its user is told", said[1] == 'outrider: the job starts when "a.qcow2" is on its nodes')

-- A script that runs in a machine gets its interpreter, and the job what a machine takes beside its memory.
local MACHINE = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER boot: debian\nls\n"
answer, made = submit({ script = MACHINE, min_mem_per_node = 512 })
claim("a job in a machine is accepted", answer == slurm.SUCCESS)
claim("its script is the machine's", made.script == "#!/usr/lib/outrider/machine run=vm,memory=512,boot=debian\n" .. MACHINE)
claim("its memory is the guest's", made.min_mem_per_node == 768)
claim("no memory of its own is refused", refused({ script = MACHINE }, "--mem"))
claim("memory by the processor is refused", refused({ script = MACHINE, min_mem_per_node = 2 ^ 63 + 512 }, "--mem"))
answer, made = submit({ script = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER scratch: 1.5MiB\n#OUTRIDER disk-rate: 1MB\n"
  .. "#OUTRIDER lease: interactive\n", min_mem_per_node = 512 })
local first = made.script:match("^[^\n]*")
claim("what a machine has of its own is in its script's first line", first:find(",scratch=1572864", 1, true)
  and first:find(",disk=1000000", 1, true) and first:find(",lease=interactive", 1, true))
claim("a network's rate is refused where there is none", refused({ script = HEAD .. IMAGE
  .. "#OUTRIDER run: vm\n#OUTRIDER network-rate: 1MB\n", min_mem_per_node = 512 }, "no network"))
claim("several nodes each have a machine", (submit({ script = MACHINE, min_mem_per_node = 512, min_nodes = 2 })) == 0)
claim("machines of several nodes are suspended together", (submit({ script = MACHINE:gsub("boot: debian", "preemptible: suspend"),
  min_mem_per_node = 512, max_nodes = 2 })) == 0)
claim("the signal that suspends is refused",
  refused({ script = MACHINE, min_mem_per_node = 512, warn_signal = 10 }, "suspend the machine"))
claim("a job without a script is refused", refused({ comment = "outrider:image=a;run=vm" }, "sbatch"))

-- Roles give a job its size, and its first machine what each is.
local ROLES = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER role: head cpus=4\n"
  .. "#OUTRIDER role: worker count=3 memory=1GiB user-data=w.sh\nls\n"
answer, made = submit({ script = ROLES, min_mem_per_node = 512, cpus_per_task = 2 })
claim("a job with roles is accepted", answer == slurm.SUCCESS)
claim("it has a node for each machine", made.min_nodes == 4 and made.max_nodes == 4 and made.num_tasks == 4)
claim("each node is as large as the largest machine",
  made.min_mem_per_node == 1024 + 256 and made.cpus_per_task == 4 and made.min_cpus == 16)
claim("its roles stand below the first line", made.script == "#!/usr/lib/outrider/machine run=vm,memory=1024,roles=2\n"
  .. "#!role head hosts=head memory=512 cpus=4\n"
  .. "#!role worker hosts=worker1,worker2,worker3 memory=1024 cpus=2 user-data=w.sh\n" .. ROLES)
claim("the service is told of them",
  metadata_of(made):find("role: head cpus=4\\nrole: worker count=3 memory=1GiB user-data=w.sh", 1, true) ~= nil)
claim("the right number of nodes may be said", (submit({ script = ROLES, min_mem_per_node = 512, min_nodes = 4, max_nodes = 4 })) == 0)
claim("another number of nodes is refused", refused({ script = ROLES, min_mem_per_node = 512, min_nodes = 3 }, "--nodes says 3"))
claim("several tasks on a node are refused", refused({ script = ROLES, min_mem_per_node = 512, ntasks_per_node = 2 }, "--cpus-per-task"))
claim("a role without memory needs the job's", refused({ script = ROLES }, "--mem"))
claim("roles of several machines have a network", (submit({ script = ROLES:gsub("ls\n", "#OUTRIDER network-rate: 1MB\nls\n"),
  min_mem_per_node = 512 })) == 0)

-- Images beside the first one: data, and those of roles.
local WIDE = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER data: http://h/genes.raw name=genes\n#OUTRIDER role: head\n"
  .. "#OUTRIDER data: maps digest=" .. DIGEST .. "\n#OUTRIDER role: w count=2 image=http://h/w.raw\n"
  .. "#OUTRIDER role: x image=http://h/w.raw\nls\n"
answer, made = submit({ script = WIDE, min_mem_per_node = 512 })
claim("machines have the names of their data, and the numbers of their images", answer == 0 and made.script ==
  "#!/usr/lib/outrider/machine run=vm,memory=512,data=2,roles=3\n#!data genes\n#!data data2\n"
  .. "#!role head hosts=head memory=512\n#!role w hosts=w1,w2 memory=512 image=3\n#!role x hosts=x memory=512 image=3\n" .. WIDE)
claim("the service is told of the data", metadata_of(made):find("data: http://h/genes.raw name=genes\\ndata: maps digest=", 1, true) ~= nil)
for text, words in pairs({
  ["data: http://h/a b"] = 'data: "b" is not known',
  ["data: name=x"] = "begin with the image's address",
  ["data: ../x"] = "does not begin with a letter",
  ["data: a name=Root"] = "is not a name",
  ["data: a name=root"] = "none of job, work, seed, root, scratch",
  ["data: a name=x name=y"] = "name is given twice",
  ["data: a digest=sha256:1"] = "is not a digest",
  ["data: a\n#OUTRIDER data: b name=data1"] = "two images are called data1",
  [("data: a\n#OUTRIDER "):rep(6) .. "data: a"] = "at most 6 are read",
  [("data: a\n#OUTRIDER "):rep(5) .. "data: a\n#OUTRIDER role: x image=1\n#OUTRIDER role: y image=2\n#OUTRIDER role: z image=3"]
    = "there are 9 data images and images of roles: at most 8",
  ["role: x image=a@:/../b"] = "image: ",
  ["role: x digest=" .. DIGEST] = "digest has no effect without image",
}) do
  claim("an image is refused: " .. words, refused({ script = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER "
    .. text .. "\nls\n", min_mem_per_node = 512 }, words))
end
claim("data is a machine's", refused({ script = HEAD .. IMAGE .. "#OUTRIDER data: a\n" }, "data has no effect without run: vm"))
local ONE = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER data: a\nls\n"
claim("data does not come to a reservation", refused({ script = ONE, min_mem_per_node = 512, reservation = "render-17" }, "leave out --reservation"))
claim("an array has one image", refused({ script = ONE, min_mem_per_node = 512, array_inx = "1-3" }, "leave out --array"))
claim("nor does a role's image", refused({ script = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER role: x image=a\nls\n",
  min_mem_per_node = 512, reservation = "render-17" }, "role: image: data images"))
for text, words in pairs({
  ["head\n#OUTRIDER role: head"] = "role head is given twice",
  ["w count=2\n#OUTRIDER role: x hosts=w2"] = "host w2 is in two roles",
  ["x hosts=a,a"] = "host a is in two roles",
  ["x count=2 hosts=a,b"] = "count and hosts say the same",
  ["x gpus=2"] = '"gpus" is not a key of a role',
  ["x user-data=../../etc/shadow"] = "not a file in the working folder",
  ["x memory=16MiB"] = "32 MiB or more",
  ["x hosts=w[3-1]"] = "not a range of numbers",
}) do
  claim("a role is refused: " .. words, refused({ script = HEAD .. IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER role: "
    .. text .. "\nls\n", min_mem_per_node = 512 }, words))
end
claim("roles are machines'", refused({ script = HEAD .. IMAGE .. "#OUTRIDER role: head\n" }, "without run: vm"))
outrider_machines = false
claim("a site may have no machines", refused({ script = MACHINE, min_mem_per_node = 512 }, "no virtual machines"))
outrider_machines = nil

answer, made = submit({ script = HEAD .. IMAGE, begin_time = 2000000000, requeue = 0 })
claim("the user's own begin is kept", made.admin_comment:find(',"begin":2000000000}', 1, true) ~= nil)
claim("the user's own requeue is kept", made.requeue == 0)
for _, name in ipairs({ "maintenance", "render-17,maintenance", "week-2026a", "-", "a,", ("x"):rep(900) .. "-1" }) do
  answer = submit({ script = HEAD .. IMAGE, reservation = name })
  claim("a job with an image in a site's own reservation is refused: " .. name:sub(1, 20), answer ~= 0)
  answer = submit({ script = HEAD, reservation = name })
  claim("one without is not: " .. name:sub(1, 20), answer == 0)
end
answer = submit({ script = HEAD .. IMAGE, reservation = "render-17,render-18" })
claim("several reservations of ours are taken", answer == 0)
answer, made = submit({ script = HEAD .. IMAGE, reservation = "render-17" })
claim("a job with a reservation is not held", answer == 0 and made.begin_time == 0 and metadata_of(made) ~= nil)
answer, made = submit({ script = "#!/bin/sh\r\n#OUTRIDER image: a.qcow2\r\nls\r\n" })
claim("carriage returns are no part of a value", metadata_of(made) == "image: a.qcow2")
answer, made = submit({ script = HEAD .. "#OUTRIDER\timage:a.qcow2" })
claim("a last line needs no end", metadata_of(made) == "image: a.qcow2")
answer, made = submit({ comment = "my words outrider:http://h/a?x=1" })
claim("an address in a comment is an image", metadata_of(made) == "image: http://h/a?x=1")
claim("a comment is left as it is, and says that a ticket is to come",
  made.comment == "my words outrider:http://h/a?x=1 outrider-ticket=none")
claim("a job without script is not requeued", made.requeue == NO_VAL16)
answer, made = submit({ script = HEAD .. IMAGE, comment = "outrider-record=eJyr" })
claim("what the service hands over is left as it is", made.comment == "outrider-record=eJyr")
answer, made = submit({ comment = "outrider:image=a.qcow2;name=web; size=600MB " })
claim("keys in a comment count", metadata_of(made) == "image: a.qcow2\\nsize: 600MB\\nname: web")
answer, made = submit({ script = HEAD .. IMAGE, comment = "outrider:b.qcow2" })
claim("a comment counts more than a script", metadata_of(made) == "image: b.qcow2")
local spank = { [0] = "_SLURM_SPANK_OPTION_x_y=z", [1] = "_SLURM_SPANK_OPTION_outrider_workspace=c.qcow2" }
answer, made = submit({ script = HEAD .. IMAGE, comment = "outrider:b.qcow2", spank_job_env = spank })
claim("an option counts more than a comment", metadata_of(made) == "image: c.qcow2")
claim("what does not count is said", table.concat(said, "\n"):find("the comment: image does not count, since --workspace names the image", 1, true)
  and table.concat(said, "\n"):find("line 2: image does not count, since --workspace names the image", 1, true))

-- What an option or a comment does not say stays as the script says it; what both say is told, or refused.
local BESIDE = HEAD .. IMAGE .. "#OUTRIDER digest: " .. DIGEST .. "\n#OUTRIDER run: vm\n#OUTRIDER scratch: 1GiB\n"
answer, made = submit({ script = BESIDE, spank_job_env = spank, min_mem_per_node = 512 })
claim("an option for the image leaves the script its machine",
  metadata_of(made) == "image: c.qcow2\\nrun: vm\\nscratch: 1GiB" and made.script:find("#!/usr/lib/outrider/machine", 1, true) == 1)
claim("another image's digest does not count, and that is said",
  table.concat(said, "\n"):find("line 3: digest does not count, since --workspace names the image", 1, true))
answer, made = submit({ script = BESIDE, comment = "outrider:scratch=2GiB", min_mem_per_node = 512 })
claim("a key of a comment counts beside the script's image", metadata_of(made) == "image: http://h/a.qcow2\\ndigest: "
  .. DIGEST .. "\\nrun: vm\\nscratch: 2GiB")
claim("a key that counts for nothing is told", table.concat(said, "\n"):find("line 5: scratch does not count, since the comment names another", 1, true))
answer, made = submit({ script = HEAD .. IMAGE, comment = "outrider:image=http://h/a.qcow2" })
claim("what says the same is not told", not table.concat(said, "\n"):find("does not count", 1, true))
claim("a fault of the script is one beside an option, too",
  refused({ script = HEAD .. "#OUTRIDER sise: 3\n", spank_job_env = spank }, '"sise": there is no such key'))
claim("so is a line that says nothing", refused({ script = HEAD .. "#OUTRIDER nonsense\n", spank_job_env = spank }, "says nothing"))
claim("two lists of one key are refused by their line", refused({ script = HEAD .. IMAGE .. "#OUTRIDER option: nodes=2 time=60\n",
  comment = "outrider:option=nodes=4 time=30" }, "line 3: option: stands in the comment, too: keep one of them"))
answer, made = submit({ script = HEAD .. IMAGE .. "#OUTRIDER option: nodes=2 time=60\n", comment = "outrider:option=nodes=2 time=60",
  environment = {} })
claim("the same list twice is one", metadata_of(made) == "image: http://h/a.qcow2\\noption: nodes=2 time=60")
local file = { [0] = "_SLURM_SPANK_OPTION_outrider_workspace=web.yaml" }
answer, made = submit({ comment = "outrider:image=w.qcow2", spank_job_env = file })
claim("of a file counts what was read from it", metadata_of(made) == "image: w.qcow2")
claim("a file that nobody read is refused", refused({ spank_job_env = file }, "was not read"))

-- The environment counts where nothing else is said, and only of batch jobs, of which Slurm shows it.
local WANTED = { OUTRIDER_IMAGE_WANTED = "image=e.qcow2;size=2GiB" }
answer, made = submit({ script = HEAD .. "ls\n", environment = WANTED, comment = "rule_all" })
claim("the environment of a script without metadata counts", metadata_of(made) == "image: e.qcow2\\nsize: 2GiB")
claim("such a job is held", answer == 0 and made.begin_time > os.time() + 300 * 86400)
claim("its comment stays in front", made.comment == "rule_all outrider-ticket=none")
answer, made = submit({ script = HEAD .. IMAGE, environment = WANTED })
claim("a script counts more than the environment", metadata_of(made) == "image: http://h/a.qcow2")
answer, made = submit({ script = HEAD, comment = "outrider:b.qcow2", environment = WANTED })
claim("a comment counts more than the environment", metadata_of(made) == "image: b.qcow2")
answer, made = submit({ script = HEAD, spank_job_env = spank, environment = WANTED })
claim("an option counts more than the environment", metadata_of(made) == "image: c.qcow2")
claim("an empty variable says nothing", is_untouched({ script = HEAD, environment = { OUTRIDER_IMAGE_WANTED = " " } }))
claim("other variables say nothing",
  is_untouched({ script = HEAD, environment = { OUTRIDER_IMAGE = "a.qcow2", OUTRIDER_TICKET = "1.2" } }))
claim("the environment of no batch job is asked for", submit(setmetatable(job({ comment = "mine" }), {
  __index = function(_, name) if name == "environment" then error("asked") end end })) == slurm.SUCCESS)
for _, case in ipairs({
  { "a b", "OUTRIDER_IMAGE_WANTED: image: " },
  { "a;b", "OUTRIDER_IMAGE_WANTED: \"b\" is not of the form" },
  { "http://ada:secret@h/a", "a user or a password" },
  { "a;sise=3", '"sise": there is no such key' },
  { ("a"):rep(5000), "OUTRIDER_IMAGE_WANTED: has 5000 bytes, and at most 4096" },
}) do
  claim("the environment is checked: " .. case[2],
    refused({ script = HEAD, environment = { OUTRIDER_IMAGE_WANTED = case[1] } }, case[2]))
end

-- Options: the job has the size of the first one until the service chooses, and knows all of them.
local function with(lines, more)
  local fields = { script = HEAD .. IMAGE .. lines, environment = {} }
  for key, value in pairs(more or {}) do fields[key] = value end
  return fields
end
local TWO = "#OUTRIDER option: nodes=2 time=60\n#OUTRIDER option: nodes=4 time=2h # wide\n"
answer, made = submit(with(TWO, { cpus_per_task = 3, num_tasks = 1 }))
claim("options are kept in order",
  metadata_of(made) == "image: http://h/a.qcow2\\noption: nodes=2 time=60\\noption: nodes=4 time=2h")
claim("such a job has its first option's nodes", made.min_nodes == 2 and made.max_nodes == 2 and made.num_tasks == 2)
claim("such a job has its first option's limit", made.time_limit == 60 and made.min_cpus == 6)
claim("such a job knows its options", made.environment.OUTRIDER_OPTIONS == "2 4")
answer, made = submit(with(TWO .. "#OUTRIDER finish-by: 2026-07-31T14:00:00Z\n"))
claim("a deadline is kept", answer == 0 and metadata_of(made):find("finish%-by: 2026%-07%-31T14:00:00Z$"))
answer, made = submit(with(TWO .. "#OUTRIDER finish-by: now+90m\n"))
claim("a deadline from now on is an instant",
  metadata_of(made):find("finish-by: " .. os.date("!%Y-%m-%dT%H:", os.time() + 5400), 1, true))
answer, made = submit(with(TWO, { deadline = 1785506400 }))
claim("Slurm's deadline is the same", metadata_of(made):find("finish%-by: 2026%-07%-31T14:00:00Z$"))
answer, made = submit(with("#OUTRIDER finish-by: now+1h\n#OUTRIDER value: 12.5\n"))
claim("a deadline and a value stand without options", answer == 0 and metadata_of(made):find("\\nvalue: 12.5", 1, true))
local LARGE = "#OUTRIDER option: nodes=2 time=60 cpus=8 memory=4GiB image=http://h/b.qcow2\n"
answer, made = submit(with(LARGE .. "#OUTRIDER option: nodes=2 time=9 cpus=8 memory=4096MiB\n", { cpus_per_task = 3 }))
claim("such a job has its first option's processors", made.cpus_per_task == 8 and made.min_cpus == 16)
claim("such a job has its first option's memory", made.min_mem_per_node == 4096)
claim("its record says which option it has", made.admin_comment:find(',"option":1', 1, true))
answer, made = submit(with(TWO, { array_inx = "1-3" }))
claim("an array keeps its size", answer == 0 and made.min_nodes == nil and said[1]:find("array", 1, true))
for _, case in ipairs({
  { "option: nodes=2", "line 3: option: time is missing" },
  { "option: nodes=0 time=5", "line 3: option: \"0\" is not a number" },
  { "option: nodes=-1 time=5", "line 3: option: \"-1\" is not a number" },
  { "option: nodes=2 time=99999999999999999999", "is not a time" },
  { "option: nodes=2\194\178 time=5", "line 3: option: \"nodes=2\\xc2\\xb2\" is not of the form" },
  { "option: nodes=2 time=5 memory=1TiB", "is not the memory of a node" },
  { "option: nodes=2 time=5 cpus=0", "is not a number of processors of a node" },
  { "option: nodes=2 time=5 image=../a", "does not begin with a letter or digit" },
  { "option: nodes=2 time=5 gpus=1", "is not a key of a job's option: use nodes, time, cpus" },
  { "option: nodes=2 time=5 cpus=2\n#OUTRIDER option: nodes=4 time=3", "option 2: cpus is in some options only" },
  { "option: nodes=2 time=5\n#OUTRIDER option: nodes=2 time=9", "option 2: it has the size of option 1" },
  { "value: -7", "line 3: value: \"-7\" is not a value" },
  { "value: 1e9", "line 3: value: \"1e9\" is not a value" },
  { "option: nodes=2 time=5\n#OUTRIDER finish-by: 2026-02-31T14:00", "line 4: finish-by: " },
  { "option: nodes=2 time=5\n#OUTRIDER finish-by: soon", "line 4: finish-by: \"soon\" is not a time" },
  { ("option: nodes=2 time=5\n#OUTRIDER "):rep(99) .. "option: nodes=2 time=5", "more than 32 keys" },
}) do
  claim("a bad option is refused: " .. case[2], refused(with("#OUTRIDER " .. case[1] .. "\n"), case[2]))
end
answer, made = submit(with("", { environment = { OUTRIDER_OPTIONS = "2 4" } }))
claim("options are not inherited", answer == 0 and made.environment.OUTRIDER_OPTIONS == "" and made.min_nodes == nil)
claim("options without a script are refused",
  refused({ comment = "outrider:image=a;option=nodes=2 time=5" }, "only a job with a script"))
claim("options with several tasks on a node are refused", refused(with(TWO, { num_tasks = 8 }), "one task on each"))
claim("options in a reservation are refused", refused(with(TWO, { reservation = "r-1" }), "in a reservation"))

-- What a script seems to want is noticed where the site says so, and changes nothing else of the job.
local STARTS = HEAD .. "module load x\napptainer exec --nv docker://h.example/team/a:v1 python train.py\n"
claim("nothing is noticed where the site has not asked for it", is_untouched({ script = STARTS }))
outrider_hints = true
local function hinted(script)
  local made = select(2, submit({ script = HEAD .. script }))
  return made.admin_comment and made.admin_comment:match('{"outrider%-hint":"image: (.-)"}$'), made
end
for _, case in ipairs({
  { "apptainer exec --nv docker://h.example/team/a:v1 python train.py\n", "docker://h.example/team/a:v1" },
  { "/usr/bin/singularity -q run 'oras://h.example/a:v1' x\n", "oras://h.example/a:v1" },
  { "srun apptainer shell \"https://h/a.sif\";\n", "https://h/a.sif" },
  { "#SBATCH --container-image=nvcr.example#team/b:v2\nls\n", "docker://nvcr.example/team/b:v2" },
  { "srun --container-image=docker://h/c:v3 ls\n", "docker://h/c:v3" },
  { "apptainer exec a.sif ls\n", nil },
  { "apptainer pull docker://h/a\n", nil },
  { "# apptainer exec docker://h/a ls\n", nil },
  { "srun --container-image=/images/a.sqsh ls\n", nil },
  { "apptainer exec docker://$HOST/a ls\n", nil },
  { "curl https://h/a | sh\n", nil },
}) do
  claim("noticed: " .. case[1], hinted(case[1]) == case[2])
end
local noticed, unheld = hinted("apptainer exec docker://h/a ls\n")
claim("such a job is not held, nor requeued, nor is anything told", noticed and unheld.begin_time == 0
  and unheld.requeue == NO_VAL16 and unheld.comment == nil and unheld.priority == nil and #said == 0)
answer, made = submit({ script = STARTS, admin_comment = "the site's" })
claim("an administrator's words stay", answer == 0 and made.admin_comment == "the site's")
answer, made = submit({ script = HEAD .. IMAGE .. "apptainer exec docker://h/a ls\n" })
claim("what a job says itself counts", metadata_of(made) == "image: http://h/a.qcow2")
local noticing = metadata.noticed
metadata.noticed = function() error("planted") end
claim("a fault in noticing costs a job nothing", is_untouched({ script = STARTS }))
metadata.noticed = noticing
outrider_hints = nil

-- What is not right is refused, by line and key.
for _, case in ipairs({
  { "#OUTRIDER\n", 'line 2: "#OUTRIDER" says nothing' },
  { "#OUTRIDER: image: x\n", "line 2:" },
  { "#OUTRIDER image http://x\n", "line 2:" },
  { "#OUTRIDER image:\n", "line 2: image: is empty" },
  { "#OUTRIDER size: 2GiB\n", "image is missing" },
  { IMAGE .. IMAGE, "line 3: image: is given twice" },
  { IMAGE .. "#OUTRIDER sise: 3\n", 'line 3: "sise": there is no such key' },
  { IMAGE .. "#OUTRIDER digest: sha256:0\n", "line 3: digest:" },
  { IMAGE .. "#OUTRIDER digest: " .. DIGEST:upper() .. "\n", "line 3: digest:" },
  { IMAGE .. "#OUTRIDER size: 2 gigs\n", "line 3: size:" },
  { IMAGE .. "#OUTRIDER size: 1.2.3GB\n", "line 3: size:" },
  { IMAGE .. "#OUTRIDER size: 0\n", "line 3: size:" },
  { IMAGE .. "#OUTRIDER size: 2000000TiB\n", "line 3: size:" },
  { IMAGE .. "#OUTRIDER format: iso\n", "line 3: format:" },
  { IMAGE .. "#OUTRIDER private: yes\n", "line 3: private:" },
  { IMAGE .. "#OUTRIDER name: -x\n", "line 3: name:" },
  { IMAGE .. "#OUTRIDER preemptible: suspend\n", "virtual machine" },
  { IMAGE .. "#OUTRIDER run: vm\n", "write --mem, 32 MB or more" },
  { IMAGE .. "#OUTRIDER run: container\n", "line 3: run:" },
  { IMAGE .. "#OUTRIDER boot: debian\n", "boot has no effect without run: vm" },
  { IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER format: sif\n", "a machine has disks" },
  { IMAGE .. "#OUTRIDER run: vm\n#OUTRIDER preemptible: requeue\n#OUTRIDER checkpoint: USR1\n", "suspends a machine" },
  { IMAGE .. "#OUTRIDER preemptible: true\n", "line 3: preemptible:" },
  { IMAGE .. "#OUTRIDER grace: 60s\n", "grace has no effect without preemptible" },
  { IMAGE .. "#OUTRIDER preemptible: requeue\n#OUTRIDER grace: 60s\n", "grace has no effect without checkpoint" },
  { IMAGE .. "#OUTRIDER preemptible: requeue\n#OUTRIDER checkpoint: KILL\n", "line 4: checkpoint:" },
  { "#OUTRIDER image: http://ada:secret@h/a\n", "a user or a password" },
  { "#OUTRIDER image: http://h/../a\n", "has .. as a part" },
  { "#OUTRIDER image: http://h/%2e%2E/a\n", "has .. as a part" },
  { "#OUTRIDER image: /etc/passwd\n", "does not begin with a letter" },
  { "#OUTRIDER image: HT+TP://x\n", "is not a scheme" },
  { "#OUTRIDER image: a b\n", "cannot stand in an address: write it as %20" },
  { "#OUTRIDER image: a\255\n", '"\\xff" cannot stand' },
  { "#OUTRIDER image: a\27[2J\n", '"\\x1b" cannot stand' },
  { "#OUTRIDER image: a\"}\n", "cannot stand" },
  { "#OUTRIDER image: " .. ("a"):rep(2049) .. "\n", "is 2049 characters long" },
  { ("#OUTRIDER name: x\n"):rep(40), "more than 32 keys" },
  { ("#\n"):rep(40000) .. IMAGE, "beyond the first 64 KiB" },
  { "#\n#OUTRIDER image: a" .. (" "):rep(4096) .. "\n", "line 3: is longer than 4096 bytes" },
  { "#OUTRIDER image: a" .. (" "):rep(3000000) .. "b\n", "line 2: is longer than 4096 bytes" },
  { "#OUTRIDER" .. ("#"):rep(3000000), "line 2: is longer than 4096 bytes" },
  { "#OUTRIDER size: " .. ("1"):rep(41) .. "\n", "is not a size" },
}) do
  claim("refused: " .. case[2], refused({ script = HEAD .. case[1] .. "ls\n" }, case[2]))
end
for missing = -12, 12 do
  local script = ("#"):rep(65536 - 10 + missing) .. "\n" .. IMAGE
  local answer, made = submit({ script = script })
  claim("a line at the end of the head counts or is refused, " .. missing, answer == slurm.ERROR or made.admin_comment)
end
claim("a line of a usual length counts", metadata_of(select(2, submit({ script = HEAD .. "#OUTRIDER image: a"
  .. (" "):rep(4000) .. "# of May\nls\n" }))) == "image: a")
local long = { [0] = "_SLURM_SPANK_OPTION_outrider_workspace=" .. ("a"):rep(5000) }
claim("a long option is refused", refused({ spank_job_env = long }, "--workspace: has 5000 bytes, and at most 4096"))
claim("a long comment is refused", refused({ comment = ("x"):rep(5000) }, "the comment: has 5000 bytes, and at most 4096"))
claim("a long AdminComment is refused", submit({ admin_comment = ("x"):rep(70000) .. '{"outrider":1}' }) == slurm.ERROR
  and said[1]:find("the AdminComment has 70014 bytes", 1, true))
claim("a forged ticket is refused", refused({ comment = "x outrider-ticket=1.2" }, "outrider-ticket="))
claim("a forged record is refused", submit({ admin_comment = 'x {"outrider":1}' }) == slurm.ERROR)
claim("a comment must leave room", refused({ comment = ("x"):rep(800) .. " outrider:a" }, "has 811 bytes"))
claim("a cron job is refused", refused({ comment = "outrider:a", cron_job = true }, "scrontab"))
claim("--immediate is refused", refused({ comment = "outrider:a", immediate = 1 }, "--immediate"))
claim("a part of a job is refused", refused({ comment = "outrider:a", het_job_offset = 0 }, "heterogeneous"))
claim("other text after the metadata is refused", refused({ comment = "outrider:a and more" }, "cannot stand"))
claim("what is not of the form key=value is refused", refused({ comment = "outrider:a;b" }, '"b" is not of the form key=value'))

-- Whatever fails inside: jobs without metadata pass, others do not.
local checked = metadata.checked
metadata.checked = function() error("planted") end
claim("a failing filter refuses metadata", refused({ comment = "outrider:a" }, "the submit filter failed"))
claim("a failing filter lets others pass", is_untouched({ script = HEAD .. "ls\n" }))
claim("a failing filter refuses what the environment wants", refused({ script = HEAD, environment = WANTED },
  "the submit filter failed"))
metadata.checked = checked
local of_script = metadata.of_script
metadata.of_script = function() error("planted") end
claim("a failing reader refuses metadata", refused({ script = HEAD .. IMAGE }, "the submit filter failed"))
claim("a failing reader lets others pass", submit({ script = HEAD .. "ls\n" }) == slurm.SUCCESS)
metadata.of_script = of_script
local locked = setmetatable({}, { __index = job({ comment = "outrider:a" }), __newindex = function() error("no") end })
claim("a job that cannot be marked is refused", submit(locked) == slurm.ERROR)
local unreadable = setmetatable({}, { __index = function(_, name)
  if name == "spank_job_env" then error("no such field") end
  return job({ script = HEAD .. "ls\n" })[name]
end })
claim("a field that cannot be read is none", submit(unreadable) == slurm.SUCCESS)

-- A piece of a lease: its jobs go on in the next one, so that they may be requeued. Nothing else that is reserved.
local function reserved(name)
  said = {}
  local script = "#!/bin/sh\n" .. IMAGE .. "#OUTRIDER preemptible: requeue\n"
  return submit({ script = script, reservation = name }) == slurm.SUCCESS
end
claim("a job in a piece of a lease may be requeued", reserved("solve-17.p2"))
for _, name in ipairs({ "solve-17", "solve-17.2", "solve-17.px", "solve-17.p2.x" }) do
  claim("a job in a reservation makes way for nobody: " .. name, not reserved(name)
    and said[1]:find("makes way for nobody", 1, true))
end

-- The guard.
local function modify(change, uid, fields)
  said = {}
  local record = { user_id = 1000, job_state = 0, admin_comment = 'outrider: x {"outrider":1,"metadata":"image: a"}' }
  for key, value in pairs(fields or {}) do record[key] = value end
  if record.admin_comment == "" then record.admin_comment = nil end
  change.begin_time = change.begin_time or 0
  return outrider_job_modify(change, record, {}, uid) == slurm.SUCCESS
end
for _, key in ipairs({ "comment", "admin_comment", "reservation", "req_nodes", "exc_nodes" }) do
  claim("a user cannot change " .. key, not modify({ [key] = "" }, 1000))
  local value = key == "reservation" and "render-1" or "x"
  claim("root can change " .. key, modify({ [key] = value }, 0))
  claim("an operator can change " .. key, modify({ [key] = value }, 64030))
end
for _, uid in ipairs({ 0, 64030, 1000 }) do
  claim("nobody binds a job with an image to a site's own reservation", not modify({ reservation = "night" }, uid)
    and said[1]:find('reservation "night" is not made by Outrider', 1, true))
end
for _, name in ipairs({ "render-17.2", "mpi-17.head", "mpi-17.a.b_c-d", "render-1,mpi-17.head" }) do
  claim("root may bind it to an occurrence or a role of ours: " .. name, modify({ reservation = name }, 0))
end
for _, name in ipairs({ "render-17.", "17.2", "night.2", "render-17. 2", "render-1,night.2" }) do
  claim("nothing of ours is called " .. name, not modify({ reservation = name }, 0))
end
claim("root takes it out of one", modify({ reservation = "" }, 0))
claim("a job without an image may go there", modify({ reservation = "night" }, 0, { admin_comment = "" })
  and modify({ reservation = "night" }, 0, { admin_comment = '{"outrider":1,"tag":"x"}' }))
local SAVED = { admin_comment = 'outrider: x {"outrider":1,"metadata":"image: a","saved":["n1",600,1,2]}' }
claim("a user cannot raise the limit of a suspended machine", not modify({ time_limit = 60 }, 1000, SAVED))
claim("the service can", modify({ time_limit = 60 }, 64030, SAVED))
claim("a user can change the limit of another job", modify({ time_limit = 60 }, 1000))
claim("a user cannot change the start", not modify({ begin_time = 12345 }, 1000))
claim("a user can change the rest", modify({ time_limit = 5, begin_time = NO_VAL }, 1000))
claim("a running job can shrink", modify({ req_nodes = "n1" }, 1000, { job_state = 1 + 65536 }))
claim("an unmanaged job is its user's", modify({ comment = "x", begin_time = 5 }, 1000, { admin_comment = "" }))
claim("no ticket can be forged later", not modify({ comment = "outrider-ticket=1" }, 1000, { admin_comment = "" }))
claim("a workspace cannot be added later", not modify({ comment = "outrider:a" }, 1000, { admin_comment = "" }))
local stopped = { admin_comment = 'outrider: x {"outrider":1,"metadata":"image: a","held":true,"stopped":true}' }
local named = { admin_comment = [[outrider: x {"outrider":1,"metadata":"image: a?\\"stopped\\":true"}]] }
for _, value in ipairs({ 0, 5, 4294967295 }) do
  claim("a user cannot set priority " .. value, not modify({ priority = value }, 1000, stopped))
  claim("root can set priority " .. value, modify({ priority = value }, 0, stopped))
  claim("another hold's priority is its user's", modify({ priority = value }, 1000, named))
end
claim("a user cannot set nice", not modify({ nice = 2147483650 }, 1000, stopped))
claim("nothing is set", modify({ nice = NO_VAL, priority = NO_VAL, time_limit = 3 }, 1000, stopped))
claim("a running job's priority is its user's", modify({ priority = 5 }, 1000,
  { job_state = 1, admin_comment = stopped.admin_comment }))
outrider_managers = { [64030] = true }
claim("a named manager can change a job", modify({ comment = "x" }, 64030))
claim("somebody else cannot", not modify({ comment = "x" }, 1001))
outrider_managers = nil
local of_comment = metadata.of_comment
metadata.of_comment = function() error("planted") end
claim("a failing guard lets unmanaged jobs be changed", modify({ comment = "x" }, 1000, { admin_comment = "" }))
metadata.of_comment = of_comment

-- JSON, for every byte and every kind of broken UTF-8.
local function unescaped(text)
  return (text:sub(2, -2):gsub("\\u00(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
    :gsub('\\([n"\\])', function(letter) return letter == "n" and "\n" or letter end))
end
for byte = 0, 127 do
  local text = metadata.json(string.char(byte))
  claim("JSON of byte " .. byte, text:find("^\"[\32-\126]+\"$") and unescaped(text) == string.char(byte))
end
claim("JSON of a quote and a backslash", metadata.json('"\\') == '"\\"\\\\"')
for byte = 128, 255 do
  claim("no JSON of byte " .. byte, metadata.json("a" .. string.char(byte)) == nil
    and metadata.json(string.char(byte) .. "a") == nil)
end
for _, text in ipairs({ "ä€", "\240\159\154\128", "\237\159\191", "\238\128\128", "\244\143\191\191" }) do
  claim("UTF-8 stays itself", metadata.json(text) == '"' .. text .. '"')
end
for _, text in ipairs({ "\192\175", "\224\128\128", "\237\160\128", "\240\128\128\128", "\244\144\128\128", "\226\130" }) do
  claim("broken UTF-8 is refused", metadata.json(text) == nil)
end

-- Random jobs: nothing raises, nothing that counts goes through unmarked, no marked job is broken.
math.randomseed(seed)
local PIECES = { "#OUTRIDER", " image: ", "http://h/a", "\n", "\r", "#", " ", "outrider:", ";", "image=", "\\", '"', "=",
  ":", "digest", DIGEST, "size: 1", "ls", "\t", "{", "%2e", "..", "#OUTRIDER image: a\n", "private", "\226\130", "\1" }
local function noise(most)
  local parts = {}
  for position = 1, math.random(0, most) do
    parts[position] = math.random() < 0.8 and PIECES[math.random(#PIECES)] or string.char(math.random(1, 255))
  end
  return table.concat(parts)
end
-- Said once more, in another way: does a line that counts begin with the word, or a word of the comment?
local function wants(fields)
  local text = (" " .. (fields.comment or "")):gsub("[%s,;]", " ")
  if text:find(" outrider:", 1, true) or fields.spank_job_env then return true end
  for line in (fields.script .. "\n"):gmatch("(.-)\n") do
    local bare = line:gsub("[ \t\r\v\f]", "")
    if bare ~= "" and bare:sub(1, 1) ~= "#" then return false end
    if line:find("^#OUTRIDER") and not line:find("^#OUTRIDER[A-Za-z0-9_]") then return true end
  end
  return false
end
local marked = 0
for round = 1, 6000 do
  local fields = { script = HEAD .. noise(12) }
  if math.random() < 0.4 then fields.comment = noise(5) end
  if math.random() < 0.2 then fields.spank_job_env = { [0] = "_SLURM_SPANK_OPTION_outrider_workspace=" .. noise(4) } end
  local done, answered, after = pcall(submit, fields)
  local words = string.format("job %d: %q", round, fields.script .. (fields.comment or ""))
  claim("nothing raises, " .. words, done and said.logged == nil)
  if done and answered == slurm.SUCCESS then
    claim("metadata is marked, " .. words, wants(fields) == (after.admin_comment ~= nil))
    local found = metadata_of(after)
    if found then marked = marked + 1 end
    claim("a mark is whole, " .. words, not after.admin_comment or found:find("^image: [^ ]") and
      after.admin_comment:find('"}$') and not after.admin_comment:find("[^\32-\126]") and after.begin_time > os.time())
  else
    claim("only metadata is refused, " .. words, wants(fields) and #said > 0)
  end
end
claim("enough random jobs are right", marked > 100)
print(string.format("%s: %d claims, %d do not hold", _VERSION, claims, failures))
os.exit(failures == 0 and 0 or 1)
