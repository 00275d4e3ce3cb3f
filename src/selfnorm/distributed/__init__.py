"""Several processes train one model: who takes part, what they exchange, who starts them again.

world.py      the processes and how they talk about small things
exchange.py   gradients: dense ones summed, of tables only the rows that were touched
shards.py     tables whose rows are spread over the processes; layers.py, the same for the weights of layers
supervisor.py starts the processes, and again when one is lost; heartbeat.py, agent.py help it
"""

JOIN = 300.0  # seconds in which all processes and machines must have come; SELFNORM_JOIN changes it
LOST = 75  # exit status of who lost the others: it may well work the next time
