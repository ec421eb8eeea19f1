-- What a job says in several places, brought together: in an option, in its comment, in the lines of its script.
--
-- Loaded by outrider_metadata.lua, under whose rules it stands. What counts less is kept as far as what counts more
-- does not say it; what of it does not count is named, and nothing is passed over in silence.

return function(metadata, is_several)

local channels = {}
-- They belong to one image: whoever names another one means none of these.
local OF_IMAGE = { image = true, digest = true, size = true, format = true, private = true }

-- All values of a key that may stand in more than one line, as one text.
local function all_of(statement, key)
  local values = {}
  for _, entry in ipairs(statement.entries) do
    if entry.key == key then values[#values + 1] = entry.value end
  end
  return table.concat(values, "\n")
end

-- Adds to a statement what another one says beside it; what of that does not count goes to `words`.
local function add_beside(upper, lower, words)
  local said, was_said = {}, {}
  for _, entry in ipairs(upper.entries) do said[entry.key], was_said[#was_said + 1] = entry.value, entry.key end
  for _, fault in ipairs(lower.faults) do metadata.blame(upper, fault) end
  for _, entry in ipairs(lower.entries) do
    local key = entry.key
    local is_of_other = OF_IMAGE[key] and said.image ~= nil
    if said[key] == nil and not is_of_other then
      metadata.add(upper, entry.at, key, entry.value)
    elseif is_several(key) then
      if all_of(upper, key) ~= all_of(lower, key) then
        metadata.blame(upper, string.format("%s: %s: stands in %s, too: keep one of them", entry.at, key, upper.channel))
      end
    elseif said[key] ~= entry.value then
      words[#words + 1] = string.format("%s: %s does not count, since %s names %s", entry.at, key, upper.channel,
        is_of_other and "the image" or "another")
    end
  end
end

-- Of these statements, of which the first counts most, one; nil if there is none. And what does not count.
function channels.merged(statements)
  local found, words = nil, {}
  for place = 1, 3 do
    local each = statements[place]
    if found and each then add_beside(found, each, words) end
    found = found or each
  end
  return found, words
end

return channels
end
