"""A process that uses an account: started by test_usage.py and test_allowance.py, several at a time."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from harness.billing.ledger import Ledger, UsageOwner
from harness.billing.limits import AccountLimiter
from harness.billing.price import own_prices
from harness.messages.model_request import Usage
from workspaces.accounts.account import Accounts
from workspaces.clock import SystemClock
from workspaces.errors import Exhausted
from workspaces.ids import AccountId, AgentId, ConversationId, UserId
from workspaces.storage.sqlite import SqliteRecords

MODEL = "claude-sonnet-5-5"
USAGE = Usage(100, 10, 1000, 50, 20)


def main(file: Path, account_id: AccountId, mode: str, times: int) -> None:
    records, clock = SqliteRecords(file), SystemClock()
    accounts = Accounts(records, clock)
    ledger = Ledger(records, clock, own_prices)
    allowance = AccountLimiter(records, clock, accounts, ledger)
    match mode:
        case "note":
            agent, user = AgentId("agent_1"), UserId("usr_1")
            for number in range(times):
                conversation = ConversationId(f"conv_{number % 3}")
                ledger.note(UsageOwner(account_id, agent, user, conversation), MODEL, USAGE)
        case "begin":
            print(asyncio.run(_begun(allowance, account_id, times)))
        case "hold":
            asyncio.run(_hold(allowance, account_id))
    records.close()


async def _begun(allowance: AccountLimiter, account_id: AccountId, times: int) -> int:
    """Of so many attempts, those that were admitted."""
    begun = 0
    for _ in range(times):
        try:
            async with allowance.admitted(account_id):
                begun += 1
        except Exhausted:
            continue
    return begun


async def _hold(allowance: AccountLimiter, account_id: AccountId) -> None:
    """Run a turn without end, and say so."""
    async with allowance.admitted(account_id):
        os.write(1, b"running\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, file, account_id, mode, times = sys.argv
    main(Path(file), AccountId(account_id), mode, int(times))
