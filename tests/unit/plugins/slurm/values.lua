-- Says of each line `key value` on standard input whether the filter takes that value.

local metadata = dofile(arg[1] .. "/outrider_metadata.lua")

for line in io.lines() do
  local key, value = line:match("^([%a-]+) (.*)$")
  local statement = metadata.statement("test")
  if key ~= "image" then metadata.add(statement, "test", "image", "a") end
  if key == "checkpoint" or key == "grace" then metadata.add(statement, "test", "preemptible", "requeue") end
  local is_machines = { preemptible = true, boot = true, scratch = true, lease = true, ["disk-rate"] = true,
    ["network-rate"] = true, role = true, data = true }
  if is_machines[key] then metadata.add(statement, "test", "run", "vm") end
  if key == "grace" then metadata.add(statement, "test", "checkpoint", "USR1") end
  metadata.add(statement, "test", key, value)
  local _, faults = metadata.checked(statement)
  print(#faults == 0 and "yes" or "no")
end
