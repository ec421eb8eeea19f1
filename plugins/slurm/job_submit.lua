-- For a site without a job_submit.lua of its own: Outrider's submit filter and nothing else.
--
-- A site that has one puts the part up to the line below at its head, and calls
-- outrider_job_submit last in slurm_job_submit and outrider_job_modify in slurm_job_modify.

local filter = "/usr/lib/outrider/slurm/outrider_submit.lua"
local is_loaded, trouble = pcall(dofile, filter)
if not is_loaded then
  slurm.log_error("%s", "outrider: " .. filter .. " cannot be loaded: " .. tostring(trouble))
  -- Jobs that say nothing to Outrider go on; those that do cannot be served.
  function outrider_job_submit(job_desc)
    local option = job_desc.spank_job_env and job_desc.spank_job_env[0] or ""
    local is_managed = (job_desc.comment or ""):find("outrider:", 1, true)
      or (job_desc.script or ""):sub(1, 65536):find("#OUTRIDER", 1, true)
      or option:find("_outrider_workspace=", 1, true)
    if not is_managed then return slurm.SUCCESS end
    slurm.log_user("outrider: the submit filter is broken, so the job is not accepted: tell your administrators")
    return slurm.ERROR
  end
  function outrider_job_modify(_, job_record, _, uid)
    local is_managed = (job_record.admin_comment or ""):find('{"outrider":', 1, true)
    return is_managed and uid ~= 0 and slurm.ERROR or slurm.SUCCESS
  end
end

-- The site's own rules may stand here.

function slurm_job_submit(job_desc, partitions, uid)
  return outrider_job_submit(job_desc, partitions, uid)
end

function slurm_job_modify(job_desc, job_record, partitions, uid)
  return outrider_job_modify(job_desc, job_record, partitions, uid)
end

return slurm.SUCCESS
