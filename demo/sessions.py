# ruff: noqa: E501 - what people and programs say is not cut to a width
"""What is said in the demo's sessions, oldest first; invented. demo/make_home.py makes transcripts of it.

A step may wait (minutes), ask (a prompt), compact (a summary), think, say, and run (tool, input, output); all that
stands in one step is one answer. The output of a sub-agent is a list of steps. `tokens` are added to an answer's own.
"""

from __future__ import annotations

from typing import Any

OPUS, SONNET, HAIKU, GPT, GPT_CODEX = (
    "claude-opus-4-8", "claude-sonnet-5", "claude-haiku-4-5", "gpt-5.5", "gpt-5.3-codex",
)  # fmt: skip

RETRY = """class PaymentClient:
    def charge(self, order: Order) -> Receipt:
        for attempt in range(self.retries):
            try:
                return self._post("/charges", order.as_charge())
            except TimeoutError:
                return self._unknown(order)  # gives up after the first one
        raise PaymentFailed(order.id)
"""
RETRY_TEST = """FAILED tests/test_payments.py::test_a_timeout_is_retried - AssertionError: 1 != 3
E   AssertionError: expected three attempts, the client made 1
1 failed, 41 passed in 2.31s
"""
USAGES = "\n".join(f"services/{name}.py:{line}: settings = load_config('{name}.ini')" for name, line in (
    ("billing", 14), ("catalog", 9), ("emails", 22), ("exports", 31), ("search", 11), ("webhooks", 18),
))  # fmt: skip
ZSH = """num  calls                time                       self            name
 1)    1         412.10   412.10   61.20%    412.10   412.10   61.20%  nvm_auto
 2)    2         140.32    70.16   20.84%    131.02    65.51   19.46%  compinit
 3)    1          58.77    58.77    8.73%     58.77    58.77    8.73%  compdump
"""
PLAN = """Seq Scan on orders  (cost=0.00..48211.00 rows=212 width=96) (actual time=311.2..318.9 rows=208 loops=1)
  Filter: (customer_id = 4711)
  Rows Removed by Filter: 1999792
Execution Time: 319.004 ms
"""

SESSIONS: list[dict[str, Any]] = [
    {
        "name": "first look", "agent": "claude-code", "project": "lighthouse-api", "model": OPUS,
        "days": 13, "minutes": 200, "title": "Tour of the service layout",
        "talk": [
            {"ask": "I am new to this repository. What are the services, and how does a request get from the gateway to the database?"},
            {"think": "Start with the entry points and the router.", "run": ("Bash", {"command": "ls services && sed -n '1,60p' gateway/routes.py"}, "billing.py\ncatalog.py\nemails.py\nexports.py\nsearch.py\nwebhooks.py\nROUTES = {'/charges': billing.charge, '/items': catalog.items}\n")},
            {"run": ("Read", {"file_path": "gateway/app.py"}, "app = Gateway(ROUTES, pool=Pool(dsn, size=8))\n"), "tokens": 300},
            {"say": "Six services behind one gateway. A request is matched in gateway/routes.py, gets a connection from the pool of eight, and each service writes through its own repository class. Billing is the only one that calls outside.", "tokens": 900},
        ],
    },
    {
        "name": "zsh", "agent": "codex", "project": "dotfiles", "model": GPT, "days": 11, "minutes": 90,
        "talk": [
            {"ask": "zsh takes almost a second to start. Find out why, change nothing yet."},
            {"think": "Profile it with zprof.", "run": ("exec_command", {"cmd": "zsh -i -c 'zmodload zsh/zprof; source ~/.zshrc; zprof | head -5'"}, ZSH)},
            {"say": "412 of 673 ms go into nvm_auto, 140 into compinit, which runs twice. Loading nvm on first use and calling compinit once, with -C on all but the first start of a day, should bring it to about 120 ms."},
            {"wait": 6, "ask": "Do both."},
            {"run": ("apply_patch", "*** Begin Patch\n*** Update File: zshrc\n@@\n-source $NVM_DIR/nvm.sh\n+nvm() { unfunction nvm; source $NVM_DIR/nvm.sh; nvm \"$@\"; }\n*** End Patch", "Success. Updated the following files:\nM zshrc\n")},
            {"run": ("exec_command", {"cmd": "for i in 1 2 3; do /usr/bin/time -f %e zsh -i -c exit; done"}, "0.13\n0.12\n0.12\n")},
            {"say": "0.12 s now. The first `nvm` of a shell takes the 0.4 s instead."},
        ],
    },
    {
        "name": "timezone zh", "agent": "claude-code", "project": "tidewater", "model": SONNET,
        "days": 9, "minutes": 330, "title": "时间线的时区显示",
        "talk": [
            {"ask": "时间线上的时间显示成了 UTC，应该用用户所在的时区。请修正，并为夏令时切换那天加一个测试。"},
            {"think": "找到格式化时间的地方。", "run": ("Grep", {"pattern": "toISOString", "path": "src"}, "src/timeline/format.ts:8: return at.toISOString().slice(11, 16)\n")},
            {"run": ("Edit", {"file_path": "src/timeline/format.ts", "old_string": "at.toISOString().slice(11, 16)", "new_string": "clock.format(at)"}, "The file src/timeline/format.ts has been updated successfully.")},
            {"run": ("Bash", {"command": "npm test -- timeline"}, "Tests: 19 passed, 19 total\n")},
            {"say": "已改为用户时区；夏令时切换当天 23 小时和 25 小时两种情况都有测试，19 个测试全部通过。"},
        ],
    },
    {
        "name": "index", "agent": "codex", "project": "lighthouse-api", "model": GPT_CODEX, "days": 8, "minutes": 60,
        "talk": [
            {"ask": "The page of a customer's orders takes 300 ms. Look at the plan of its query and write a migration if an index is missing."},
            {"run": ("exec_command", {"cmd": "psql lighthouse -c \"explain analyze select * from orders where customer_id = 4711\""}, PLAN)},
            {"think": "A sequential scan over two million rows; the index must be made concurrently.", "run": ("apply_patch", "*** Begin Patch\n*** Add File: migrations/0042_orders_by_customer.sql\n+create index concurrently if not exists orders_by_customer on orders (customer_id, placed_at desc);\n*** End Patch", "Success. Updated the following files:\nA migrations/0042_orders_by_customer.sql\n")},
            {"run": ("exec_command", {"cmd": "make migrate"}, "psycopg.errors.ActiveSqlTransaction: CREATE INDEX CONCURRENTLY cannot run inside a transaction block\nmake: *** [Makefile:31: migrate] Error 1\n"), "failed": True},
            {"say": "The migration runner opens a transaction, and a concurrent index cannot be made in one. I mark the file as not transactional, as 0017 does.", "run": ("exec_command", {"cmd": "sed -i '1i -- no transaction' migrations/0042_orders_by_customer.sql && make migrate"}, "0042_orders_by_customer ... ok\n")},
            {"say": "319 ms → 0.9 ms. The migration is 0042 and runs outside a transaction."},
        ],
    },
    {
        "name": "notes", "agent": "claude-code", "project": "field-notes", "model": HAIKU, "days": 6, "minutes": 500,
        "title": "Heron counts as a table",
        "talk": [
            {"ask": "Turn the heron counts in march.txt into a Markdown table, one row a day, and say which day looks wrong."},
            {"run": ("Read", {"file_path": "march.txt"}, "03-01 herons 4\n03-02 herons 5\n03-03 herons 41\n03-04 herons 3\n")},
            {"run": ("Write", {"file_path": "march.md", "content": "| day | herons |\n|---|---|\n"}, "File created successfully at: march.md")},
            {"say": "march.md has the table. 3 March says 41 herons between 5 and 3: most likely 4 or 1, so look at the paper notes before you correct it."},
        ],
    },
    {
        "name": "retry", "agent": "claude-code", "project": "lighthouse-api", "model": OPUS, "days": 4, "minutes": 300,
        "title": "Retry charges that time out",
        "talk": [
            {"ask": "A charge that times out is not retried, although retries is 3. Reproduce it with a test first, then fix it. A charge must never be made twice."},
            {"think": "The except branch returns inside the loop. A retry needs an idempotency key, else the customer may pay twice.", "run": ("Read", {"file_path": "services/payments.py"}, RETRY), "tokens": 500},
            {"say": "The loop returns from its first timeout. I write the test before I touch it.", "run": ("Write", {"file_path": "tests/test_payments.py", "content": "def test_a_timeout_is_retried(client, gateway):\n    gateway.time_out(times=2)\n    client.charge(order)\n    assert gateway.calls == 3\n"}, "File created successfully at: tests/test_payments.py")},
            {"run": ("Bash", {"command": "pytest -q tests/test_payments.py", "description": "Run the new test"}, RETRY_TEST), "failed": True},
            {"run": ("Edit", {"file_path": "services/payments.py", "old_string": "return self._unknown(order)", "new_string": "self._wait(attempt)"}, "The file services/payments.py has been updated successfully.")},
            {"run": ("Bash", {"command": "pytest -q"}, "42 passed in 2.40s\n")},
            {"say": "Fixed. Each charge now carries its order's id as idempotency key, so the three attempts are one charge for the provider. The waits are 0.2, 0.4 and 0.8 seconds with jitter.", "tokens": 700},
            {"wait": 14, "ask": "What happens if the provider answers 409?"},
            {"say": "Then the first attempt went through and only its answer was lost: a 409 with our own key is a success, and the receipt is read from the charge it names.", "tokens": 400},
        ],
    },
    {
        "name": "retry, with a queue", "agent": "claude-code", "project": "lighthouse-api", "model": OPUS,
        "days": 4, "minutes": 120, "fork_of": "retry",
        "talk": [
            {"ask": "Try the other way in this fork: put the charge into the outbox table and let the worker retry it."},
            {"run": ("Bash", {"command": "rg -n outbox services worker"}, "worker/outbox.py:12: def drain(limit: int = 50) -> int:\n")},
            {"say": "It works, but the customer waits for the worker's next turn: 1.2 s in the median instead of 0.3 s. I would keep the retry in the client, and use the outbox only when all three attempts failed.", "tokens": 1200},
        ],
    },
    {
        "name": "loader", "agent": "claude-code", "project": "lighthouse-api", "model": SONNET, "days": 2, "minutes": 400,
        "title": "Replace the old config loader",
        "talk": [
            {"ask": "Find every place that still uses load_config, have a sub-agent judge which of them can move to Settings, then move those."},
            {"run": ("Grep", {"pattern": "load_config", "path": "services"}, USAGES)},
            {
                "run": (
                    "Agent",
                    {"description": "Judge the callers of load_config", "prompt": "For each caller of load_config in services/, say whether Settings can replace it. Change nothing.", "subagent_type": "Explore"},
                    [
                        {"run": ("Read", {"file_path": "services/exports.py"}, "settings = load_config('exports.ini')\nreload_every(60)\n")},
                        {"run": ("Bash", {"command": "git log --oneline -3 -- services/exports.py"}, "9f1c2aa Reload exports.ini each minute\n")},
                        {"say": "Five of six can move. exports.py reloads its file each minute, and Settings is read once."},
                    ],
                ),
            },
            {"run": ("Edit", {"file_path": "services/billing.py", "old_string": "load_config('billing.ini')", "new_string": "Settings.of('billing')"}, "The file services/billing.py has been updated successfully.")},
            {"run": ("Bash", {"command": "pytest -q"}, "42 passed in 2.52s\n")},
            {"say": "Five services use Settings now. exports.py keeps load_config, with a comment that says why."},
        ],
    },
    {
        "name": "table", "agent": "claude-code", "project": "tidewater", "model": SONNET, "days": 1, "minutes": 420,
        "title": "Virtual rows for the tide table",
        "talk": [
            {"ask": "The tide table renders all 8,760 rows and scrolling stutters. Render only what is on screen, keep the keyboard navigation."},
            {"think": "Fixed row height, so the window is arithmetic.", "run": ("Read", {"file_path": "src/table/TideTable.tsx"}, "export function TideTable({ rows }: Props) {\n  return <tbody>{rows.map(Row)}</tbody>\n}\n" * 12), "tokens": 800},
            {"run": ("Edit", {"file_path": "src/table/TideTable.tsx", "old_string": "rows.map(Row)", "new_string": "visible(rows, scroll).map(Row)"}, "The file src/table/TideTable.tsx has been updated successfully.")},
            {"run": ("Bash", {"command": "npm test -- table"}, "✗ keeps the focused row when it leaves the screen\nTests: 1 failed, 23 passed, 24 total\n"), "failed": True},
            {"say": "The focused row is unmounted when it leaves the window. It stays mounted now, wherever it is.", "run": ("Edit", {"file_path": "src/table/window.ts", "old_string": "return rows.slice(first, last)", "new_string": "return withFocused(rows.slice(first, last), focused)"}, "The file src/table/window.ts has been updated successfully.")},
            {"compact": "The tide table renders only visible rows (window.ts). The focused row stays mounted. 24 tests; next: measure, then the print view."},
            {"wait": 3, "ask": "Go on with the print view: it must still print every row."},
            {"run": ("Bash", {"command": "npm test && npm run build"}, "Tests: 25 passed, 25 total\nbuilt in 3.1s\n")},
            {"say": "Printing renders all rows; on screen a frame takes 4 ms instead of 90.", "tokens": 600},
        ],
    },
    {
        "name": "flaky", "agent": "codex", "project": "tidewater", "model": GPT, "days": 0, "minutes": 320,
        "talk": [
            {"ask": "test_sync_resumes fails about once in twenty runs. Find the race; no sleeps in the fix."},
            {"think": "Run it often, under load.", "run": ("exec_command", {"cmd": "for i in $(seq 40); do npm test -- sync >/tmp/out 2>&1 || { tail -3 /tmp/out; break; }; done"}, "✗ resumes after a dropped connection\nExpected 3 chunks, got 2\n"), "failed": True},
            {"run": ("exec_command", {"cmd": "sed -n '40,80p' src/sync/resume.ts"}, "socket.onclose = () => this.flush()\nthis.pending.push(chunk)\n")},
            {"run": ("apply_patch", "*** Begin Patch\n*** Update File: src/sync/resume.ts\n@@\n-this.pending.push(chunk)\n+await this.lock.run(() => this.pending.push(chunk))\n*** End Patch", "Success. Updated the following files:\nM src/sync/resume.ts\n")},
            {"run": ("exec_command", {"cmd": "for i in $(seq 400); do npm test -- sync >/dev/null || exit 1; done; echo none failed"}, "none failed\n")},
            {"say": "onclose flushed while a chunk was being queued. Both go through one lock now: 400 runs, none failed."},
        ],
    },
    {
        "name": "changelog", "agent": "claude-code", "project": "lighthouse-api", "model": HAIKU, "days": 0, "minutes": 14,
        "title": "Changelog for 2.8",
        "talk": [
            {"ask": "Write the changelog of 2.8 from the commits since 2.7, for users, five lines at most."},
            {"run": ("Bash", {"command": "git log --oneline v2.7..HEAD"}, "c0ffee1 Retry charges that time out\n9f1c2aa Move five services to Settings\n0042abc Index orders by customer\n")},
            {"wait": 4, "say": "CHANGELOG.md has three lines: charges that time out are retried and never made twice; a customer's orders open in a millisecond; services read their settings from one place."},
        ],
    },
]  # fmt: skip
