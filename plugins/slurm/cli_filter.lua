-- Outrider's filter of the client as a cli_filter.lua that is complete in itself.
--
-- A site that has rules of its own keeps its file, puts `dofile` of this one at the head, and calls
-- outrider_cli_pre_submit last in slurm_cli_pre_submit. Where the file below is missing or broken
-- the commands work as if nothing had been installed.

local is_loaded = pcall(dofile, "/usr/lib/outrider/slurm/outrider_cli.lua")
if not is_loaded then
  function outrider_cli_pre_submit()
    return slurm.SUCCESS
  end
end

function slurm_cli_setup_defaults()
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options)
  return outrider_cli_pre_submit(options)
end

function slurm_cli_post_submit()
  return slurm.SUCCESS
end

return slurm.SUCCESS
