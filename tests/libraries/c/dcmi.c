// Huawei's DCMI, in the layouts of its header (LP64). A card may be missing from the list; devices are (card, device).
#include <stdio.h>
#include <string.h>

#include "state.h"

typedef unsigned int u32;
typedef unsigned long long u64;

enum { NO_SUCH = -8008, NOT_SUPPORTED = -8255, NOT_READY = -8012, MOST = 32, NPU = 0, MIB = 1 << 20 };

struct proc_mem_info { int pid; unsigned long used; };
struct hbm_info { u64 size; u32 frequency; u64 used; int temperature; u32 bandwidth; };
struct memory_info {
    u64 size, available;
    u32 frequency;
    unsigned long page, pages, free_pages;
    u32 utilization;
    unsigned char reserved[60];
};
struct die { u32 part[5]; };
struct chip { char type[32], name[32], version[32]; u32 cores; };
struct pcie { u32 vendor, subvendor, device_id, subdevice; int domain; u32 bus, device, function; char reserved[32]; };
struct base { u64 token, token_max, timeout; u32 group; unsigned char vip, reserved[31]; };
struct computing {
    float aic, aiv;
    unsigned short some[8];
    u64 memory_size;
    u32 ids[4];
    unsigned short cpus[5];
    u32 utilization;
    u64 memory_total, memory_free;
    unsigned char reserved[12];
};
struct media { float some[6]; unsigned char reserved[32]; };
struct vdev {
    u32 id;
    struct {
        char name[16];
        u32 status, container_used, vfid, group;
        u64 container;
        struct base base;
        struct computing computing;
        struct media media;
    } info;
};
struct vdevs {
    u32 count, ids[32], groups, bitmap;
    struct base base;
    struct computing computing;
    struct media media;
};

static int entered(const char *function, struct state *state) {
    int code = begin("dcmi", function, state);
    return code == -1 ? NOT_READY : code;
}

static const struct device *at(const struct state *state, int card, int in_card) {
    for (int each = 0; each < state->devices; each++)
        if (state->device[each].card == card && state->device[each].in_card == in_card) return &state->device[each];
    return NULL;
}

#define DEVICE(name)                                       \
    ENTER(name);                                           \
    const struct device *device = at(&state, card, in_card); \
    if (!device) return NO_SUCH

EXPORT int dcmi_init(void) {
    ENTER("dcmi_init");
    return 0;
}

EXPORT int dcmi_get_driver_version(char *text, u32 length) {
    ENTER("dcmi_get_driver_version");
    return put(text, "25.5.1", length, NOT_SUPPORTED);
}

EXPORT int dcmi_get_card_list(int *count, int *cards, int room) {
    ENTER("dcmi_get_card_list");
    *count = 0;
    for (int each = 0; each < state.devices && *count < room; each++)
        if (state.device[each].in_card == 0) cards[(*count)++] = state.device[each].card;
    return 0;
}

EXPORT int dcmi_get_device_num_in_card(int card, int *count) {
    ENTER("dcmi_get_device_num_in_card");
    *count = 0;
    for (int each = 0; each < state.devices; each++) *count += state.device[each].card == card;
    *count += (int)knob("dcmi", "mcus", 0);
    return 0;
}

EXPORT int dcmi_get_device_type(int card, int in_card, int *type) {
    ENTER("dcmi_get_device_type");
    *type = at(&state, card, in_card) ? NPU : 1;
    return 0;
}

EXPORT int dcmi_get_device_logic_id(int *id, int card, int in_card) {
    DEVICE("dcmi_get_device_logic_id");
    *id = device->index;
    return 0;
}

EXPORT int dcmi_get_device_phyid_from_logicid(u32 logic, u32 *physical) {
    ENTER("dcmi_get_device_phyid_from_logicid");
    const struct device *device = find(&state, (int)logic);
    if (!device) return NO_SUCH;
    *physical = (u32)device->minor;
    return 0;
}

EXPORT int dcmi_get_device_die_v2(int card, int in_card, int kind, struct die *die) {
    DEVICE("dcmi_get_device_die_v2");
    if (kind != 1) return NOT_SUPPORTED;
    u32 *part = die->part;
    return sscanf(device->uuid, "%8x-%8x-%8x-%8x-%8x", part, part + 1, part + 2, part + 3, part + 4) == 5 ? 0 : NO_SUCH;
}

EXPORT int dcmi_get_device_chip_info(int card, int in_card, struct chip *chip) {
    DEVICE("dcmi_get_device_chip_info");
    memset(chip, 0, sizeof *chip);
    chip->cores = 24;
    return put(chip->name, device->model, sizeof chip->name, NOT_SUPPORTED);
}

EXPORT int dcmi_get_device_pcie_info_v2(int card, int in_card, struct pcie *pcie) {
    DEVICE("dcmi_get_device_pcie_info_v2");
    memset(pcie, 0, sizeof *pcie);
    return sscanf(device->pci, "%x:%x:%x.%x", (u32 *)&pcie->domain, &pcie->bus, &pcie->device, &pcie->function) == 4
               ? 0
               : NOT_SUPPORTED;
}

EXPORT int dcmi_get_device_hbm_info(int card, int in_card, struct hbm_info *hbm) {
    DEVICE("dcmi_get_device_hbm_info");
    *hbm = (struct hbm_info){.size = device->total / MIB, .frequency = 1600, .used = device->used / MIB};
    return 0;
}

EXPORT int dcmi_get_device_memory_info_v3(int card, int in_card, struct memory_info *memory) {
    DEVICE("dcmi_get_device_memory_info_v3");
    memset(memory, 0, sizeof *memory);
    memory->size = device->total / MIB;
    memory->available = device->free / MIB;
    return 0;
}

// The real one takes no bound: it writes all its entries, whatever the count said before.
EXPORT int dcmi_get_device_resource_info(int card, int in_card, struct proc_mem_info *entries, int *count) {
    DEVICE("dcmi_get_device_resource_info");
    memset(entries, 0, MOST * sizeof *entries);
    *count = 0;
    for (int each = 0; each < state.processes && *count < MOST; each++) {
        const struct process *process = &state.process[each];
        if (process->device != device->index) continue;
        entries[*count].pid = (int)process->pid;
        entries[(*count)++].used = process->bytes;
    }
    return 0;
}

EXPORT int dcmi_get_device_utilization_rate(int card, int in_card, int kind, u32 *percent) {
    DEVICE("dcmi_get_device_utilization_rate");
    if (kind != 2) return NOT_SUPPORTED;
    *percent = device->busy;
    return 0;
}

EXPORT int dcmi_get_device_power_info(int card, int in_card, int *power) {
    DEVICE("dcmi_get_device_power_info");
    *power = 1013;
    return 0;
}

EXPORT int dcmi_get_device_temperature(int card, int in_card, int *degrees) {
    DEVICE("dcmi_get_device_temperature");
    *degrees = 47;
    return 0;
}

EXPORT int dcmi_get_device_info(int card, int in_card, int command, u32 sub, void *buffer, u32 *size) {
    DEVICE("dcmi_get_device_info");
    if (command != 52) return NOT_SUPPORTED;
    if (sub == 1) {
        struct vdevs *all = buffer;
        if (*size < sizeof *all) return NOT_SUPPORTED;
        memset(all, 0, sizeof *all);
        for (int each = 0; each < state.parts; each++)
            if (state.part[each].device == device->index) all->ids[all->count++] = state.part[each].id;
        return 0;
    }
    struct vdev *one = buffer;
    if (sub != 0 || *size < sizeof *one) return NOT_SUPPORTED;
    u32 wanted = one->id;
    memset(one, 0, sizeof *one);
    for (int each = 0; each < state.parts; each++) {
        const struct part *part = &state.part[each];
        if (part->device != device->index || part->id != wanted) continue;
        one->id = wanted;
        one->info.computing.memory_total = part->total / MIB;
        one->info.computing.memory_free = part->free / MIB;
        return put(one->info.name, part->name, sizeof one->info.name, NOT_SUPPORTED);
    }
    return NO_SUCH;
}
