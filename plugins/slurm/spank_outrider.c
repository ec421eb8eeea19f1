/* The option --workspace= of sbatch, srun and salloc: a short way to say which image a job wants.
 *
 * It makes the option known, and no more. Slurm itself hands its value to job_submit in
 * slurmctld, where outrider_submit.lua reads, checks and answers it. So nothing here can fail: an
 * option that a command cannot understand must never keep a user from the cluster. A plugin
 * belongs to one version of Slurm (major and minor); name it `optional` in plugstack.conf, so that
 * one of another version is passed over:
 *
 *     optional /usr/lib/outrider/slurm/spank_outrider.so
 *
 * Built by `make spank`, which needs Slurm's header files.
 */
#include <slurm/spank.h>

SPANK_PLUGIN(outrider, 1);

static int taken(int number, const char *value, int is_remote)
{
	(void) number;
	(void) value;
	(void) is_remote;
	return ESPANK_SUCCESS;
}

static struct spank_option workspace = {
	.name = "workspace",
	.arginfo = "IMAGE|FILE",
	.usage = "have this image on the nodes before the job starts: an address, a name in the "
		 "catalogue, image=ADDRESS;digest=sha256:..., or a workspace file",
	.has_arg = 1,
	.val = 1,
	.cb = taken,
};

/* Slurm lets jobs that are submitted from inside a job inherit the options of its plugins. A
 * workspace is of one job: what a script submits says for itself what it needs. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	(void) count;
	(void) arguments;
	(void) spank_unsetenv(spank, "SLURM_SPANK__SLURM_SPANK_OPTION_outrider_workspace");
	return ESPANK_SUCCESS;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	(void) count;
	(void) arguments;
	/* Not in slurmd, which reads no options. A name that another plugin has taken stays with it. */
	if (spank_context() != S_CTX_SLURMD)
		(void) spank_option_register(spank, &workspace);
	return ESPANK_SUCCESS;
}
