/* A process that uses GPUs, as a test tells it: commands from the command line, then from a FIFO; see README.md.
 *
 * It can be the PID 1 of a container of nothing but this binary. After each command it says, in one JSON file, what its whole tree
 * holds. This file is long because each command is a few lines and all of them work on the one state below.
 */
#define _GNU_SOURCE
#include "holdings.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS_MOST 256
#define EXIT_COMMAND 2
#define EXIT_OUT_OF_MEMORY 12
#define EXIT_TERM 143

struct member { /* a process below us: alive, and what it holds in whose name */
    int pid, owner;
    uint64_t bytes;
    char device[NAME_SIZE];
};

static struct state { /* all that an exec has to carry over */
    char name[64], token[32], error[128];
    unsigned seq;
    bool ready, exited, keep_going, keeps_zombies, leashed;
    struct holdings holdings;
    struct member members[MEMBERS_MOST];
    size_t member_count;
} self;

/* What we say ------------------------------------------------------------------------------------------------------- */

struct sum {
    char key[NAME_SIZE];
    uint64_t bytes;
};

static void sum_add(struct sum *sums, size_t *count, const char *key, uint64_t bytes) {
    size_t i = 0;
    while (i < *count && strcmp(sums[i].key, key) != 0)
        i++;
    if (i == *count) {
        text_copy(sums[(*count)++].key, NAME_SIZE, key);
        sums[i].bytes = 0;
    }
    sums[i].bytes += bytes;
}

static void print_sums(FILE *out, const char *title, const struct sum *sums, size_t count) {
    fprintf(out, ", \"%s\": {", title);
    for (size_t i = 0; i < count; i++)
        fprintf(out, "%s\"%s\": %llu", i ? ", " : "", sums[i].key, (unsigned long long)sums[i].bytes);
    fprintf(out, "}");
}

static void say(void) {
    static struct sum devices[HOLDINGS_MOST + MEMBERS_MOST], owners[HOLDINGS_MOST + MEMBERS_MOST];
    size_t device_count = 0, owner_count = 0, length;
    char key[32], *text = NULL;
    FILE *out = open_memstream(&text, &length);
    fprintf(out, "{\"token\": \"%s\", \"seq\": %u, \"ready\": %s, \"exited\": %s, \"error\": \"%s\", \"pid\": %d",
            self.token, self.seq, self.ready ? "true" : "false", self.exited ? "true" : "false", self.error, getpid());
    fprintf(out, ", \"members\": [%d", getpid());
    for (size_t i = 0; i < self.member_count; i++) {
        const struct member *member = &self.members[i];
        fprintf(out, ", %d", member->pid);
        if (!*member->device)
            continue;
        snprintf(key, sizeof key, "%d", member->owner);
        sum_add(devices, &device_count, member->device, member->bytes);
        sum_add(owners, &owner_count, key, member->bytes);
    }
    fprintf(out, "], \"tids\": [");
    for (size_t i = 0; i < self.holdings.count; i++) {
        const struct holding *holding = &self.holdings.all[i];
        fprintf(out, "%s%d", i ? ", " : "", holding->tid);
        snprintf(key, sizeof key, "%d", holding->owner);
        sum_add(devices, &device_count, holding->device, holding->bytes);
        sum_add(owners, &owner_count, key, holding->bytes);
    }
    fprintf(out, "]");
    print_sums(out, "held", devices, device_count);
    print_sums(out, "processes", owners, owner_count);
    fprintf(out, "}\n");
    fclose(out);
    text_replace(state_path("says/%s", self.name), text);
    if (write(STDOUT_FILENO, text, length) < 0)
        errno = 0; /* nobody listens there; the file is what counts */
    free(text);
}

static const char *complain(const char *format, ...) {
    static char text[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '\'';
    return text;
}

/* Processes below us ------------------------------------------------------------------------------------------------ */

static void on_term(int number) {
    (void)number;
    _exit(EXIT_TERM);
}

static void on_child(int number) { (void)number; }

static void idle_for_ever(void) {
    for (;;)
        pause();
}

static struct member *add_member(int pid) {
    if (self.member_count == MEMBERS_MOST)
        return NULL;
    self.members[self.member_count] = (struct member){.pid = pid};
    return &self.members[self.member_count++];
}

/* Reap whom we are to reap: not a dead owner that is to stay a zombie, which is no member. */
static bool reap(void) {
    bool changed = false;
    for (size_t i = 0; i < self.member_count;) {
        if (waitpid(self.members[i].pid, NULL, WNOHANG) == self.members[i].pid) {
            self.members[i] = self.members[--self.member_count];
            changed = true;
        } else {
            i++;
        }
    }
    while (getpid() == 1 && !self.keeps_zombies && waitpid(-1, NULL, WNOHANG) > 0) /* strangers: PID 1 inherits them */
        changed = true;
    return changed;
}

/* What a child reports through a pipe once it has its memory. */
struct report {
    int pid, owner;
    uint64_t bytes;
    char device[NAME_SIZE], problem[64];
};

static struct report take_as_child(const char *device, uint64_t bytes) {
    holdings_forget(&self.holdings);
    self.member_count = 0;
    const char *problem = holdings_take(&self.holdings, self.name, device, bytes, "compute", (struct load){0});
    struct report report = {.pid = getpid(), .owner = getpid(), .bytes = bytes};
    if (problem)
        text_copy(report.problem, sizeof report.problem, problem);
    else
        text_copy(report.device, sizeof report.device, self.holdings.all[0].device);
    return report;
}

static void child_life(const int *channel, const char *device, uint64_t bytes, bool ghost) {
    struct report report = take_as_child(device, bytes);
    int keeper = ghost && !*report.problem ? fork() : 0;
    if (keeper > 0)
        _exit(0); /* the owner dies; its child goes on holding the descriptor, and reports for it */
    report.pid = getpid();
    if (write(channel[1], &report, sizeof report) != sizeof report || *report.problem)
        _exit(1);
    close(channel[0]);
    close(channel[1]);
    idle_for_ever();
}

static const char *start_child(const char *device, uint64_t bytes, bool ghost, bool reaped) {
    int channel[2];
    struct report report;
    if (self.member_count == MEMBERS_MOST || pipe(channel) != 0)
        return "too many children";
    pid_t child = fork();
    if (child == 0)
        child_life(channel, device, bytes, ghost);
    close(channel[1]);
    ssize_t got;
    while ((got = read(channel[0], &report, sizeof report)) < 0 && errno == EINTR)
        ;
    close(channel[0]);
    bool failed = got != sizeof report || *report.problem;
    self.keeps_zombies |= !failed && ghost && !reaped;
    if (failed || (ghost && reaped))
        waitpid(child, NULL, 0);
    else if (ghost) /* wait until it is a zombie, and leave it one */
        waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT);
    if (failed)
        return got == sizeof report ? complain("%s", report.problem) : "the child died";
    struct member *member = add_member(report.pid);
    member->owner = report.owner;
    member->bytes = report.bytes;
    text_copy(member->device, sizeof member->device, report.device);
    return NULL;
}

/* Commands: words in, NULL or what went wrong out ---------------------------------------------------------------------- */

static const char *command_alloc(char *words) {
    char device[NAME_SIZE], size[32], kinds[64] = "compute";
    uint64_t bytes;
    if (sscanf(words, "%95s %31s %63s", device, size, kinds) < 2 || !text_size(size, &bytes))
        return "usage: alloc DEVICE SIZE [KIND+KIND] [sm=N ...]";
    if (strchr(kinds, '='))
        strcpy(kinds, "compute");
    if (!kinds_parse(kinds))
        return "kinds: compute, graphics, mps";
    return holdings_take(&self.holdings, self.name, device, bytes, kinds, load_parse(words, (struct load){0}));
}

static const char *command_free(char *words) { return holdings_free(&self.holdings, words); }

static const char *command_set(char *words) {
    holdings_load(&self.holdings, words);
    return NULL;
}

static const char *command_fork(char *words) {
    bool leave = strcmp(words, "exit") == 0;
    if (!leave && strcmp(words, "stay") != 0)
        return "usage: fork stay|exit";
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return "cannot fork";
    if (child > 0 && leave)
        _exit(0);
    if (child > 0) {
        add_member(child);
        return NULL;
    }
    if (!leave)
        idle_for_ever();
    self.member_count = 0; /* they are init's children now */
    while (getppid() == parent)
        usleep(1000);
    return NULL;
}

struct thread_work {
    char *words;
    const char *problem;
    int done[2];
};

static void *thread_life(void *argument) {
    struct thread_work *work = argument;
    work->problem = command_alloc(work->words);
    if (write(work->done[1], "", 1) == 1)
        idle_for_ever();
    return NULL;
}

static const char *command_thread(char *words) {
    struct thread_work work = {.words = words};
    pthread_t thread;
    char byte;
    if (pipe2(work.done, O_CLOEXEC) != 0 || pthread_create(&thread, NULL, thread_life, &work) != 0)
        return "cannot make a thread";
    while (read(work.done[0], &byte, 1) < 0 && errno == EINTR)
        ;
    close(work.done[0]);
    close(work.done[1]);
    return work.problem;
}

static const char *command_children(char *words) {
    unsigned count;
    char device[NAME_SIZE], size[32];
    uint64_t bytes;
    if (sscanf(words, "%u %95s %31s", &count, device, size) != 3 || !text_size(size, &bytes))
        return "usage: children N DEVICE SIZE";
    const char *problem = NULL;
    for (unsigned i = 0; i < count && !problem; i++)
        problem = start_child(device, bytes, false, true);
    return problem;
}

static const char *command_ghost(char *words) {
    char device[NAME_SIZE], size[32], word[16] = "";
    uint64_t bytes;
    if (sscanf(words, "%95s %31s %15s", device, size, word) < 2 || !text_size(size, &bytes))
        return "usage: ghost DEVICE SIZE [unreaped]";
    return start_child(device, bytes, true, strcmp(word, "unreaped") != 0);
}

static const char *command_exec(char *words) {
    (void)words;
    char number[16];
    int memory = memfd_create("workload", 0);
    self.seq++; /* the command is done when the new image speaks */
    if (memory < 0 || write(memory, &self, sizeof self) != sizeof self)
        return "cannot carry the state over";
    snprintf(number, sizeof number, "%d", memory);
    setenv("WORKLOAD_RESUME", number, 1);
    execl("/proc/self/exe", "workload", (char *)NULL);
    self.seq--;
    return "cannot exec";
}

static const char *command_ignore_term(char *words) {
    (void)words;
    signal(SIGTERM, SIG_IGN);
    return NULL;
}

static const char *command_sleep(char *words) {
    usleep((useconds_t)atoi(words) * 1000);
    return NULL;
}

static const char *command_exit(char *words) {
    self.exited = true;
    self.seq++;
    say();
    exit(atoi(words));
}

static void serve(void);

static void *serve_in_thread(void *nothing) {
    self.seq++;
    /* The command is done when the first thread is a zombie. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", getpid());
    for (char *text = NULL; !text || !strstr(text, "State:\tZ"); text = text_read(path)) {
        free(text);
        usleep(1000);
    }
    say();
    serve();
    return nothing;
}

static const char *command_zombie(char *words) {
    (void)words;
    pthread_t thread;
    if (gettid() != getpid())
        return "the first thread has ended already";
    if (pthread_create(&thread, NULL, serve_in_thread, NULL) != 0)
        return "cannot make a thread";
    syscall(SYS_exit, 0); /* this thread only */
    return NULL;
}

static void run(char *line) {
    static const struct {
        const char *name;
        const char *(*does)(char *words);
    } commands[] = {
        {"alloc", command_alloc},       {"free", command_free},   {"set", command_set},     {"fork", command_fork},
        {"thread", command_thread},     {"ghost", command_ghost}, {"exec", command_exec},   {"zombie", command_zombie},
        {"children", command_children}, {"sleep", command_sleep}, {"exit", command_exit},   {"ignore-term", command_ignore_term},
    };
    char *rest = line;
    line = text_line(&rest);
    if (!line || !*line)
        return;
    char *words = line + strcspn(line, " ");
    if (*words)
        *words++ = 0;
    const char *problem = NULL;
    bool known = false;
    *self.error = 0;
    for (size_t i = 0; i < sizeof commands / sizeof *commands && !known; i++)
        if ((known = strcmp(line, commands[i].name) == 0))
            problem = commands[i].does(words + strspn(words, " "));
    if (!known)
        problem = complain("unknown command %s", line);
    if (problem)
        text_copy(self.error, sizeof self.error, problem);
    reap();
    self.seq++;
    if (problem && !self.ready && !self.keep_going) {
        say();
        fprintf(stderr, "%s: %s\n", line, problem);
        exit(strcmp(problem, OUT_OF_MEMORY) == 0 ? EXIT_OUT_OF_MEMORY : EXIT_COMMAND);
    }
    say();
}

/* Life ------------------------------------------------------------------------------------------------------------------ */

/* Commands from the FIFO until one ends us. SIGCHLD comes through only while we wait. */
static void serve(void) {
    sigset_t children, before;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &children, &before);
    sigdelset(&before, SIGCHLD);
    char path[1024];
    text_copy(path, sizeof path, state_path("control/%s", self.name));
    mkfifo(path, 0666);
    chmod(path, 0666);
    int fifo = open(path, O_RDWR | O_CLOEXEC); /* for writing too: it never ends */
    if (fifo < 0) {
        perror(path);
        exit(EXIT_COMMAND);
    }
    self.ready = true;
    say();
    char line[512];
    size_t length = 0;
    for (;;) {
        if (reap())
            say();
        struct pollfd wanted[] = {{.fd = fifo, .events = POLLIN}, {.fd = STDIN_FILENO}};
        if (ppoll(wanted, self.leashed ? 2 : 1, NULL, &before) <= 0)
            continue;
        if (self.leashed && wanted[1].revents & (POLLHUP | POLLERR))
            kill(0, SIGKILL); /* whoever started us has died without ending us: the whole process group goes */
        if (!(wanted[0].revents & POLLIN) || read(fifo, line + length, 1) != 1)
            continue; /* byte by byte: what follows belongs to the next image after an exec */
        if (line[length] == '\n' || length == sizeof line - 2) {
            line[length] = 0;
            length = 0;
            run(line);
        } else {
            length++;
        }
    }
}

static bool resume(void) {
    const char *number = getenv("WORKLOAD_RESUME");
    if (!number)
        return false;
    int memory = atoi(number);
    unsetenv("WORKLOAD_RESUME");
    bool whole = pread(memory, &self, sizeof self, 0) == sizeof self;
    close(memory);
    return whole;
}

static void introduce(void) {
    uint64_t token;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        exit(EXIT_COMMAND);
    snprintf(self.token, sizeof self.token, "%016llx", (unsigned long long)token);
    const char *name = getenv("WORKLOAD_NAME");
    text_copy(self.name, sizeof self.name, name && *name ? name : self.token);
}

int main(int count, char **words) {
    umask(0);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction term, child = {.sa_handler = on_child};
    sigaction(SIGCHLD, &child, NULL);
    sigaction(SIGTERM, NULL, &term);
    if (term.sa_handler != SIG_IGN) /* "ignore-term" lasts through an exec */
        signal(SIGTERM, on_term);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what keeps a ghost's memory is ours to reap */
    if (resume())
        serve();
    introduce();
    int first = 1;
    for (; first < count && strncmp(words[first], "--", 2) == 0; first++) {
        if (strcmp(words[first], "--keep-going") == 0)
            self.keep_going = true;
        else if (strcmp(words[first], "--leash") == 0)
            self.leashed = true;
        else if (strcmp(words[first], "--name") == 0 && first + 1 < count)
            text_copy(self.name, sizeof self.name, words[++first]);
    }
    const char *from_environment = getenv("WORKLOAD");
    char *list = from_environment ? strdup(from_environment) : NULL;
    for (char *line; list && (line = strsep(&list, ";"));)
        run(line);
    for (; first < count; first++)
        run(words[first]);
    serve();
}
