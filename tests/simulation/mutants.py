"""Every rule of the protocol, taken away: what the simulator and the tests of traces are measured by.

A mutant is a plausible implementation by an author who did not think of the rule. It is planted from outside, mostly by
rewriting what goes to ZooKeeper, and says whether it made a difference:

    with MUTANTS["release-unchecked"].plant() as planted:
        ...
    assert planted.bites
"""

from __future__ import annotations

from tests.simulation.mutants_dispatch import DISPATCH
from tests.simulation.mutants_ingress import INGRESS
from tests.simulation.mutants_logs import LOGS
from tests.simulation.mutants_mirror import MIRROR
from tests.simulation.mutants_ownership import OWNERSHIP
from tests.simulation.mutants_proof import PROOFS
from tests.simulation.mutants_releases import RELEASES
from tests.simulation.mutants_reload import RELOADS
from tests.simulation.mutants_reset import RESETS
from tests.simulation.mutants_sessions import SESSIONS
from tests.simulation.mutants_shares import SHARES
from tests.simulation.mutants_window import WINDOW
from tests.simulation.planting import Mutant

_ALL = (
    *OWNERSHIP,
    *SESSIONS,
    *SHARES,
    *RELEASES,
    *RESETS,
    *RELOADS,
    *LOGS,
    *PROOFS,
    *DISPATCH,
    *MIRROR,
    *WINDOW,
    *INGRESS,
)
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in _ALL}
