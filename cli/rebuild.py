"""`prosa rebuild`: make the index again from the log."""

from __future__ import annotations

from typing import Annotated

import typer

from prosa.cli import exit_codes
from prosa.cli.commands import new_app

app = new_app()


@app.command()
def rebuild(
    check: Annotated[
        bool, typer.Option("--check", help="Build aside, print what differs from the index in use, switch nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, the digest of the content in the last line.")] = False,
) -> int:
    """Build the index from the log again.

    Works offline and without the agents' files. Readers keep the old index until the new one is complete.

    Exit status: with --check 1 if anything differs; 5 another rebuild is running.
    """
    from prosa.cli.amounts import count
    from prosa.cli.opening import check_rebuild, open_log, run_rebuild
    from prosa.cli.output import lines, mode, record
    from prosa.cli.progress import Bar
    from prosa.events.home import Home

    home, how = Home.of(), mode(as_json)
    with open_log(home):
        pass
    with Bar("checking the index" if check else "rebuilding the index", unit="session") as bar:
        if not check:
            done = run_rebuild(home, bar.update)
            bar.close()
            if how == "json":
                record(done)
            else:
                lines([f"{count(done.events, 'event')} applied in {done.seconds:.1f} s, digest {done.digest}"])
            return exit_codes.DONE
        found = check_rebuild(home, bar.update)
    if how == "json":
        for difference in found.differences:
            record({"type": "difference", "what": difference})
        record({"events": found.events, "seconds": found.seconds, "differences": len(found.differences)})
    else:
        from prosa.cli.text import one_line

        lines(map(one_line, found.differences))
        said = count(len(found.differences), "difference") if found.differences else "no difference"
        lines([f"{count(found.events, 'event')} applied in {found.seconds:.1f} s: {said}"])
    return exit_codes.FAILED if found.differences else exit_codes.DONE
