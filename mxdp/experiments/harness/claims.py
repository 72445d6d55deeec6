"""What an experiment claims, and how it is judged: from an interval (:mod:`.rows`), never from a point."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Mapping, Optional, Sequence

from mxdp.experiments.harness.rows import Row

LOOK_ERRORS = (0.0325, 0.00875, 0.00875)
"""How often the interval of each look may miss: together 5 %, so 95 % hold however early the looking ends. Six rounds
give the first (they miss in 3.1 %), twelve the second. That is for one claim: of an experiment's many, the chance that
one is judged wrongly is higher."""


@dataclass(frozen=True)
class Claim:
    """One sentence that an experiment judges.

    ``finish`` writes the measured quantity into ``row.rounds``, one number a round (None: this round says nothing),
    under the claim's name, for each row that the claim is about. It holds if every such row's number is at most
    ``bound``, or at least where ``least``. ``source``: who says so. Where the source is vague, the sentence says how it
    is read. ``exact``: the number has no noise, such as a count of bytes, so each round's is compared itself.
    """

    sentence: str
    source: str
    bound: float
    least: bool = False
    exact: bool = False


def noise(first: Row, again: Row) -> Optional[Dict[str, Any]]:
    """How two rows of one case compare, for the JSON; None where there is no interval for it."""
    first.keep_ratios("again", again)
    found = first.estimate("again")
    return None if found.low is None else {"label": first.label, **found._asdict()}


def noise_factor(noise: Optional[Mapping[str, Any]]) -> float:
    """By how much a case differed from itself, as a factor of at least 1; 1 if it may have been the same."""
    differs = noise and not noise["low"] <= 1 <= noise["high"]
    return max(noise["median"], 1 / noise["median"]) if noise and differs else 1.0


def judged(name: str, claim: Claim, rows: Sequence[Row], noise: float = 1.0) -> Dict[str, Any]:
    """The claim with what was measured, for the JSON: ``holds`` is None where that is undecided.

    It holds if each row's interval is on the right side of the bound. It does not if one is on the wrong side, and
    stays there when made wider for the number of rows: of many rows, one is on the wrong side by chance.
    ``noise``: the factor by which a case differed from itself; each interval is widened by it.
    """
    about = [row for row in rows if any(value is not None for value in row.rounds.get(name, ()))]
    right = [_side(claim, row, name, 1, noise) is True for row in about]
    wrong = [_side(claim, row, name, len(about), noise) is False for row in about]
    holds = False if any(wrong) else True if about and all(right) else None
    measured = [{"label": row.label, **row.estimate(name)._asdict()} for row in about]
    if claim.exact:  # judged by every round, so all are shown
        for row, each in zip(about, measured):
            known = [float(value) for value in row.rounds[name] if value is not None]
            each.update(low=min(known), high=max(known))
    return {"name": name, **asdict(claim), "holds": holds, "measured": measured}


def judge(claims: Mapping[str, Claim], rows: Sequence[Row], verdict: Mapping[str, Any]) -> Dict[str, Any]:
    """``verdict`` with each of an experiment's claims as it is judged from finished rows. Where it says that the
    machine was busy, only what is exact is decided; its noise widens the intervals."""
    factor = noise_factor(verdict["noise"])
    held = [judged(*each, rows, factor) for each in claims.items()]
    held = [{**claim, "holds": None} if verdict["busy"] and not claim["exact"] else claim for claim in held]
    return {**verdict, "holds": overall(held), "claims": held}


def _side(claim: Claim, row: Row, name: str, sides: int, noise: float) -> Optional[bool]:
    """Is the row's interval on the right side of the bound? None: the bound is inside it."""
    if claim.exact:
        known = [value for value in row.rounds[name] if value is not None]
        return all(value >= claim.bound if claim.least else value <= claim.bound for value in known)
    _, low, high = row.estimate(name, sides)
    if low is None or high is None:
        return None
    low, high = low / noise, high * noise
    beyond = [claim.bound - end if claim.least else end - claim.bound for end in (low, high)]
    return True if max(beyond) <= 0 else False if min(beyond) > 0 else None


def overall(claims: Sequence[Mapping[str, Any]]) -> Optional[bool]:
    """What all judged claims say together: one that fails decides, one that is open leaves it open."""
    held = [claim["holds"] for claim in claims if claim["measured"]]
    return False if False in held else None if None in held or not held else True


def is_open(claims: Sequence[Mapping[str, Any]]) -> bool:
    """Could more rounds decide a claim that is not decided yet?"""
    return any(claim["measured"] and claim["holds"] is None for claim in claims)
