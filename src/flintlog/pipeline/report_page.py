"""A report as one HTML file: figures, plots and tables, for light and dark, without scripts or a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from flintlog.pipeline.jobs.plots import SHEETS, Sheet, bars, columns
from flintlog.pipeline.report import Report
from flintlog.version import VERSION

_TOP_TOPICS = 15
_TOP_QUEUES = 15
_TABLE_ROWS = 50
_MOST_COLUMNS = 4
"""A table with more has a block for each row on a narrow page."""
_DAY_MS = 86_400_000

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --text: #1c2430; --faint: #5b6675;
  --line: #d9dee5; --mark: #2f6fdb; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --card: #1b212a; --text: #e6eaf0; --faint: #9aa6b5; --line: #323b47; --mark: #6ea0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
p { color: var(--faint); margin: .25rem 0 .75rem; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: .75rem; margin-top: 1.5rem; }
@media (max-width: 40rem) { .figures { grid-template-columns: repeat(2, 1fr); } }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
.figure b { display: block; font-size: 1.25rem; font-weight: 600; }
.figure span { color: var(--faint); font-size: .85rem; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
svg text.value { fill: var(--text); }
svg .mark { fill: var(--mark); }
svg .grid { stroke: var(--line); stroke-width: 1; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--faint); font-weight: 500; }
th.text, td.text { text-align: left; overflow-wrap: anywhere; white-space: normal; }
.narrow { display: none; }
@media (max-width: 40rem) {
  .wide { display: none; } .narrow { display: block; }
  .many thead { display: none; }
  .many tr { display: grid; grid-template-columns: repeat(4, 1fr); padding: .5rem 0;
    border-bottom: 1px solid var(--line); }
  .many td { border: 0; padding: .15rem .25rem; text-align: left; }
  .many td.text { grid-column: 1 / -1; font-weight: 600; }
  .many td.text ~ td.text { font-weight: 400; }
  .many td:not(.text)::before { content: attr(data-name); display: block; color: var(--faint); font-size: .75rem; }
}
.damage { padding: .6rem .8rem; border-left: 4px solid #c2410c; background: #c2410c1a; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--faint); font-size: .85rem; }
"""


def render_report(report: Report, *, made_at: datetime | None = None) -> str:
    """The page."""
    made = (made_at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    parts = [_damage(report), _figures(report)]
    if report.over_time:
        parts += [_over_time(report), _topics(report), _delays(report), _sizes(report), _queues(report)]
    parts += [_keys(report), _groups(report)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.store)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(report.store)}</h1>\n<p>{escape(_span(report))}</p>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<footer>Made by flintlog {escape(VERSION)} on {made}. All times are UTC.</footer>\n</body>\n</html>\n"
    )


# ---------------------------------------------------------------------- sections


def _span(report: Report) -> str:
    totals = report.totals
    if not totals["messages"]:
        return "The log holds no messages."
    return f"Messages stored from {_time(totals['first_ms'])} to {_time(totals['last_ms'])}"


def _damage(report: Report) -> str:
    if report.damage is None:
        return ""
    return f'<p class="damage">The log is not whole, and this is what could be read of it: {escape(report.damage)}</p>'


def _figures(report: Report) -> str:
    totals = report.totals
    if not totals["messages"]:
        return ""
    seconds = max(1.0, (_number(totals["last_ms"]) - _number(totals["first_ms"])) / 1000)
    peak = max((_number(row["per_second"]) for row in report.over_time), default=0.0)
    shown = [
        (show_count(_number(totals["messages"])), "messages"),
        (show_bytes(_number(totals["bytes"])), "in the log"),
        (show_count(_number(totals["topics"])), "topics"),
        (show_count(_number(totals["queues"])), "queues"),
        (show_count(_number(totals["messages"]) / seconds), "messages/s, mean"),
        (show_count(peak), f"messages/s, busiest {_step(report.step_ms)}"),
        (show_bytes(_number(totals["mean_size"])), "mean size"),
        (show_ms(_number(totals["delay_ms_p99"])), "delay, p99"),
    ]
    cards = (f'<div class="figure"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in shown)
    return f'<div class="figures">{"".join(cards)}</div>'


def _over_time(report: Report) -> str:
    step = report.step_ms
    known = {int(_number(row["from_ms"])): row for row in report.over_time}
    places = range(min(known), max(known) + step, step)
    labels = [_time(place, step) for place in places]
    tips = [_time(place) for place in places]
    rates = [_number(known[place]["per_second"]) if place in known else 0.0 for place in places]
    sizes = [_number(known[place]["bytes"]) if place in known else 0.0 for place in places]
    return (
        f"<h2>Messages a second</h2><p>By {_step(step)}.</p>"
        + _plot(lambda sheet: columns(rates, labels, "Messages a second over time", show_count, tips, sheet=sheet))
        + f"<h2>Volume</h2><p>Bytes of the log by {_step(step)}.</p>"
        + _plot(lambda sheet: columns(sizes, labels, "Bytes over time", show_bytes, tips, base=1024, sheet=sheet))
    )


def _topics(report: Report) -> str:
    rows = [(str(row["topic"]), _number(row["messages"])) for row in report.topics[:_TOP_TOPICS]]
    table = _table(
        report.topics,
        {"topic": "topic", "messages": "messages", "bytes": "bytes", "size_p50": "size p50", "size_p99": "size p99",
         "size_max": "largest", "delay_ms_p50": "delay p50", "delay_ms_p99": "delay p99"},
    )  # fmt: skip
    plot = _plot(lambda sheet: bars(rows, "Messages by topic", show_count, sheet=sheet))
    return f"<h2>Topics</h2>{_more(report.topics, _TOP_TOPICS)}{plot}{table}"


def _delays(report: Report) -> str:
    totals = report.totals
    names = ("p50", "p90", "p95", "p99", "max")
    rows = [(name, _number(totals[f"delay_ms_{name}"])) for name in names]
    about = "From a message's birth at its producer to its storing, over all topics."
    plot = _plot(lambda sheet: bars(rows, "Delay percentiles", show_ms, sheet=sheet))
    return f"<h2>Delay</h2><p>{about}</p>{plot}"


def _sizes(report: Report) -> str:
    values = [_number(row["messages"]) for row in report.sizes]
    labels = [f"≤ {show_bytes(_number(row['up_to_bytes']))}" for row in report.sizes]
    plot = _plot(lambda sheet: columns(values, labels, "Sizes", show_count, sheet=sheet))
    return f"<h2>Sizes</h2><p>Messages by size in the log.</p>{plot}"


def _queues(report: Report) -> str:
    rows = [(f"{row['topic']} / {row['queue_id']}", _number(row["skew"])) for row in report.queues[:_TOP_QUEUES]]
    about = "How many times its fair share of its topic a queue has; 1 is even."
    plot = _plot(lambda sheet: bars(rows, "Skew of queues", lambda value: f"{value:.2f}×", sheet=sheet))
    return f"<h2>Skew of queues</h2><p>{about}</p>{_more(report.queues, _TOP_QUEUES)}{plot}"


def _keys(report: Report) -> str:
    if not report.keys:
        return ""
    return "<h2>Most frequent keys</h2>" + _table(
        report.keys, {"topic": "topic", "key": "key", "messages": "messages", "share": "of its topic"}
    )


def _groups(report: Report) -> str:
    if not report.groups:
        return ""
    return "<h2>Lag of groups</h2>" + _table(
        report.groups,
        {
            "group": "group",
            "topic": "topic",
            "queue_id": "queue",
            "offset": "offset",
            "max_offset": "end",
            "lag": "lag",
        },
    )


# ---------------------------------------------------------------------- pieces


def _plot(draw: Callable[[Sheet], str]) -> str:
    """A plot for wide and for narrow pages."""
    return "".join(
        f'<div class="{name}">{draw(sheet)}</div>' for name, sheet in zip(("wide", "narrow"), SHEETS, strict=True)
    )


def _table(rows: Sequence[Mapping[str, object]], names: Mapping[str, str]) -> str:
    heads = "".join(f"<th{_kind(name)}>{escape(title)}</th>" for name, title in names.items())
    lines = "".join(f"<tr>{''.join(_cells(row, names))}</tr>" for row in rows[:_TABLE_ROWS])
    more = _more(rows, _TABLE_ROWS)
    many = ' class="many"' if len(names) > _MOST_COLUMNS else ""
    return f'<div class="table"><table{many}><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{more}'


def _cells(row: Mapping[str, object], names: Mapping[str, str]) -> Iterable[str]:
    for name, title in names.items():
        value = row[name]
        if isinstance(value, str):
            shown = value
        elif name == "share":
            shown = f"{100 * _number(value):.1f} %"
        elif name.startswith("delay"):
            shown = show_ms(_number(value))
        elif name == "bytes" or name.startswith("size"):
            shown = show_bytes(_number(value))
        else:
            shown = f"{int(_number(value)):,}"
        yield f'<td{_kind(name)} data-name="{escape(title, quote=True)}">{escape(shown)}</td>'


def _kind(name: str) -> str:
    return ' class="text"' if name in ("topic", "key", "group") else ""


def _more(rows: Sequence[object], shown: int) -> str:
    return f"<p>The first {shown} of {len(rows):,}.</p>" if len(rows) > shown else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _time(value: object, step_ms: int = 0) -> str:
    moment = datetime.fromtimestamp(_number(value) / 1000, UTC)
    if not step_ms:
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    if step_ms >= _DAY_MS:
        return moment.strftime("%Y-%m-%d")
    if step_ms < 1000:
        return f"{moment:%H:%M:%S}.{moment.microsecond // 100_000}"
    return moment.strftime("%m-%d %H:%M" if step_ms >= 3_600_000 else "%H:%M:%S")


def _step(step_ms: int) -> str:
    for name, size in (("day", _DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if step_ms >= size:
            count = step_ms // size
            return name if count == 1 else f"{count} {name}s"
    return f"{step_ms} ms"


def show_count(value: float) -> str:
    """
    >>> show_count(1_234), show_count(2_500_000), show_count(0.25)
    ('1,234', '2.5 M', '0.25')
    """
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def show_bytes(value: float) -> str:
    """
    >>> show_bytes(512), show_bytes(1536), show_bytes(3 << 30)
    ('512 B', '1.5 KiB', '3 GiB')
    """
    for size, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size:
            return f"{round(value / size, 1):g} {unit}"
    return f"{value:.0f} B"


def show_ms(value: float) -> str:
    """
    >>> show_ms(3), show_ms(90_500)
    ('3 ms', '90.5 s')
    """
    return f"{value:,.0f} ms" if abs(value) < 10_000 else f"{value / 1000:,.1f} s"
