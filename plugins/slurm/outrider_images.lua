-- Images that a job's machines need beside the first one: data, which all of them read, and images of roles.
--
--     data: https://data.example.org/genes.raw name=genes digest=sha256:0123...
--     role: head image=https://images.example.org/head.qcow2
--
-- Loaded by outrider_metadata.lua, under whose rules it stands. outrider/metadata/notation/image_lines.py reads the
-- same, and numbers them alike: data first, then those of roles, each once.

return function(shown, checks, roles)

local images = {}
local MOST_DATA, MOST_FURTHER, MOST_NAME = 6, 8, 15
local RESERVED = { job = true, work = true, seed = true, root = true, scratch = true }

-- A data image: its address, its digest, and its name if it has one; nil and what is wrong.
function images.of(value)
  local found
  for part in value:gmatch("[^ \t]+") do
    local key, said = part:match("^([a-z]+)=([!-~]+)$")
    if not found then
      local wrong = (key == "name" or key == "digest") and "begin with the image's address" or checks.image(part)
      if wrong then return nil, wrong end
      found = { image = part }
    else
      if key ~= "name" and key ~= "digest" then
        return nil, shown(part) .. " is not known: behind the image there may be name= and digest="
      end
      if found[key] then return nil, key .. " is given twice: give it once" end
      local wrong = key == "digest" and checks.digest(said)
      if key == "name" and (#said > MOST_NAME or not said:find("^[a-z][a-z0-9]*$") or RESERVED[said]) then
        wrong = shown(said) .. " is not a name: write up to 15 of a-z 0-9, a letter first, none of job, work, seed, "
          .. "root, scratch"
      end
      if wrong then return nil, wrong end
      found[key] = said
    end
  end
  if not found then return nil, "is empty: write where the image is, or its name in the catalogue" end
  return found
end

-- What is wrong with all of them together; nil if nothing is.
function images.contradiction(values)
  local named, count = {}, 0
  for number, value in ipairs(values.data or {}) do
    local name = images.of(value).name or "data" .. number
    if named[name] then return "data: two images are called " .. name .. ": give each a name=NAME of its own" end
    named[name], count = true, number
  end
  if count > MOST_DATA then return string.format("there are %d data images: at most %d are read", count, MOST_DATA) end
  local _, all = images.numbers(values)
  if all > MOST_FURTHER then
    return string.format("there are %d data images and images of roles: at most %d together", all, MOST_FURTHER)
  end
end

-- For each role the number of its image, 0 if it has the job's; and how many images there are beside that.
function images.numbers(values)
  local known, numbers, count = {}, {}, #(values.data or {})
  for place, value in ipairs(values.role or {}) do
    local role = roles.of(value)
    local key = role.image and role.image .. " " .. (role.digest or "")
    if key and not known[key] then
      count = count + 1
      known[key] = count
    end
    numbers[place] = key and known[key] or 0
  end
  return numbers, count
end

-- The names of a job's data images, in order.
function images.names(values)
  local names = {}
  for number, value in ipairs(values.data or {}) do names[number] = images.of(value).name or "data" .. number end
  return names
end

return images
end
