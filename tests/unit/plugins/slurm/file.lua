-- What outrider_file.lua reads of the workspace file on standard input: the job's lines, or what is wrong.
local folder = arg[1] .. "/"
local metadata = dofile(folder .. "outrider_metadata.lua")
local of_file = dofile(folder .. "outrider_file.lua")(metadata)
local values, faults = metadata.checked(of_file("ws.yaml", io.read("*a"), arg[2] == "reserved"))
io.write(#faults == 0 and metadata.canonical(values) or table.concat(faults, "\n"))
