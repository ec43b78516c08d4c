"""Reading, hashing, compressing and parsing in processes of their own, while this one writes log and index.

`python -m prosa.ingest.worker` gets its jobs on standard input and answers with length-prefixed msgpack on standard
output. Two of them keep two cores busy beside the writer; more bring nothing, because writing the full-text index takes
as long as all else. Threads bring nothing either: parsing holds the interpreter.
"""

from __future__ import annotations

import signal
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
    queue: Queue[tuple[int, bytes | None]] = Queue(WAITING)
    stopped = threading.Event()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "prosa.ingest.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for this process: it ends them
        )
        for _ in shares
    ]
    readers = [
        threading.Thread(target=_read, args=(number, process, queue, stopped), daemon=True)
        for number, process in enumerate(processes)
    ]
    teller: dict[str, int] = {}
    clashes: set[int] = set()
    decode = msgspec.msgpack.Decoder(_Answer).decode
    try:
        for process, share in zip(processes, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(Order(str(home.data), str(home.config), share)))
            process.stdin.close()
        for reader in readers:
            reader.start()
        running = len(processes)
        while running:
            number, body = queue.get()
            if body is None:
                running -= 1
                continue
            answer = decode(body)
            if answer.prepared is not None:
                # two sources of one session, their names do not show it: the second is read again after the first
                if teller.setdefault(answer.prepared.stream, number) == number:
                    yield answer.prepared
                else:
                    clashes.add(number)
            elif answer.outcome is not None:
                clash = number in clashes
                clashes.discard(number)
                yield msgspec.structs.replace(answer.outcome, status="later") if clash else answer.outcome
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


def _read(
    number: int, process: subprocess.Popen[bytes], queue: Queue[tuple[int, bytes | None]], stopped: threading.Event
) -> None:
    """From the pipe into the queue: with a plain blocking pipe the processes would wait for each other."""
    assert process.stdout is not None
    while not stopped.is_set():
        head = process.stdout.read(4)
        if len(head) < 4:
            break
        body = process.stdout.read(size := int.from_bytes(head, "big"))
        if len(body) < size:
            break  # killed in the middle of a word
        queue.put((number, body))
    queue.put((number, None))


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever asked is gone: end without a word
    try:
        order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    except msgspec.DecodeError:
        sys.exit(1)  # it went before it had asked
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
