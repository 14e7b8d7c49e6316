// Hygon's ROCm SMI (librocm_smi64.so), in the layouts of its header: one list of processes for the whole node.
#include <stdio.h>
#include <string.h>

#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;

enum { INVALID = 1, NOT_SUPPORTED = 2, INIT_ERROR = 8, NOT_FOUND = 10, TOO_SMALL = 11 };

struct process_info { u32 pid, pasid; u64 vram, sdma; u32 cu; };

static int entered(const char *function, struct state *state) {
    int code = begin("rsmi", function, state);
    return code < 0 ? INIT_ERROR : code;
}

#define DEVICE(name)                                        \
    ENTER(name);                                            \
    const struct device *device = find(&state, (int)index); \
    if (!device) return INVALID

EXPORT int rsmi_init(u64 flags) {
    (void)flags;
    ENTER("rsmi_init");
    return 0;
}

EXPORT int rsmi_shut_down(void) { return 0; }

EXPORT int rsmi_version_str_get(int component, char *text, u32 length) {
    ENTER("rsmi_version_str_get");
    return component == 0 ? put(text, "6.2.17", length, TOO_SMALL) : INVALID;
}

EXPORT int rsmi_num_monitor_devices(u32 *count) {
    ENTER("rsmi_num_monitor_devices");
    *count = (u32)state.devices;
    return 0;
}

EXPORT int rsmi_dev_unique_id_get(u32 index, u64 *id) {
    DEVICE("rsmi_dev_unique_id_get");
    return sscanf(device->uuid, "%llx", id) == 1 ? 0 : NOT_SUPPORTED;
}

EXPORT int rsmi_dev_pci_id_get(u32 index, u64 *id) {
    DEVICE("rsmi_dev_pci_id_get");
    u32 domain, bus, slot, function;
    if (sscanf(device->pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return NOT_SUPPORTED;
    *id = (u64)domain << 32 | bus << 8 | slot << 3 | function;
    return 0;
}

EXPORT int rsmi_dev_name_get(u32 index, char *text, size_t length) {
    DEVICE("rsmi_dev_name_get");
    return put(text, device->model, (u32)length, TOO_SMALL);
}

EXPORT int rsmi_dev_memory_total_get(u32 index, int kind, u64 *bytes) {
    DEVICE("rsmi_dev_memory_total_get");
    *bytes = device->total;
    return kind == 0 ? 0 : INVALID;
}

EXPORT int rsmi_dev_memory_usage_get(u32 index, int kind, u64 *bytes) {
    DEVICE("rsmi_dev_memory_usage_get");
    *bytes = device->used;
    return kind == 0 ? 0 : INVALID;
}

EXPORT int rsmi_dev_busy_percent_get(u32 index, u32 *percent) {
    DEVICE("rsmi_dev_busy_percent_get");
    *percent = device->busy;
    return 0;
}

EXPORT int rsmi_dev_power_ave_get(u32 index, u32 sensor, u64 *microwatts) {
    DEVICE("rsmi_dev_power_ave_get");
    *microwatts = 112000000;
    return sensor == 0 ? 0 : INVALID;
}

EXPORT int rsmi_dev_temp_metric_get(u32 index, u32 sensor, int metric, long long *millidegrees) {
    DEVICE("rsmi_dev_temp_metric_get");
    *millidegrees = 48000;
    return sensor == 0 && metric == 0 ? 0 : INVALID;
}

// A process that is on several devices has a line for each in the state, and one entry with the sum here.
static bool seen_before(const struct state *state, int at) {
    for (int earlier = 0; earlier < at; earlier++)
        if (state->process[earlier].pid == state->process[at].pid) return true;
    return false;
}

EXPORT int rsmi_compute_process_info_get(struct process_info *entries, u32 *count) {
    ENTER("rsmi_compute_process_info_get");
    u32 there = 0, room = *count;
    for (int at = 0; at < state.processes; at++) there += !seen_before(&state, at);
    *count = there;
    if (!entries) return 0;
    u32 written = 0;
    for (int at = 0; at < state.processes; at++) {
        if (seen_before(&state, at)) continue;
        if (written == room) return TOO_SMALL;
        struct process_info entry = {.pid = state.process[at].pid, .pasid = 32771, .cu = 0};
        for (int each = 0; each < state.processes; each++)
            if (state.process[each].pid == entry.pid) entry.vram += state.process[each].bytes;
        entries[written++] = entry;
    }
    return 0;
}

EXPORT int rsmi_compute_process_gpus_get(u32 pid, u32 *indices, u32 *count) {
    ENTER("rsmi_compute_process_gpus_get");
    u32 there = 0, room = *count;
    for (int at = 0; at < state.processes; at++) {
        if (state.process[at].pid != pid) continue;
        if (indices && there < room) indices[there] = (u32)state.process[at].device;
        there++;
    }
    *count = there;
    return there ? (indices && there > room ? TOO_SMALL : 0) : NOT_FOUND;
}
