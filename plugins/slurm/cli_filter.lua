-- For a site without a cli_filter.lua of its own: Outrider's filter of the client and nothing else.
--
-- A site that has one puts the part up to the line below at its head, and calls
-- outrider_cli_pre_submit last in slurm_cli_pre_submit. Where Outrider's file is missing or broken
-- the commands work as if nothing had been installed.

local is_loaded = pcall(dofile, "/usr/lib/outrider/slurm/outrider_cli.lua")
if not is_loaded then
  function outrider_cli_pre_submit()
    return slurm.SUCCESS
  end
end

-- The site's own rules may stand here.

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
