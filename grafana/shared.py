"""What several boards show, word for word: "over limit" means the same on each board."""

from grafana import expressions as e
from grafana.documents import annotation
from grafana.kinds import ALARM, stat, table

OVER = (
    stat("Over limit now", steps=ALARM)
    .about("Containers, pods and shared claims over their declared limit, without tolerance. Empty where no limit")
    .about("is declared.")
    .query(e.OVER)
)
WHO_IS_OVER = (
    table("Over limit now", "node, namespace, pod, container, claim, gpu, gpu_instance, uuid", width=12)
    .about("Containers over their limit, and by how much. Without a container, the row is about the limit of the")
    .about("pod; without a pod, of a shared claim.")
    .column("Excess", e.EXCESS, "bytes")
)
IDLE = (
    stat("Idle allocations", steps=ALARM)
    .about("Containers that have a GPU, and no process on it, or processes that do not use its SMs.")
    .query(e.IDLE_COUNT)
)
WHO_IS_IDLE = (
    table("Idle allocations", "node, namespace, pod, container, gpu, gpu_instance, resource, uuid", width=12)
    .about("Containers that have a GPU now, and no process on it, or processes that do not use its SMs.")
    .column("Replicas", e.IDLE, "short")
)
PODS = (
    stat("Pods on GPUs")
    .about("Pods that hold GPU memory or have an allocated GPU.")
    .query("count(gpusteward_pod_info)")
)
UNATTRIBUTED = (
    stat("Unattributed", "bytes")
    .about("Used memory that no container, dead process or host process explains.")
    .query(e.UNATTRIBUTED)
)
ACTIONS = annotation("Actions", "gpusteward_last_action_timestamp_seconds * 1000", "red", "action", at_value=True)
