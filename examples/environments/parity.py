"""Is a number even or odd? An environment at its smallest: no tools, one turn, one word as the answer.

Train and held-out tasks never meet: of every four numbers the first two are trained on, the others are held out.
"""

from services.environments.interface import Task, ToolFailure, Verdict, checked_split, last_words, pack, unpack


class Parity:
    name = "parity"

    def task(self, split, index):
        number = 4 * (index // 2) + 2 * (checked_split(split) == "heldout") + index % 2
        return Task(self.name, f"parity-{split}-{index}", split, pack({"number": str(number)}))

    def messages(self, task):
        return [{"role": "user", "content": f"Is {unpack(task, self.name, ['number'])['number']} even or odd?"}]

    def tools(self, task):
        return []

    def max_turns(self, task):
        return 1

    async def call_tool(self, task, name, arguments, sandbox):
        raise ToolFailure(f"error: no tool {name}")

    def verify(self, task, answer, transcript):
        wanted = ("even", "odd")[int(unpack(task, self.name, ["number"])["number"]) % 2]
        return Verdict(float(last_words(answer).lower().strip(".") == wanted), f"wanted {wanted}")
