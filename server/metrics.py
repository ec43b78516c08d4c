"""What /metrics says, in Prometheus' text format: counts, times and positions, nothing of what was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prosa.server.state import Server

BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Seconds of a request."""
HEAD: Final = "SELECT position FROM log_head WHERE owner = $1"
PARKED: Final = "SELECT count(*) FROM parked WHERE owner = $1"
PROJECTED: Final = "SELECT position FROM projections WHERE owner = $1 AND state = 'serving'"

Sample = tuple[dict[str, str], float]


class Metrics:
    """Counted by one process since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """`route` as it is declared, never as it was asked for: names of sessions are no labels."""
        self._requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]
        times = self._times.setdefault(route, [0] * (len(BUCKETS) + 1))
        times[next((n for n, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))] += 1

    def count_push(self, events: int, size: int) -> None:
        self._counts["prosa_pushed_batches_total"] += 1
        self._counts["prosa_pushed_events_total"] += events
        self._counts["prosa_pushed_bytes_total"] += size

    def count_raw(self, size: int, stored: int) -> None:
        self._counts["prosa_raw_uploads_total"] += 1
        self._counts["prosa_raw_bytes_total"] += size
        self._counts["prosa_raw_stored_bytes_total"] += stored

    def count_projected(self, events: int, seconds: float) -> None:
        self._counts["prosa_projected_events_total"] += events
        self._counts["prosa_projecting_seconds_total"] += seconds  # type: ignore[assignment]

    async def text(self, server: Server) -> str:
        """The whole page; what lies in the database is read from there now."""
        lines: list[str] = []
        for name, kind, samples in [*self._counted(), *await _standing(server)]:
            lines.append(f"# TYPE {name.removesuffix('_bucket')} {kind}")
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in samples]
        lines += self._histogram()
        return "\n".join(lines) + "\n"

    def _counted(self) -> Iterator[tuple[str, str, list[Sample]]]:
        requests = sorted(self._requests.items())
        yield (
            "prosa_requests_total", "counter",
            [({"route": route, "status": str(status)}, count) for (route, status), count in requests],
        )  # fmt: skip
        for name, value in sorted(self._counts.items()):
            yield name, "counter", [({}, value)]

    def _histogram(self) -> list[str]:
        name = "prosa_request_seconds"
        lines = [f"# TYPE {name} histogram"]
        for route, times in sorted(self._times.items()):
            total = 0
            for most, count in zip((*map(str, BUCKETS), "+Inf"), times, strict=True):
                total += count
                lines.append(f"{name}_bucket{_labels({'route': route, 'le': most})} {total}")
            lines.append(f"{name}_sum{_labels({'route': route})} {self._seconds[route]:g}")
            lines.append(f"{name}_count{_labels({'route': route})} {total}")
        return lines


async def _standing(server: Server) -> list[tuple[str, str, list[Sample]]]:
    async with server.pool.acquire() as connection:
        head = await connection.fetchval(HEAD, server.owner)
        projected = await connection.fetchval(PROJECTED, server.owner) or 0
        parked = await connection.fetchval(PARKED, server.owner)
    values = {
        "prosa_log_position": head,
        "prosa_projected_position": projected,
        "prosa_projection_lag_events": head - projected,
        "prosa_parked_sessions": parked,
        "prosa_streams_open": len(server.hub),
        "prosa_pool_connections": server.pool.get_size(),
        "prosa_pool_connections_idle": server.pool.get_idle_size(),
    }
    return [(name, "gauge", [({}, value)]) for name, value in values.items()]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in labels.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(labels, escaped, strict=True)) + "}"
