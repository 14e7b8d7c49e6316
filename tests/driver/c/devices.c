/* Which devices there are, who they are, and their memory. */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <string.h>

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN_NODE();
    *count = (unsigned)node->gpu_count;
    miscounts(__func__, NULL, NULL, count, &(bool){false});
    return NVML_SUCCESS;
}

/* What a switch says about this one GPU comes after what it says about the function. */
static nvmlReturn_t answer(const char *function, const struct gpu *gpu, const struct compute_instance *ci,
                           nvmlDevice_t *handle) {
    nvmlReturn_t fault = faults(function, gpu->uuid, ci ? ci->uuid : NULL);
    REQUIRE(fault == NVML_SUCCESS, fault);
    *handle = handle_of(gpu->uuid, ci ? (int)ci->slot : -1);
    return NVML_SUCCESS;
}

static nvmlReturn_t begin_lookup(const char *function, const struct node **node) {
    count_call(function);
    REQUIRE(initialized(), NVML_ERROR_UNINITIALIZED);
    *node = node_open();
    return *node ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

#define BEGIN_LOOKUP()                                                                                                 \
    __attribute__((cleanup(node_done))) const struct node *node = NULL;                                                \
    nvmlReturn_t begun = begin_lookup(__func__, &node);                                                                \
    if (begun != NVML_SUCCESS)                                                                                         \
        return begun

/* Nothing to ask the switches about but the function itself. */
static nvmlReturn_t missing(const char *function, nvmlReturn_t otherwise) {
    nvmlReturn_t fault = faults(function, NULL, NULL);
    return fault == NVML_SUCCESS ? otherwise : fault;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle) {
    BEGIN_LOOKUP();
    if (index >= node->gpu_count)
        return missing(__func__, NVML_ERROR_INVALID_ARGUMENT);
    return answer(__func__, &node->gpus[index], NULL, handle);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    BEGIN_LOOKUP();
    REQUIRE(uuid, NVML_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct gpu *gpu = &node->gpus[i];
        if (strcmp(gpu->uuid, uuid) == 0)
            return answer(__func__, gpu, NULL, handle);
        for (size_t j = 0; gpu->mig == MIG_ON && j < gpu->compute_count; j++) {
            char before_r470[2 * NAME_SIZE];
            const struct compute_instance *ci = &gpu->computes[j];
            snprintf(before_r470, sizeof before_r470, "MIG-%s/%u/%u", gpu->uuid, ci->gi, ci->id);
            if (strcmp(ci->uuid, uuid) == 0 || strcmp(before_r470, uuid) == 0)
                return answer(__func__, gpu, ci, handle);
        }
    }
    return missing(__func__, NVML_ERROR_NOT_FOUND);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *handle) {
    BEGIN_LOOKUP();
    REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
    for (size_t i = 0; i < node->gpu_count; i++) /* the domain may be left out or have four digits */
        if (strlen(pci) >= 7 && strlen(node->gpus[i].pci) >= strlen(pci) &&
            strcasecmp(node->gpus[i].pci + strlen(node->gpus[i].pci) - strlen(pci), pci) == 0)
            return answer(__func__, &node->gpus[i], NULL, handle);
    return missing(__func__, NVML_ERROR_NOT_FOUND);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned length) {
    BEGIN(handle);
    const char *text = device.ci ? device.ci->uuid : device.gpu->uuid;
    REQUIRE(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(uuid, text);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned length) {
    BEGIN(handle);
    const struct gpu_instance *gi = device.ci ? gpu_instance(device.gpu, device.ci->gi) : NULL;
    int needed = gi ? snprintf(name, length, "%s MIG %s", device.gpu->name, gi->profile)
                    : snprintf(name, length, "%s", device.gpu->name);
    return (unsigned)needed < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index) {
    BEGIN(handle);
    *index = device.ci ? device.ci->slot : (unsigned)(device.gpu - device.node->gpus);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned *minor) {
    BEGIN(handle);
    REQUIRE(device.gpu->minor.known, NVML_ERROR_NOT_SUPPORTED);
    *minor = (unsigned)device.gpu->minor.value;
    return NVML_SUCCESS;
}

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, struct pci_info *pci) {
    BEGIN(handle);
    *pci = (struct pci_info){.device_id = 0x20B010DE, .subsystem_id = 0x134F10DE};
    text_copy(pci->bus_id, sizeof pci->bus_id, device.gpu->pci);
    sscanf(device.gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    char legacy[64];
    snprintf(legacy, sizeof legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    text_copy(pci->legacy, sizeof pci->legacy, legacy);
    return NVML_SUCCESS;
}

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static nvmlReturn_t memory(const struct device *device, struct memory_v2 *memory) {
    const struct gpu *gpu = device->gpu;
    const struct gpu_instance *gi = device->ci ? gpu_instance(gpu, device->ci->gi) : NULL;
    REQUIRE(gi || gpu->total.known, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(mig_shown(device), NVML_ERROR_NO_PERMISSION);
    struct allocations allocations = allocations_read(false);
    memory->total = gi ? gi->memory : gpu->total.value;
    memory->reserved = gi ? gi->reserved : gpu->reserved.value;
    memory->used = pool_used(gpu, gi, &allocations);
    allocations_free(&allocations);
    uint64_t taken = memory->used + memory->reserved;
    memory->free = taken < memory->total ? memory->total - taken : 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, struct memory *target) {
    BEGIN(handle);
    struct memory_v2 now;
    nvmlReturn_t result = memory(&device, &now);
    if (result == NVML_SUCCESS)
        *target = (struct memory){now.total, now.free, now.used + now.reserved};
    return result;
}

#if VARIANT >= OLD
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, struct memory_v2 *target) {
    BEGIN(handle);
    REQUIRE(target->version == (sizeof *target | 2u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    nvmlReturn_t result = memory(&device, target);
    if (result == NVML_SUCCESS && device_switched("reserved_in_used", &device, NULL, 0))
        target->used += target->reserved;
    return result;
}
#endif
