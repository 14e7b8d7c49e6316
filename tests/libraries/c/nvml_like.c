// A library of NVML's shape: one of IXML, EFML, MXSML, XPUML or HGML, in the layouts of the vendor's own header.
// IXML_V3: 24 or 32 bytes of an entry, as the knob `entry` says; without it the old call alone, with 16.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;

enum { UNINITIALIZED = 1, INVALID = 2, TOO_SMALL = 7, NOT_LOADED = 9, OTHER_VERSION = 25 };

#if defined(IXML)
#define LIBRARY "ixml"
#define F(name) nvml##name
#elif defined(EFML)
#define LIBRARY "efml"
#define F(name) efml##name
#elif defined(MXSML)
#define LIBRARY "mxsml"
#define F(name) mxSmlEx##name
#elif defined(XPUML)
#define LIBRARY "xpuml"
#define F(name) xpuml##name
#else
#define LIBRARY "hgml"
#define F(name) hgml##name
#endif

#if defined(MXSML)
typedef struct { u64 free, total, used; } memory_t;
typedef struct { u32 compute_instance, instance, pid; u64 used; } process_t;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
#elif defined(XPUML)
typedef struct { u64 page, total, free, used, l3_page, l3_total, l3_free, l3_used, reserved[8]; } memory_t;
typedef struct { u32 pid; u64 used, l3; u32 root_ns_pid, reserved_u32; u64 reserved[12]; } process_t;
typedef struct { u32 domain, bus, device, function, id, subsystem; char bus_id[32]; u64 reserved[9]; } pci_t;
#elif defined(EFML)
typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, free, used, reserved; } memory_v2_t;
typedef struct { u32 pid; u64 used; u32 instance, compute_instance; } process_t;
typedef struct { u32 domain, bus, device, function, id, subsystem; char bus_id[32]; } pci_t;
#else
typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
#if defined(IXML) && !defined(IXML_V3)
typedef struct { u32 pid; u64 used; } process_t;
#else
typedef struct { u32 pid; u64 used; u32 instance, compute_instance; } process_t;
#endif
#endif

static bool initialised;

static int entered(const char *function, struct state *state) {
    int code = begin(LIBRARY, function, state);
    if (code < 0) return initialised ? UNINITIALIZED : NOT_LOADED;
    return code ? code : initialised ? 0 : UNINITIALIZED;
}

#define DEVICE(name, handle)               \
    ENTER(name);                           \
    const struct device *device = find(&state, (int)(long)(handle)-1); \
    if (!device) return INVALID

static int init(void) {
    struct state state;
    int code = begin(LIBRARY, "Init", &state);
    if (code < 0) return NOT_LOADED;
    initialised = code == 0;
    return code;
}

#if defined(HGML)
EXPORT int F(InitWithFlags)(u32 flags) { (void)flags; return init(); }
#elif defined(MXSML) || defined(XPUML)
EXPORT int F(Init)(void) { return init(); }
#else
EXPORT int F(Init_v2)(void) { return init(); }
#endif

EXPORT int F(Shutdown)(void) { initialised = false; return 0; }

EXPORT int F(SystemGetDriverVersion)(char *version, u32 length) {
    ENTER("SystemGetDriverVersion");
    return put(version, "4.1.3", length, TOO_SMALL);
}

#if defined(MXSML) || defined(XPUML)
EXPORT int F(DeviceGetCount)(u32 *count) {
#else
EXPORT int F(DeviceGetCount_v2)(u32 *count) {
#endif
    ENTER("DeviceGetCount");
    *count = (u32)state.devices;
    return 0;
}

#if defined(MXSML)
EXPORT int F(GetDeviceHandleByIndex)(u32 index, void **handle) {
#elif defined(XPUML)
EXPORT int F(DeviceGetHandleByIndex)(u32 index, void **handle) {
#else
EXPORT int F(DeviceGetHandleByIndex_v2)(u32 index, void **handle) {
#endif
    ENTER("DeviceGetHandleByIndex");
    if (!find(&state, (int)index)) return INVALID;
    *handle = (void *)(long)(index + 1);
    return 0;
}

#if defined(XPUML)
EXPORT int F(DeviceGetSerial)(void *handle, char *text, u32 length) {
    DEVICE("DeviceGetSerial", handle);
    return put(text, device->uuid, length, TOO_SMALL);
}
#elif !defined(EFML)
EXPORT int F(DeviceGetUUID)(void *handle, char *text, u32 length) {
    DEVICE("DeviceGetUUID", handle);
    return put(text, device->uuid, length, TOO_SMALL);
}
#endif

#if !defined(XPUML)
EXPORT int F(DeviceGetName)(void *handle, char *text, u32 length) {
    DEVICE("DeviceGetName", handle);
    return put(text, device->model, length, TOO_SMALL);
}
#endif

#if !defined(XPUML) && !defined(EFML)
EXPORT int F(DeviceGetMinorNumber)(void *handle, u32 *minor) {
    DEVICE("DeviceGetMinorNumber", handle);
    *minor = (u32)device->minor;
    return 0;
}
#endif

#if defined(MXSML) || defined(XPUML)
EXPORT int F(DeviceGetPciInfo)(void *handle, pci_t *pci) {
#else
EXPORT int F(DeviceGetPciInfo_v3)(void *handle, pci_t *pci) {
#endif
    DEVICE("DeviceGetPciInfo", handle);
    memset(pci, 0, sizeof *pci);
    return put(pci->bus_id, device->pci, sizeof pci->bus_id, TOO_SMALL);
}

EXPORT int F(DeviceGetMemoryInfo)(void *handle, memory_t *memory) {
    DEVICE("DeviceGetMemoryInfo", handle);
    memory->total = device->total;
    memory->free = device->free;
    memory->used = device->total - device->free;
#if defined(XPUML)
    memory->used = device->used;
    memory->page = 4096;
    memory->l3_page = 4096;
    memory->l3_total = 64 << 20;
    memory->l3_free = ~0ull;  // nonsense, as in the vendor's own sample
    memory->l3_used = 0;
#endif
    return 0;
}

#if !defined(MXSML) && !defined(XPUML)
EXPORT int F(DeviceGetMemoryInfo_v2)(void *handle, memory_v2_t *memory) {
    DEVICE("DeviceGetMemoryInfo_v2", handle);
    if (memory->version != (u32)knob(LIBRARY, "memory_version", 0x02000028)) return OTHER_VERSION;
    memory->total = device->total;
    memory->free = device->free;
    memory->used = device->used;
    memory->reserved = device->reserved;
    if (knob(LIBRARY, "swapped", 0)) {  // a release that has the fields in another order
        memory->free = device->reserved;
        memory->used = device->free;
        memory->reserved = device->used;
    }
    return 0;
}
#endif

#if defined(MXSML)
EXPORT int F(DeviceGetUtilization)(void *handle, u32 *rates) {
#else
EXPORT int F(DeviceGetUtilizationRates)(void *handle, u32 *rates) {
#endif
    DEVICE("DeviceGetUtilizationRates", handle);
    rates[0] = device->busy;
    rates[1] = device->memory_busy;
    return 0;
}

#if defined(MXSML)
EXPORT int F(GetPowerUsage)(void *handle, u32 *power) {
#else
EXPORT int F(DeviceGetPowerUsage)(void *handle, u32 *power) {
#endif
    DEVICE("DeviceGetPowerUsage", handle);
    *power = (u32)knob(LIBRARY, "power", 71000);
    return 0;
}

EXPORT int F(DeviceGetTemperature)(void *handle, u32 sensor, u32 *degrees) {
    DEVICE("DeviceGetTemperature", handle);
    (void)sensor;
    *degrees = (u32)knob(LIBRARY, "temperature", 36);
    return 0;
}

#if !defined(WITHOUT_PROCESSES)
static int list(const char *function, void *handle, u32 *count, char *entries) {
    DEVICE(function, handle);
    size_t size = (size_t)knob(LIBRARY, "entry", sizeof(process_t));
    long lie = knob(LIBRARY, "count", -1);
    u32 room = *count, here = 0;
    for (int at = 0; at < state.processes; at++) here += state.process[at].device == device->index;
    *count = lie < 0 ? here : (u32)lie;
    if (here > room) return TOO_SMALL;
    char *entry = entries;
    for (int at = 0; at < state.processes; at++) {
        const struct process *process = &state.process[at];
        if (process->device != device->index) continue;
        process_t written = {.pid = process->pid, .used = process->bytes};
#if defined(XPUML)
        written.root_ns_pid = process->host_pid;
#elif !defined(IXML) || defined(IXML_V3)
        written.instance = written.compute_instance = 0xFFFFFFFF;
#endif
        memset(entry, 0, size);
        memcpy(entry, &written, size < sizeof written ? size : sizeof written);
        entry += size;
    }
    return 0;
}

#if defined(EFML) || defined(HGML) || defined(IXML_V3)
EXPORT int F(DeviceGetComputeRunningProcesses_v3)(void *handle, u32 *count, char *entries) {
    return list("DeviceGetComputeRunningProcesses_v3", handle, count, entries);
}
#endif
#if !defined(EFML) && !defined(HGML)
EXPORT int F(DeviceGetComputeRunningProcesses)(void *handle, u32 *count, char *entries) {
    return list("DeviceGetComputeRunningProcesses", handle, count, entries);
}
#endif
#endif

#if defined(MXSML)
// The library's own half, older than the extension: a process is listed once, with a place for each GPU that it is on.
typedef struct { char bdf[32]; u32 id; unsigned long used; } process_gpu_t;
typedef struct { u32 pid; char name[64]; u32 gpus; process_gpu_t gpu[64]; } own_process_t;

EXPORT int mxSmlInit(void) { return 0; }

EXPORT int mxSmlGetSingleGpuProcess(u32 index, u32 *count, own_process_t *entries) {
    struct state state;
    int code = entered("mxSmlGetSingleGpuProcess", &state);
    u32 room = *count;
    *count = 0;
    for (int at = 0; !code && at < state.processes; at++) {
        if (state.process[at].device != (int)index) continue;
        if (*count == room) return 10;
        own_process_t *entry = &entries[(*count)++];
        memset(entry, 0, sizeof *entry);
        entry->pid = state.process[at].pid;
        for (int each = 0; each < state.processes; each++) {
            const struct device *device = find(&state, state.process[each].device);
            if (state.process[each].pid != entry->pid || !device) continue;
            process_gpu_t *gpu = &entry->gpu[entry->gpus++];
            gpu->id = (u32)device->index;
            gpu->used = state.process[each].bytes;
            put(gpu->bdf, device->pci, sizeof gpu->bdf, 1);
        }
    }
    return code;
}
#endif

#if defined(WITH_UUID)
// Enflame's older half, which has other codes, and may count the devices in another order (knob `reversed`).
typedef struct { char name[128]; u32 vendor, device_id, domain, bus, device, function, logic; } info_t;

static const struct device *older(const struct state *state, u32 index) {
    return find(state, knob(LIBRARY, "reversed", 0) ? state->devices - 1 - (int)index : (int)index);
}

EXPORT int EfmlInit(bool without_driver) { return without_driver ? 8 : 0; }

EXPORT int EfmlGetDevInfo(u32 index, info_t *info) {
    struct state state;
    int code = begin(LIBRARY, "EfmlGetDevInfo", &state);
    const struct device *device = older(&state, index);
    if (code || !device) return code ? 254 : 12;
    memset(info, 0, sizeof *info);
    return sscanf(device->pci, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &info->function) == 4 ? 0 : 254;
}

EXPORT int EfmlGetDevUuid(u32 index, char *text) {
    struct state state;
    int code = begin(LIBRARY, "EfmlGetDevUuid", &state);
    const struct device *device = older(&state, index);
    return code || !device ? 254 : put(text, device->uuid, TEXT, 254);
}
#endif
