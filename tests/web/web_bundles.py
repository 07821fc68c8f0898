"""Bundles for the web tests: hostile transcripts, 40,000 rooms, three years of work, one exchange, none."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from backfill import tables
from backfill.types import CLAIM_KINDS, ROOM_TYPES, Room
from tests.bundle_fixture import SPECS, Fixture, Spec, load, seal, write_bundle

PROBE = "hostile-markup-ran"
# Each of these would set the marker, load something from elsewhere, or leave its place, if any of it were believed.
HOSTILE = f"""# <script>document.title="{PROBE}"</script>

<img src=x onerror="document.title='{PROBE}'">
<svg onload="document.title='{PROBE}'"><a xlink:href="javascript:alert(1)">x</a></svg>
<style>body{{display:none}}</style> <iframe srcdoc="<script>top.document.title='{PROBE}'</script>"></iframe>

[click](javascript:document.title='{PROBE}') [data](data:text/html,<script>1</script>) [vb](vbscript:x)
[good](https://example.org/a?b=1&c="2") ![pixel](http://127.0.0.1:1/pixel.png) <javascript:alert(1)>

| a<b> | c |
|:---:|--:|
| `<b>` | &lt;script&gt;alert(1)&lt;/script&gt; |

```html" onmouseover="document.title='{PROBE}'
<script>document.title="{PROBE}"</script>
```

```python
print("</code></pre><script>document.title='{PROBE}'</script>")
```

</div></section></main><form action="http://127.0.0.1:1/"><input name=q></form>
\x1b[31mred\x1b[0m \u202ereversed\u202c \x00nul
"""

HOSTILE_SPECS = (
    Spec(
        "hostile", "h1", '<b onmouseover="x">evil</b>', "2026-03-05T10:00:00",
        f"Please render <script>document.title='{PROBE}'</script> this", HOSTILE,
        f"Rendered <img src=x onerror=\"document.title='{PROBE}'\"> markup", "<svg onload=",
        "concept:markup_escape", "src/<img src=x onerror=alert(1)>.py", "llm",
    ),
    Spec(
        "long", "h1", "shop/api", "2026-03-06T10:00:00", "Write down everything that you did to the ledger",
        "".join(f"Step {n}: the ledger entry {n} was checked against invoice {n * 7}.\n\n" for n in range(3000)),
        "Checked three thousand ledger entries against invoices", "the ledger entry 0 was checked",
        "workflow:ledger_check", "ledger/entries.csv",
    ),
)  # fmt: skip


def write_hostile(path: Path) -> Fixture:
    """The fixture's exchanges, claims and rooms, with hostile ones among them."""
    return write_bundle(path, specs=(*SPECS, *HOSTILE_SPECS), replaced=True)


def write_many_rooms(path: Path, n_rooms: int = 40_000, n_projects: int = 300) -> Fixture:
    """The fixture with a table of `n_rooms` rooms, most of one exchange, as a large bundle has them."""
    fixture = write_bundle(path)
    rng = np.random.default_rng(11)
    words = ("retry", "queue", "ledger", "parser", "schema", "token", "cache", "socket", "deploy", "index", "worker",
             "lock", "batch", "invoice", "route")  # fmt: skip
    rooms = []
    for n in range(n_rooms):
        name = f"{words[n % 15]}_{words[(n // 15) % 15]}_{n}"
        at = 1_740_000_000_000_000 + int(rng.integers(0, 40_000_000)) * 1_000_000
        project = "" if n % 97 == 0 else f"team/project-{int(rng.zipf(1.4)) % n_projects}"
        size = max(1, int(900 / (n + 1) ** 0.7))
        rooms.append(Room(ROOM_TYPES[n % 3], name, name.replace("_", " "), project, size, at, at))
    manifest = load(path)
    entry = next(file for file in manifest["files"] if file["role"] == "rooms")
    file = path / entry["path"]
    rooms.sort(key=lambda room: (room.room_type, room.room_key, room.project))
    entry["rows"] = tables.write_table(tables.ROOMS, rooms, file)
    data = file.read_bytes()
    entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    manifest["counts"]["rooms"] = n_rooms
    seal(path, manifest)
    return fixture


def write_empty(path: Path) -> Fixture:
    """A bundle without any exchange."""
    return write_bundle(path, specs=())


def write_single(path: Path) -> Fixture:
    """A bundle of one exchange."""
    return write_bundle(path, specs=SPECS[:1])


def write_years(path: Path) -> Fixture:
    """Three years of work in a dozen projects, with claims of every kind that the fixture's specs carry."""
    rng = np.random.default_rng(5)
    specs = []
    for n in range(180):
        base = SPECS[n % 5]
        month = int(rng.integers(0, 36))
        day = f"{2023 + month // 12}-{month % 12 + 1:02d}-{int(rng.integers(1, 28)):02d}T10:{n % 60:02d}:00"
        project = f"group/project-{int(rng.zipf(1.5)) % 12}"
        specs.append(replace(base, name=f"{base.name}{n}", session=f"y{n}", project=project, day=day,
                             user=f"{base.user} ({n})", tier="llm" if n % 3 else "extractive"))  # fmt: skip
    assert CLAIM_KINDS
    return write_bundle(path, specs=tuple(specs))
