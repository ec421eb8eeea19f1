-- Outrider's submit filter as a job_submit.lua that is complete in itself.
--
-- A site that has rules of its own keeps its file, puts `dofile` of this one at the head, and calls
-- outrider_job_submit last in slurm_job_submit and outrider_job_modify in slurm_job_modify.
-- Nothing here raises, whatever state the files beside it are in.

local filter = "/usr/lib/outrider/slurm/outrider_submit.lua"
local is_loaded, trouble = pcall(dofile, filter)
if not is_loaded then
  slurm.log_error("%s", "outrider: " .. filter .. " cannot be loaded: " .. tostring(trouble))
  -- Jobs that say nothing to Outrider go on; those that do cannot be served.
  function outrider_job_submit(job_desc)
    local variables, index, option = job_desc.spank_job_env or {}, 0, false
    while variables[index] and index < 256 do
      option = option or variables[index]:sub(1, 64):find("_outrider_workspace=", 1, true)
      index = index + 1
    end
    local environment = job_desc.script and job_desc.environment or {}
    local is_managed = option or (environment.OUTRIDER_IMAGE_WANTED or "") ~= "" or (job_desc.comment or ""):sub(1, 65536):find("outrider:", 1, true)
      or (job_desc.script or ""):sub(1, 65536):find("#OUTRIDER", 1, true)
    if not is_managed then return slurm.SUCCESS end
    slurm.log_user("%s", "outrider: the submit filter is broken, so the job is not accepted: "
      .. "tell your administrators")
    return slurm.ERROR
  end
  function outrider_job_modify(_, job_record, _, uid)
    local is_managed = (job_record.admin_comment or ""):sub(1, 65536):find('{"outrider":', 1, true)
    return is_managed and uid ~= 0 and slurm.ERROR or slurm.SUCCESS
  end
end

function slurm_job_submit(job_desc, partitions, uid)
  return outrider_job_submit(job_desc, partitions, uid)
end

function slurm_job_modify(job_desc, job_record, partitions, uid)
  return outrider_job_modify(job_desc, job_record, partitions, uid)
end

return slurm.SUCCESS
