// What a fake library is told: a file of tab-separated lines, read anew at each call. README.md describes it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST_DEVICES = 16, MOST_PROCESSES = 1024, MOST_PARTS = 16, TEXT = 96 };

struct device {
    int index, minor, card, in_card;
    char uuid[TEXT], model[TEXT], pci[TEXT], node[TEXT];
    uint64_t total, free, used, reserved;
    uint32_t busy, memory_busy;
};

struct process {
    int device;
    uint32_t pid, host_pid, busy;
    uint64_t bytes;
};

struct part {
    int device;
    uint32_t id;
    char name[TEXT];
    uint64_t total, free;
};

struct state {
    int devices, processes, parts;
    struct device device[MOST_DEVICES];
    struct process process[MOST_PROCESSES];
    struct part part[MOST_PARTS];
};

// Begin a call: block while the test says so, read the state. Gives the code that the call shall answer, 0 for success.
int begin(const char *library, const char *function, struct state *state);

// Begin a call in a library whose own `entered` gives the code.
#define ENTER(name)                   \
    struct state state;               \
    int code = entered(name, &state); \
    if (code) return code

// A number that the test set for this library, or `otherwise`.
long knob(const char *library, const char *name, long otherwise);

const struct device *find(const struct state *state, int index);

// Copy a text into a buffer of `length`, as the libraries do: no more than the text and its end.
int put(char *to, const char *text, unsigned length, int too_small);
