"""A prediction as one HTML file, which asks nothing of any network."""

from __future__ import annotations

import base64
from typing import Sequence, Tuple

import jinja2

from mxdp.experiments.predict.inputs import Known
from mxdp.experiments.predict.picture import Curves, draw, timeline
from mxdp.experiments.predict.ways import Compared
from mxdp.experiments.show import style
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.pipeline import gpipe
from mxdp.plans.scaling.cluster import Cluster
from mxdp.plans.scaling.step import Network
from mxdp.plans.show.moving import Page, moving

MOST_SHOWN = 8
"""Devices of the plan that moves."""


def page(
    network: Network, cluster: Cluster, rows: Sequence[Compared], curves: Curves, known: Sequence[Known], answer: str
) -> str:
    """The whole page: the answer, the ways as a table, how far each scales, the fastest one's step, and its plan."""
    best = min(rows, key=lambda row: row.found.seconds / row.found.samples)
    shown, words = _plan(best, cluster)
    environment = jinja2.Environment(loader=jinja2.PackageLoader("mxdp.experiments.show"), autoescape=True)
    template = environment.get_template("predict.html.j2")
    return template.render(
        number=style.number,
        network=network,
        cluster=cluster,
        rows=rows,
        known=known,
        answer=answer,
        best=best,
        scaling=_picture(draw(network, curves, "svg")),
        timeline=_picture(timeline(best.found.spans)),
        plan=shown,
        plan_words=words,
    )


def _picture(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _plan(row: Compared, cluster: Cluster) -> Tuple[Page, str]:
    """The plan of a row on as many devices as fit on a page."""
    if row.way.stages > 1:
        found = gpipe(row.way.stages, min(row.way.micro_batches, 8))
        return moving(found), f"The pipeline with {found.micro_batches} of its {row.way.micro_batches} micro-batches"
    devices = min(cluster.count, MOST_SHOWN)
    name = "ring" if row.way.allreduce == "two-level" else row.way.allreduce
    return moving(plan(name, devices)), f"{name}, on {devices} of {cluster.count} devices"
