"""The least time that a device can take, from published figures: an estimate, nothing measured."""

from typing import Any

from pujax.aot.analysis import Totals
from pujax.aot.topologies import Facts


def limits(totals: Totals, facts: Facts, num_devices: int) -> dict[str, Any]:
    """Seconds that each of four limits allows at best; the longest is the estimate.

    Args:
      totals: of one step, or of one call of a program without steps.
      facts: of the device.
      num_devices: that exchange numbers.

    Returns:
      `multiplications` at the peak of their type, `memory` traffic at the full bandwidth if nothing
      stays in a cache, `launches` of kernels by the host, `exchange` between devices over one link,
      their `longest`, and `bound_by`, its name.
    """
    slowest = min(facts.peak.values())
    seconds = {
        "multiplications": sum(n / facts.peak.get(x, slowest) for x, n in totals.flops.items()),
        "memory": totals.num_bytes / facts.bandwidth,
        "launches": totals.launches * facts.launch,
        "exchange": _exchange(totals, num_devices) / facts.link,
    }
    bound_by = max(seconds, key=lambda name: seconds[name])
    return {**seconds, "longest": seconds[bound_by], "bound_by": bound_by}


def _exchange(totals: Totals, num_devices: int) -> float:
    """Bytes that one device sends; rings of all devices, the way with the fewest bytes."""
    share = (num_devices - 1) / num_devices
    total = 0.0
    for kind, entry in totals.collectives.items():
        # A sum goes around twice: once to add up, once to hand out.
        rounds = 2 * share if kind == "all-reduce" else 1.0 if "permute" in kind else share
        total += rounds * entry["bytes"]
    return total
