"""A black box without an SDK: one question over HTTP, and the answer on the last line of its output."""

import json
import os
import urllib.request
from pathlib import Path

task = json.loads(Path(os.environ["FORGERL_TASK_FILE"]).read_text())
request = urllib.request.Request(
    f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
    json.dumps({"model": "policy", "messages": task["messages"]}).encode(),
    {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    message = json.load(response)["choices"][0]["message"]
print(json.dumps({"answer": message["content"] or ""}))
