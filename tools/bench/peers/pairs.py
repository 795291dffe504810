"""From runs to a verdict: the best configuration of each side, alternating pairs, the ratio."""

import dataclasses
import statistics

import programs
from quiet import say

BY_RATIO, BY_LIMIT, NOT_MET = "met by ratio", "met by limit", "not met"


def best_of(choices, run):
    """The choice with the highest rate, and all rates by name."""
    rates = {choice.name: run(choice).tokens_per_s for choice in choices}
    best = max(rates, key=rates.get)
    return next(choice for choice in choices if choice.name == best), rates


def alternate(ours, theirs, count, run):
    """`count` pairs of figures; who begins alternates, so that a drift favours nobody."""
    pairs = []
    for i in range(count):
        if i % 2 == 0:
            mine = run(ours)
            pairs.append((mine, run(theirs)))
        else:
            other = run(theirs)
            pairs.append((run(ours), other))
    return pairs


def verdict(ratio, bar, share, limit_bar):
    if ratio >= bar:
        return BY_RATIO
    return BY_LIMIT if share is not None and share >= limit_bar else NOT_MET


def ceiling_beside(details, ceiling, cores):
    """What `cores` cores reached at most, beside one run; None when it is not said."""
    for reached in (details.get(ceiling.key) or {}).get("cores", []):
        if reached.get("cores") == cores:
            return reached.get(ceiling.rate)
    return None


def median_or_none(values):
    found = [value for value in values if isinstance(value, (int, float))]
    return statistics.median(found) if found else None


def result(cell, ours, theirs, looks, pairs):
    """A row of the table, with the runs it is made of."""
    ratio = statistics.median(mine.tokens_per_s / other.tokens_per_s for mine, other in pairs)
    metric, details = cell.metric, [mine.details for mine, _ in pairs]
    share = median_or_none(one.get("bounds", {}).get(metric.share) for one in details)
    ceilings = [ceiling_beside(one, metric.ceiling, ours.cores) for one in details]
    return {
        "name": cell.name,
        "model": cell.row.model,
        "type": cell.row.type,
        "metric": metric.key,
        "peer": cell.row.peer,
        "cleave": {
            "layout": ours.name,
            "tokens_per_s": statistics.median(mine.tokens_per_s for mine, _ in pairs),
        },
        "against": {
            "configuration": theirs.name,
            "tokens_per_s": statistics.median(other.tokens_per_s for _, other in pairs),
        },
        "looks": looks,
        "pairs": [[dataclasses.asdict(figure) for figure in pair] for pair in pairs],
        "ratio": ratio,
        "bar": cell.bar,
        "share": share,
        "limit_bar": metric.limit_bar,
        "ceiling": median_or_none(ceilings),
        "verdict": verdict(ratio, cell.bar, share, metric.limit_bar),
    }


@dataclasses.dataclass
class Comparison:
    gate: object
    binary: str
    builds: dict  # peer -> {folder: what tells this build from others}
    pairs: int
    repeats: int

    def __post_init__(self):
        self._cleave_looks = {}  # (model, metric) -> best and rates: the same for every peer

    def look(self, cell, model):
        def run(program):
            sizes = cell.look_sizes(self.repeats)
            figure = programs.measure(self.gate, program, model, sizes, cell.timeout_s)
            say(f"  look {program.name}: {figure.tokens_per_s:.1f} tok/s")
            return figure

        key = (model, cell.metric.key)
        if key not in self._cleave_looks:
            choices = programs.cleave_choices(self.binary, cell.metric)
            self._cleave_looks[key] = best_of(choices, run)
        peers = programs.peer_choices(cell.row.peer, self.builds[cell.row.peer])
        return self._cleave_looks[key], best_of(peers, run)

    def compare(self, cell, model):
        say(cell.name)
        (ours, our_rates), (theirs, their_rates) = self.look(cell, model)
        sizes = cell.sizes(self.repeats)

        def run(program):
            return programs.measure(self.gate, program, model, sizes, cell.timeout_s)

        pairs = alternate(ours, theirs, self.pairs, run)
        looks = {"cleave": our_rates, "against": their_rates}
        found = result(cell, ours, theirs, looks, pairs)
        say(f"  {found['ratio']:.2f}x of {cell.bar}x: {found['verdict']}")
        return found
