// Reads the state file; see state.h. A missing file means that the driver is not there.
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 512, PATH = 4096, FIELDS = 16, NO_DRIVER = -1 };

static void path_of(char to[PATH], const char *library, const char *hanging) {
    const char *folder = getenv("FAKE_LIBRARIES");
    int end = snprintf(to, PATH, "%s/%s", folder ? folder : ".", library);
    if (*hanging && end > 0 && end < PATH) snprintf(to + end, PATH - (size_t)end, ".hang.%s", hanging);
}

static FILE *opened(const char *library) {
    char path[PATH];
    path_of(path, library, "");
    return fopen(path, "r");
}

static int split(char *line, char *fields[FIELDS]) {
    int count = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *rest = line; rest && count < FIELDS;) fields[count++] = strsep(&rest, "\t");
    return count;
}

static uint64_t number(const char *text) { return strtoull(text, NULL, 0); }

static void text(char *to, const char *from) { snprintf(to, TEXT, "%s", from); }

static void add_device(struct state *state, char **field) {
    struct device *device = &state->device[state->devices++];
    device->index = (int)number(field[1]);
    device->minor = (int)number(field[2]);
    device->card = (int)number(field[3]);
    device->in_card = (int)number(field[4]);
    text(device->uuid, field[5]);
    text(device->model, field[6]);
    text(device->pci, field[7]);
    text(device->node, field[8]);
    device->total = number(field[9]);
    device->free = number(field[10]);
    device->used = number(field[11]);
    device->reserved = number(field[12]);
    device->busy = (uint32_t)number(field[13]);
    device->memory_busy = (uint32_t)number(field[14]);
}

static void add_process(struct state *state, char **field) {
    struct process *process = &state->process[state->processes++];
    process->device = (int)number(field[1]);
    process->pid = (uint32_t)number(field[2]);
    process->host_pid = (uint32_t)number(field[3]);
    process->bytes = number(field[4]);
    process->busy = (uint32_t)number(field[5]);
}

static void add_part(struct state *state, char **field) {
    struct part *part = &state->part[state->parts++];
    part->device = (int)number(field[1]);
    part->id = (uint32_t)number(field[2]);
    text(part->name, field[3]);
    part->total = number(field[4]);
    part->free = number(field[5]);
}

int begin(const char *library, const char *function, struct state *state) {
    char line[LINE], path[PATH];
    path_of(path, library, function);
    while (access(path, F_OK) == 0) usleep(1000);
    memset(state, 0, sizeof *state);
    int code = 0;
    FILE *file = opened(library);
    if (!file) return NO_DRIVER;
    while (fgets(line, sizeof line, file)) {
        char *field[FIELDS] = {0};
        int count = split(line, field);
        if (count == 15 && strcmp(field[0], "device") == 0 && state->devices < MOST_DEVICES) add_device(state, field);
        if (count == 6 && strcmp(field[0], "process") == 0 && state->processes < MOST_PROCESSES) add_process(state, field);
        if (count == 6 && strcmp(field[0], "part") == 0 && state->parts < MOST_PARTS) add_part(state, field);
        if (count == 3 && strcmp(field[0], "fail") == 0 && strcmp(field[1], function) == 0) code = atoi(field[2]);
    }
    fclose(file);
    return code;
}

long knob(const char *library, const char *name, long otherwise) {
    char line[LINE];
    long value = otherwise;
    FILE *file = opened(library);
    while (file && fgets(line, sizeof line, file)) {
        char *field[FIELDS] = {0};
        if (split(line, field) == 3 && strcmp(field[0], "set") == 0 && strcmp(field[1], name) == 0) value = atol(field[2]);
    }
    if (file) fclose(file);
    return value;
}

const struct device *find(const struct state *state, int index) {
    for (int at = 0; at < state->devices; at++)
        if (state->device[at].index == index) return &state->device[at];
    return NULL;
}

int put(char *to, const char *text, unsigned length, int too_small) {
    if (strlen(text) + 1 > length) return too_small;
    strcpy(to, text);
    return 0;
}
