// Cambricon's CNDev, in the layouts of its header. Device memory is in MiB, that of a process in KiB.
#include <stdio.h>
#include <string.h>

#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;

enum { NO_DRIVER = 1, OTHER_VERSION = 3, UNINITIALISED = 4, INVALID = 5, INSUFFICIENT = 9, MIB = 1 << 20, KIB = 1 << 10 };

struct cards { int version; u32 count; };
struct uuid { int version; unsigned char uuid[37]; u64 ncs; };
struct memory { long long total, used, reserved, virtual_total, virtual_used; u64 global, rest[16]; };
struct process_info { int version; u32 pid; u64 physical, virtual; };
struct utilization { int version, average, core[80]; };
struct by_process { int version; u32 pid, cores, jpu, decoder, encoder, memory; };
struct pcie {
    u32 subsystem, device_id;
    unsigned short vendor, subvendor;
    u32 domain, bus, device, function;
    unsigned short module, slot;
    u32 reserved[8];
};

static bool initialised;

static int entered(const char *function, struct state *state) {
    int code = begin("cndev", function, state);
    if (code < 0) return initialised ? UNINITIALISED : NO_DRIVER;
    return code ? code : initialised ? 0 : UNINITIALISED;
}

static int spoken(int version) { return version == (int)knob("cndev", "version", 6) ? 0 : OTHER_VERSION; }

#define DEVICE(name)                                          \
    ENTER(name);                                              \
    const struct device *device = find(&state, handle - 100); \
    if (!device) return INVALID

EXPORT int cndevInit(int reserved) {
    (void)reserved;
    struct state state;
    int code = begin("cndev", "cndevInit", &state);
    if (code < 0) return NO_DRIVER;
    initialised = code == 0;
    return code;
}

EXPORT int cndevRelease(void) { initialised = false; return 0; }

EXPORT int cndevGetDeviceCount(struct cards *cards) {
    ENTER("cndevGetDeviceCount");
    if (spoken(cards->version)) return OTHER_VERSION;
    cards->count = (u32)state.devices;
    return 0;
}

EXPORT int cndevGetDeviceHandleByIndex(int index, int *handle) {
    ENTER("cndevGetDeviceHandleByIndex");
    *handle = 100 + index;
    return find(&state, index) ? 0 : INVALID;
}

EXPORT int cndevGetUUID(struct uuid *uuid, int handle) {
    DEVICE("cndevGetUUID");
    if (spoken(uuid->version)) return OTHER_VERSION;
    uuid->ncs = 0;
    return put((char *)uuid->uuid, device->uuid, sizeof uuid->uuid, INVALID);
}

EXPORT const char *cndevGetCardNameStringByDevId(int handle) {
    struct state state;
    static char name[TEXT];
    if (entered("cndevGetCardNameStringByDevId", &state)) return NULL;
    const struct device *device = find(&state, handle - 100);
    return device && put(name, device->model, sizeof name, 1) == 0 ? name : NULL;
}

EXPORT int cndevGetPCIeInfoV2(struct pcie *pcie, int handle) {
    DEVICE("cndevGetPCIeInfoV2");
    memset(pcie, 0, sizeof *pcie);
    return sscanf(device->pci, "%x:%x:%x.%x", &pcie->domain, &pcie->bus, &pcie->device, &pcie->function) == 4 ? 0 : INVALID;
}

EXPORT int cndevGetMemoryUsageV2(struct memory *memory, int handle) {
    DEVICE("cndevGetMemoryUsageV2");
    memset(memory, 0, sizeof *memory);
    memory->total = (long long)(device->total / MIB);
    memory->used = (long long)(device->used / MIB);
    memory->reserved = (long long)(device->reserved / MIB);
    return 0;
}

// Count the processes of a device: whether there was room for as many.
static bool fits(const struct state *state, const struct device *device, u32 *count) {
    u32 room = *count;
    *count = 0;
    for (int each = 0; each < state->processes; each++) *count += state->process[each].device == device->index;
    return *count <= room;
}

EXPORT int cndevGetProcessInfo(u32 *count, struct process_info *entries, int handle) {
    DEVICE("cndevGetProcessInfo");
    if (spoken(entries->version)) return OTHER_VERSION;
    if (!fits(&state, device, count)) return INSUFFICIENT;
    for (int each = 0; each < state.processes; each++) {
        const struct process *process = &state.process[each];
        if (process->device != device->index) continue;
        *entries++ = (struct process_info){.pid = process->pid, .physical = process->bytes / KIB};
    }
    return 0;
}

EXPORT int cndevGetProcessUtilization(u32 *count, struct by_process *entries, int handle) {
    DEVICE("cndevGetProcessUtilization");
    if (spoken(entries->version)) return OTHER_VERSION;
    if (!fits(&state, device, count)) return INSUFFICIENT;
    for (int each = 0; each < state.processes; each++) {
        const struct process *process = &state.process[each];
        if (process->device != device->index) continue;
        *entries++ = (struct by_process){.pid = process->pid, .cores = process->busy};
    }
    return 0;
}

EXPORT int cndevGetDeviceUtilizationInfo(struct utilization *utilization, int handle) {
    DEVICE("cndevGetDeviceUtilizationInfo");
    if (spoken(utilization->version)) return OTHER_VERSION;
    utilization->average = (int)device->busy;
    return 0;
}
