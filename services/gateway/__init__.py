"""The gateway: the two front doors, and the token-exact record of every LLM call.

Owns       runs and episodes; message trees and trajectories; agents' keys
Out        forgerl.gateway.run.v1, forgerl.gateway.episode.v1
In         forgerl.trainer.policy.v1, forgerl.scheduler.{admission,batch,retention}.v1,
           forgerl.rollout.episode.v1, forgerl.reward.score.v1
Private    gateway.turns/<episode>, gateway.view/<episode>, gateway.recorded/<episode>, gateway.progress/<run>,
           gateway.freed/<run>, gateway.fleet/training

ports.py          engine and router in the gateway's words      live.py         one call in flight, and its clients
application.py    desk of runs and episodes                     sessions.py     open episodes, recording of turns
completions.py    one agent's call, from request to turn        prompts.py      ids for the engine: match, bridge
generating.py     sampling over engines and policies            streaming.py    ids to deltas
intake.py         what other services said                      sealer.py       trajectories
folds.py          reading runs and episodes                     views.py        index and watchers
recorded.py       episodes that were run elsewhere              freeing.py      blobs that nobody names
records.py        turns as events, and back
"""
