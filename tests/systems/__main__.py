"""
Shows what gpusteward makes of the scenes of some systems: `PYTHONPATH=tests python -m systems kai hami-nvidia`.

What comes in: names of files of this folder. What goes out: each scene's devices, limits and verdicts, as found.
"""

import logging
import sys

import structlog

from systems.book import FOLDER, read
from systems.player import play

if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for name in sys.argv[1:]:
        for scene in read(FOLDER / f"{name}.yaml").scenes:
            played = play(scene)
            sys.stdout.write(f"{name} {scene.mode} ({played.seconds:g} s)\n")
            for (gpu, mig), device in sorted(played.devices.items(), key=str):
                pods = getattr(device, "pods", "?")
                where = f"gpu {gpu}" if mig is None else f"gpu {gpu} mig {mig}"
                sys.stdout.write(f"  {where}: sharing {device.sharing}, replicas {device.replicas}, pods {pods}\n")
            for (pod, container, gpu, mig, claim), limit in sorted(played.limits.items(), key=str):
                where = f"gpu {gpu}" if mig is None else f"gpu {gpu} mig {mig}"
                size = "null" if limit.memory is None else f"{limit.memory / 2**20:g}Mi"
                sys.stdout.write(
                    f"  limit {pod}/{container}{f' claim {claim}' if claim else ''} on {where}: bytes {size}, "
                    f"scope {limit.scope}, enforced_by {limit.enforced_by}, system {limit.system}, "
                    f"source {limit.source}, context {getattr(limit, 'context', '?')}\n"
                )
                for label, texts in (("problem", limit.problems), ("report only", limit.report_only)):
                    for text in texts:
                        sys.stdout.write(f"    {label}: {text}\n")
            for (pod, container), standing in sorted(played.states.items()):
                acted = played.acted.get((pod, container))
                did = f"{acted.action} after {acted.after:g}s, then " if acted else ""
                reason = f" {standing.reason} ({standing.reason.kind})" if standing.reason else ""
                sys.stdout.write(f"  verdict {pod}/{container}: {did}{standing.state}{reason} {standing.detail}\n")
