"""Client: pruning from inside an agent; whatever breaks, the agent gets back an array that it can send.

async with Secateur("redis://localhost:6379/0") as secateur:
    answer = await secateur.prune(messages, conversation_id="c-1")
    reply = await model(answer.messages)
"""

from service.client.call import FAILED_OPEN, Answer
from service.client.secateur import Secateur

__all__ = ["FAILED_OPEN", "Answer", "Secateur"]
