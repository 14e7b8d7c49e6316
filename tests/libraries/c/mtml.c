// Moore Threads' MTML 2.2: opaque objects, and no call for the memory of a process. An object is of the device that had
// the index when it was made, whatever has that index now; of a device that is gone it answers nothing.
#include <stdlib.h>
#include <string.h>

#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;

enum { NOT_LOADED = 1, INVALID = 3, NOT_SUPPORTED = 4, TOO_SMALL = 6 };

struct pci { char sbdf[32]; u32 segment, bus, device, id, subsystem, width; float speed[2]; u32 rest[4]; int reserved[6]; };

static int entered(const char *function, struct state *state) {
    int code = begin("mtml", function, state);
    return code < 0 ? NOT_LOADED : code;
}

struct object {
    char uuid[TEXT];
};

static const struct device *of(const struct state *state, const struct object *object) {
    for (int i = 0; object && i < state->devices; i++)
        if (strcmp(state->device[i].uuid, object->uuid) == 0) return &state->device[i];
    return NULL;
}

#define DEVICE(name, handle)                         \
    ENTER(name);                                     \
    const struct device *device = of(&state, handle); \
    if (!device) return INVALID

EXPORT int mtmlLibraryInit(void **library) {
    ENTER("mtmlLibraryInit");
    *library = (void *)0x1000;
    return 0;
}

EXPORT int mtmlLibraryShutDown(void *library) { return library ? 0 : INVALID; }

EXPORT int mtmlLibraryInitSystem(const void *library, void **system) {
    ENTER("mtmlLibraryInitSystem");
    *system = (void *)0x2000;
    return library ? 0 : INVALID;
}

EXPORT int mtmlLibraryFreeSystem(void *system) { return system ? 0 : INVALID; }

EXPORT int mtmlSystemGetDriverVersion(const void *system, char *text, u32 length) {
    ENTER("mtmlSystemGetDriverVersion");
    return system ? put(text, "3.3.2", length, TOO_SMALL) : INVALID;
}

EXPORT int mtmlLibraryCountDevice(const void *library, u32 *count) {
    ENTER("mtmlLibraryCountDevice");
    *count = (u32)state.devices;
    return library ? 0 : INVALID;
}

EXPORT int mtmlLibraryInitDeviceByIndex(const void *library, u32 index, void **opened) {
    ENTER("mtmlLibraryInitDeviceByIndex");
    const struct device *device = find(&state, (int)index);
    if (!library || !device) return INVALID;
    struct object *made = calloc(1, sizeof *made);  // never freed: nobody frees what a device took along
    memcpy(made->uuid, device->uuid, sizeof made->uuid);
    *opened = made;
    return 0;
}

EXPORT int mtmlDeviceInitMemory(void *handle, void **memory) {
    DEVICE("mtmlDeviceInitMemory", handle);
    *memory = handle;
    return 0;
}

EXPORT int mtmlDeviceInitGpu(void *handle, void **gpu) {
    DEVICE("mtmlDeviceInitGpu", handle);
    *gpu = handle;
    return 0;
}

EXPORT int mtmlDeviceGetUUID(const void *handle, char *text, u32 length) {
    DEVICE("mtmlDeviceGetUUID", handle);
    return put(text, device->uuid, length, TOO_SMALL);
}

EXPORT int mtmlDeviceGetName(const void *handle, char *text, u32 length) {
    DEVICE("mtmlDeviceGetName", handle);
    return put(text, device->model, length, TOO_SMALL);
}

EXPORT int mtmlDeviceGetPciInfo(const void *handle, struct pci *pci) {
    DEVICE("mtmlDeviceGetPciInfo", handle);
    memset(pci, 0, sizeof *pci);
    return put(pci->sbdf, device->pci, sizeof pci->sbdf, TOO_SMALL);
}

EXPORT int mtmlDeviceGetRenderPath(const void *handle, char *text, u32 length) {
    DEVICE("mtmlDeviceGetRenderPath", handle);
    return *device->node ? put(text, device->node, length, TOO_SMALL) : NOT_SUPPORTED;
}

EXPORT int mtmlDeviceGetPowerUsage(const void *handle, u32 *power) {
    DEVICE("mtmlDeviceGetPowerUsage", handle);
    *power = 250000;
    return 0;
}

EXPORT int mtmlGpuGetTemperature(const void *handle, int *degrees) {
    DEVICE("mtmlGpuGetTemperature", handle);
    *degrees = 51;
    return 0;
}

EXPORT int mtmlGpuGetUtilization(const void *handle, u32 *percent) {
    DEVICE("mtmlGpuGetUtilization", handle);
    *percent = device->busy;
    return 0;
}

EXPORT int mtmlMemoryGetTotal(const void *handle, u64 *bytes) {
    DEVICE("mtmlMemoryGetTotal", handle);
    *bytes = device->total;
    return 0;
}

EXPORT int mtmlMemoryGetUsed(const void *handle, u64 *bytes) {
    DEVICE("mtmlMemoryGetUsed", handle);
    *bytes = device->used;
    return 0;
}
