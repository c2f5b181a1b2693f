"""The stand-in for DynamoDB in a process of its own, so that it takes no time from the clients.

python -m benchmarks.loading.moto_server
"""

from __future__ import annotations

import sys

from tests.dynamodb_server import serving_dynamodb


def main() -> None:
    with serving_dynamodb() as url:
        print(url, flush=True)
        sys.stdin.read()  # until the process that started it ends it, or ends itself


if __name__ == "__main__":
    main()
