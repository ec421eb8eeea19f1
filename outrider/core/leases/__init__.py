"""Policies about leases: who may have one, who yields, which nodes, what it costs.

Each policy is a small class with one method, documented in the Protocol of its module; what learns is told
besides what happened. A site chooses policies, and weighs them, in its policy file, and may bring its own as
Python entry points (`outrider.metadata.leases` makes the classes of the file). Nothing here looks at a book:
the scheduler hands in what a policy may know.

| module | decides |
| --- | --- |
| `admission` | whether a plan that the core has found is accepted |
| `adaptive` | the same by a share that follows what users do |
| `overbooking` | what may be promised for the case that others do not come |
| `pricing` | what it costs |
| `preemption` | which of several leases or runs yields first |
| `nodes` | which of several nodes is taken first |
"""
