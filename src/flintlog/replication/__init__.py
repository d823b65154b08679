"""A store on more than one machine: master and slaves, or a replicated ledger."""
