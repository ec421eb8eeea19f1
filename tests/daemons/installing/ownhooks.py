"""A Slurm site's own hooks and submit filter, beside which Outrider is installed."""

from __future__ import annotations

LINES = (
    "Prolog=/etc/slurm/site-prolog # ours",
    "Epilog=/etc/slurm/epilog.d/*",
    "TaskProlog=/etc/slurm/site-task",
    "JobSubmitPlugins=lua",
)
SITES_LUA = """function slurm_job_submit(job, partitions, uid)
  if job.comment == "no" then slurm.log_user("the site says no") return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""
FILES = {
    "site-prolog": "#!/bin/sh\necho prolog >>/var/log/site-hooks\n",
    "epilog.d/10-site": "#!/bin/sh\necho epilog >>/var/log/site-hooks\n",
    "site-task": "#!/bin/sh\necho export SITE=yes\n",
    "job_submit.lua": SITES_LUA,
}
