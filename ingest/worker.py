"""Reading, hashing, compressing and parsing in processes of their own, while this one writes log and index.

`python -m prosa.ingest.worker` gets its jobs on standard input and answers with length-prefixed msgpack on standard
output. Two of them keep two cores busy beside the writer; more bring nothing, because writing the full-text index takes
as long as all else. Threads bring nothing either: parsing holds the interpreter.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Queue

import msgspec

from prosa.events.errors import ProsaError
from prosa.events.home import Home
from prosa.events.log import Log, Prepared
from prosa.events.raw import RawStore
from prosa.ingest.agents import IMPORTERS
from prosa.ingest.cache import Cache
from prosa.ingest.importing import Importing, Item, Job, Outcome, Reparse

PROCESSES = 2
WAITING = 400
"""Items that may wait while the writer is in a long transaction: usually 6 MB, at most about 25."""


class Order(msgspec.Struct, frozen=True):
    """What the worker is told."""

    data: str
    config: str
    jobs: list[Job]


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    prepared: Prepared | None = None
    outcome: Outcome | None = None


def work(home: Home, jobs: Sequence[Job | Reparse], log: Log, cache: Cache) -> Iterator[Item]:
    """Do the jobs in this process."""
    importing = Importing({module.AGENT: module for module in IMPORTERS}, log, RawStore(home.raw), cache.fold)
    for job in jobs:
        yield from importing.run(job)


def work_beside(home: Home, jobs: Sequence[Job]) -> Iterator[Item]:
    """Do the jobs in other processes; what each says of a source comes in its order, through one bounded queue."""
    shares = _shares(jobs)
    queue: Queue[bytes | None] = Queue(WAITING)
    stopped = threading.Event()
    processes = [
        subprocess.Popen([sys.executable, "-m", "prosa.ingest.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in shares
    ]
    readers = [threading.Thread(target=_read, args=(process, queue, stopped), daemon=True) for process in processes]
    decode = msgspec.msgpack.Decoder(_Answer).decode
    try:
        for process, share in zip(processes, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(Order(str(home.data), str(home.config), share)))
            process.stdin.close()
        for reader in readers:
            reader.start()
        for _ in processes:
            while (body := queue.get()) is not None:
                answer = decode(body)
                yield answer.prepared if answer.prepared is not None else answer.outcome  # type: ignore[misc]
        for process in processes:
            if process.wait() != 0:
                raise ProsaError(
                    f"A process that reads transcripts ended with {process.returncode}.",
                    "What it had finished is in the log.",
                    "Run prosa sync again.",
                )
    finally:
        stopped.set()
        for process, reader in zip(processes, readers, strict=True):
            process.kill()
            process.wait()
            while reader.is_alive():
                if not queue.empty():
                    queue.get_nowait()
                reader.join(0.01)
            assert process.stdout is not None
            process.stdout.close()


def _shares(jobs: Sequence[Job]) -> list[list[Job]]:
    """Every source of one session goes to the same process; the processes get about the same bytes."""
    by_session: dict[str, list[Job]] = {}
    for job in jobs:
        by_session.setdefault(job.source.id or job.source.path, []).append(job)
    shares: list[list[Job]] = [[] for _ in range(PROCESSES)]
    sizes = [0] * PROCESSES
    for group in by_session.values():
        least = sizes.index(min(sizes))
        shares[least] += group
        sizes[least] += sum(stat.size for job in group for stat in job.source.files)
    return [share for share in shares if share]


def _read(process: subprocess.Popen[bytes], queue: Queue[bytes | None], stopped: threading.Event) -> None:
    """From the pipe into the queue: with a plain blocking pipe the processes would wait for each other."""
    assert process.stdout is not None
    while not stopped.is_set():
        head = process.stdout.read(4)
        if len(head) < 4:
            break
        queue.put(process.stdout.read(int.from_bytes(head, "big")))
    queue.put(None)


def main() -> None:
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    home = Home(Path(order.data), Path(order.config))
    encode = msgspec.msgpack.Encoder().encode
    out = sys.stdout.buffer
    cache = Cache(home.cache)
    with Log(home.log) as log:
        for item in work(home, order.jobs, log, cache):
            answer = _Answer(outcome=item) if isinstance(item, Outcome) else _Answer(prepared=item)
            body = encode(answer)
            out.write(len(body).to_bytes(4, "big"))
            out.write(body)
    out.flush()


if __name__ == "__main__":
    main()
