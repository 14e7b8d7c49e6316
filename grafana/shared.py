"""What several boards show, word for word: "over limit" means the same on each board."""

from grafana import expressions as e
from grafana.documents import annotation
from grafana.kinds import ALARM, stat, table

OVER = (
    stat("Over limit now", steps=ALARM)
    .about("Containers, pods and shared claims that hold more than their declared limit, tolerance not counted.")
    .about("Nothing is shown where nobody declared one.")
    .query(e.OVER)
)
WHO_IS_OVER = (
    table("Over limit now", "node, namespace, pod, container, claim, gpu, gpu_instance, uuid", width=12)
    .about("Who holds more than declared, and how much more.")
    .about("Without a container it is the pod's limit, without a pod a shared claim's.")
    .column("Excess", e.EXCESS, "bytes")
)
IDLE = (
    stat("Idle allocations", steps=ALARM)
    .about("Containers that the kubelet handed a GPU, and that have no process on it.")
    .about("Of GPUs that do not answer nothing is said.")
    .query(e.IDLE_COUNT)
)
PODS = (
    stat("Pods on GPUs").about("Pods that hold GPU memory, or were handed a GPU.").query("count(gpusteward_pod_info)")
)
UNATTRIBUTED = (
    stat("Unattributed", "bytes")
    .about("Used memory that nobody explains: neither a container, nor a dead process, nor one of the host.")
    .query(e.UNATTRIBUTED)
)
ACTIONS = annotation("Actions", "gpusteward_last_action_timestamp_seconds * 1000", "red", "action", at_value=True)
