-- What outrider_file.lua reads of the workspace file on standard input: the job's lines, or what is wrong. The job
-- is one that runs in machines where the second argument says so.
local folder = arg[1] .. "/"
local metadata = dofile(folder .. "outrider_metadata.lua")
local of_file = dofile(folder .. "outrider_file.lua")(metadata)
local statement = of_file("ws.yaml", io.read("*a"), arg[2] == "reserved")
if arg[2] == "machines" then metadata.add(statement, "line 2", "run", "vm") end
local values, faults = metadata.checked(statement)
io.write(#faults == 0 and metadata.canonical(values) or table.concat(faults, "\n"))
